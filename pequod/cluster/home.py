"""A home: the rows that live here, all that happened to them by number, and who wants to know.

Changes are numbered without gaps, from 1 in each life of the home; a life has a random name, its
epoch, so that one is never taken for another. The last changes are kept. They are the only buffer
there is: a subscriber is a set of ranges and the number it was told last, and whoever is so
slow, or was away for so long, that the changes after that number are gone must fetch again.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from pequod.cluster.partition import ClusterMap
from pequod.cluster.ranges import RangeSet
from pequod.errors import BadRequest, Moving
from pequod.keys import KeyRange, Pair, Value

KeyChange = tuple[str, Value | None]  # a key and what it is now; None is no value

START, CHANGES = "start", "changes"  # the messages of a stream

MAX_PUSH = 2000  # changes in a message, unless a single batch has more
_PAGE_BYTES = 4 << 20  # of rows that move to another home, at once
_ENTRY_BYTES = 100  # of a change beside its key and value


class Base(Protocol):
    """Where the rows of a home are kept: a cache that computes nothing."""

    def scan(self, first: str, last: str, limit: int | None = None) -> list[Pair]: ...
    def put(self, key: str, value: Value) -> None: ...
    def remove(self, key: str) -> bool: ...
    def check_not_computed(self, key: str) -> None: ...


class Entry(NamedTuple):
    """Changes that happened in one step."""

    number: int
    changes: tuple[KeyChange, ...]
    size: int


class Log:
    """The last changes, as many as fit."""

    def __init__(self, max_bytes: int) -> None:
        self.number = 0
        self.bytes = 0
        self._max_bytes = max_bytes
        self._entries: deque[Entry] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def append(self, changes: Sequence[KeyChange]) -> int:
        """Gives the number of what happened."""
        self.number += 1
        size = sum(len(key) + len(value or "") + _ENTRY_BYTES for key, value in changes)
        self._entries.append(Entry(self.number, tuple(changes), size))
        self.bytes += size
        while self.bytes > self._max_bytes:
            self.bytes -= self._entries.popleft().size
        return self.number

    def clear(self) -> None:
        self.number = self.bytes = 0
        self._entries.clear()

    def has_after(self, number: int) -> bool:
        """True if all changes after this number are still here."""
        return self.number - len(self._entries) <= number <= self.number

    def after(self, number: int) -> list[Entry]:
        wanted = self.number - number
        assert 0 <= wanted <= len(self._entries), f"{number} is not in the log"
        if not wanted:
            return []
        return [self._entries[place] for place in range(-wanted, 0)]


class Subscriber:
    """One server that wants to know what happens in some ranges."""

    __slots__ = ("bytes_ahead", "looked", "node", "push", "ranges", "told")

    def __init__(
        self, node: str, push: Callable[[tuple[object, ...]], None], bytes_ahead: Callable[[], int]
    ) -> None:
        """`push` sends it a message; `bytes_ahead` says how much of that is not sent yet."""
        self.node = node
        self.push = push
        self.bytes_ahead = bytes_ahead
        self.ranges = RangeSet()
        self.told = 0
        self.looked = 0  # up to here, nothing after `told` is in its ranges


class Home:
    """The rows of which this node is the home."""

    def __init__(
        self,
        name: str,
        base: Base,
        partitions: ClusterMap,
        *,
        epoch: str,
        is_durable: bool = False,
        max_log: int = 64 << 20,
        max_ahead: int = 8 << 20,
        changed: Callable[[], object] = int,
        kept: Sequence[str] = (),
    ) -> None:
        """A durable home has its rows in a database; `changed` is called when there is news.

        Of the epochs in `kept` nothing was lost: their rows are here, or at other homes.
        """
        self.name = name
        self.epoch = epoch
        self.is_durable = is_durable
        self.log = Log(max_log)
        self.map = partitions
        self.next: ClusterMap | None = None  # rows that it gives to other homes are not written
        self.is_left = False  # nobody may subscribe until there is another map
        self._kept = kept
        self.subscribers: dict[Subscriber, None] = {}
        self._base = base
        self._max_ahead = max_ahead
        self._changed = changed

    # Writes.

    def check(self, changes: Iterable[KeyChange]) -> None:
        """Raise if not all of these can be written here."""
        for key, _ in changes:
            home = (self.next or self.map).home_of(key)
            if home != self.name or self.map.home_of(key) != self.name:
                raise Moving(f"{key!r:.100} has its home at {home}, not at {self.name}; try again")
            self._base.check_not_computed(key)

    def write(self, changes: Sequence[KeyChange]) -> tuple[int, int]:
        """Do all of these in one step; gives its number, and how many rows were removed."""
        self.check(changes)
        removed = 0
        for key, value in changes:
            if value is None:
                removed += self._base.remove(key)
            else:
                self._base.put(key, value)
        return self.record(changes), removed

    def record(self, changes: Sequence[KeyChange]) -> int:
        """Number what has happened to rows, and tell of it soon."""
        number = self.log.append(changes)
        self._changed()
        return number

    def renew(self, epoch: str) -> None:
        """Begin another life: nobody's copies are known to be right any more."""
        self.epoch = epoch
        self.log.clear()
        for subscriber in self.subscribers:
            subscriber.ranges.clear()
            subscriber.told = subscriber.looked = 0
            self._start(subscriber, resumed=False)

    def leaving(self, home: str, is_durable: bool, first: str) -> tuple[list[Pair], str | None]:
        """A page of the rows that go to another home with the next map, from a key on.

        Gives the key to go on from, too, or None at the end; the others have their turn meanwhile.
        """
        if self.next is None:
            raise BadRequest(f"home {self.name} is not asked to give rows away")
        if self.is_durable and is_durable:
            return [], None  # the database that homes share has them
        for one in self.map.partitions:
            if first < one.keys.last:
                rows, following = self._page(KeyRange(max(first, one.keys.first), one.keys.last))
                found = [row for row in rows if self._gives(row[0], home, self.next)]
                if found and self.is_durable != is_durable:
                    raise BadRequest(
                        f"rows of home {self.name} cannot move to {home}: "
                        "one of them has a database, and the other has not"
                    )
                return found, following
        return [], None

    def _page(self, keys: KeyRange) -> tuple[list[Pair], str]:
        """The first rows of a range, and from where to go on."""
        rows = self._base.scan(*keys, MAX_PUSH)
        size = 0
        for place, (key, value) in enumerate(rows, 1):
            size += len(key) + len(value)
            if size > _PAGE_BYTES or place == MAX_PUSH:
                return rows[:place], key + "\0"
        return rows, keys.last

    def _gives(self, key: str, home: str, following: ClusterMap) -> bool:
        return following.home_of(key) == home and self.map.home_of(key) == self.name

    # Subscribers.

    def welcome(
        self, subscriber: Subscriber, epoch: str, number: int, ranges: Iterable[tuple[str, str]]
    ) -> None:
        """Start the stream of a subscriber: where it was, if that is possible, or anew."""
        resumed = epoch == self.epoch and self.log.has_after(number)
        subscriber.ranges = RangeSet(ranges if resumed else ())
        subscriber.told = subscriber.looked = number if resumed else self.log.number
        self.subscribers[subscriber] = None
        self._start(subscriber, resumed)

    def _start(self, subscriber: Subscriber, resumed: bool) -> None:
        told = subscriber.told
        subscriber.push((START, self.epoch, told, resumed, self.is_durable, list(self._kept)))
        self.tell(subscriber, everything=True)

    def forget(self, subscriber: Subscriber) -> None:
        self.subscribers.pop(subscriber, None)

    def fetch(
        self, subscriber: Subscriber, ranges: Sequence[KeyRange]
    ) -> tuple[int, list[list[Pair]]]:
        """The rows of ranges and the number up to which they are exact; from there changes follow.

        One step: nothing can happen between the reading and the subscribing.
        """
        rows = [self._rows(keys) for keys in ranges]
        self.tell(subscriber, everything=True)
        for keys in ranges:
            subscriber.ranges.add(keys)
        return self.log.number, rows

    def _rows(self, keys: KeyRange) -> list[Pair]:
        rows = self._base.scan(*keys)
        if not self.map.is_whole(keys, self.name):
            rows = [row for row in rows if self.map.is_home(row[0], self.name)]
        return rows

    def drop(self, subscriber: Subscriber, ranges: Iterable[KeyRange]) -> None:
        for keys in ranges:
            subscriber.ranges.remove(keys)

    def tell_all(self) -> None:
        """Send each subscriber what is new for it."""
        for subscriber in list(self.subscribers):
            self.tell(subscriber)

    def tell(self, subscriber: Subscriber, *, everything: bool = False) -> None:
        """Send what is new in its ranges; if everything is told, also that nothing is.

        Who reads too slowly is not told more: the log is what it can fall behind by.
        """
        if subscriber.told == self.log.number:
            return
        if not self.log.has_after(subscriber.looked):
            subscriber.ranges.clear()
            subscriber.told = subscriber.looked = self.log.number
            self._start(subscriber, resumed=False)
            return
        if subscriber.bytes_ahead() > self._max_ahead:
            return
        ranges = subscriber.ranges
        found: list[KeyChange] = []
        for entry in self.log.after(subscriber.looked):
            found += [change for change in entry.changes if change[0] in ranges]
            if len(found) >= MAX_PUSH:
                self._push(subscriber, entry.number, found)
                found = []
        if found or everything:
            self._push(subscriber, self.log.number, found)
        subscriber.looked = self.log.number

    def _push(self, subscriber: Subscriber, number: int, changes: list[KeyChange]) -> None:
        if number > subscriber.told:
            subscriber.push((CHANGES, self.epoch, subscriber.told, number, changes))
            subscriber.told = number

    def _check(self) -> None:
        for subscriber in self.subscribers:
            subscriber.ranges._check()
            assert subscriber.told <= self.log.number, f"{subscriber.node} was told of the future"
