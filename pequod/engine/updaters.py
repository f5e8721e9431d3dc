"""Updaters: who must hear of a change in a source range.

The paper keeps updaters in an interval tree. Here each has the cheapest home that finds it:
a range that is exactly one subtable lives on the subtable, a single key in a sorted dict,
and all others in the interval tree. Updaters of one range and one step of a join are merged:
a celebrity has one updater with a million contexts. Intervals hash by their ends alone, so
one interval holds everything that watches its range.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from intervaltree import Interval, IntervalTree

from pequod.engine.rangemap import RangeMap
from pequod.engine.weights import INTERVAL_BYTES, POINT_BYTES, UPDATER_BYTES
from pequod.keys import KeyRange, Value, point

if TYPE_CHECKING:
    from pequod.engine.plan import Step
    from pequod.engine.status import StatusRange, View
    from pequod.engine.store import Table


class Context:
    """The slots bound on the way to a source, and the join status range they feed.

    One context serves all updaters of its step in one status range: its `values` are the
    bound slots that a key of the source does not tell.
    """

    __slots__ = ("links", "log", "status", "step", "values")

    def __init__(self, step: "Step", values: tuple[str, ...], status: "StatusRange") -> None:
        self.step = step
        self.values = values
        self.status = status
        self.links: list[Updater] = []
        self.log: dict[str, Value | None] | None = None

    def note(self, key: str, old: Value | None) -> None:
        """Write into the log that a key which now waits had this value."""
        if self.log is None:
            self.log = {key: old}
            self.status.view.weigh(logs=1, logged=1)
            return
        if key not in self.log:
            self.status.view.weigh(logged=1)
        self.log[key] = old

    def take(self, key: str) -> Value | None:
        """Take a key out of the log and give back the value it had."""
        assert self.log is not None, f"nothing waits for {key!r}"
        self.status.view.weigh(logged=-1)
        return self.log.pop(key)

    def forget_log(self) -> None:
        if self.log is not None:
            self.status.view.weigh(logs=-1, logged=-len(self.log))
            self.log = None


class Updater:
    """A source range watched for one step of a join, under one set of tested slots."""

    __slots__ = ("contexts", "keys", "step", "tested")

    def __init__(self, keys: KeyRange, step: "Step", tested: tuple[str, ...]) -> None:
        self.keys = keys
        self.step = step
        self.tested = tested
        self.contexts: dict[Context, None] = {}


# All updaters of one range: by step, then by the values of the slots that the range does
# not pin but the step has bound, so that a change wakes only those it concerns.
Watchers = dict["Step", dict[tuple[str, ...], Updater]]


class WatchedKey:
    """The watchers of a single key."""

    __slots__ = ("first", "last", "watchers")

    def __init__(self, keys: KeyRange, watchers: Watchers) -> None:
        self.first, self.last = keys
        self.watchers = watchers


NO_POINTS: RangeMap[WatchedKey] = RangeMap()
NO_INTERVALS = IntervalTree()


class UpdaterIndex:
    """The updaters of one table, found by key or by range."""

    __slots__ = ("_points", "_table", "_tree", "updaters")

    def __init__(self, table: "Table") -> None:
        self._table = table
        # Most tables are never watched this way, and there may be many tables.
        self._points: RangeMap[WatchedKey] = NO_POINTS
        self._tree: IntervalTree = NO_INTERVALS
        self.updaters = 0

    def __bool__(self) -> bool:
        return self.updaters > 0

    @property
    def bytes(self) -> int:
        """What the updaters weigh."""
        return (
            UPDATER_BYTES * self.updaters
            + POINT_BYTES * len(self._points)
            + INTERVAL_BYTES * len(self._tree)
        )

    def link(self, keys: KeyRange, tested: tuple[str, ...], context: Context) -> bool:
        """Let changes of `keys` reach the context; False if they do already."""
        watchers = self._home(keys)
        by_tested = watchers.get(context.step)
        if by_tested is None:
            by_tested = watchers[context.step] = {}
        updater = by_tested.get(tested)
        if updater is None:
            updater = by_tested[tested] = Updater(keys, context.step, tested)
            self.updaters += 1
            self._table.total.bytes += UPDATER_BYTES
        if context in updater.contexts:
            return False
        updater.contexts[context] = None
        context.links.append(updater)
        return True

    def unlink(self, updater: Updater, context: Context) -> None:
        """Take the context out of the updater, and the updater away if it was the last."""
        updater.contexts.pop(context, None)
        if updater.contexts:
            return
        watchers = self._home(updater.keys)
        by_tested = watchers[updater.step]
        del by_tested[updater.tested]
        self.updaters -= 1
        self._table.total.bytes -= UPDATER_BYTES
        if not by_tested:
            del watchers[updater.step]
        if not watchers:
            self._remove_home(updater.keys)

    def find(self, keys: KeyRange, step: "Step", tested: tuple[str, ...]) -> Updater | None:
        watchers = self._existing_home(keys)
        return watchers.get(step, {}).get(tested) if watchers else None

    def watching(self, key: str) -> list[Watchers]:
        """The watchers of every range that holds `key`."""
        found: list[Watchers] = []
        subtable = self._table.subtable_of(key)
        if subtable is not None and subtable.watchers:
            found.append(subtable.watchers)
        if self._points and (watched := self._points.starting_at(key)):
            found.append(watched.watchers)
        if self._tree:
            found.extend(interval.data for interval in self._tree.at(key))
        return found

    def statuses(self, keys: KeyRange, view: "View | None" = None) -> list["StatusRange"]:
        """The status ranges fed by source ranges that overlap `keys`, if by the rows of `view`."""
        found: dict[StatusRange, None] = {}
        for watchers in self._overlapping(keys):
            for step, by_tested in watchers.items():
                if view is not None and view not in step.feeders:
                    continue
                for updater in by_tested.values():
                    for context in updater.contexts:
                        found[context.status] = None
        return list(found)

    def __iter__(self) -> Iterator[Updater]:
        for watchers in self._overlapping(self._table.keys):
            for by_tested in watchers.values():
                yield from by_tested.values()

    def _overlapping(self, keys: KeyRange) -> Iterator[Watchers]:
        if not self.updaters or not keys:
            return
        for subtable in self._table.subtables_overlapping(keys):
            if subtable.watchers:
                yield subtable.watchers
        for watched in self._points.overlapping(keys):
            yield watched.watchers
        if self._tree:
            for interval in self._tree.overlap(keys.first, keys.last):
                yield interval.data

    def _existing_home(self, keys: KeyRange) -> Watchers | None:
        """Where the watchers of exactly these keys live."""
        if (exact := self._table.subtable_over(keys)) is not None:
            return exact.watchers
        if self._table.is_subtable(keys):
            subtable = self._table.subtable_of(keys.first)
            return subtable.watchers if subtable is not None else None
        if keys == point(keys.first):
            watched = self._points.starting_at(keys.first)
            return watched.watchers if watched else None
        interval = self._interval(keys)
        return interval.data if interval is not None else None

    def _home(self, keys: KeyRange) -> Watchers:
        watchers = self._existing_home(keys)
        if watchers is not None:
            return watchers
        watchers = {}
        if self._table.is_subtable(keys):
            self._table.place(keys.first).watchers = watchers
        elif keys == point(keys.first):
            if self._points is NO_POINTS:
                self._points = RangeMap()
            self._points.add(WatchedKey(keys, watchers))
            self._table.total.bytes += POINT_BYTES
        else:
            if self._tree is NO_INTERVALS:
                self._tree = IntervalTree()
            self._tree.add(Interval(keys.first, keys.last, watchers))
            self._table.total.bytes += INTERVAL_BYTES
        return watchers

    def _interval(self, keys: KeyRange) -> Interval | None:
        for interval in self._tree.at(keys.first):
            if interval.begin == keys.first and interval.end == keys.last:
                return interval
        return None

    def _remove_home(self, keys: KeyRange) -> None:
        if self._table.is_subtable(keys):
            subtable = self._table.place(keys.first)
            subtable.watchers = None
            self._table.prune(subtable)
        elif keys == point(keys.first):
            watched = self._points.starting_at(keys.first)
            assert watched is not None, f"nothing watches {keys.first!r}"
            self._points.remove(watched)
            self._table.total.bytes -= POINT_BYTES
        else:
            self._tree.remove(self._interval(keys))
            self._table.total.bytes -= INTERVAL_BYTES

    def _check(self) -> None:
        updaters = list(self)
        assert len(updaters) == self.updaters, f"{len(updaters)} updaters, not {self.updaters}"
        for updater in updaters:
            assert updater.contexts, f"an updater of {updater.keys} without contexts"
            for context in updater.contexts:
                assert updater in context.links, f"{updater.keys} is not linked back"
                assert not context.status.dropped, f"{updater.keys} feeds a dropped status range"
