"""The slow path of reads: make a range fresh, read it, and leave a hint for the next time.

A page of a long range is made fresh only as far as it reaches. Where that is cannot be known
before, but the rows that are stored tell where to try first.
"""

import sys

from pequod.engine.catalogue import Catalogue
from pequod.engine.maintenance import MAX_FRAGMENTS, Maintenance
from pequod.engine.plan import Plan
from pequod.engine.residency import Residency
from pequod.engine.status import View
from pequod.engine.store import Hint, Store, Subtable, Table
from pequod.engine.watching import Watch
from pequod.errors import MissingData
from pequod.keys import BAR, KeyRange, Pair, prefix, table_of

TRIES = 3  # for a page, whose rows may go while they are made fresh; then all of the range


class Reading:
    """Reads ranges that no hint covers."""

    def __init__(
        self, store: Store, catalogue: Catalogue, residency: Residency, maintenance: Maintenance
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._residency = residency
        self._maintenance = maintenance

    def begin(self, tick: int, now: float) -> None:
        """Every read has a number, and one moment on the clock."""
        self._maintenance.missing = []
        self._maintenance.tick = tick
        self._maintenance.now = now

    def scan(self, keys: KeyRange, limit: int, reverse: bool) -> list[Pair]:
        """At most `limit` rows from either end of a range."""
        if not keys:
            return []
        work = self._maintenance.work
        if (subtable := self._remembered(keys)) is not None:
            return subtable.rows.page(keys.first, keys.last, limit, reverse)
        pairs, keys = self._page(keys, limit, reverse) or (self._all(keys, limit, reverse), keys)
        self._end(keys, work)
        return pairs

    def settled_at(self, key: str, table: Table) -> bool:
        """True if a key can be read from the store now: all that computes it is settled."""
        if self._catalogue.pulls.get(table.name) or self._residency.is_remote(table.keys):
            return False
        views = tuple(
            [
                v
                for v in self._catalogue.views.get(table.name, ())
                if v.keys.first <= key < v.keys.last
            ]
        )
        for view in views:
            status = view.statuses.at(key)
            if status is None or not self._maintenance.settled_alone(status):
                self._raise_missing()
                return False
        self._catalogue.tally(table, views).hits += 1
        return True

    def count(self, keys: KeyRange) -> int:
        """The number of rows of a range."""
        if not keys:
            return 0
        work = self._maintenance.work
        self._freshen(keys)
        subtable = self._hinted(keys)
        if subtable is not None:
            rows = subtable.rows.count(keys.first, keys.last)
        elif pulls := self._pulls(keys):
            rows = len(self._with_pulled(keys, pulls))
        else:
            rows = self._store.count(keys)
        self._end(keys, work)
        return rows

    def watched(self, watch: Watch) -> list[Pair]:
        """All rows of a watched range; what they come from wakes the watch from now on."""
        sources: dict[KeyRange, None] = {}
        self._maintenance.pulled = sources
        try:
            pairs = self.scan(watch.keys, sys.maxsize, False)
        finally:
            self._maintenance.pulled = None
        watch.awake = False
        watch.ranges = [keys for keys in (watch.keys, *sources) if keys]
        for keys in watch.ranges:
            for table in self._store.tables_overlapping(keys):
                views = self._catalogue.views.get(table.name, ())
                statuses = [one for view in views for one in view.statuses.overlapping(keys)]
                watch.attach(table, keys, statuses)
        return pairs

    def freshen(self, keys: KeyRange) -> list[KeyRange]:
        """Make a range ready to read; gives what must be loaded first."""
        if keys:
            self._maintenance.freshen(keys)
            if not self._maintenance.missing and (pulls := self._pulls(keys)):
                self._maintenance.read(keys, pulls)
        return self._take_missing()

    def _all(self, keys: KeyRange, limit: int, reverse: bool) -> list[Pair]:
        self._freshen(keys)
        subtable = self._hinted(keys)
        if subtable is not None:
            return subtable.rows.page(keys.first, keys.last, limit, reverse)
        if pulls := self._pulls(keys):
            pairs = self._with_pulled(keys, pulls)
            return pairs[::-1][:limit] if reverse else pairs[:limit]
        return self._store.page(keys, limit, reverse)

    def _page(
        self, keys: KeyRange, limit: int, reverse: bool
    ) -> tuple[list[Pair], KeyRange] | None:
        """A full page, and the range that was made fresh for it; None if all of it must be."""
        if not 0 < limit < sys.maxsize or self._subtable(keys) or self._pulls(keys):
            return None
        for _ in range(TRIES):
            pairs = self._store.page(keys, limit, reverse)
            if len(pairs) < limit:
                return None
            part, work = self._reach(keys, pairs[-1][0], reverse), self._maintenance.work
            self._freshen(part)
            if self._maintenance.work > work:
                pairs = self._store.page(part, limit, reverse)
            if len(pairs) == limit:
                return pairs, part
        return None

    def _reach(self, keys: KeyRange, key: str, reverse: bool) -> KeyRange:
        """The range up to a key, without cutting its subtable in two."""
        within = self._store.tables[table_of(key)].subtable_prefix(key)
        if reverse:
            return KeyRange(max(keys.first, within or key), keys.last)
        return KeyRange(keys.first, min(keys.last, prefix(within).last if within else key + "\0"))

    def _pulls(self, keys: KeyRange) -> list[Plan]:
        """The pull joins that may write into a range."""
        return [
            plan
            for table in self._store.tables_overlapping(keys)
            for plan in self._catalogue.pulls.get(table.name, ())
            if plan.output_keys.overlaps(keys)
        ]

    def _with_pulled(self, keys: KeyRange, pulls: list[Plan]) -> list[Pair]:
        pairs = self._maintenance.read(keys, pulls)
        self._raise_missing()
        return pairs

    def _freshen(self, keys: KeyRange) -> None:
        self._maintenance.freshen(keys)
        self._raise_missing()

    def _take_missing(self) -> list[KeyRange]:
        missing, self._maintenance.missing = self._maintenance.missing, []
        self._residency.end_read(self._maintenance.tick, succeeded=not missing)
        return sorted(set(missing))

    def _raise_missing(self) -> None:
        if missing := self._take_missing():
            raise MissingData(missing)

    def _subtable(self, keys: KeyRange) -> Subtable | None:
        """The subtable that holds a range alone, if subtables take in two bars."""
        within = keys.first[: keys.first.find(BAR, keys.first.find(BAR) + 1) + 1]
        subtable = self._store.jump.get(within)
        return subtable if subtable is not None and keys.last <= subtable.last else None

    def _hinted(self, keys: KeyRange) -> Subtable | None:
        """The subtable that holds a fresh range alone, with a hint for the next read."""
        subtable = self._subtable(keys)
        if subtable is None:
            return None
        table = subtable.table
        first, last = subtable.first, subtable.last
        statuses = []
        if not table.plain:
            if self._catalogue.pulls.get(table.name):
                return None
            if self._residency.is_remote(KeyRange(first, last)):
                return None
            for view in self._views(table, KeyRange(first, last)):
                status = view.statuses.at(keys.first)
                if status is None or status.last < keys.last or status.expires is not None:
                    return None
                statuses.append(status)
            for status in statuses:
                first, last = max(first, status.first), min(last, status.last)
        tally = self._catalogue.tally(table, self._views(table, keys))
        # A status range in a larger part of the table does not keep this subtable alive.
        alone = statuses[0] if len(statuses) == 1 and statuses[0].subtable is subtable else None
        subtable.hint = Hint(first, last, self._maintenance.tick, tally, alone)
        for status in statuses:
            status.support(subtable, subtable.hint)
        return subtable

    def _remembered(self, keys: KeyRange) -> Subtable | None:
        """The subtable of a range that some hint covers, if need be once one range is settled."""
        subtable = self._subtable(keys)
        hint = subtable.hint if subtable is not None else None
        if subtable is None or hint is None:
            return None
        if not hint.would_cover(keys):  # the latest hint of many in a subtable of many ranges
            hint = self._earlier_hint(subtable, keys)
            if hint is None:
                return None
        if hint.status is not None and hint.is_suspended:
            if not self._maintenance.settled_alone(hint.status):
                self._raise_missing()
                return None
            if not hint.would_cover(keys):  # settling has moved something
                return None
            hint.resume()
        else:
            hint.tally.hits += 1
        hint.used = self._maintenance.tick
        subtable.hint = hint
        return subtable

    def _earlier_hint(self, subtable: Subtable, keys: KeyRange) -> Hint | None:
        """The hint for a range that an earlier read left; all status ranges under it know it."""
        for view in self._catalogue.views.get(subtable.table.name, ()):
            status = view.statuses.at(keys.first)
            if status is not None:
                hint = status.hints.get(subtable) if status.hints is not None else None
                return hint if hint is not None and hint.would_cover(keys) else None
        return None

    def _views(self, table: Table, keys: KeyRange) -> tuple[View, ...]:
        """The views that may write into a range."""
        views = self._catalogue.views.get(table.name, ())
        return tuple([view for view in views if view.keys.overlaps(keys)])

    def _end(self, keys: KeyRange, work: int) -> None:
        """Count a hit, or, if something had to be computed, see to what lies in pieces."""
        for table in self._store.tables_overlapping(keys):
            views = self._views(table, keys)
            if self._maintenance.work == work:
                self._catalogue.tally(table, views).hits += 1
                continue
            for view in views:
                if len(view.statuses) > MAX_FRAGMENTS:
                    self._coalesce(view, keys)

    def _coalesce(self, view: View, keys: KeyRange) -> None:
        """Mend a subtable that was read, or outside of subtables all that was read.

        Ranges of several subtables stay apart: they are used, and evicted, one by one.
        """
        within = view.table.subtable_prefix(keys.first)
        if within and keys.last <= prefix(within).last:
            self._maintenance.coalesce(view, prefix(within))
        elif view.in_main_part:
            self._maintenance.coalesce(view, keys)
        self._take_missing()
