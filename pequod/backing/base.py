"""What all databases behind a cache have in common: positions in their history, and tokens.

A database is followed commit by commit, and the cache has all of it up to a *position*: a number
that only grows. A load is tagged with a position, too, and is handed over when the cache has come
as far. Until then every change since the load was asked for is noted, and outranks it. So no load
can overwrite a newer change, nor miss one, and what is in the cache is the database as it was after
one commit.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from pequod.backing.mapping import AROUND, Table
from pequod.errors import BadRequest, SourceBehind, SourceDown
from pequod.keys import KeyRange, Pair, Value

log = logging.getLogger("pequod.backing")

MAX_PAUSE_SECONDS = 2.0

Write = tuple[str, Value | None]
Result = TypeVar("Result")


class Sink(Protocol):
    """The cache, as a database sees it: where changes go."""

    def put(self, key: str, value: Value) -> None: ...
    def remove(self, key: str) -> bool: ...
    def remove_range(self, first: str, last: str) -> int: ...
    def invalidate(self, keys: tuple[str, str]) -> None: ...


class Progress:
    """How far the cache has followed, and who waits for more."""

    def __init__(self, unit: str = "bytes") -> None:
        self.unit = unit  # of positions
        self.position = 0
        self.goal = 0  # where the database was when we connected to it
        self.head = 0  # the latest position of the database that we know of
        self.moved_at = time.monotonic()  # when we last had all that we knew of
        self.down_since: float | None = time.monotonic()
        self.stale_since: float | None = self.down_since  # until we have caught up again
        self.reason = "it is not connected yet"
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._asking: set[asyncio.Future[None]] = set()  # who is asking it just now

    def advance(self, position: int) -> None:
        """The cache has everything up to this position."""
        if position > self.position:
            self.position = position
        self.head = max(self.head, self.position)
        if self.position >= self.head:
            self.moved_at = time.monotonic()
        if self.stale_since is not None:
            self._catch_up()
        if self._waiting:
            self._tell()

    def see(self, head: int) -> None:
        """The database has come as far as this."""
        if head > self.head:
            if self.position >= self.head:
                self.moved_at = time.monotonic()
            self.head = head

    def _tell(self) -> None:
        left = []
        for position, future in self._waiting:
            if position > self.position:
                left.append((position, future))
            elif not future.done():
                future.set_result(None)
        self._waiting = left

    @property
    def is_awaited(self) -> bool:
        return any(not future.done() for _, future in self._waiting)

    async def reach(self, position: int, seconds: float) -> None:
        """Wait until the cache has all up to a position; raises if that takes too long."""
        if position <= self.position:
            return
        if self.down_since is not None:
            raise self.down()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((position, future))
        try:
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError as error:
            raise SourceBehind(
                f"the cache is {position - self.position} {self.unit} behind what was asked for, "
                f"after {seconds:g} seconds; try again"
            ) from error

    async def unless_lost(self, asking: Coroutine[Any, Any, Result]) -> Result:
        """What the database answers; raises as soon as it is lost, whatever it is asked."""
        if self.down_since is not None:
            asking.close()
            raise self.down()
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asking.add(told)
        task = asyncio.ensure_future(asking)
        try:
            await asyncio.wait((task, told), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise self.down()
            return task.result()
        finally:
            self._asking.discard(told)
            if not task.done():  # to give it up may take a while
                task.add_done_callback(lambda task: task.cancelled() or task.exception())
                task.cancel()

    def connected(self, goal: int) -> None:
        """It is followed again, and has come to this position meanwhile."""
        if self.down_since is not None:
            log.info("following the database")
        self.down_since = None
        self.reason = ""
        self.goal = goal
        self.see(goal)
        self._catch_up()

    def _catch_up(self) -> None:
        if self.down_since is None and self.position >= self.goal:
            self.stale_since = None

    def lost(self, reason: str, since: float | None = None) -> None:
        """The database is gone, maybe for a while already: whoever waits for it hears at once."""
        if self.down_since is None:
            log.warning("the database is lost: %s", reason)
            self.down_since = time.monotonic() if since is None else since
            self.stale_since = self.stale_since or self.down_since
        self.reason = reason
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(self.down())
        for told in self._asking:
            if not told.done():
                told.set_result(None)

    def down(self) -> SourceDown:
        return SourceDown(
            f"the database does not answer ({self.reason}), for {self.age:.1f} seconds; "
            "what is in memory is served"
        )

    @property
    def age(self) -> float:
        """For how long the cache may have missed changes, in seconds; 0 while it follows."""
        return 0.0 if self.stale_since is None else time.monotonic() - self.stale_since

    @property
    def lag_seconds(self) -> float:
        if self.down_since is None and self.position >= self.head:
            return 0.0
        return time.monotonic() - self.moved_at


class Database:
    """A database behind a cache; its kinds say how to load, write and follow."""

    unit = "bytes"  # of positions

    def __init__(self, tables: Sequence[Table], seconds: float, max_rows: int) -> None:
        self.tables = list(tables)
        self.progress = Progress(self.unit)
        self.seconds = seconds
        self.max_rows = max_rows
        self.unfit = 0  # rows that are no keys
        self.changes = 0
        self._warned: set[str] = set()

    # What the server asks.

    async def start(self, sink: Sink) -> None:
        """Check the tables, and follow them from now on."""
        raise NotImplementedError

    async def stop(self) -> None:
        raise NotImplementedError

    async def load(self, keys: Sequence[KeyRange]) -> Sequence[Iterable[Pair]]:
        """The rows of each of the ranges, when the cache has come as far as they have."""
        position, found = await self.progress.unless_lost(self._select(keys))
        await self._reach(position)
        return found

    async def write(self, changes: Sequence[Write]) -> tuple[str, int]:
        """Write rows in one transaction; comes back when the cache has followed them."""
        if self.progress.down_since is not None:
            raise self.progress.down()
        try:
            position, removed = await self.progress.unless_lost(self._write(changes))
        except SourceDown as error:
            raise SourceDown(f"it is not known if this was written: {error}") from error
        token = self.token(position)
        try:
            await self._reach(position)
        except SourceDown as error:
            raise SourceBehind(
                f"it is written, as {token}, but not in the cache: {error}"
            ) from error
        return token, removed

    async def _select(self, keys: Sequence[KeyRange]) -> tuple[int, list[list[Pair]]]:
        """The rows of each range, and a position that the database had come to afterwards."""
        raise NotImplementedError

    async def _write(self, changes: Sequence[Write]) -> tuple[int, int]:
        """Write rows; a position after that, and how many were removed."""
        raise NotImplementedError

    def takes(self, keys: KeyRange) -> bool:
        """True if writes to some of these keys go to the database; raises if they may not."""
        is_taken = False
        for table in self.tables:
            if keys.overlaps(table.keys):
                if table.mode == AROUND:
                    raise BadRequest(
                        f"{keys.first!r:.60} is of table {table.name}, which is written around "
                        'the cache: write to the database, or say mode = "through"'
                    )
                is_taken = True
        return is_taken

    def table_at(self, key: str) -> Table:
        """The table that has this key, which was taken before."""
        return next(table for table in self.tables if key in table.keys)

    # Tokens.

    def token(self, position: int) -> str:
        return str(position)

    def position_of(self, token: str) -> int:
        if not (token.isascii() and token.isdigit() and len(token) < 20):
            raise BadRequest(f"after: {token!r:.60} is no position of this database")
        return int(token)

    def has(self, token: str) -> bool:
        return self.position_of(token) <= self.progress.position

    async def reach(self, token: str) -> None:
        await self._reach(self.position_of(token))

    async def _reach(self, position: int) -> None:
        """Wait until the cache has come to a position."""
        await self.progress.reach(position, self.seconds)

    # What there is to tell.

    @property
    def is_ready(self) -> bool:
        """True if the database is followed, and the cache has caught up with it."""
        return self.progress.stale_since is None

    @property
    def age(self) -> float:
        return self.progress.age

    def note_unfit(self, table: Table) -> None:
        """A row is no key; the log says so once for a table."""
        self.unfit += 1
        self.warn(f"table {table.name} has rows that do not fit {table.text}; they are left out")

    def warn(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            log.warning("%s", message)

    def stats(self) -> Mapping[str, Any]:
        """How it is, for people and for monitoring."""
        progress = self.progress
        return {
            "connected": progress.down_since is None,
            "position": self.token(progress.position),
            f"lag_{self.unit}": max(0, progress.head - progress.position),
            "lag_seconds": round(progress.lag_seconds, 3),
            "age_seconds": round(progress.age, 3),
            "changes": self.changes,
            "unfit_rows": self.unfit,
        }
