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
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pequod.backing.base import Database, Sink, Write
from pequod.backing.mapping import (
    BYTES,
    DECIMAL,
    NUMBER,
    TEXT,
    THROUGH,
    TRUTH,
    Bounds,
    Cell,
    Table,
)
from pequod.errors import BadRequest, PequodError, SourceDown, TooLarge
from pequod.keys import KeyRange, Pair

LOOK_SECONDS = 0.01
KEPT_CHANGES = 10_000  # for other servers on the same file that are not as far
PRUNE_CHANGES = 5_000  # are taken away at a time
MAX_KEY_COLUMNS = 8
BUSY_SECONDS = 5.0

_CHANGES = "pequod_changes"
_SEQUENCE = f"SELECT seq FROM sqlite_sequence WHERE name = '{_CHANGES}'"
_EVENTS = {"insert": ("NEW",), "update": ("OLD", "NEW"), "delete": ("OLD",)}

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
        row = self._following.execute(_SEQUENCE).fetchone()
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
        self.progress.connected()

    def _reaches_back(self, end: int) -> bool:
        assert self._following is not None, "it was opened"
        least = self._following.execute(f"SELECT min(id) FROM {_CHANGES}").fetchone()[0]
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
            row = connection.execute(_SEQUENCE).fetchone()
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
            f"SELECT DISTINCT tbl, {names} FROM {_CHANGES} WHERE id > ?", [self.progress.position]
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
            where = " AND ".join(f"{_quoted(column)} IS ?" for column in table.key_columns)
            columns = ", ".join(map(_quoted, table.value_columns)) or "1"
            row = connection.execute(
                f"SELECT {columns} FROM {_quoted(name)} WHERE {where} LIMIT 1", slots
            ).fetchone()
            found.append(
                (key, None if row is None else table.value_maker()([_cell(cell) for cell in row]))
            )
        return found

    def _prune(self, upto: int) -> None:
        try:
            self._connection(self._writer).execute(f"DELETE FROM {_CHANGES} WHERE id <= ?", [upto])
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
            row = connection.execute(_SEQUENCE).fetchone()
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
        where = [f"{_quoted(column)} = ?" for column, _ in zip(table.key_columns, bounds.equal)]
        params = list(bounds.equal)
        for operator, bound in ((">=", bounds.least), ("<=", bounds.most)):
            if bound is not None:
                where.append(f"{_quoted(table.key_columns[len(bounds.equal)])} {operator} ?")
                params.append(bound)
        only = f" WHERE {' AND '.join(where)}" if where else ""
        columns = ", ".join(map(_quoted, table.columns))
        rows = connection.execute(
            f"SELECT {columns} FROM {_quoted(table.name)}{only} LIMIT {self.max_rows + 1}", params
        ).fetchall()
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
        statements = [(*self._statement(key, value), value is None) for key, value in changes]

        def run(connection: sqlite3.Connection) -> tuple[int, int]:
            removed = 0
            connection.execute("BEGIN IMMEDIATE")
            try:
                for statement, params, is_removal in statements:
                    cursor = connection.execute(statement, params)
                    removed += cursor.rowcount if is_removal else 0
                row = connection.execute(_SEQUENCE).fetchone()
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return row[0] if row else 0, removed

        return await self._in_thread(self._writer, run)

    def _statement(self, key: str, value: Any) -> tuple[str, list[Any]]:
        table = self.table_at(key)
        slots = list(table.slots_of(key))
        name, keys = _quoted(table.name), table.key_columns
        if value is None:
            where = " AND ".join(f"{_quoted(column)} = ?" for column in keys)
            return f"DELETE FROM {name} WHERE {where}", slots
        cells = list(table.cells_of(value))
        update = ", ".join(
            f"{_quoted(one)} = excluded.{_quoted(one)}" for one in table.value_columns
        )
        return (
            f"INSERT INTO {name} ({', '.join(map(_quoted, table.columns))}) "
            f"VALUES ({', '.join('?' * len(table.columns))}) "
            f"ON CONFLICT ({', '.join(map(_quoted, keys))}) "
            f"DO {f'UPDATE SET {update}' if update else 'NOTHING'}",
            slots + cells,
        )

    def stats(self) -> Mapping[str, Any]:
        return {**super().stats(), "kind": "sqlite"}


# Setting up.


def init(connection: sqlite3.Connection, tables: Sequence[Table]) -> list[Table]:
    """Make the table of changes and the triggers; gives the tables with what columns hold."""
    connection.execute("PRAGMA journal_mode = WAL")
    bound = [_bound(connection, table) for table in tables]
    names = ", ".join(f"k{place}" for place in range(MAX_KEY_COLUMNS))
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {_CHANGES} "
        f"(id INTEGER PRIMARY KEY AUTOINCREMENT, tbl TEXT NOT NULL, {names})"
    )
    wanted = {name: text for table in bound for name, text in _triggers(table)}
    there = _our_triggers(connection)
    for name in there.keys() - wanted.keys():
        if any(name.startswith(f"pequod_{table.name}_") for table in bound):
            connection.execute(f"DROP TRIGGER {_quoted(name)}")
    for name, text in wanted.items():
        if there.get(name) != text:
            connection.execute(f"DROP TRIGGER IF EXISTS {_quoted(name)}")
            connection.execute(text)
    connection.execute("COMMIT")
    return bound


def drop(connection: sqlite3.Connection) -> list[str]:
    """Take triggers and changes away; gives what was done."""
    names = list(_our_triggers(connection))
    for name in names:
        connection.execute(f"DROP TRIGGER {_quoted(name)}")
    connection.execute(f"DROP TABLE IF EXISTS {_CHANGES}")
    return [f"{len(names)} triggers dropped", f"table {_CHANGES}: dropped"]


def status(connection: sqlite3.Connection) -> dict[str, Any]:
    """How many changes are kept, and their last number."""
    names = list(_our_triggers(connection))
    if not names:
        return {"triggers": 0}
    (kept,) = connection.execute(f"SELECT count(*) FROM {_CHANGES}").fetchone()
    row = connection.execute(_SEQUENCE).fetchone()
    return {"triggers": len(names), "kept_changes": kept, "last_change": row[0] if row else 0}


def administrate(path: str, work: Callable[[sqlite3.Connection], Result]) -> Result:
    """Do something with a connection of its own, as `pequod db` does."""
    if not Path(path).is_file():
        raise SourceDown(f"there is no database {path}")
    try:
        with closing(_opened(path)) as connection:
            return work(connection)
    except sqlite3.Error as error:
        raise SourceDown(f"{path} cannot be used: {error}") from error


def _our_triggers(connection: sqlite3.Connection) -> dict[str, str]:
    return dict(
        connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND name GLOB 'pequod_*'"
        ).fetchall()
    )


def _triggers(table: Table) -> list[tuple[str, str]]:
    """Name and text of the triggers that note the keys that change."""
    names = ", ".join(f"k{place}" for place in range(len(table.slots)))
    found = []
    for event, rows in _EVENTS.items():
        name = f"pequod_{table.name}_{event}"
        notes = " ".join(
            f"INSERT INTO {_CHANGES} (tbl, {names}) VALUES ({_literal(table.name)}, "
            + ", ".join(f"{row}.{_quoted(column)}" for column in table.key_columns)
            + ");"
            for row in rows
        )
        found.append(
            (
                name,
                f"CREATE TRIGGER {_quoted(name)} AFTER {event.upper()} ON {_quoted(table.name)} "
                f"BEGIN {notes} END",
            )
        )
    return found


def _bound(connection: sqlite3.Connection, table: Table) -> Table:
    rows = connection.execute(f"PRAGMA table_info({_quoted(table.name)})").fetchall()
    types = {row[1]: (row[2] or "").upper() for row in rows}
    if not types:
        raise BadRequest(f"the database has no table {table.name}; create it, or mend the mapping")
    for column in table.columns:
        if column not in types:
            raise BadRequest(
                f"table {table.name} has no column {column}; it has {', '.join(types)}"
            )
    kinds = {column: _kind(said) for column, said in types.items()}
    for column in table.key_columns:
        if kinds[column] not in (NUMBER, TEXT):
            raise BadRequest(
                f"column {column} of {table.name} is {types[column] or 'of no type'}; keys are "
                "made of INTEGER and TEXT: add a column of such a type"
            )
    if len(table.slots) > MAX_KEY_COLUMNS:
        raise BadRequest(f"{table.name}: a key has at most {MAX_KEY_COLUMNS} columns")
    _check_indexes(
        connection, table, [row[1] for row in sorted(rows, key=lambda one: one[5]) if row[5]]
    )
    return replace(table, kinds=kinds)


def _check_indexes(connection: sqlite3.Connection, table: Table, primary: list[str]) -> None:
    indexes = [(True, primary)] if primary else []
    for row in connection.execute(f"PRAGMA index_list({_quoted(table.name)})").fetchall():
        names = [
            found[2]
            for found in connection.execute(f"PRAGMA index_info({_quoted(row[1])})").fetchall()
        ]
        if not row[4]:  # not partial
            indexes.append((bool(row[2]), names))
    columns = ", ".join(map(_quoted, table.key_columns))
    if not any(names[:1] == [table.key_columns[0]] for _, names in indexes):
        raise BadRequest(
            f"no index of {table.name} serves {table.text}; create one: "
            f"CREATE INDEX {table.name}_key ON {_quoted(table.name)} ({columns})"
        )
    ours = set(table.key_columns)
    uniques = [set(names) for unique, names in indexes if unique]
    if ours not in uniques and (table.mode == THROUGH or not any(one <= ours for one in uniques)):
        raise BadRequest(
            f"two rows of {table.name} may have one key; create an index: "
            f"CREATE UNIQUE INDEX {table.name}_key ON {_quoted(table.name)} ({columns})"
        )


def _kind(said: str) -> str:
    """What a column holds, by the rules of SQLite for declared types."""
    if "INT" in said:
        return NUMBER
    if any(word in said for word in ("CHAR", "CLOB", "TEXT")):
        return TEXT
    if "BOOL" in said:
        return TRUTH
    return BYTES if "BLOB" in said else DECIMAL


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


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
