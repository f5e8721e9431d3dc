"""Watched ranges: whoever watches one is woken by whatever may have changed it.

A watch remembers the rows as it last told them. It is woken by a row that is written or removed, by
a join status range that must wait or goes, and by joins that come and go; what has changed is
then found by reading the range again, which settles what waited, and comparing. Nothing is
remembered where nobody watches.

The rows of a pull join are in no store. A watch over them also watches all that they were
computed from.
"""

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from intervaltree import IntervalTree

from pequod.keys import Change, KeyRange, Pair, Value

if TYPE_CHECKING:
    from pequod.engine.status import StatusRange
    from pequod.engine.store import Table


class Watch:
    """A range that is watched, and its rows as they were last told.

    with cache.watch("t|ann|", "t|ann}", wake) as watch:
        ...
        for key, old, new in watch.changes():
    """

    __slots__ = (
        "_all",
        "_read",
        "_statuses",
        "_tables",
        "_wake",
        "awake",
        "expires",
        "keys",
        "ranges",
        "rows",
    )

    def __init__(
        self,
        keys: KeyRange,
        wake: Callable[["Watch"], object],
        read: Callable[["Watch"], list[Pair]],
        every: dict["Watch", None],
    ) -> None:
        """Reads the rows; `every` has all watches there are."""
        self.keys = keys
        self.rows: dict[str, Value] = {}
        self.awake = False  # there may be changes that were not told
        self.expires: float | None = None  # when to look without being woken, on the cache's clock
        self.ranges = [keys]  # whatever happens in these may wake it
        self._statuses: list[StatusRange] = []
        self._tables: list[tuple[Table, KeyRange]] = []
        self._wake = wake
        self._read = read
        self._all = every
        self._all[self] = None
        try:
            self.changes()
        except BaseException:
            self.close()
            raise

    def changes(self) -> list[Change]:
        """What has changed since the last time, in the order of keys; `rows` has it already."""
        if self not in self._all:
            return []
        self.detach()
        self.awake = True  # and it stays so if the range cannot be read
        before, self.rows = self.rows, dict(self._read(self))
        found = [
            Change(key, before.get(key), new)
            for key, new in self.rows.items()
            if before.get(key) != new
        ]
        gone = [Change(key, old, None) for key, old in before.items() if key not in self.rows]
        return sorted(found + gone) if gone else found

    def close(self) -> None:
        """Watch no more."""
        self.detach()
        self._all.pop(self, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def wake(self) -> None:
        """Something may have changed; whoever watches is told once, until it looks."""
        if not self.awake:
            self.awake = True
            self._wake(self)

    def overlaps(self, keys: KeyRange) -> bool:
        return any(mine.overlaps(keys) for mine in self.ranges)

    def attach(self, table: "Table", keys: KeyRange, statuses: "Iterable[StatusRange]") -> None:
        """Let changes of base rows in a range, and of these status ranges, wake the watch."""
        if table.watches is None:
            table.watches = WatchIndex()
        table.watches.add(keys, self)
        self._tables.append((table, keys))
        for status in statuses:
            if status.watches is None:
                status.watches = {}
            status.watches[self] = None
            self._statuses.append(status)
            if status.expires is not None:
                self.expires = min(status.expires, self.expires or status.expires)

    def detach(self) -> None:
        for status in self._statuses:
            if status.watches is not None:
                status.watches.pop(self, None)
                status.watches = status.watches or None
        for table, keys in self._tables:
            if table.watches is not None:
                table.watches.remove(keys, self)
                table.watches = table.watches if table.watches else None
        self._statuses, self._tables, self.expires = [], [], None


class WatchIndex:
    """The watches over the base rows of a table.

    Intervals hash by their ends alone, so those who watch one range share one interval.
    """

    __slots__ = ("_by_range", "_tree")

    def __init__(self) -> None:
        self._by_range: dict[KeyRange, dict[Watch, None]] = {}
        self._tree = IntervalTree()

    def __bool__(self) -> bool:
        return bool(self._by_range)

    def add(self, keys: KeyRange, watch: Watch) -> None:
        if keys not in self._by_range:
            self._by_range[keys] = {}
            self._tree.addi(keys.first, keys.last, self._by_range[keys])
        self._by_range[keys][watch] = None

    def remove(self, keys: KeyRange, watch: Watch) -> None:
        watches = self._by_range.get(keys, {})
        watches.pop(watch, None)
        if not watches and keys in self._by_range:
            self._tree.removei(keys.first, keys.last, self._by_range.pop(keys))

    def wake(self, key: str) -> None:
        """Wake whoever watches a key."""
        for interval in self._tree.at(key):
            for watch in list(interval.data):
                watch.wake()
