"""SQLite behind a cache: triggers write the keys that change into a table, and we follow it.

A trigger notes which key changed; what the row holds now is read when the note is. Notes and rows
are read in one transaction, so that what the cache has is always the database as it was after one
commit. `PRAGMA data_version` tells that some other connection has committed, and costs next to
nothing, so it is asked a hundred times a second.

Reads and writes for callers have connections, and threads, of their own.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pequod.backing import sql
from pequod.backing.base import Database, Sink, Write
from pequod.backing.litecatalog import CHANGES, MAX_KEY_COLUMNS, SEQUENCE, init
from pequod.backing.mapping import Bounds, Cell, Table
from pequod.backing.sql import listed, quoted
from pequod.errors import BadRequest, PequodError, SourceDown, TooLarge
from pequod.keys import KeyRange, Pair

LOOK_SECONDS = 0.01
KEPT_CHANGES = 10_000  # for other servers on the same file that are not as far
PRUNE_CHANGES = 5_000  # are taken away at a time
BUSY_SECONDS = 5.0

Result = TypeVar("Result")


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
        self._connections: dict[ThreadPoolExecutor, sqlite3.Connection] = {}
        self._following: sqlite3.Connection | None = None
        self._version = -1
        self._has_begun = False
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
        for connection in (*self._connections.values(), self._following):
            if connection is not None:
                connection.close()

    # Following.

    def _follow(self) -> None:
        """Begin, or begin again, at the present end of the changes."""
        if self._following is not None:
            self._following.close()
        self._following = _opened(self._path)
        row = self._following.execute(SEQUENCE).fetchone()
        end = row[0] if row else 0
        if self._has_begun and not self._reaches_back(end):
            assert self._sink is not None, "it was started"
            self.warn("changes were missed; all ranges are loaded anew when they are read")
            for table in self.tables:
                self._sink.invalidate(table.keys)
            self.progress.position = self.progress.head = end
            self.progress.advance(end)
        elif not self._has_begun:
            self.progress.position = self.progress.head = end
        self._has_begun = True
        self._pruned = self.progress.position
        self._version = -1
        self.progress.connected(end)

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
            except (sqlite3.Error, OSError) as error:
                self.progress.lost(str(error))
                if self._following is not None:
                    self._following.close()
                    self._following = None
                await asyncio.sleep(0.1)
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Follow what other connections have committed, if they have."""
        connection = self._following
        assert connection is not None, "it was opened"
        version = connection.execute("PRAGMA data_version").fetchone()[0]
        if version == self._version:
            return
        connection.execute("BEGIN")
        try:
            row = connection.execute(SEQUENCE).fetchone()
            end = row[0] if row else 0
            if end > self.progress.position and not self._reaches_back(end):
                connection.execute("COMMIT")
                self._follow()
                return
            found = self._changed(connection)
            connection.execute("COMMIT")
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self._version = version
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

    def _changed(self, connection: sqlite3.Connection) -> list[Write]:
        """The keys that were noted, each with the value that it has now."""
        names = ", ".join(f"k{place}" for place in range(MAX_KEY_COLUMNS))
        noted = connection.execute(
            f"SELECT DISTINCT tbl, {names} FROM {CHANGES} WHERE id > ?", [self.progress.position]
        ).fetchall()
        tables = {table.name: table for table in self.tables}
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
            where = " AND ".join(f"{quoted(column)} IS ?" for column in table.key_columns)
            columns = listed(table.value_columns) or "1"
            row = connection.execute(
                f"SELECT {columns} FROM {quoted(name)} WHERE {where} LIMIT 1", slots
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
        if executor not in self._connections:
            self._connections[executor] = _opened(self._path)
        return self._connections[executor]

    async def _reach(self, position: int) -> None:
        if position > self.progress.position and self._following is not None:
            try:
                self.look()
            except sqlite3.Error as error:
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
                for table in self.tables:
                    bounds = table.bounds(one) if one.overlaps(table.keys) else None
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


def _opened(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def _cell(cell: Any) -> Cell:
    """A cell as text, or as bytes."""
    if cell is None or isinstance(cell, str | bytes):
        return cell
    return str(cell)
