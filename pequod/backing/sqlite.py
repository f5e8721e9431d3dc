"""SQLite behind a cache: triggers write the keys that change into a table, and we follow it.

A trigger notes which key changed; what the row holds now is read when the note is. Notes and rows
are read in one transaction, so that what the cache has is always the database as it was after one
commit. `PRAGMA data_version` tells that some other connection has committed, and costs next to
nothing, so it is asked a hundred times a second.

Reads and writes for callers have connections, and threads, of their own.
"""

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from pequod.backing import sql
from pequod.backing.base import Database, Sink, Write
from pequod.backing.litecatalog import (
    CHANGES,
    MAX_KEY_COLUMNS,
    NO_TRIGGERS,
    SEQUENCE,
    init,
    look,
    mend,
)
from pequod.backing.mapping import Bounds, Cell, Table
from pequod.backing.sql import quoted
from pequod.errors import BadRequest, PequodError, SourceDown, TooLarge
from pequod.keys import KeyRange, Pair

LOOK_SECONDS = 0.01
KEPT_CHANGES = 10_000  # for other servers on the same file that are not as far
PRUNE_CHANGES = 5_000  # are taken away at a time
BUSY_SECONDS = 5.0

_GLANCE_SECONDS = 0.05  # to wait for a lock where the event loop waits, too

File = tuple[int, int]
Result = TypeVar("Result")
log = logging.getLogger("pequod.backing")


class Sqlite(Database):
    """A SQLite file, followed through a table of changes."""

    unit = "changes"

    def __init__(
        self,
        path: str,
        tables: Sequence[Table],
        *,
        seconds: float = 10.0,
        max_rows: int = 1_000_000,
    ) -> None:
        super().__init__(tables, seconds, max_rows)
        self._path = path
        self._sink: Sink | None = None
        self._reader = ThreadPoolExecutor(1, "pequod-sqlite-read")
        self._writer = ThreadPoolExecutor(1, "pequod-sqlite-write")
        self._connections: dict[ThreadPoolExecutor, tuple[File | None, sqlite3.Connection]] = {}
        self._following: sqlite3.Connection | None = None
        self._file: File | None = None
        self._version = self._schema = -1
        self._looks: list[str] = []  # what there is to know of each table
        self._troubles: dict[int, str] = {}  # why a table, by its place, cannot be read
        self._pruned = 0
        self._task: asyncio.Task[None] | None = None

    # Its life.

    async def start(self, sink: Sink) -> None:
        self._sink = sink
        if not Path(self._path).is_file():
            raise SourceDown(f"there is no database {self._path}")
        try:
            with closing(_opened(self._path)) as connection:
                self.tables = init(connection, self.tables)
            self._follow()
        except sqlite3.Error as error:
            raise SourceDown(f"{self._path} cannot be used: {error}") from error
        self._task = asyncio.create_task(self._look())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for executor in (self._reader, self._writer):
            executor.shutdown()
        for _, connection in self._connections.values():
            connection.close()
        self._unfollow()

    # Following.

    def _follow(self) -> None:
        """Begin at the present end of the changes, or go on where we were."""
        file = _file(self._path)
        connection = self._following = _opened(self._path, _GLANCE_SECONDS)
        is_same = file == self._file
        if self._file is not None and not is_same:
            init(connection, self.tables)
        self._file = file
        row = connection.execute(SEQUENCE).fetchone()
        end = row[0] if row else 0
        if not self._looks:
            self.progress.position = self.progress.head = end
            self._looks = [look(connection, table)[0] for table in self.tables]
        elif not is_same or not self._reaches_back(end):
            self._drop_everything("another file" if not is_same else "changes were missed")
            self.progress.position = self.progress.head = end
            self.progress.advance(end)
        self._pruned = self.progress.position
        self._version = self._schema = -1
        self.progress.connected(end)

    def _unfollow(self) -> None:
        if self._following is not None:
            self._following.close()
            self._following = None

    def _drop_everything(self, reason: str) -> None:
        assert self._sink is not None, "it was started"
        log.warning("%s: all ranges are loaded anew when they are read", reason)
        for table in self.tables:
            self._sink.invalidate(table.keys)

    def _reaches_back(self, end: int) -> bool:
        assert self._following is not None, "it was opened"
        least = self._following.execute(f"SELECT min(id) FROM {CHANGES}").fetchone()[0]
        position = self.progress.position
        return position <= end and (position == end or (least or end + 1) <= position + 1)

    async def _look(self) -> None:
        while True:
            try:
                if self._following is None:
                    self._follow()
                self.look()
                if NO_TRIGGERS in self._troubles.values():
                    await self._in_thread(self._writer, partial(mend, tables=self.tables))
            except (sqlite3.Error, OSError, PequodError) as error:
                self.progress.lost(str(error))
                self._unfollow()
                await asyncio.sleep(0.1)
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Follow what other connections have committed, if they have."""
        connection = self._following
        assert connection is not None, "it was opened"
        if _file(self._path) != self._file:
            raise OSError(f"{self._path} is another file now")
        version = connection.execute("PRAGMA data_version").fetchone()[0]
        if version == self._version:
            return
        connection.execute("BEGIN")
        try:
            row = connection.execute(SEQUENCE).fetchone()
            end = row[0] if row else 0
            if end != self.progress.position and not self._reaches_back(end):
                connection.execute("COMMIT")
                self._unfollow()
                self._follow()
                return
            schema = connection.execute("PRAGMA schema_version").fetchone()[0]
            if schema != self._schema:
                self._look_at_tables(connection)
            found = self._changed(connection)
            connection.execute("COMMIT")
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._version, self._schema = version, schema
        assert self._sink is not None, "it was started"
        for key, value in found:
            try:
                if value is None:
                    self._sink.remove(key)
                else:
                    self._sink.put(key, value)
            except PequodError as error:
                self.warn(f"a change cannot be followed: {error}")
        self.changes += len(found)
        self.progress.advance(end)
        if end - self._pruned > KEPT_CHANGES + PRUNE_CHANGES:
            self._pruned = end - KEPT_CHANGES
            asyncio.get_running_loop().run_in_executor(
                self._writer, partial(self._prune, self._pruned)
            )

    def _look_at_tables(self, connection: sqlite3.Connection) -> None:
        """Something was created, altered or dropped: see if it was one of ours."""
        assert self._sink is not None, "it was started"
        for place, table in enumerate(self.tables):
            text, found = look(connection, table)
            trouble = self._troubles.pop(place, None)
            if isinstance(found, str):
                self._troubles[place] = found
                if found != trouble:
                    log.warning("table %s cannot be read: %s", table.name, found)
            else:
                self.tables[place] = found
            if text != self._looks[place] or self._troubles.get(place) != trouble:
                log.warning("table %s was altered; what is read of it is loaded again", table.name)
                self._looks[place] = text
                self._sink.invalidate(table.keys)

    def _changed(self, connection: sqlite3.Connection) -> list[Write]:
        """The keys that were noted, each with the value that it has now."""
        names = ", ".join(f"k{place}" for place in range(MAX_KEY_COLUMNS))
        noted = connection.execute(
            f"SELECT DISTINCT tbl, {names} FROM {CHANGES} WHERE id > ?", [self.progress.position]
        ).fetchall()
        tables = {
            table.name: table
            for place, table in enumerate(self.tables)
            if place not in self._troubles
        }
        found: list[Write] = []
        for name, *cells in noted:
            table = tables.get(name)
            if table is None:
                continue
            slots = cells[: len(table.slots)]
            key = table.key_maker()([_cell(cell) for cell in slots])
            if key is None:
                self.note_unfit(table)
                continue
            where = " AND ".join(f"s.{quoted(column)} IS ?" for column in table.key_columns)
            columns = sql.of_row(table.value_columns) or "1"
            row = connection.execute(
                f"SELECT {columns} FROM {quoted(name)} AS s WHERE {where} LIMIT 1", slots
            ).fetchone()
            found.append(
                (key, None if row is None else table.value_maker()([_cell(cell) for cell in row]))
            )
        return found

    def _prune(self, upto: int) -> None:
        try:
            self._connection(self._writer).execute(f"DELETE FROM {CHANGES} WHERE id <= ?", [upto])
        except sqlite3.Error as error:
            self.warn(f"old changes cannot be taken away: {error}")

    # Loading and writing, in threads.

    async def _in_thread(
        self, executor: ThreadPoolExecutor, work: Callable[[sqlite3.Connection], Result]
    ) -> Result:
        def run() -> Result:
            return work(self._connection(executor))

        try:
            return await asyncio.get_running_loop().run_in_executor(executor, run)
        except sqlite3.IntegrityError as error:
            raise BadRequest(f"the database refuses: {error}") from error
        except sqlite3.Error as error:
            raise SourceDown(f"the database does not answer: {error}") from error

    def _connection(self, executor: ThreadPoolExecutor) -> sqlite3.Connection:
        file, connection = self._connections.get(executor, (None, None))
        if connection is None or file != self._file:
            if connection is not None:
                connection.close()
            connection = _opened(self._path)
            self._connections[executor] = self._file, connection
        return connection

    async def _reach(self, position: int) -> None:
        if position > self.progress.position and self._following is not None:
            try:
                self.look()
            except (sqlite3.Error, OSError) as error:
                self.progress.lost(str(error))
        await super()._reach(position)

    async def _select(self, keys: Sequence[KeyRange]) -> tuple[int, list[list[Pair]]]:
        return await self._in_thread(self._reader, partial(self._rows, keys))

    def _rows(
        self, keys: Sequence[KeyRange], connection: sqlite3.Connection
    ) -> tuple[int, list[list[Pair]]]:
        found: list[list[Pair]] = []
        connection.execute("BEGIN")
        try:
            row = connection.execute(SEQUENCE).fetchone()
            for one in keys:
                pairs: list[Pair] = []
                for place, table in enumerate(self.tables):
                    bounds = table.bounds(one) if one.overlaps(table.keys) else None
                    if bounds is not None and place in self._troubles:
                        raise SourceDown(
                            f"table {table.name} cannot be read: {self._troubles[place]}"
                        )
                    if bounds is not None:
                        pairs += self._pairs(connection, table, bounds, one)
                found.append(pairs)
        finally:
            connection.execute("COMMIT")
        return row[0] if row else 0, found

    def _pairs(
        self, connection: sqlite3.Connection, table: Table, bounds: Bounds, keys: KeyRange
    ) -> list[Pair]:
        rows = connection.execute(*sql.one_range(table, bounds, self.max_rows + 1)).fetchall()
        if len(rows) > self.max_rows:
            raise TooLarge(
                f"more than {self.max_rows} rows of {table.name} at once (db_max_rows); "
                "ask for a smaller part of the range"
            )
        key_of, value_of, pairs = table.key_maker(), table.value_maker(len(table.slots)), []
        for row in rows:
            cells = [_cell(cell) for cell in row]
            key = key_of(cells)
            if key is None:
                self.note_unfit(table)
            elif key in keys:
                pairs.append((key, value_of(cells)))
        return pairs

    async def _write(self, changes: Sequence[Write]) -> tuple[int, int]:
        statements = [
            (*sql.write(self.table_at(key), key, value, "?"), value is None)
            for key, value in changes
        ]

        def run(connection: sqlite3.Connection) -> tuple[int, int]:
            removed = 0
            connection.execute("BEGIN IMMEDIATE")
            try:
                for statement, params, is_removal in statements:
                    cursor = connection.execute(statement, params)
                    removed += cursor.rowcount if is_removal else 0
                row = connection.execute(SEQUENCE).fetchone()
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return row[0] if row else 0, removed

        return await self._in_thread(self._writer, run)

    def stats(self) -> Mapping[str, Any]:
        return {**super().stats(), "kind": "sqlite"}


def administrate(path: str, work: Callable[[sqlite3.Connection], Result]) -> Result:
    """Do something with a connection of its own, as `pequod db` does."""
    if not Path(path).is_file():
        raise SourceDown(f"there is no database {path}")
    try:
        with closing(_opened(path)) as connection:
            return work(connection)
    except sqlite3.Error as error:
        raise SourceDown(f"{path} cannot be used: {error}") from error


def _file(path: str) -> File:
    """Which file it is: a name may be given to another."""
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _opened(path: str, seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(path)}?mode=rw",  # a file that is gone is not made anew
        uri=True,
        timeout=seconds,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def _cell(cell: Any) -> Cell:
    """A cell as text, or as bytes."""
    if cell is None or isinstance(cell, str | bytes):
        return cell
    return str(cell)
