"""`pequod db`: prepare a database for a server, look after it, and take everything away again."""

import argparse
import asyncio
import os
import sys
from typing import Any

from pequod.backing import litecatalog, sqlite
from pequod.backing.mapping import Table, read_tables
from pequod.backing.opening import is_sqlite, path_of, postgres_module
from pequod.cli.commands import add_json_option
from pequod.cli.output import write_json
from pequod.errors import BadRequest

EPILOG = """\
examples:
  pequod db init --db postgresql://app@db/twip --tables twip.toml     publication and slot
  pequod db status --db postgresql://app@db/twip                      how much log it keeps for us
  pequod db drop --db postgresql://app@db/twip                        nothing is left
  pequod db init --db sqlite:///twip.db --tables twip.toml            triggers and a change table

The database is that of --db, or of the variable PEQUOD_DB. PostgreSQL needs wal_level = logical
and a role with REPLICATION. A slot that no server reads keeps log on the database's disk: drop it
when Pequod goes for good, and set max_slot_wal_keep_size.
"""


def add_command(subparsers: Any) -> None:
    """Add `db` to the command line."""
    parser = subparsers.add_parser(
        "db",
        help="prepare a database for a server, look after it, clean up",
        description="Create, show or remove what Pequod needs in a database to follow it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("action", choices=("init", "drop", "status"))
    parser.add_argument("--db", help="sqlite:///file.db or postgresql://... (default: PEQUOD_DB)")
    parser.add_argument("--tables", metavar="FILE", help="the mapping, for init")
    parser.add_argument(
        "--db-slot", default="pequod", help="slot and publication (default: %(default)s)"
    )
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Do it, and print what was done."""
    url = options.db or os.environ.get("PEQUOD_DB")
    if not url:
        raise BadRequest("which database? --db, or the variable PEQUOD_DB")
    tables: list[Table] = []
    if options.action == "init":
        if not options.tables:
            raise BadRequest("init needs --tables FILE: which rows are which keys")
        tables = read_tables(options.tables)
    if is_sqlite(url):
        done = _sqlite(options.action, path_of(url), tables)
    else:
        done = asyncio.run(_postgres(options.action, url, tables, options.db_slot))
    if options.json:
        write_json(done)
    else:
        lines = (
            [f"{name}: {value}" for name, value in done.items()] if isinstance(done, dict) else done
        )
        print("\n".join(lines))
    sys.stdout.flush()
    return 0


def _sqlite(action: str, path: str, tables: list[Table]) -> list[str] | dict[str, Any]:
    if action == "drop":
        return sqlite.administrate(path, litecatalog.drop)
    if action == "status":
        return sqlite.administrate(path, litecatalog.status)
    bound = sqlite.administrate(path, lambda connection: litecatalog.init(connection, tables))
    return [f"table {table.name}: followed, as {table.text}" for table in bound]


async def _postgres(
    action: str, url: str, tables: list[Table], slot: str
) -> list[str] | dict[str, Any]:
    pgadmin, pgpool = postgres_module("pgadmin"), postgres_module("pgpool")

    async def work(connection: Any) -> list[str] | dict[str, Any]:
        if action == "init":
            return list(await pgadmin.init(connection, tables, slot))
        if action == "drop":
            return list(await pgadmin.drop(connection, slot))
        state = await pgadmin.slot_state(connection, slot)
        if state is None:
            raise BadRequest(f"the database has no slot {slot}; `pequod db init` makes one")
        return {"slot": slot, **state}

    done: list[str] | dict[str, Any] = await pgpool.administrate(url, work)
    return done
