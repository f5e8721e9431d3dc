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

_TABLE = """
SELECT c.oid, c.relkind::text, c.relpersistence::text, c.relreplident::text,
    EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid),
    array_remove(ARRAY[
        CASE WHEN NOT has_table_privilege(c.oid, 'SELECT') THEN 'SELECT' END,
        CASE WHEN NOT has_table_privilege(c.oid, 'INSERT') THEN 'INSERT' END,
        CASE WHEN NOT has_table_privilege(c.oid, 'UPDATE') THEN 'UPDATE' END,
        CASE WHEN NOT has_table_privilege(c.oid, 'DELETE') THEN 'DELETE' END], NULL),
    current_user::text
FROM pg_class c WHERE c.oid = to_regclass(%s)
"""
_COLUMNS = """
SELECT a.attname, coalesce(b.typname, t.typname), a.attgenerated <> '', EXISTS (
    SELECT FROM pg_collation c WHERE c.oid = a.attcollation AND NOT c.collisdeterministic)
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_type b ON b.oid = t.typbasetype AND t.typtype = 'd'
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
# All that, if it changes, makes rows look different or changes go another way. Rows that were
# written anew (relfilenode) are not told of as changes.
_LOOK = """
SELECT coalesce(c.oid, 0)::bigint, concat_ws(' ', c.relkind, c.relreplident, c.relfilenode,
    (SELECT indexrelid FROM pg_index WHERE indrelid = c.oid AND indisreplident),
    EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid),
    EXISTS (SELECT FROM pg_publication_tables JOIN pg_namespace n ON nspname = schemaname
            WHERE pubname = %s AND tablename = c.relname AND n.oid = c.relnamespace),
    (SELECT string_agg(concat_ws(' ', attname, atttypid, attgenerated), ',' ORDER BY attnum)
     FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped))
FROM unnest(%s::text[]) WITH ORDINALITY AS t (name, place)
LEFT JOIN pg_class c ON c.oid = to_regclass(t.name) ORDER BY place
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
_PUBLISHED = """
SELECT c.oid::bigint, p.schemaname || '.' || p.tablename FROM pg_publication_tables p
JOIN pg_namespace n ON n.nspname = p.schemaname
JOIN pg_class c ON c.relname = p.tablename AND c.relnamespace = n.oid WHERE p.pubname = %s
"""
_SLOT = """
SELECT database::text, active::text, coalesce(active_pid, 0)::text, confirmed_flush_lsn::text,
    coalesce(wal_status, ''),
    coalesce(pg_wal_lsn_diff(pg_current_wal_flush_lsn(), confirmed_flush_lsn), 0)::bigint::text,
    coalesce(pg_wal_lsn_diff(pg_current_wal_flush_lsn(), restart_lsn), 0)::bigint::text
FROM pg_replication_slots WHERE slot_name = %s
"""


async def looks(connection: Any, name: str, tables: Sequence[Table]) -> list[tuple[int, str]]:
    """The number that each table has, and a text that changes when the table is altered."""
    names = [quoted(table.name) for table in tables]
    rows = await (await connection.execute(_LOOK, [name, names])).fetchall()
    return [(int(oid), text) for oid, text in rows]


async def bound(connection: Any, table: Table) -> Table:
    """The table with what its columns hold; raises if it cannot be served."""
    row = await (await connection.execute(_TABLE, [quoted(table.name)])).fetchone()
    if row is None:
        raise BadRequest(f"the database has no table {table.name}; create it, or mend the mapping")
    oid, kind, persistence, identity, has_parts, lacking, role = row
    if kind == "p" or has_parts:
        raise BadRequest(
            f"table {table.name} has parts, and PostgreSQL tells of changes under their names; "
            "map the parts, each with keys of its own"
        )
    if kind != "r" or persistence != "p":
        raise BadRequest(
            f"{table.name} is no ordinary table: PostgreSQL tells of no changes in views, and in "
            "unlogged, temporary and foreign tables"
        )
    wanted = {"SELECT", "INSERT", "UPDATE", "DELETE"} if table.mode == THROUGH else {"SELECT"}
    if wanted := wanted & set(lacking):
        raise BadRequest(
            f"role {role} has no right to use table {table.name}: "
            f'GRANT {", ".join(sorted(wanted))} ON {quoted(table.name)} TO "{role}"'
        )
    columns = await (await connection.execute(_COLUMNS, [oid])).fetchall()
    table = _with_kinds(table, columns)
    await _check_indexes(connection, table, oid, identity)
    return table


def _with_kinds(table: Table, columns: list[tuple[str, str, bool, bool]]) -> Table:
    types = {name: kind for name, kind, *_ in columns}
    for column in table.columns:
        if column not in types:
            raise BadRequest(
                f"table {table.name} has no column {column}; it has {', '.join(types)}"
            )
    for column, _, is_generated, is_vague in columns:
        if is_generated and column in table.columns:
            raise BadRequest(
                f"column {column} of {table.name} is generated, and PostgreSQL does not tell of "
                "such; add an ordinary column, and a trigger BEFORE INSERT OR UPDATE that sets it"
            )
        if is_vague and column in table.key_columns:
            raise BadRequest(
                f"column {column} of {table.name} has a collation that takes different texts for "
                f"equal; keys are exact: ALTER TABLE {quoted(table.name)} ALTER {quoted(column)} "
                'TYPE text COLLATE "C"'
            )
    for column in table.key_columns:
        if types[column] not in _KEY_TYPES:
            raise BadRequest(
                f"column {column} of {table.name} is {types[column]}; keys are made of whole "
                "numbers and of text: add a column of such a type"
            )
    return replace(table, kinds={name: _KINDS.get(kind, TEXT) for name, kind in types.items()})


async def _check_indexes(connection: Any, table: Table, oid: int, identity: str) -> None:
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
    place = {"d": 1, "i": 2}.get(identity)
    names = next((set(one[3]) for one in indexes if place and one[place]), set())
    if identity != "f" and not columns <= names:
        raise BadRequest(
            f"deletes in {table.name} would not tell which key went: its replica identity lacks "
            f"{', '.join(sorted(columns - names))}; ALTER TABLE {quoted(table.name)} REPLICA "
            "IDENTITY FULL, or USING INDEX with an index that has them"
        )


async def published(connection: Any, name: str) -> dict[int, str]:
    """The tables of a publication, by number."""
    cursor = await connection.execute(_PUBLISHED, [name])
    return {int(oid): table for oid, table in await cursor.fetchall()}


async def check_publication(connection: Any, name: str, tables: Sequence[Table]) -> None:
    """Raise if the publication lacks a table."""
    there = await published(connection, name)
    for table, (oid, _) in zip(tables, await looks(connection, name, tables)):
        if oid not in there:
            raise BadRequest(
                f"table {table.name} is not in the publication {name}; "
                "run `pequod db init --db ... --tables ...`"
            )


async def slot_state(connection: Any, slot: str) -> dict[str, Any] | None:
    """How a slot is; None if there is none."""
    row = await (await connection.execute(_SLOT, [slot])).fetchone()
    if row is None:
        return None
    database, active, pid, confirmed, wal_status, behind, retained = row
    return {
        "database": database,
        "active": active == "true",
        "pid": int(pid) or None,
        "confirmed": confirmed,
        "wal_status": wal_status,
        "behind_bytes": int(behind),
        "retained_bytes": int(retained),
    }


async def life(connection: Any) -> str:
    """A text that is another one after PostgreSQL crashed: its statistics began anew then."""
    cursor = await connection.execute("SELECT stats_reset::text FROM pg_stat_bgwriter")
    return str((await cursor.fetchone())[0])
