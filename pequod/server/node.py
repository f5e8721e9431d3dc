"""A server of a cluster: what it is home for, what it has of other homes, and its joins.

A node's cache computes; all base data is remote to it, its own too. Where the node is a home, the
rows that live here are in a second cache, without clients, and the first subscribes to it as to
any other home. So there is one way for a row to get anywhere, and a node that only computes, or
that is only asked for rows, is nothing special.
"""

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from pequod.client.tokens import Position, cut_of, text_of
from pequod.cluster.home import Home, KeyChange
from pequod.cluster.links import Connect, Link, Message
from pequod.cluster.partition import ClusterMap
from pequod.cluster.session import HomeSession
from pequod.cluster.subscriptions import Subscription, Timing
from pequod.engine.cache import Cache
from pequod.errors import (
    BadRequest,
    MissingData,
    Moving,
    SourceDown,
    UnknownMethod,
)
from pequod.keys import KeyRange, Pair
from pequod.server.behind import Behind
from pequod.server.joining import ClusterJoins
from pequod.server.loading import Later, Loader, Source
from pequod.server.moving import Move
from pequod.server.ownlink import OwnLink
from pequod.server.recorded import Recorded

_key = itemgetter(0)

MOVING_SECONDS = 0.05  # between attempts to write rows that are on their way


class Node:
    """One server of a cluster; the source of all base data of its cache."""

    def __init__(
        self,
        name: str,
        partitions: ClusterMap,
        cache: Cache,
        *,
        connect: Connect,
        new_epoch: Callable[[], str],
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
        read_seconds: float = 5.0,
        max_log: int = 64 << 20,
        base: Cache | None = None,
        database: Source | None = None,
        save: Callable[[str], object] = len,
        started: int = 0,
    ) -> None:
        """`connect` makes links to other homes; a `database` is where this home's rows live.

        When it is `started`, in milliseconds of all nodes' clocks, matters to joins alone.
        """
        self.name = name
        self.map = partitions
        self.timing = timing or Timing()
        self.fresh_until = float("inf")  # until then, all copies count as fresh
        self._cache = cache
        self.clock = clock
        self._connect = connect
        self._read_seconds = read_seconds
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._is_telling = False
        self._sessions: dict[HomeSession, None] = {}
        for one in partitions.partitions:
            cache.declare_remote(one.keys)
        cache.when_forgotten(self._forgotten)
        self.base = base or Cache(clock=clock)
        self._database = database
        self._new_epoch = new_epoch
        self._max_log = max_log
        self._kept: list[str] = []  # epochs of this home of which nothing was lost
        self.home: Home | None = None
        if name in partitions.homes:
            self.become_home()
        self.move = Move(self, save)
        self._base_loader: Loader | None = None
        self.subscriptions: dict[str, Subscription] = {}
        self.joins = ClusterJoins(
            name, cache, self.base, self.subscriptions, self._sessions, self._forget_behind, started
        )
        self._behind = Behind(self.joins.parsed)
        self.subscriptions.update((home, self._subscription(home)) for home in partitions.homes)

    def _subscription(self, home: str) -> Subscription:
        return Subscription(
            home,
            self._cache,
            self.link,
            lambda: (self.name, self.map.version),
            lambda: self.joins.agreement.digest,
            timing=self.timing,
            clock=self.clock,
            patience=self._read_seconds,
            heard=self._heard,
            other=partial(self.joins.told, home),
        )

    @property
    def is_durable(self) -> bool:
        """True if a database has the rows of this home."""
        return self._database is not None

    @property
    def sink(self) -> Recorded:
        """Where a database tells its changes."""
        return Recorded(self.base, lambda: self.home, self._new_epoch)

    def become_home(self) -> None:
        """Be ready to have rows, if not so yet."""
        if self.home is None:
            self.home = Home(
                self.name,
                self.base,
                self.map,
                epoch=self._new_epoch(),
                is_durable=self.is_durable,
                max_log=self._max_log,
                changed=self.tell_soon,
                kept=self._kept,
            )

    def adopt(self, partitions: ClusterMap) -> None:
        """Have another map from now on: all copies go, and the home begins a new life."""
        self.map = partitions
        self._behind.forget()
        for one in partitions.partitions:
            self._cache.declare_remote(one.keys)
        self.end_sessions()
        if self.home is not None:
            self._kept.append(self.home.epoch)
        if self.name not in partitions.homes:
            self.home = None
        if self.home is not None:
            self.home.map, self.home.next, self.home.is_left = partitions, None, False
            self.home.renew(self._new_epoch())
        for home, subscription in list(self.subscriptions.items()):
            subscription.begin_anew()
            if home not in partitions.homes:
                del self.subscriptions[home]
                self._tasks.pop(home).cancel()
        for home in partitions.homes:
            if home not in self.subscriptions:
                subscription = self.subscriptions[home] = self._subscription(home)
                self._tasks[home] = asyncio.ensure_future(subscription.run())

    # Life.

    def start(self) -> None:
        """Get in touch with all homes."""
        self._base_loader = Loader(self.base, self._database)
        self._tasks = {
            home: asyncio.ensure_future(subscription.run())
            for home, subscription in self.subscriptions.items()
        }
        self._tasks[""] = asyncio.ensure_future(self._watch_sessions())

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._base_loader is not None:
            await self._base_loader.stop()

    async def _watch_sessions(self) -> None:
        """Let go of servers that ask for nothing any more, as one that was cut off does."""
        while True:
            await asyncio.sleep(self.timing.silence)
            end = self.clock() - 3 * self.timing.silence
            for session in [one for one in self._sessions if one.heard_at < end]:
                session.end()

    # Links.

    async def link(
        self, home: str, received: Callable[[Message], None], lost: Callable[[], None]
    ) -> Link:
        if home == self.name:
            return OwnLink(self, received, lost)
        return await self._connect(self.map.nodes[home], received, lost)

    def session(
        self,
        push: Callable[[tuple[object, ...]], None],
        bytes_ahead: Callable[[], int],
        end: Callable[[], None],
    ) -> HomeSession:
        """What another server talks to; `end` cuts it off."""
        if self.home is None:
            raise UnknownMethod(f"node {self.name} is no home: it only computes")
        session = HomeSession(
            self.home,
            self.joins.agreement,
            push,
            bytes_ahead=bytes_ahead,
            write=self._write_home,
            joins=self.joins.change,
            clock=self.clock,
            end=end,
        )
        self._sessions[session] = None
        return session

    def close_session(self, session: HomeSession) -> None:
        self._sessions.pop(session, None)
        session.close()

    def end_sessions(self) -> None:
        """Cut all other servers off; they come again."""
        for session in list(self._sessions):
            session.end()

    async def finish_base(self, call: Callable[[], Any], reason: MissingData | Later) -> Any:
        """The answer of a session that takes time, as when rows are still in the database."""
        assert self._base_loader is not None, "the node is not started"
        return await self._base_loader.finish(call, reason)

    # Joins.

    def add_join(self, text: str) -> list[dict[str, Any]]:
        """Install joins everywhere; it takes time."""
        raise Later(partial(self._ask_first, "add_join", text))

    def drop_join(self, name: str) -> None:
        raise Later(partial(self._ask_first, "drop_join", name))

    async def _ask_first(self, method: str, argument: str) -> Any:
        first = self.map.homes[0]
        try:
            async with asyncio.timeout(self._read_seconds):
                return await self.subscriptions[first].ask(method, argument)
        except TimeoutError as error:
            raise SourceDown(
                f"home {first}, which keeps the list of joins, does not answer; try again"
            ) from error

    # The home.

    def tell_soon(self) -> None:
        """Tell subscribers; what happens in one turn of the loop goes into one message."""
        if not self._is_telling:
            self._is_telling = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._is_telling = False
        if self.home is not None:
            self.home.tell_all()

    def _write_home(
        self, changes: Sequence[KeyChange], tell: Callable[[], object]
    ) -> tuple[str, int, int]:
        assert self.home is not None, "only a home has sessions"
        changes = [(key, value) for key, value in changes]
        if self._database is not None:
            self.home.check(changes)
            raise Later(partial(self._write_database, self.home, self._database, changes, tell))
        number, removed = self.home.write(changes)
        tell()
        return self.home.epoch, number, removed

    async def _write_database(
        self,
        home: Home,
        database: Source,
        changes: Sequence[KeyChange],
        tell: Callable[[], object],
    ) -> tuple[str, int, int]:
        writing = asyncio.ensure_future(database.write(changes))
        self.move.writing.add(writing)
        writing.add_done_callback(self.move.writing.discard)
        _, removed = await writing
        tell()
        return home.epoch, home.log.number, removed

    # A source of data for the cache.

    async def load(self, keys: Sequence[KeyRange]) -> list[list[Pair]]:
        """The rows of ranges, from all their homes; changes follow."""
        partitions = self.map
        wanted = partitions.by_home(keys)
        fetches = [
            asyncio.ensure_future(self.subscriptions[home].fetch(ranges))
            for home, ranges in wanted.items()
        ]
        try:
            found = await asyncio.gather(*fetches)
        finally:
            for fetch in fetches:  # if one has failed, nobody wants the others
                fetch.cancel()
        if partitions is not self.map:  # some may have been asked for what is not theirs any more
            return await self.load(keys)
        rows = sorted((row for ranges in found for some in ranges for row in some), key=_key)
        return [
            rows[bisect_left(rows, one.first, key=_key) : bisect_left(rows, one.last, key=_key)]
            for one in keys
        ]

    def takes(self, keys: KeyRange) -> bool:
        """True: every base key has a home, even if it is here; raises if it has none."""
        if keys.last == keys.first + "\0":
            self.map.home_of(keys.first)
        return True

    async def write(self, changes: Sequence[KeyChange]) -> tuple[str, int]:
        """Let each home do its part in one step; several homes do not wait for each other."""
        done: list[tuple[Position, int]] = []
        await self._write(changes, done)
        return text_of(position for position, _ in done), sum(removed for _, removed in done)

    async def _write(self, changes: Sequence[KeyChange], done: list[tuple[Position, int]]) -> None:
        """Note what is done in that order: of two lives of a home, the later one counts."""
        parts: dict[str, list[KeyChange]] = {}
        for change in changes:
            parts.setdefault(self.map.home_of(change[0]), []).append(change)
        await asyncio.gather(*(self._write_at(home, part, done) for home, part in parts.items()))

    async def _write_at(
        self, home: str, changes: list[KeyChange], done: list[tuple[Position, int]]
    ) -> None:
        version = self.map.version
        try:
            done.append(await self.subscriptions[home].write(changes))
        except Moving:  # until it has moved; then it goes to where it is
            if version == self.map.version:
                await asyncio.sleep(MOVING_SECONDS)
            await self._write(changes, done)

    def has(self, token: str) -> bool:
        return all(one.has(position) for one, position in self._in_token(token))

    async def reach(self, token: str) -> None:
        for one, position in self._in_token(token):
            await one.reach(position)

    def _in_token(self, token: str) -> Iterator[tuple[Subscription, Position]]:
        """The homes of a token; a node that is none any more has given all its rows to others."""
        for home, position in cut_of(token).items():
            if home in self.subscriptions:
                yield self.subscriptions[home], position
            elif home not in self.map.nodes:
                raise BadRequest(f"after: {home!r} of token {token!r:.60} is not of this cluster")

    def _forgotten(self, keys: KeyRange) -> None:
        for subscription in self.subscriptions.values():
            subscription.forgotten(keys)

    # Freshness.

    def _heard(self) -> None:
        heard = [one.heard_at for one in self.subscriptions.values() if len(one.ranges)]
        self.fresh_until = min(heard, default=float("inf")) + self.timing.suspect

    def check_fresh(self, keys: KeyRange, seconds: float | None = None) -> None:
        """Raise what waits, if the rows of a range may be older than that, or than usual."""
        allowed = self.timing.suspect if seconds is None else max(seconds, self.timing.suspect)
        late = [one for one in self.behind(keys) if self._age(one) > allowed]
        if late:
            raise Later(partial(self._freshened, late, allowed), again=True)

    async def _freshened(self, late: Iterable[Subscription], allowed: float) -> None:
        for one in late:
            try:
                async with asyncio.timeout(self._read_seconds):
                    while self._age(one) > allowed:
                        await one.heard_since(self.clock() - allowed)
            except TimeoutError as error:
                raise SourceDown(
                    f"home {one.home} has not been heard of for {self._age(one):.1f} seconds, so "
                    "this may be old; read(..., stale=seconds) gives it nevertheless"
                ) from error

    def age(self, keys: KeyRange) -> float:
        """So many seconds ago, the rows of a range were all there was."""
        return max((self._age(one) for one in self.behind(keys)), default=0.0)

    def _age(self, one: Subscription) -> float:
        return self.clock() - one.heard_at if len(one.ranges) else 0.0

    def cut(self, keys: KeyRange) -> str:
        """What the rows of a range reflect, for each home that they may come from."""
        return text_of(one.position for one in self.behind(keys) if len(one.ranges))

    def _forget_behind(self) -> None:
        self._behind.forget()

    def behind(self, keys: KeyRange) -> list[Subscription]:
        """What this node has of the homes that a range may depend on."""
        return [self.subscriptions[home] for home in self._behind.homes(keys, self.map)]

    def status(self) -> dict[str, Any]:
        """How this node and the others see each other."""
        status: dict[str, Any] = {
            "node": self.name,
            "map": self.map.version,
            "joins": self.joins.agreement.digest,
            "homes": {name: self._status_of(one) for name, one in self.subscriptions.items()},
        }
        if self.home is not None:
            status["home"] = {
                "epoch": self.home.epoch,
                "number": self.home.log.number,
                "durable": self.home.is_durable,
                "rows": self.base.stats()["keys"],
                "log_entries": len(self.home.log),
                "log_bytes": self.home.log.bytes,
                "subscribers": [
                    {
                        "node": one.node,
                        "ranges": len(one.ranges),
                        "behind": self.home.log.number - max(one.told, one.looked),
                        "bytes_ahead": one.bytes_ahead(),
                    }
                    for one in self.home.subscribers
                ],
            }
        return status

    def _status_of(self, one: Subscription) -> dict[str, Any]:
        age = self.clock() - one.heard_at
        return {
            "url": self.map.nodes[one.home],
            "live": one.is_live,
            "epoch": one.epoch,
            "number": one.number,
            "age_seconds": age if age < float("inf") else None,
            "ranges": len(one.ranges),
            "changes": one.changes,
            "bytes": one.bytes,
            "resumed": one.resumed,
            "restarted": one.restarted,
            "gaps": one.gaps,
        }
