"""Opens the database that an address names: sqlite:///file.db or postgresql://..."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from pequod.backing.base import Database
from pequod.backing.mapping import Table
from pequod.errors import BadRequest

SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")


def is_sqlite(url: str) -> bool:
    """True for the address of a SQLite file; raises if it is of no database that we know."""
    if url.startswith(SQLITE) and len(url) > len(SQLITE):
        return True
    if url.startswith(_POSTGRES):
        return False
    raise BadRequest("db: write sqlite:///file.db, or postgresql://user@host/database")


def path_of(url: str) -> str:
    """The file of a SQLite address; a fourth slash makes it absolute.

    >>> path_of("sqlite:///twip.db"), path_of("sqlite:////var/twip.db")
    ('twip.db', '/var/twip.db')
    """
    return url[len(SQLITE) :]


def postgres_module(name: str) -> Any:
    """A module for PostgreSQL, which needs a driver."""
    try:
        return import_module(f"pequod.backing.{name}")
    except ImportError as error:
        raise BadRequest(
            f"db: PostgreSQL needs a driver ({error}): pip install 'pequod[postgres]'"
        ) from error


def open_database(
    url: str,
    tables: Sequence[Table],
    *,
    slot: str,
    connections: int,
    seconds: float,
    max_rows: int,
    wal_budget: int,
) -> Database:
    """The database at an address; it is not connected yet."""
    if is_sqlite(url):
        from pequod.backing.sqlite import Sqlite

        return Sqlite(path_of(url), tables, seconds=seconds, max_rows=max_rows)
    found: Database = postgres_module("postgres").Postgres(
        url,
        tables,
        slot=slot,
        connections=connections,
        seconds=seconds,
        max_rows=max_rows,
        wal_budget=wal_budget,
    )
    return found
