"""Feeds: the changes of watched ranges, numbered, for all who listen.

Those who listen to one range share one feed, and so one watch. A feed keeps its latest events, so
that a listener who was away can go on where it was; one who missed more, or who reads too slowly,
starts again with all rows. A feed that nobody listens to is kept for a while, for that reason, but
does nothing. Feeds take at most half of the server's time: after a long look comes as long a rest.
"""

import asyncio
import logging
import re
import secrets
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any, NamedTuple

from pequod.config import ServerConfig
from pequod.engine.cache import Cache
from pequod.engine.watching import Watch
from pequod.errors import MissingData, PequodError, TooLarge
from pequod.keys import KeyRange
from pequod.server.loading import Loader
from pequod.server.service import SLICE_SECONDS

INIT, UPDATE, REMOVE = "init", "update", "remove"

KEPT_EVENTS = 1000  # of a feed, for listeners who come back
KEPT_SIZE = 4 << 20  # characters and bytes of these
MAX_FEEDS_ROWS = 10  # times max_rows: the rows of all feeds together
MAX_PENDING = 1000  # events that wait for a listener
MAX_PENDING_SIZE = 4 << 20  # characters and bytes of these
LINGER_SECONDS = 30.0
_AGAIN_SECONDS = 1.0

_NUMBER = re.compile("[0-9]{1,18}")

log = logging.getLogger("pequod.server")


class Event(NamedTuple):
    """What happened: an `init` has all rows, an `update` a row, a `remove` a key."""

    id: str
    kind: str
    data: Any

    @property
    def size(self) -> int:
        """Characters and bytes of an `update` or a `remove`, about."""
        return sum(map(len, self.data)) if self.kind == UPDATE else len(self.data)


class Listener:
    """Somebody who listens to a feed; `ready` is called when there is something to take."""

    def __init__(self, feed: "Feed", ready: Callable[["Listener"], object]) -> None:
        self.feed = feed
        self._ready = ready
        self._pending: list[Event] = []
        self._pending_size = 0
        self._starts_again = False
        self.has_ended = False

    def tell(self, events: list[Event]) -> None:
        if not self._starts_again:
            self._pending += events
            self._pending_size += sum(event.size for event in events)
            if len(self._pending) > MAX_PENDING or self._pending_size > MAX_PENDING_SIZE:
                self._forget_pending()
                self._starts_again = True
        self._ready(self)

    def start(self) -> None:
        """Tell all rows as they are, whatever was told before."""
        self._forget_pending()
        self._starts_again = True
        self._ready(self)

    def take(self) -> list[Event]:
        """What there is to tell."""
        if self.has_ended:
            return []
        if self._starts_again:
            self._starts_again = False
            return [self.feed.init()]
        taken = self._pending
        self._forget_pending()
        return taken

    def _forget_pending(self) -> None:
        self._pending, self._pending_size = [], 0

    def end(self) -> None:
        """There will be nothing more."""
        self.has_ended = True
        self._ready(self)

    def leave(self) -> None:
        self.feed.leave(self)


class Feed:
    """The events of one range."""

    def __init__(self, feeds: "Feeds", keys: KeyRange) -> None:
        self._feeds = feeds
        self._keys = keys
        self._epoch = secrets.token_hex(4)  # a number of another feed is never taken for ours
        self._number = 0
        self._kept: deque[Event] = deque()
        self._kept_size = 0
        self._listeners: dict[Listener, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._watch = feeds.watch(self, keys)
        self._set_timer()

    @property
    def is_heard(self) -> bool:
        return bool(self._listeners)

    @property
    def size(self) -> int:
        """How many rows it has."""
        return len(self._watch.rows)

    def listen(self, ready: Callable[[Listener], object], seen: str | None) -> Listener:
        """A new listener, who has seen all up to an event, or nothing."""
        self.look()
        self._feeds.check_size(self._watch)
        listener = Listener(self, ready)
        self._listeners[listener] = None
        missed = self._after(seen)
        if missed is None:
            listener.start()
        elif missed:
            listener.tell(missed)
        self._set_timer()
        return listener

    def leave(self, listener: Listener) -> None:
        self._listeners.pop(listener, None)
        self._set_timer()

    def init(self) -> Event:
        self._feeds.look_at(self)
        return Event(self._id(self._number), INIT, list(self._watch.rows.items()))

    def look(self) -> None:
        """Find out what has changed, and tell everybody."""
        changes = self._watch.changes()
        self._set_timer()
        if not changes:
            return
        events = []
        for key, _, new in changes:
            self._number += 1
            name = self._id(self._number)
            is_gone = new is None
            events.append(Event(name, REMOVE, key) if is_gone else Event(name, UPDATE, (key, new)))
        self._keep(events)
        for listener in list(self._listeners):
            listener.tell(events)

    def _keep(self, events: list[Event]) -> None:
        self._kept += events
        self._kept_size += sum(event.size for event in events)
        while len(self._kept) > KEPT_EVENTS or self._kept_size > KEPT_SIZE:
            self._kept_size -= self._kept.popleft().size

    def close(self) -> None:
        self._watch.close()
        for listener in list(self._listeners):
            listener.end()
        if self._timer is not None:
            self._timer.cancel()

    def _id(self, number: int) -> str:
        return f"{self._epoch}-{number}"

    def _after(self, seen: str | None) -> list[Event] | None:
        """The events after one that was seen; None if that is too long ago."""
        epoch, _, number = (seen or "").partition("-")
        if epoch != self._epoch or not _NUMBER.fullmatch(number):
            return None
        missed = self._number - int(number)
        if not 0 <= missed <= len(self._kept):
            return None
        return list(self._kept)[len(self._kept) - missed :]

    def _set_timer(self) -> None:
        """Look when a snapshot expires; end when nobody has listened for a while."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._listeners:
            self._timer = self._feeds.loop.call_later(
                LINGER_SECONDS, self._feeds.forget, self._keys
            )
        elif self._watch.expires is not None:
            seconds = max(0.0, self._watch.expires - self._feeds.clock())
            self._timer = self._feeds.loop.call_later(seconds, self._feeds.look_at, self)


class Feeds:
    """All feeds of a server. Nothing is done for ranges that nobody watches."""

    def __init__(
        self, cache: Cache, clock: Callable[[], float], config: ServerConfig, loader: Loader
    ) -> None:
        self.clock = clock
        self._loader = loader
        self.loop = asyncio.get_running_loop()
        self._cache = cache
        self._config = config
        self._feeds: dict[KeyRange, Feed] = {}
        self._woken: dict[Feed, None] = {}
        self._looking = False  # or resting from it

    def __len__(self) -> int:
        return len(self._feeds)

    def listen(
        self, keys: KeyRange, ready: Callable[[Listener], object], seen: str | None = None
    ) -> Listener:
        """Listen to a range; what was missed since the event `seen` comes first, or all rows."""
        if keys not in self._feeds:
            self._feeds[keys] = Feed(self, keys)
        return self._feeds[keys].listen(ready, seen)

    def watch(self, feed: Feed, keys: KeyRange) -> Watch:
        """The watch of a new feed."""
        watch = self._cache.watch(*keys, lambda _: self._wake(feed))
        try:
            self.check_size(watch)
            total = len(watch.rows) + sum(other.size for other in self._feeds.values())
            if total > MAX_FEEDS_ROWS * self._config.max_rows:
                raise TooLarge(f"all watched ranges together would have {total} rows; watch less")
        except TooLarge:
            watch.close()
            raise
        return watch

    def check_size(self, watch: Watch) -> None:
        """Raise if the rows of a watch do not fit into one answer."""
        size = sum(len(key) + len(value) for key, value in watch.rows.items())
        if len(watch.rows) > self._config.max_rows or size > self._config.max_reply:
            raise TooLarge(
                f"{len(watch.rows)} rows of {size} bytes are over the limit (max_rows, max_reply); "
                "watch a smaller part of the range"
            )

    def forget(self, keys: KeyRange) -> None:
        self._woken.pop(self._feeds[keys], None)
        self._feeds.pop(keys).close()

    def close(self) -> None:
        """End all feeds, and tell those who listen."""
        for keys in list(self._feeds):
            self.forget(keys)

    def _wake(self, feed: Feed) -> None:
        """In the middle of a change; all that this turn of the loop brings is told at once."""
        self._woken[feed] = None
        if not self._looking:
            self._looking = True
            self.loop.call_soon(self._look)

    def _look(self) -> None:
        """Look at those that were woken, for a slice of time; then others have their turn."""
        begun = monotonic()
        spent = 0.0
        while self._woken and spent <= SLICE_SECONDS:
            feed = next(iter(self._woken))
            del self._woken[feed]
            if feed.is_heard:  # whoever listens later looks then
                self.look_at(feed)
                spent = monotonic() - begun
        self._looking = bool(self._woken) or spent > SLICE_SECONDS
        if self._looking:
            self.loop.call_later(spent, self._look)

    def look_at(self, feed: Feed) -> None:
        """Let a feed tell what has changed; if the range cannot be read, it looks again later."""
        try:
            feed.look()
        except MissingData as error:
            self._loader.start(self._fetch(feed, error))
        except PequodError as error:
            self._look_again(feed, error)

    async def _fetch(self, feed: Feed, missing: MissingData) -> None:
        try:
            await self._loader.finish(feed.look, missing)
        except PequodError as error:
            self._look_again(feed, error)

    def _look_again(self, feed: Feed, error: PequodError) -> None:
        log.warning("a watched range cannot be read: %s", error)
        self.loop.call_later(_AGAIN_SECONDS, self._wake, feed)
