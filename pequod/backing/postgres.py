"""PostgreSQL behind a cache: loads by SQL, and the changes of a slot by logical decoding."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.string import TextLoader

from pequod.backing import pgcatalog, sql
from pequod.backing.base import MAX_PAUSE_SECONDS, Database, Sink, Write
from pequod.backing.changes import Changes
from pequod.backing.mapping import Bounds, Table
from pequod.backing.pgoutput import Commit, Keepalive, Message, lsn_number, lsn_text
from pequod.backing.replication import Stream, System
from pequod.errors import BadRequest, PequodError, SourceDown, TooLarge
from pequod.keys import KeyRange, Pair

log = logging.getLogger("pequod.backing")

LOOK_SECONDS = 1.0  # between looks at the slot
NUDGE_SECONDS = 0.003  # between questions how far the server is, while somebody waits for it
_BUSY_SECONDS = 15.0  # for a slot that another process still has, as after kill -9
# So that values look the same in loads and in changes, and a load never reads a whole table.
_OPTIONS = (
    "-c timezone=UTC -c datestyle=ISO -c intervalstyle=postgres -c bytea_output=hex "
    "-c extra_float_digits=1 -c client_encoding=UTF8"
)
_LOAD_OPTIONS = (
    " -c enable_seqscan=off -c jit=off -c plan_cache_mode=force_generic_plan "
    "-c synchronous_commit=on"
)

Result = TypeVar("Result")


class Postgres(Database):
    """A PostgreSQL database, followed through a slot."""

    def __init__(
        self,
        conninfo: str,
        tables: Sequence[Table],
        *,
        slot: str = "pequod",
        connections: int = 4,
        seconds: float = 10.0,
        max_rows: int = 1_000_000,
        wal_budget: int = 1 << 30,
    ) -> None:
        super().__init__(tables, seconds, max_rows)
        self._conninfo, self._slot, self._wal_budget = conninfo, slot, wal_budget
        self._idle: asyncio.LifoQueue[Any] = asyncio.LifoQueue()
        for _ in range(connections):
            self._idle.put_nowait(None)
        self._sink: Sink | None = None
        self._changes: Changes | None = None
        self._stream: Stream | None = None
        self._system: System | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._nudge: asyncio.TimerHandle | None = None
        self._slot_state: Mapping[str, Any] = {}
        self.drops = 0  # times that everything was dropped and loaded anew

    # Its life.

    async def start(self, sink: Sink) -> None:
        self._sink = sink
        try:
            async with await self._opened() as connection:
                self.tables = [await pgcatalog.bound(connection, one) for one in self.tables]
                await pgcatalog.check_publication(connection, self._slot, self.tables)
                if await pgcatalog.slot_state(connection, self._slot) is None:
                    raise BadRequest(
                        f"the database has no slot {self._slot}; run `pequod db init` first"
                    )
            self._changes = Changes(self, sink)
            await self._connect()
        except psycopg.Error as error:
            raise SourceDown(f"the database cannot be used: {_said(error)}") from error
        self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._watch_slot())]

    async def stop(self) -> None:
        if self._stream is not None:
            self._stream.send(self.progress.position)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._stream is not None:
            self._stream.close()
        if self._nudge is not None:
            self._nudge.cancel()
        while not self._idle.empty():
            connection = self._idle.get_nowait()
            if connection is not None:
                await connection.close()

    # Following.

    async def _follow(self) -> None:
        """Keep a stream open, for ever."""
        pause = 0.02
        while True:
            assert self._stream is not None, "it was connected at the start"
            try:
                await self._stream.ended
                reason = "the connection was closed"
            except Exception as error:
                reason = _said(error)
                if not isinstance(error, psycopg.Error | OSError):
                    log.error("following failed: %r", error, exc_info=error)
                    self._drop_everything("a change could not be applied")
            self.progress.lost(reason)
            while True:
                await asyncio.sleep(pause)
                try:
                    await self._connect()
                except (psycopg.Error, OSError, PequodError) as error:
                    self.progress.lost(_said(error))
                    pause = min(2 * pause, MAX_PAUSE_SECONDS)
                else:
                    pause = 0.02
                    break

    async def _connect(self) -> None:
        """Open a stream where the last one ended or, if that is no longer possible, afresh."""
        assert self._changes is not None, "it was started"
        options = conninfo_to_dict(self._conninfo).get("options") or ""
        conninfo = make_conninfo(
            self._conninfo, options=f"{options} {_OPTIONS}", application_name="pequod"
        )
        stream = await Stream.connect(conninfo, self._receive)
        try:
            system = await stream.identify()
            position = await self._resumed_at(stream, system)
            self._changes.begin()
            await self._start_stream(stream, position)
        except BaseException:
            stream.close()
            raise
        self._stream, self._system = stream, system
        self.progress.connected(system.end)
        stream.send(self.progress.position, wants_reply=True)

    async def _start_stream(self, stream: Stream, position: int) -> None:
        end = asyncio.get_running_loop().time() + _BUSY_SECONDS
        while True:
            try:
                await stream.start(self._slot, self._slot, position)
            except psycopg.errors.ObjectInUse as error:
                if asyncio.get_running_loop().time() > end:
                    raise
                self.warn(f"waiting for the slot: {_said(error)}")
                await asyncio.sleep(0.1)
            else:
                return

    async def _resumed_at(self, stream: Stream, system: System) -> int:
        """Where to go on; drops what the cache has if it has missed something for good."""
        async with self._connection() as connection:
            state = await pgcatalog.slot_state(connection, self._slot)
            is_lost = state is not None and state["wal_status"] == "lost"
            if is_lost:
                await connection.execute("SELECT pg_drop_replication_slot(%s)", [self._slot])
        before, position = self._system, self.progress.position
        if state is None or is_lost:
            self._drop_everything(f"the slot {self._slot} was lost; it is made anew")
            await stream.create_slot(self._slot)
            system = await stream.identify()
        elif before is None:
            pass  # nothing is here yet
        elif (before.identifier, before.timeline) != (system.identifier, system.timeline):
            self._drop_everything("this is another database than before")
        elif system.end < position or lsn_number(state["confirmed"]) > position:
            self._drop_everything("its log does not reach back to where we were")
        elif system.end - position > self._wal_budget:
            self._drop_everything("its log is further ahead than the budget (db_wal_budget)")
        else:
            return position
        self.progress.position = self.progress.head = system.end
        return system.end

    def _drop_everything(self, reason: str) -> None:
        """All that came from the database is loaded anew when it is read."""
        log.warning("all ranges are dropped, and loaded anew when they are read: %s", reason)
        self.drops += 1
        assert self._sink is not None, "it was started"
        for table in self.tables:
            self._sink.invalidate(table.keys)

    def _receive(self, message: Message) -> None:
        assert self._changes is not None, "it was started"
        if isinstance(message, Commit):
            if message.end > self.progress.position:
                self._changes.apply()
                self.progress.advance(message.end)
            else:
                self._changes.begin()
        elif isinstance(message, Keepalive):
            if not self._changes.is_open:
                self.progress.advance(message.end)
            if message.wants_reply and self._stream is not None:
                self._stream.send(self.progress.position)
        else:
            self._changes.note(message)

    async def _watch_slot(self) -> None:
        """Tell the server how far we are, and look how much it keeps for us."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._stream is None or self.progress.down_since is not None:
                continue
            self._stream.send(self.progress.position)
            try:
                await self._look_at_slot()
            except (PequodError, psycopg.Error) as error:
                if self.progress.down_since is None:
                    self._stream.close(psycopg.OperationalError(_said(error)))

    async def _look_at_slot(self) -> None:
        async with asyncio.timeout(self.seconds), self._connection() as connection:
            state = await pgcatalog.slot_state(connection, self._slot)
            cursor = await connection.execute("SELECT pg_current_wal_flush_lsn()::text")
            self.progress.see(lsn_number((await cursor.fetchone())[0]))
        self._slot_state = state or {}
        behind = self.progress.head - self.progress.position
        if behind > self._wal_budget and self._stream is not None:
            self._stream.close(psycopg.OperationalError(f"{behind} bytes behind (db_wal_budget)"))
        elif behind > self._wal_budget // 2:
            log.warning("the slot holds back %d bytes of the database's log", behind)

    # Waiting.

    async def _reach(self, position: int) -> None:
        self._ask_on()
        await self.progress.reach(position, self.seconds)

    def _ask_on(self) -> None:
        """While somebody waits, ask how far the server is: it tells by itself only of changes."""
        if self._stream is not None:
            self._stream.send(self.progress.position, wants_reply=True)
        if self._nudge is not None:
            self._nudge.cancel()
        self._nudge = asyncio.get_running_loop().call_later(NUDGE_SECONDS, self._ask_again)

    def _ask_again(self) -> None:
        self._nudge = None
        if self.progress.is_awaited:
            self._ask_on()

    def token(self, position: int) -> str:
        return lsn_text(position)

    def position_of(self, token: str) -> int:
        try:
            return lsn_number(token)
        except ValueError as error:
            raise BadRequest(
                f"after: {token!r:.60} is no position in PostgreSQL's log; "
                "SELECT pg_current_wal_lsn() after the commit gives one"
            ) from error

    # Loading.

    async def _select(self, keys: Sequence[KeyRange]) -> tuple[int, list[list[Pair]]]:
        found: list[list[Pair]] = [[] for _ in keys]
        wanted: dict[tuple[int, int, bool, bool], list[tuple[int, Bounds]]] = defaultdict(list)
        for number, one in enumerate(keys):
            for place, table in enumerate(self.tables):
                bounds = table.bounds(one) if one.overlaps(table.keys) else None
                if bounds is not None:
                    has_least, has_most = bounds.least is not None, bounds.most is not None
                    shape = (place, len(bounds.equal), has_least, has_most)
                    wanted[shape].append((number, bounds))

        async def run(connection: Any) -> tuple[list[Any], Any]:
            async with connection.pipeline():
                cursors = [
                    await connection.execute(*self._query(self.tables[shape[0]], asked))
                    for shape, asked in wanted.items()
                ]
                # After the rows were looked at, so that all they have is in the log by then.
                position = await connection.execute("SELECT pg_current_wal_flush_lsn()::text")
            return cursors, position

        try:
            cursors, position = await self._run(run)
        except SourceDown:
            if self.progress.down_since is not None:
                raise
            cursors, position = await self._run(run)  # a single connection may have been cut
        for shape, cursor in zip(wanted, cursors):
            self._collect(self.tables[shape[0]], await cursor.fetchall(), keys, found)
        return lsn_number((await position.fetchone())[0]), found

    def _query(self, table: Table, asked: list[tuple[int, Bounds]]) -> sql.Statement:
        return sql.many_ranges(table, asked, self.max_rows + 1)

    def _collect(
        self, table: Table, rows: list[Any], keys: Sequence[KeyRange], found: list[list[Pair]]
    ) -> None:
        """Sort the rows of an answer into their ranges."""
        if len(rows) > self.max_rows:
            raise TooLarge(
                f"more than {self.max_rows} rows of {table.name} at once (db_max_rows); "
                "ask for a smaller part of the range"
            )
        key_of, value_of = table.key_maker(), table.value_maker(len(table.slots))
        number, first, last, pairs = "", "", "", found[0]
        for row in rows:
            if row[-1] != number:  # the rows of a range come together
                number = row[-1]
                first, last = keys[int(number)]
                pairs = found[int(number)]
            key = key_of(row)
            if key is None:
                self.note_unfit(table)
            elif first <= key < last:
                pairs.append((key, value_of(row)))

    # Writing.

    async def _write(self, changes: Sequence[Write]) -> tuple[int, int]:
        statements = [sql.write(self.table_at(key), key, value, "%s") for key, value in changes]

        async def run(connection: Any) -> tuple[int, int]:
            removed = 0
            async with connection.transaction():
                async with connection.pipeline():
                    cursors = [await connection.execute(*one) for one in statements]
                removed = sum(
                    cursor.rowcount for cursor, (_, value) in zip(cursors, changes) if value is None
                )
            cursor = await connection.execute("SELECT pg_current_wal_flush_lsn()::text")
            return lsn_number((await cursor.fetchone())[0]), removed

        return await self._run(run)

    # Connections.

    async def _run(self, work: Callable[[Any], Awaitable[Result]]) -> Result:
        """Do something with a connection; what PostgreSQL says becomes an error of ours."""
        try:
            async with self._connection() as connection:
                return await work(connection)
        except (psycopg.OperationalError, psycopg.InterfaceError, OSError) as error:
            raise SourceDown(f"the database does not answer: {_said(error)}") from error
        except psycopg.errors.UndefinedObject as error:
            raise SourceDown(f"the tables have changed: {_said(error)}") from error
        except (psycopg.errors.UndefinedColumn, psycopg.errors.UndefinedTable) as error:
            raise SourceDown(
                f"the tables have changed: {_said(error)}; mend the mapping and restart"
            ) from error
        except psycopg.Error as error:
            raise BadRequest(f"the database refuses: {_said(error)}") from error

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        """One of a bounded number of connections, opened when it is needed."""
        connection = await self._idle.get()
        try:
            if connection is None or connection.closed or connection.broken:
                connection = None
                connection = await self._opened()
                # All but bytes as PostgreSQL writes it, which is how it comes in changes.
                for kind in psycopg.postgres.types:
                    if kind.name != "bytea":
                        connection.adapters.register_loader(kind.oid, TextLoader)
            yield connection
        except BaseException:
            if connection is not None:  # it may be in the middle of something
                with suppress(psycopg.Error):
                    await connection.close()
            connection = None
            raise
        finally:
            self._idle.put_nowait(connection)

    async def _opened(self) -> Any:
        said = conninfo_to_dict(self._conninfo)
        options = f"{said.get('options') or ''} {_OPTIONS}{_LOAD_OPTIONS}"
        options += f" -c statement_timeout={int(self.seconds * 1000)}"
        conninfo = make_conninfo(
            self._conninfo,
            options=options,
            application_name="pequod",
            connect_timeout=said.get("connect_timeout") or 5,
        )
        return await psycopg.AsyncConnection.connect(conninfo, autocommit=True)

    def stats(self) -> Mapping[str, Any]:
        slot = self._slot_state
        return {
            **super().stats(),
            "kind": "postgresql",
            "slot": self._slot,
            "wal_behind_bytes": slot.get("behind_bytes"),
            "wal_retained_bytes": slot.get("retained_bytes"),
            "drops": self.drops,
        }


def _said(error: BaseException) -> str:
    """What went wrong, in a line."""
    return " ".join(str(error).split()) or type(error).__name__


async def administrate(conninfo: str, work: Callable[[Any], Awaitable[Result]]) -> Result:
    """Do something with a connection of its own, as `pequod db` does."""
    try:
        async with await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as connection:
            return await work(connection)
    except psycopg.OperationalError as error:
        raise SourceDown(f"the database does not answer: {_said(error)}") from error
    except psycopg.Error as error:
        raise BadRequest(f"the database refuses: {_said(error)}") from error
