"""What `pequod db` does to a PostgreSQL: it makes a publication and a slot, and drops them."""

import re
from collections.abc import Sequence
from typing import Any

from pequod.backing.mapping import Table
from pequod.backing.pgcatalog import bound, looks, published, slot_state
from pequod.backing.pgpool import NoMoreRoom, NotAllowed
from pequod.backing.sql import quoted
from pequod.errors import BadRequest

_SLOT_NAME = re.compile("[a-z0-9_]{1,63}")


async def init(connection: Any, tables: Sequence[Table], slot: str) -> list[str]:
    """Create the publication and the slot, if they are not there; gives what was done."""
    if not _SLOT_NAME.fullmatch(slot):
        raise BadRequest(f"a slot is named with a-z, 0-9 and _, not {slot!r:.80}")
    cursor = await connection.execute("SHOW wal_level")
    (level,) = await cursor.fetchone()
    if level != "logical":
        raise BadRequest(
            f"wal_level is {level}; say ALTER SYSTEM SET wal_level = 'logical' and restart "
            "PostgreSQL"
        )
    for table in tables:
        await bound(connection, table)
    state = await slot_state(connection, slot)
    if state is not None and state["database"] != connection.info.dbname:
        raise BadRequest(
            f"slot {slot} is of database {state['database']}; choose another name with --db-slot"
        )
    done = [await _publish(connection, tables, slot, state is not None and state["active"])]
    if state is None:
        statement = "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')"
        await _execute(connection, statement, [slot])
        done.append(f"slot {slot}: created")
    else:
        done.append(f"slot {slot}: it was there")
    return done


async def _publish(connection: Any, tables: Sequence[Table], name: str, is_used: bool) -> str:
    """Let a publication have these tables, and no others."""
    wanted = [oid for oid, _ in await looks(connection, name, tables)]
    there = await published(connection, name)
    if is_used and (lost := there.keys() - set(wanted)):
        raise BadRequest(
            f"a server uses slot {name} to follow {there[min(lost)]}, which this mapping lacks; "
            "stop it first, or give this mapping a slot of its own with --db-slot"
        )
    cursor = await connection.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", [name])
    exists = await cursor.fetchone() is not None
    names = ", ".join(quoted(table.name) for table in tables)
    verb = "ALTER PUBLICATION {} SET TABLE {}" if exists else "CREATE PUBLICATION {} FOR TABLE {}"
    await _execute(connection, verb.format(quoted(name), names))
    return f"publication {name}: {', '.join(table.name for table in tables)}"


async def _execute(connection: Any, statement: str, params: Sequence[Any] = ()) -> None:
    """Run a statement that not everybody may run; an error names the cure."""
    try:
        await connection.execute(statement, params or None)
    except NotAllowed as error:
        role = connection.info.user
        if "PUBLICATION" not in statement:
            cure = f'ALTER ROLE "{role}" REPLICATION'
        elif "owner" in str(error):
            cure = "let the owner of the tables, or a superuser, run `pequod db init`"
        else:
            cure = f'GRANT CREATE ON DATABASE "{connection.info.dbname}" TO "{role}"'
        raise BadRequest(f"the database refuses: {_line(error)}; {cure}") from error
    except NoMoreRoom as error:
        raise BadRequest(
            f"the database refuses: {_line(error)}; drop a slot that nobody needs (SELECT slot_name"
            " FROM pg_replication_slots WHERE NOT active), or set max_replication_slots higher and "
            "restart PostgreSQL"
        ) from error


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]


async def drop(connection: Any, slot: str) -> list[str]:
    """Remove slot and publication; gives what was done."""
    done = []
    state = await slot_state(connection, slot)
    if state is not None and state["active"]:
        raise BadRequest(f"slot {slot} is in use by a server (pid {state['pid']}); stop it first")
    if state is not None:
        await _execute(connection, "SELECT pg_drop_replication_slot(%s)", [slot])
        done.append(f"slot {slot}: dropped")
    cursor = await connection.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", [slot])
    if await cursor.fetchone() is not None:
        await _execute(connection, f"DROP PUBLICATION {quoted(slot)}")
        done.append(f"publication {slot}: dropped")
    return done or [f"there is neither slot nor publication {slot}"]
