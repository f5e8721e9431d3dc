"""What PostgreSQL must have for Pequod: columns, indexes, identities, a publication and a slot.

Every function is handed an open connection; what is wrong is an error that names the cure.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pequod.backing.mapping import (
    BYTES,
    DECIMAL,
    JSON,
    NUMBER,
    TEXT,
    THROUGH,
    TRUTH,
    Table,
)
from pequod.backing.sql import listed, quoted
from pequod.errors import BadRequest

_KINDS = {
    "int2": NUMBER,
    "int4": NUMBER,
    "int8": NUMBER,
    "bytea": BYTES,
    "bool": TRUTH,
    "float4": DECIMAL,
    "float8": DECIMAL,
    "numeric": DECIMAL,
    "json": JSON,
    "jsonb": JSON,
}
_KEY_TYPES = ("int2", "int4", "int8", "text", "varchar")

_COLUMNS = """
SELECT a.attname, t.typname, a.attrelid FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_INDEXES = """
SELECT i.indisunique, i.indisprimary, i.indisreplident,
    ARRAY(SELECT a.attname::text FROM unnest(i.indkey) WITH ORDINALITY AS k(number, place)
          JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
          WHERE k.place <= i.indnkeyatts ORDER BY k.place)
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = %s AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
    AND c.relam = (SELECT oid FROM pg_am WHERE amname = 'btree')
"""
_SLOT = """
SELECT active::text, coalesce(active_pid, 0)::text, confirmed_flush_lsn::text,
    coalesce(wal_status, ''),
    coalesce(pg_wal_lsn_diff(pg_current_wal_flush_lsn(), confirmed_flush_lsn), 0)::bigint::text,
    coalesce(pg_wal_lsn_diff(pg_current_wal_flush_lsn(), restart_lsn), 0)::bigint::text
FROM pg_replication_slots WHERE slot_name = %s
"""


async def bound(connection: Any, table: Table, *, checks: bool = True) -> Table:
    """The table with what its columns hold; raises if it cannot be served."""
    rows = await (await connection.execute(_COLUMNS, [quoted(table.name)])).fetchall()
    if not rows:
        raise BadRequest(f"the database has no table {table.name}; create it, or mend the mapping")
    types = {name: kind for name, kind, _ in rows}
    for column in table.columns:
        if column not in types:
            raise BadRequest(
                f"table {table.name} has no column {column}; it has {', '.join(types)}"
            )
    for column in table.key_columns:
        if types[column] not in _KEY_TYPES:
            raise BadRequest(
                f"column {column} of {table.name} is {types[column]}; keys are made of whole "
                "numbers and of text: add a column of such a type"
            )
    if checks:
        await _check_indexes(connection, table, rows[0][2])
    return replace(table, kinds={name: _KINDS.get(kind, TEXT) for name, kind in types.items()})


async def _check_indexes(connection: Any, table: Table, oid: int) -> None:
    indexes = await (await connection.execute(_INDEXES, [oid])).fetchall()
    columns, first = set(table.key_columns), table.key_columns[0]
    if not any(names[:1] == [first] for *_, names in indexes):
        raise BadRequest(
            f"no index of {table.name} serves {table.text}; create one: "
            f"CREATE INDEX ON {quoted(table.name)} ({listed(table.key_columns)})"
        )
    uniques = [set(names) for unique, *_, names in indexes if unique]
    if columns not in uniques and (
        table.mode == THROUGH or not any(one <= columns for one in uniques)
    ):
        raise BadRequest(
            f"two rows of {table.name} may have one key; create an index: "
            f"CREATE UNIQUE INDEX ON {quoted(table.name)} ({listed(table.key_columns)})"
        )
    cursor = await connection.execute("SELECT relreplident FROM pg_class WHERE oid = %s", [oid])
    (identity,) = await cursor.fetchone()
    identity = identity.decode() if isinstance(identity, bytes) else identity
    place = {"d": 1, "i": 2}.get(identity)
    names = next((set(one[3]) for one in indexes if place and one[place]), set())
    if identity != "f" and not columns <= names:
        raise BadRequest(
            f"deletes in {table.name} would not tell which key went: its replica identity lacks "
            f"{', '.join(sorted(columns - names))}; ALTER TABLE {quoted(table.name)} REPLICA "
            "IDENTITY FULL, or USING INDEX with an index that has them"
        )


async def check_publication(connection: Any, name: str, tables: Sequence[Table]) -> None:
    """Raise if the publication lacks a table."""
    cursor = await connection.execute(
        "SELECT to_regclass(quote_ident(schemaname) || '.' || quote_ident(tablename))::oid::text "
        "FROM pg_publication_tables WHERE pubname = %s",
        [name],
    )
    published = {row[0] for row in await cursor.fetchall()}
    for table in tables:
        cursor = await connection.execute("SELECT to_regclass(%s)::oid::text", [quoted(table.name)])
        (oid,) = await cursor.fetchone()
        if oid not in published:
            raise BadRequest(
                f"table {table.name} is not in the publication {name}; "
                "run `pequod db init --db ... --tables ...`"
            )


async def slot_state(connection: Any, slot: str) -> dict[str, Any] | None:
    """How a slot is; None if there is none."""
    row = await (await connection.execute(_SLOT, [slot])).fetchone()
    if row is None:
        return None
    active, pid, confirmed, wal_status, behind, retained = row
    return {
        "active": active == "true",
        "pid": int(pid) or None,
        "confirmed": confirmed,
        "wal_status": wal_status,
        "behind_bytes": int(behind),
        "retained_bytes": int(retained),
    }


async def init(connection: Any, tables: Sequence[Table], slot: str) -> list[str]:
    """Create the publication and the slot, if they are not there; gives what was done."""
    cursor = await connection.execute("SHOW wal_level")
    (level,) = await cursor.fetchone()
    if level != "logical":
        raise BadRequest(
            f"wal_level is {level}; say ALTER SYSTEM SET wal_level = 'logical' and restart "
            "PostgreSQL"
        )
    for table in tables:
        await bound(connection, table)
    done = []
    names = ", ".join(quoted(table.name) for table in tables)
    cursor = await connection.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", [slot])
    exists = await cursor.fetchone() is not None
    verb = "ALTER PUBLICATION {} SET TABLE {}" if exists else "CREATE PUBLICATION {} FOR TABLE {}"
    await connection.execute(verb.format(quoted(slot), names))
    done.append(f"publication {slot}: {', '.join(table.name for table in tables)}")
    if await slot_state(connection, slot) is None:
        await connection.execute(
            "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [slot]
        )
        done.append(f"slot {slot}: created")
    else:
        done.append(f"slot {slot}: it was there")
    return done


async def drop(connection: Any, slot: str) -> list[str]:
    """Remove slot and publication; gives what was done."""
    done = []
    state = await slot_state(connection, slot)
    if state is not None and state["active"]:
        raise BadRequest(f"slot {slot} is in use by a server (pid {state['pid']}); stop it first")
    if state is not None:
        await connection.execute("SELECT pg_drop_replication_slot(%s)", [slot])
        done.append(f"slot {slot}: dropped")
    cursor = await connection.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", [slot])
    if await cursor.fetchone() is not None:
        await connection.execute(f"DROP PUBLICATION {quoted(slot)}")
        done.append(f"publication {slot}: dropped")
    return done or [f"there is neither slot nor publication {slot}"]
