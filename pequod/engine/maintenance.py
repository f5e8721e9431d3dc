"""Keeping outputs fresh: compute gaps, settle what waits, refresh snapshots, drop ranges.

`freshen` works its way down: before a source range is read, everything computed in it is
made fresh. Base data that is not in memory is noted in `missing`; whatever needed it stays as
it was, and whatever did not is finished.
"""

from collections.abc import Iterable, Iterator

from pequod.engine.execution import Derivation, Enter, Execution, Slots
from pequod.engine.operators import Fold
from pequod.engine.plan import Plan, Step
from pequod.engine.residency import Residency
from pequod.engine.status import Links, StatusRange, View
from pequod.engine.store import Store, Table, merged
from pequod.engine.updaters import Context
from pequod.engine.updating import Updating
from pequod.keys import KeyRange, Pair, Value, prefix

MAX_ROUNDS = 100  # settling may drop ranges that are computed anew, but not without end
MAX_FRAGMENTS = 16  # status ranges side by side, before they are computed anew as one


class Maintenance:
    """Makes output ranges fresh, and takes them away."""

    def __init__(
        self,
        store: Store,
        residency: Residency,
        views: dict[str, list[View]],
        pulls: dict[str, list[Plan]],
    ) -> None:
        self._store = store
        self._residency = residency
        self._views = views
        self._pulls = pulls
        self._links = Links(store)
        self._execution = Execution(self._spans)
        self.updating = Updating(store, self._execution, self._links)
        self.missing: list[KeyRange] = []
        self.pulled: dict[KeyRange, None] | None = None  # source ranges of pulled rows, if asked
        self.work = 0  # ranges computed, pulled or settled so far
        self.now = 0.0
        self.tick = 0

    # Reading.

    def freshen(self, keys: KeyRange) -> None:
        """Make all that is computed in a range fresh, but for what needs `missing` data."""
        for table in self._store.tables_overlapping(keys):
            self._freshen_views(self._views.get(table.name, ()), keys, None)
        if self._is_remote:
            self._reside(keys)

    def _freshen_views(
        self, views: Iterable[View], keys: KeyRange, reader: StatusRange | None
    ) -> None:
        for view in views:
            wanted = keys.clip(view.keys)
            if wanted:
                self._freshen_view(view, wanted, reader)

    def _reside(self, keys: KeyRange) -> None:
        self.missing += self._residency.want(keys)

    @property
    def _is_remote(self) -> bool:
        return len(self._residency.remote) > 0

    def read(self, keys: KeyRange, pulls: list[Plan]) -> list[Pair]:
        """All rows of a fresh range: those of the store and those of these pull joins."""
        return self._with_pulled(self._store.scan(keys), keys, pulls)

    def _with_pulled(self, pairs: list[Pair], keys: KeyRange, pulls: list[Plan]) -> list[Pair]:
        """Stored rows and those of pull joins, which are computed for this one read."""
        found: list[tuple[Plan, list[Derivation]]] = []
        for plan in pulls:
            if plan.output_keys.overlaps(keys):
                self.work += 1
                plan.counters.computes += 1
                found.append((plan, self._execution.derive_range(plan, keys, self._enter())))
        pulled = self._execution.combined(found)
        if not pulled:
            return pairs
        rows = dict(pairs)
        for key, value in pulled.items():
            rows[key] = value if key not in rows else self._contest(key)
        return sorted(rows.items(), key=lambda pair: pair[0])

    def _contest(self, key: str) -> Value:
        """The value of a key that a pull join and a stored row both claim."""
        table = self._store.tables_overlapping(KeyRange(key, key + "\0"))[0].name
        plans = [plan for view in self._views.get(table, ()) for plan in view.plans]
        value = self._execution.winner([*plans, *self._pulls[table]], key, self._enter())
        assert value is not None, f"nobody derives {key!r}"
        return value

    def _spans(self, step: Step, keys: KeyRange) -> Iterable[tuple[list[str], list[Value]]]:
        spans = self._store.table(step.table).spans(keys)
        if not step.pulls:
            return spans
        pairs = self._with_pulled(merged(spans), keys, step.pulls)
        return [([key for key, _ in pairs], [value for _, value in pairs])]

    def _enter(self, status: StatusRange | None = None) -> Enter:
        """Before a source is read, make it fresh; then let its changes reach `status`."""

        def enter(step: Step, slots: Slots, source: KeyRange, ranges: list[KeyRange]) -> bool:
            whole = len(self.missing)
            feeders, is_remote = step.feeders, self._is_remote
            if feeders or is_remote:
                for keys in ranges:
                    self._freshen_views(feeders, keys, status)
                    if is_remote:
                        self._reside(keys)
            if status is None and self.pulled is not None:
                self.pulled[source] = None
            if len(self.missing) > whole:
                return False
            if status is not None and step.plan.watches:
                self._links.link(status, step, slots, source)
            return True

        return enter

    # Freshening one view.

    def _freshen_view(self, view: View, keys: KeyRange, reader: StatusRange | None) -> None:
        """Settle or compute everything of a view in a range."""
        one = view.statuses.at(keys.first)
        if one is not None and keys.last <= one.last and self.settled_alone(one):
            return
        whole = len(self.missing)
        for _ in range(MAX_ROUNDS):
            stale = [one for one in view.statuses.overlapping(keys) if not self._is_fresh(one)]
            gaps = view.statuses.gaps(keys)
            if len(self.missing) > whole or not (stale or gaps):
                break
            for status in stale:
                if status.overflown:
                    self.drop(status)
                elif not status.dropped:
                    self._settle(status)
            for gap in view.statuses.gaps(keys):
                self._compute(view, gap)
        else:
            raise AssertionError(f"{keys} does not get fresh")
        for status in view.statuses.overlapping(keys):
            status.used = self.tick
            if reader is not None and status.expires is not None:
                if reader.expiring is None:
                    reader.expiring = {}
                reader.expiring[status] = None

    def settled_alone(self, status: StatusRange) -> bool:
        """True if a status range is fresh now, and nothing but its own logs had to be settled."""
        if not status.fresh:
            if status.dropped or status.overflown or status.waits_on or status.expires is not None:
                return False
            self._settle(status)
        if status.dropped or not status.fresh or status.expires is not None:
            return False
        status.used = self.tick
        return True

    def _is_fresh(self, status: StatusRange) -> bool:
        return status.fresh and (status.expires is None or self.now < status.expires)

    def _compute(self, view: View, gap: KeyRange) -> None:
        """Compute a range that no status range covers, and make it one with its neighbours.

        Only then: until it is complete its links are its own, and go with it if it fails.
        """
        self.work += 1
        status = StatusRange(view, gap, view.signature(gap), self.tick)
        try:
            rows, folds = self._evaluate(status, gap)
        except BaseException:  # out of stack or memory, or interrupted: leave nothing half linked
            self._links.unlink_all(status)
            raise
        if rows is None or status.dropped:
            self._links.unlink_all(status)
            return
        self._place(status)
        view.add(status)
        status.expires = self._expiry(status)
        self._spread_expiry(status)
        status.folds.update(folds)
        keys = sorted(rows)
        view.table.splice(keys, [rows[key] for key in keys])
        view.account(len(keys), view.rows_bytes(keys))
        if view.seconds is None:
            self._join_neighbours(status)

    def _evaluate(
        self, status: StatusRange, keys: KeyRange
    ) -> tuple[dict[str, Value] | None, dict[str, Fold]]:
        """The rows of a range, None if data is missing, and the groups if it is an aggregate."""
        view = status.view
        whole, rows_read = len(self.missing), self._execution.rows_read
        found = []
        for plan in view.plans:
            plan.counters.computes += 1
            found.append((plan, self._execution.derive_range(plan, keys, self._enter(status))))
        status.rows_read += self._execution.rows_read - rows_read
        if len(self.missing) > whole:
            return None, {}
        if view.folds:
            plan, derivations = found[0]
            folds = self._execution.fold(plan, derivations)
            results = {key: fold.result() for key, fold in folds.items()}
            folds = {key: fold for key, fold in folds.items() if results[key] is not None}
            return {key: value for key, value in results.items() if value is not None}, folds
        if view.contested:
            return self._execution.combined(found), {}
        return {key: value for key, _, value in found[0][1]}, {}

    def _expiry(self, status: StatusRange) -> float | None:
        """When a range must be looked at again: its own snapshot's age, or that of its sources."""
        status.expiring = {one: None for one in status.expiring or () if not one.dropped} or None
        ends = [source.expires for source in status.expiring or () if source.expires is not None]
        if status.view.seconds is not None:
            ends.append(self.now + status.view.seconds)
        return min(ends) if ends else None

    def _spread_expiry(self, status: StatusRange) -> None:
        """Let what reads this range know that it now depends on a snapshot."""
        if status.expires is None:
            return
        for reader in status.view.table.updaters.statuses(status.keys, status.view):
            if reader.expiring is None:
                reader.expiring = {}
            reader.expiring[status] = None
            if reader.expires is None or status.expires < reader.expires:
                reader.expires = status.expires
                reader.disturb()
                self._spread_expiry(reader)

    # Settling.

    def _settle(self, status: StatusRange) -> None:
        """Apply everything that waits, the ranges it reads first."""
        self.work += 1
        for source in list(status.waits_on or ()):
            if not source.dropped and not self._settled(source):
                return
            if status.dropped:
                return
            if status.waits_on is not None:
                status.waits_on.pop(source, None)
        if status.expires is not None and self.now >= status.expires:
            self._refresh(status)
            if status.dropped or (status.expires is not None and self.now >= status.expires):
                return
        while status.pending and not status.overflown:
            context = max(status.pending, key=lambda context: context.step.level)
            if not self._settle_log(context):
                return
            status.pending.pop(context, None)
            if status.dropped:
                return
        if status.overflown:  # by what settling other ranges brought
            self.drop(status)
            return
        status.pending = status.waits_on = None
        self.updating.outputs.redo(status)
        status.fresh = True
        if status.view.seconds is None:
            status.expires = self._expiry(status)
            self._spread_expiry(status)

    def _settled(self, status: StatusRange) -> bool:
        whole = len(self.missing)
        self._freshen_view(status.view, status.keys, None)
        return len(self.missing) == whole

    def _settle_log(self, context: Context) -> bool:
        """Apply the changes that wait in one context; False if data is missing."""
        status, step = context.status, context.step
        enter = self._enter(status)
        while context.log:
            key = next(reversed(context.log))
            old = context.take(key)
            new = self._store.get(key)
            slots = step.pattern.match(key)
            assert slots is not None, f"{key!r} does not match {step.pattern.text}"
            if not self.updating.apply(context, slots, key, old, new, enter):
                context.note(key, old)
                return False
            if status.dropped:
                return True
        context.forget_log()
        return True

    def _refresh(self, status: StatusRange) -> None:
        """Bring a snapshot, or what reads one, up to date by difference."""
        if status.view.seconds is None:
            for source in list(status.expiring or ()):
                if not source.dropped and not self._settled(source):
                    return
            status.expires = self._expiry(status)
            return
        self._links.unlink_all(status)
        status.pending = status.waits_on = status.expiring = status.redo = None
        rows, folds = self._evaluate(status, status.keys)
        if rows is None or status.dropped:
            return
        status.folds.clear()
        status.folds.update(folds)
        status.expires = self._expiry(status)
        status.fresh = True
        for key in [key for key in self._rows_of(status) if key not in rows]:
            self.updating.outputs.write(status, key, None)
        for key, value in rows.items():
            self.updating.outputs.write(status, key, value)

    def _rows_of(self, status: StatusRange) -> Iterator[str]:
        """The keys of a status range that its view computed."""
        for keys, _ in status.view.table.spans(status.keys):
            yield from (key for key in keys if status.view.writes(key))

    # The shapes of status ranges.

    def _join_neighbours(self, status: StatusRange) -> None:
        """Make one range of those that touch and have one signature."""
        statuses = status.view.statuses
        for other in (statuses.ending_at(status.first), statuses.starting_at(status.last)):
            if other is not None and self._are_one(status, other):
                status = self._joined(status, other)

    def _are_one(self, one: StatusRange, other: StatusRange) -> bool:
        if not (one.fresh and other.fresh) or not (one.expires is other.expires is None):
            return False
        hull = KeyRange(min(one.first, other.first), max(one.last, other.last))
        return one.signature == other.signature == one.view.signature(hull)

    def _joined(self, one: StatusRange, other: StatusRange) -> StatusRange:
        """The range with more links takes over the other."""
        small, large = sorted((one, other), key=lambda status: len(status.contexts))
        view = large.view
        self._links.adopt(large, small)
        large.folds.update(small.folds)
        large.used = max(large.last_used, small.last_used)
        large.rows_read += small.rows_read
        view.remove(small)
        self._unplace(small)
        small.disturb()
        small.dropped = True
        self._widen(large, small.keys)
        return large

    def _widen(self, status: StatusRange, keys: KeyRange) -> None:
        view = status.view
        view.remove(status)
        self._unplace(status)
        status.first, status.last = min(status.first, keys.first), max(status.last, keys.last)
        self._place(status)
        view.add(status)
        status.disturb()

    def _place(self, status: StatusRange) -> None:
        """Remember the subtable if the whole range lies in one."""
        table = status.view.table
        within = table.subtable_prefix(status.first)
        if within and status.last <= prefix(within).last:
            status.subtable = table.place(within)
            status.subtable.pins += 1

    def _unplace(self, status: StatusRange) -> None:
        subtable, status.subtable = status.subtable, None
        if subtable is not None:
            subtable.pins -= 1
            subtable.table.prune(subtable)

    # Taking away.

    def drop(self, status: StatusRange, *, evicted: bool = False) -> None:
        """Forget a status range, its rows, and everything computed from it."""
        if status.dropped:
            return
        status.dropped = True
        self.drop_dependents(status.view.table, status.keys, status.view)
        self._links.unlink_all(status)
        status.disturb()
        view = status.view
        if view.statuses.starting_at(status.first) is status:
            view.remove(status)
            for plan in view.plans:
                plan.counters.evictions += evicted
                plan.counters.invalidations += not evicted
            self._cut(status)
        self._unplace(status)
        # Whoever still holds the range, such as the queue of eviction, holds nothing more.
        status.waits_on = status.expiring = None
        status.folds.clear()

    def _cut(self, status: StatusRange) -> None:
        view = status.view
        table = view.table
        if table.rows == view.rows:
            gone = [key for keys, _ in table.cut(status.keys) for key in keys]
        else:
            gone = list(self._rows_of(status))
            for key in gone:
                subtable = table.place(key)
                subtable.rows.pop(key)
                table.prune(subtable)
        view.account(-len(gone), -view.rows_bytes(gone))

    def drop_dependents(self, table: Table, keys: KeyRange, view: View | None = None) -> None:
        """Forget everything computed from a source range, if from the rows of `view`."""
        for status in table.updaters.statuses(keys, view):
            self.drop(status)

    def coalesce(self, view: View, keys: KeyRange) -> None:
        """Where many small status ranges have come to lie, compute their hull as one."""
        statuses = [
            one for one in view.statuses.overlapping(keys) if one.keys.clip(keys) == one.keys
        ]
        if len(statuses) <= MAX_FRAGMENTS:
            return
        hull = KeyRange(statuses[0].first, statuses[-1].last)
        self._freshen_view(view, hull, None)
        if self.missing:
            return
        for status in view.statuses.overlapping(hull):
            self.drop(status)
        self._freshen_view(view, hull, None)
