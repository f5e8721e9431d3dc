"""The receiving side: copies of a home's rows here, and how they follow what happens there.

All copies of one home's rows are exact for one position, its epoch and a number, whatever ranges
they are in. Changes move it on, each message from where the last one ended. A message that starts
later, or a lost link, means that something was missed: then the stream goes on from the number
that was reached if the home still has what follows, or else the copies go and are fetched again.

How old the copies may be is known from probes: a home answers after all that it told before, so
when it has answered, the copies have everything that happened before the probe was sent.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Protocol

from pequod.client.tokens import Position
from pequod.cluster.home import CHANGES, START, KeyChange
from pequod.cluster.links import Connect, Link, Lost, Message
from pequod.cluster.ranges import RangeSet
from pequod.errors import BadRequest, DataLost, Moving, PequodError, SourceDown, Unavailable
from pequod.keys import KeyRange, Pair, Value

log = logging.getLogger("pequod.cluster")


class Timing(NamedTuple):
    """How often servers ask for each other, in seconds."""

    beat: float = 0.25  # between two probes
    suspect: float = 1.0  # after a probe, copies count as fresh for so long
    silence: float = 2.0  # without an answer, the link is given up
    first_pause: float = 0.05  # before a lost link is tried again; then twice that, and so on
    last_pause: float = 1.0


class Copies(Protocol):
    """Where the copies are: a cache for which the home's ranges are remote."""

    def put(self, key: str, value: Value) -> None: ...
    def remove(self, key: str) -> bool: ...
    def invalidate(self, keys: tuple[str, str]) -> None: ...


class Subscription:
    """What this node has of one home."""

    def __init__(
        self,
        home: str,
        copies: Copies,
        connect: Connect,
        hello: Callable[[], tuple[Any, ...]],
        digest: Callable[[], str],
        *,
        timing: Timing,
        clock: Callable[[], float],
        patience: float = 5.0,
        heard: Callable[[], object] = int,
        other: Callable[[Message], object] = id,
    ) -> None:
        """To present oneself there is `hello`, and a `digest` of the joins that are known here.

        Calls wait for a link for the seconds of `patience`.
        `heard` is called when freshness has changed, `other` with messages that are not about rows.
        """
        self.home = home
        self.epoch = ""
        self.number = 0
        self.is_durable = False
        self._kept: set[str] = set()  # epochs that are over, and of which nothing was lost
        self.ranges = RangeSet()
        self.heard_at = float("-inf")  # the copies have all that happened before
        self.resumed = self.restarted = self.gaps = self.changes = 0
        self._copies = copies
        self._connect = connect
        self._hello = hello
        self._digest = digest
        self._timing = timing
        self._clock = clock
        self._patience = patience
        self._heard = heard
        self._other = other
        self._link: Link | None = None
        self._bytes = 0  # of links that were lost
        self._attempt = 0
        self._life = 0  # of the copies: another one once they had to go
        self._drops: list[KeyRange] = []
        self._moved: asyncio.Future[None] | None = None

    @property
    def is_live(self) -> bool:
        """True if changes arrive."""
        return self._link is not None

    @property
    def bytes(self) -> int:
        """What has come and gone over all links to this home so far."""
        return self._bytes + (self._link.bytes if self._link is not None else 0)

    @property
    def position(self) -> Position:
        """What the copies are exact for."""
        return Position(self.home, self.epoch, self.number)

    # What callers ask for.

    async def fetch(self, ranges: Sequence[KeyRange]) -> list[list[Pair]]:
        """The rows of ranges, which are subscribed to from now on."""
        try:
            return await self._fetch(ranges)
        except BaseException:  # also if it is cancelled: nobody wants to hear of them any more
            for keys in ranges:
                self.forgotten(keys)
            raise

    async def _fetch(self, ranges: Sequence[KeyRange]) -> list[list[Pair]]:
        while True:
            link = await self._live()
            self._send_drops(link)
            for keys in ranges:  # at once: should the copies go, what is on its way goes with them
                self.ranges.add(keys)
            life, sent = self._life, self._clock()
            with suppress(Lost):
                number, rows = await link.call("fetch", [tuple(keys) for keys in ranges])
                await self._reach(life, number)
                if life == self._life:
                    self._hear(sent)
                    return rows  # type: ignore[no-any-return]

    async def write(self, changes: Sequence[KeyChange]) -> tuple[Position, int]:
        """Let the home do this; gives its position then, and how many rows were removed."""
        link = await self._live()
        life = self._life
        try:
            epoch, number, removed = await link.call("write", list(changes))
        except Lost as error:
            raise Unavailable(
                f"home {self.home} was lost on the way; the write may have happened"
            ) from error
        await self._reach(life, number, link)
        return Position(self.home, epoch, number), removed

    def has(self, position: Position) -> bool:
        """True if the copies have all up to a position."""
        if position.epoch in self._kept:
            return True
        return self.epoch == position.epoch and self.number >= position.number

    async def reach(self, position: Position) -> None:
        """Wait until they have; raises if they never will."""
        while not self.has(position):
            link = await self._live()
            life = self._life
            with suppress(Lost):
                number = await link.call("beat", self._digest())
                await self._reach(life, number, link)
                if link is not self._link or self.has(position):
                    continue
                if self.epoch != position.epoch:
                    if self.is_durable:  # all that was acknowledged is in the database
                        self._kept.add(position.epoch)
                        return
                    raise DataLost(
                        f"home {self.home} has lost what it had when it gave this token "
                        f"({position}): it has no database, and was started again"
                    )
                if number < position.number:
                    raise BadRequest(f"after: {position} is ahead of home {self.home}, at {number}")

    async def ask(self, method: str, *args: Any) -> Any:
        """Call the home for something else."""
        link = await self._live()
        try:
            return await link.call(method, *args)
        except Lost as error:
            raise Unavailable(f"home {self.home} was lost on the way") from error

    async def heard_since(self, moment: float) -> None:
        """Wait until the copies have all that happened before a moment."""
        while self.heard_at < moment:
            await self._moving()

    def forgotten(self, keys: KeyRange) -> None:
        """Copies have gone from memory: their changes are not wanted any more."""
        for part in self.ranges.overlapping(keys):
            self.ranges.remove(part)
            self._drops.append(part)

    def begin_anew(self) -> None:
        """All copies go, and the link with them; another one is made."""
        self._restart()
        self.epoch, self.number = "", 0
        link, self._link = self._link, None
        if link is not None:
            link.close()
        self._move()

    # The link.

    async def run(self) -> None:
        """Keep a link to the home, for ever."""
        pause = self._timing.first_pause
        while True:
            before = self.heard_at
            try:
                await self._run()
            except (Lost, OSError, TimeoutError, Unavailable, Moving) as error:
                log.debug("home %s: %s", self.home, error)
            except PequodError as error:
                log.warning("home %s: %s", self.home, error)
            except Exception:
                log.exception("home %s: a mistake of ours, and the link begins anew", self.home)
            pause = self._timing.first_pause if self.heard_at > before else pause
            await asyncio.sleep(pause)
            pause = min(2 * pause, self._timing.last_pause)

    async def _run(self) -> None:
        self._attempt = attempt = self._attempt + 1
        lost = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(self._timing.silence):
            link = await self._connect(
                self.home,
                lambda message: self._received(attempt, link, message),
                partial(self._lost, attempt, lost),
            )
        try:
            self._drops.clear()
            ranges = [tuple(keys) for keys in self.ranges]
            async with asyncio.timeout(self._timing.silence):
                await link.call("hello", *self._hello(), self.epoch, self.number, ranges)
            while not lost.done():
                await self._beat(link)
                await asyncio.wait([lost], timeout=self._timing.beat)
        finally:
            self._lost(attempt, lost)
            self._bytes += link.bytes
            link.close()

    async def _beat(self, link: Link) -> None:
        sent, life = self._clock(), self._life
        async with asyncio.timeout(self._timing.silence):
            self._send_drops(link)
            number = await link.call("beat", self._digest())
            await self._reach(life, number, link)
        if link is self._link and life == self._life:
            self._hear(sent)

    def _lost(self, attempt: int, lost: "asyncio.Future[None]") -> None:
        if not lost.done():
            lost.set_result(None)
        if attempt == self._attempt:
            self._link = None
            self._move()

    def _send_drops(self, link: Link) -> None:
        drops, self._drops = self._drops, []
        if drops:
            call = asyncio.ensure_future(link.call("drop", [tuple(keys) for keys in drops]))
            call.add_done_callback(_note)

    # Messages.

    def _received(self, attempt: int, link: Link, message: Message) -> None:
        if attempt != self._attempt:
            return  # from a link that was given up
        kind, *rest = message
        if kind == START:
            self._start(link, *rest)
        elif kind == CHANGES:
            self._follow(link, *rest)
        else:
            self._other(message)

    def _start(
        self,
        link: Link,
        epoch: str,
        number: int,
        resumed: bool,
        durable: bool,
        kept: Iterable[str],
    ) -> None:
        self._link = link
        self.is_durable = durable
        self._kept.update(kept)
        if resumed:
            self.resumed += 1
        else:
            self._restart()
            self.epoch, self.number = epoch, number
        self._move()

    def _restart(self) -> None:
        """The copies are no longer exact for anything: they go."""
        self.restarted += bool(self.epoch)
        self._life += 1
        gone = list(self.ranges)
        self.ranges.clear()
        self._drops.clear()
        for keys in gone:
            self._copies.invalidate(keys)

    def _follow(
        self, link: Link, epoch: str, told: int, number: int, changes: Iterable[KeyChange]
    ) -> None:
        if epoch != self.epoch or number <= self.number:
            return  # from another life, or known
        if told > self.number:
            self.gaps += 1
            log.warning("home %s: changes after %d are missing", self.home, self.number)
            self._link = None
            link.close()
            return
        for key, value in changes:
            self.changes += 1
            try:
                if value is None:
                    self._copies.remove(key)
                else:
                    self._copies.put(key, value)
            except PequodError as error:
                log.error("home %s sent a row that cannot be here: %s", self.home, error)
        self.number = number
        self._move()

    # Waiting.

    async def _live(self) -> Link:
        try:
            async with asyncio.timeout(self._patience):
                while self._link is None:
                    await self._moving()
        except TimeoutError as error:
            raise SourceDown(
                f"home {self.home} could not be reached for {self._patience:g} seconds; "
                "until it is back, its rows cannot be written, and those that are not here not read"
            ) from error
        return self._link

    async def _reach(self, life: int, number: int, link: Link | None = None) -> None:
        """Wait for a number, or for what makes it meaningless, as the loss of a link given."""
        while life == self._life and self.number < number and (link is None or link is self._link):
            await self._moving()

    async def _moving(self) -> None:
        """Wait until anything is different."""
        if self._moved is None:
            self._moved = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._moved)

    def _move(self) -> None:
        moved, self._moved = self._moved, None
        if moved is not None and not moved.done():
            moved.set_result(None)

    def _hear(self, sent: float) -> None:
        if sent > self.heard_at:
            self.heard_at = sent
            self._heard()
            self._move()


def _note(task: "asyncio.Future[Any]") -> None:
    """Take note of a failure that nobody waits for."""
    if not task.cancelled():
        task.exception()
