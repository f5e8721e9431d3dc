"""Twip in a database: its tables, a server over it, and what SQL itself says of a timeline."""

import asyncio
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg

from pequod.backing import pgadmin, pgpool
from pequod.backing.mapping import tables_of
from pequod.config import ServerConfig
from pequod.server import Server

SECONDS = 30.0  # that anything here may take; a healthy run takes much less

TIMELINE = "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;"
TABLES = """
[[table]]
name = "posts"
key = "p|<poster>|<time:10>"
value = "tweet"
mode = "{mode}"

[[table]]
name = "subs"
key = "s|<usr>|<poster>"
mode = "{mode}"
"""
SCHEMA = (
    "CREATE TABLE posts (poster TEXT, time INTEGER, tweet TEXT, PRIMARY KEY (poster, time))",
    "CREATE TABLE subs (usr TEXT, poster TEXT, PRIMARY KEY (usr, poster))",
)
ANSWER = (
    "SELECT p.time, p.poster, p.tweet FROM subs s JOIN posts p ON p.poster = s.poster "
    "WHERE s.usr = '{}' ORDER BY p.time, p.poster"
)


class SqliteSide:
    """A SQLite database, as an application uses it."""

    is_postgres = False

    def __init__(self, directory: Path) -> None:
        self.path = directory / "twip.db"
        self.url = f"sqlite:///{self.path}"
        self.connection = sqlite3.connect(self.path, isolation_level=None, timeout=10)
        self.connection.execute("PRAGMA synchronous = OFF")  # the machine does not lose power

    def execute(self, statement: str, *params: Any) -> list[Any]:
        return self.connection.execute(statement.replace("%s", "?"), params).fetchall()

    def token(self) -> str:
        found = self.execute("SELECT seq FROM sqlite_sequence WHERE name = 'pequod_changes'")
        return str(found[0][0]) if found else "0"

    def init(self, mapping: str, slot: str = "pequod") -> None:
        """The server does it by itself."""

    def close(self) -> None:
        self.connection.close()


class PostgresSide:
    """A database of its own in a PostgreSQL server."""

    is_postgres = True

    def __init__(self, server_url: str, name: str) -> None:
        self._server_url, self.name = server_url, name
        with psycopg.connect(server_url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        self.url = server_url.rpartition("/")[0] + f"/{name}"
        self.slot = f"slot_{name}"
        self.connection = psycopg.connect(self.url, autocommit=True)

    def execute(self, statement: str, *params: Any) -> list[Any]:
        cursor = self.connection.execute(statement, params or None)
        return cursor.fetchall() if cursor.description else []

    def token(self) -> str:
        return str(self.execute("SELECT pg_current_wal_lsn()::text")[0][0])

    def init(self, mapping: str) -> None:
        async def work() -> None:
            await pgpool.administrate(
                self.url, lambda one: pgadmin.init(one, tables_of(mapping), self.slot)
            )

        # In a thread, since a test may have a loop of its own running.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, work()).result()

    def reconnect(self) -> None:
        self.connection.close()
        self.connection = psycopg.connect(self.url, autocommit=True)

    def close(self) -> None:
        """Leave nothing behind: a slot that nobody reads would hold the others up."""
        self.connection.close()
        with psycopg.connect(self._server_url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                [self.name],
            )
            while connection.execute(
                "SELECT active FROM pg_replication_slots WHERE slot_name = %s AND active",
                [self.slot],
            ).fetchone():
                pass
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
                "WHERE database = %s",
                [self.name],
            )
            connection.execute(f"DROP DATABASE {self.name} WITH (FORCE)")


Side = SqliteSide | PostgresSide


def twip(side: Side, mode: str = "around") -> str:
    """Make the tables; gives the mapping."""
    for statement in SCHEMA:
        side.execute(statement)
    mapping = TABLES.format(mode=mode)
    side.init(mapping)
    return mapping


@asynccontextmanager
async def serving(
    side: Side, mapping: str, joins: Sequence[str] = (TIMELINE,), **settings: Any
) -> AsyncIterator[Server]:
    """A server over a database."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "tables.toml"
        path.write_text(mapping)
        slot = {"db_slot": side.slot} if isinstance(side, PostgresSide) else {}
        config = ServerConfig(port=0, db=side.url, tables=str(path), **slot, **settings)
        server = Server(config)
        for text in joins:
            server.cache.add_join(text)
        async with server:
            yield server


def timeline_of(side: Side, user: str) -> list[tuple[str, str]]:
    """A timeline as SQL itself has it."""
    return [
        (f"t|{user}|{time:010}|{poster}", tweet or "")
        for time, poster, tweet in side.execute(ANSWER.format(user))
    ]


def posts_of(side: Side) -> list[tuple[str, str]]:
    rows = side.execute("SELECT poster, time, tweet FROM posts")
    return sorted((f"p|{poster}|{time:010}", tweet or "") for poster, time, tweet in rows)
