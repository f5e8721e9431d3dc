"""PostgreSQL behind a cache: loads by SQL, and the changes of a slot by logical decoding."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pequod.backing import pgcatalog, sql
from pequod.backing.base import MAX_PAUSE_SECONDS, Database, Sink, Write
from pequod.backing.changes import Changes
from pequod.backing.mapping import Bounds, Table
from pequod.backing.pgoutput import Begin, Commit, Keepalive, Message, lsn_number, lsn_text
from pequod.backing.pgpool import Error, InUse, Lost, Pool, conninfo_of, said
from pequod.backing.pgrows import asked_of, collect
from pequod.backing.pgtables import Mapped
from pequod.backing.replication import Stream, System
from pequod.backing.snapshots import Applied
from pequod.errors import BadRequest, PequodError, SourceBehind, SourceDown
from pequod.keys import KeyRange, Pair

log = logging.getLogger("pequod.backing")

LOOK_SECONDS = 1.0  # between looks at the slot and the tables
NUDGE_SECONDS = 0.003  # between questions how far the server is, while somebody waits for it
DEAD_SECONDS = 60.0  # a stream that was silent for so long is closed, and opened again
_BUSY_SECONDS = 15.0  # for a slot that another process still has, as after kill -9
_REREAD_SECONDS = 0.002  # until a load is made again whose snapshot was too old
# A commit may be in the log before queries see it: what was committed just before we begin is
# followed, too, so that loads are known to have it.
_LOOK_BACK_BYTES = 1 << 20


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
        self._pool = Pool(conninfo, connections, seconds)
        self._mapped = Mapped(slot, self.tables)
        self._sink: Sink | None = None
        self._changes: Changes | None = None
        self._applied = Applied()
        self._life = ""  # of PostgreSQL, from one crash to the next
        self._seen = 0  # where the log ended, on disk or not, after the latest load
        self._xid = 0  # of the transaction that is being received
        self._stream: Stream | None = None
        self._system: System | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._nudge: asyncio.TimerHandle | None = None
        self._is_altered = asyncio.Event()
        self._slot_state: Mapping[str, Any] = {}
        self._is_log_large = False
        self.drops = 0  # times that everything was dropped and loaded anew

    # Its life.

    async def start(self, sink: Sink) -> None:
        self._sink = sink
        try:
            await self._begin(sink)
        except BaseException as error:
            await self.stop()
            if isinstance(error, InUse):
                raise SourceDown(
                    f"{said(error)}: another server uses it; give this one a slot of its own with "
                    "--db-slot, here and in `pequod db init`"
                ) from error
            if isinstance(error, Error | OSError):
                raise SourceDown(f"the database cannot be used: {said(error)}") from error
            raise
        self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._watch())]

    async def _begin(self, sink: Sink) -> None:
        async with await self._pool.opened() as connection:
            await self._mapped.bind(connection)
            if await pgcatalog.slot_state(connection, self._slot) is None:
                raise BadRequest(
                    f"the database has no slot {self._slot}; run `pequod db init` first"
                )
        self._changes = Changes(self, sink, self._is_altered.set)
        self._changes.bind(self._mapped.oids)
        await self._connect()

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
        await self._pool.close()

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
                reason = said(error)
                if not isinstance(error, Error | OSError):
                    log.error("following failed: %r", error, exc_info=error)
                    self._drop_everything("a change could not be applied")
            self.progress.lost(reason)
            while True:
                await asyncio.sleep(pause)
                try:
                    await self._connect()
                except (Error, OSError, PequodError) as error:
                    self.progress.lost(said(error))
                    pause = min(2 * pause, MAX_PAUSE_SECONDS)
                else:
                    pause = 0.02
                    break

    async def _connect(self) -> None:
        """Open a stream where the last one ended or, if that is no longer possible, afresh."""
        assert self._changes is not None, "it was started"
        stream = await self._opened_stream()
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

    async def _opened_stream(self) -> Stream:
        try:
            return await Stream.connect(conninfo_of(self._conninfo), self._receive)
        except Lost as error:
            if self._system is not None:
                raise
            raise SourceDown(
                f"no connection for replication: {said(error)}; such a connection needs a role "
                "with REPLICATION (ALTER ROLE ... REPLICATION), no pooler in between, and a free "
                "place in max_wal_senders"
            ) from error

    async def _start_stream(self, stream: Stream, position: int) -> None:
        end = asyncio.get_running_loop().time() + _BUSY_SECONDS
        while True:
            try:
                await stream.start(self._slot, self._slot, position)
            except InUse as error:
                if asyncio.get_running_loop().time() > end:
                    raise
                self.warn(f"waiting for the slot: {said(error)}")
                await asyncio.sleep(0.1)
            else:
                return

    async def _resumed_at(self, stream: Stream, system: System) -> int:
        """Where to go on; drops what the cache has if it has missed something for good."""
        async with self._pool.connection() as connection:
            state = await pgcatalog.slot_state(connection, self._slot)
            life_before, self._life = self._life, await pgcatalog.life(connection)
            is_lost = state is not None and state["wal_status"] == "lost"
            if is_lost:
                await connection.execute("SELECT pg_drop_replication_slot(%s)", [self._slot])
        before, position = self._system, self.progress.position
        confirmed = state["confirmed"] if state is not None and not is_lost else "0/0"
        if state is None or is_lost:
            self._drop_everything(f"the slot {self._slot} was lost; it is made anew")
            await stream.create_slot(self._slot)
            system = await stream.identify()
        elif before is None:
            pass  # nothing is here yet
        elif (before.identifier, before.timeline) != (system.identifier, system.timeline):
            self._drop_everything("this is another database than before")
        elif system.end < position or lsn_number(confirmed) > position:
            self._drop_everything("its log does not reach back to where we were")
        elif system.end - position > self._wal_budget:
            self._drop_everything("its log is further ahead than the budget (db_wal_budget)")
        elif life_before != self._life and self._seen > position:
            self._drop_everything("it crashed, and what was loaded may be of commits that are lost")
        else:
            return position
        start = max(
            lsn_number(confirmed), system.end - min(_LOOK_BACK_BYTES, self._wal_budget // 4)
        )
        self.progress.position = self.progress.head = start
        return start

    def _drop_everything(self, reason: str) -> None:
        """All that came from the database is loaded anew when it is read."""
        log.warning("all ranges are dropped, and loaded anew when they are read: %s", reason)
        self.drops += 1
        self._applied = Applied()
        assert self._sink is not None, "it was started"
        for table in self.tables:
            self._sink.invalidate(table.keys)

    def _receive(self, message: Message) -> None:
        assert self._changes is not None, "it was started"
        if self.progress.down_since is not None:  # it was silent, and is no more
            self.progress.connected(self.progress.goal)
        if isinstance(message, Commit):
            if message.end > self.progress.position:
                self._applied.add(self._xid)
                self._changes.apply()
                self.progress.advance(message.end)
            else:
                self._changes.begin()
        elif isinstance(message, Begin):
            self._xid = message.xid
        elif isinstance(message, Keepalive):
            if not self._changes.is_open:
                self.progress.advance(message.end)
            if message.wants_reply and self._stream is not None:
                self._stream.send(self.progress.position)
        else:
            self._changes.note(message)

    # Looking after it.

    async def _watch(self) -> None:
        """Tell the server how far we are, hear whether it lives, and look what has changed."""
        heard_at, silent_looks = 0.0, 0
        while True:
            try:
                await asyncio.wait_for(self._is_altered.wait(), LOOK_SECONDS)
            except TimeoutError:
                silent_looks += 1
            self._is_altered.clear()
            stream = self._stream
            if stream is None or stream.ended.done():
                continue
            if heard_at != stream.heard_at:
                heard_at, silent_looks = stream.heard_at, 0
            # Looks are counted, for a loop that was busy for long has heard nothing either.
            silent = silent_looks * LOOK_SECONDS
            if silent > DEAD_SECONDS:
                stream.close(Lost(f"it was silent for {silent:.0f} seconds"))
                continue
            if silent > self.seconds:
                self.progress.lost(f"it is silent for {silent:.0f} seconds", heard_at)
            stream.send(self.progress.position, wants_reply=True)
            if self.progress.down_since is None:
                try:
                    await self._look()
                except (PequodError, Error, OSError) as error:  # the stream tells if it lives
                    log.warning("cannot look after the slot: %s", said(error))

    async def _look(self) -> None:
        """See how much log the slot keeps, and whether tables were altered."""
        async with asyncio.timeout(self.seconds), self._pool.connection() as connection:
            self._slot_state = await pgcatalog.slot_state(connection, self._slot) or {}
            looks = await self._mapped.looks(connection)
            cursor = await connection.execute(
                "SELECT pg_current_snapshot()::text, pg_current_wal_flush_lsn()::text"
            )
            snapshot, end = await cursor.fetchone()
        self._applied.lacking(snapshot, self._applied.now())
        position = lsn_number(end)
        self.progress.see(position)
        behind = self.progress.head - self.progress.position
        if behind > self._wal_budget and self._stream is not None:
            self._stream.close(Lost(f"{behind} bytes behind (db_wal_budget)"))
        self._report_log(behind, self._slot_state.get("retained_bytes", 0))
        if altered := self._mapped.altered(looks):
            async with asyncio.timeout(self.seconds), await self._pool.opened() as connection:
                found = await self._mapped.rebound(connection, altered)
            # The changes of the old rows come first: later they would outrank the new ones.
            await self._reach(position)
            self._rebind(looks, found)

    def _report_log(self, behind: int, retained: int) -> None:
        """Say so if the slot keeps much of the log, and say it again only after that was over."""
        said_before, self._is_log_large = (
            self._is_log_large,
            max(behind, retained) > self._wal_budget // 2,
        )
        if self._is_log_large and not said_before:
            log.warning(
                "slot %s holds back %d bytes of the database's log (db_wal_budget is %d): %s",
                self._slot,
                max(behind, retained),
                self._wal_budget,
                f"the server is {behind} bytes behind"
                if behind > self._wal_budget // 2
                else "a transaction of the database is open for long",
            )

    def _rebind(self, looks: Sequence[tuple[int, str]], found: dict[int, Table | str]) -> None:
        assert self._changes is not None, "it was started"
        assert self._sink is not None, "it was started"
        for table in self._mapped.become(looks, found):
            self._sink.invalidate(table.keys)
        self._changes.bind(self._mapped.oids)

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
        wanted = asked_of(self.tables, keys)
        for place in {shape[0] for shape in wanted} & self._mapped.troubles.keys():
            raise SourceDown(
                f"table {self.tables[place].name} cannot be read: {self._mapped.troubles[place]}"
            )

        async def run(connection: Any) -> tuple[Any, list[Any], Any]:
            async with connection.pipeline():
                # Before the rows are looked at, so that they have what the snapshot has.
                snapshot = await connection.execute("SELECT pg_current_snapshot()::text")
                cursors = [
                    await connection.execute(*self._query(self.tables[shape[0]], asked))
                    for shape, asked in wanted.items()
                ]
                # After they were, so that all they have is in the log by then.
                position = await connection.execute(
                    "SELECT pg_current_wal_flush_lsn()::text, pg_current_wal_insert_lsn()::text"
                )
            return snapshot, cursors, position

        applied, end = self._applied.now(), time.monotonic() + self.seconds
        while True:
            try:
                snapshot, cursors, position = await self._pool.run(run)
            except SourceDown:
                if self.progress.down_since is not None:
                    raise
                # A single connection may have been cut.
                snapshot, cursors, position = await self._pool.run(run)
            if not self._applied.lacking((await snapshot.fetchone())[0], applied):
                break
            if time.monotonic() > end:
                raise SourceBehind(
                    "the database's log has a transaction that queries do not see yet: it may wait "
                    "for a synchronous standby"
                )
            await asyncio.sleep(_REREAD_SECONDS)
        found: list[list[Pair]] = [[] for _ in keys]
        for (shape, asked), cursor in zip(wanted.items(), cursors):
            collect(self, self.tables[shape[0]], asked, await cursor.fetchall(), keys, found)
        flushed, written = await position.fetchone()
        self._seen = max(self._seen, lsn_number(written))
        return lsn_number(flushed), found

    def _query(self, table: Table, asked: list[tuple[int, Bounds]]) -> sql.Statement:
        return sql.many_ranges(table, asked, self.max_rows + 1)

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

        return await self._pool.run(run)

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
