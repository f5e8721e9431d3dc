"""What a range is made of: the answer of `explain`, computed without changing anything."""

from collections.abc import Iterable
from typing import Any

from pequod.engine.catalogue import Catalogue
from pequod.engine.execution import Execution, Slots
from pequod.engine.plan import Plan, Step
from pequod.engine.residency import Residency
from pequod.engine.status import StatusRange, View
from pequod.engine.store import Store
from pequod.joins.containing import slots_of_range
from pequod.keys import KeyRange, Value

MAX_LISTED = 20  # source ranges shown for one status range
MAX_RANGES = 100  # shown for one join, and of those that are missing
MAX_LOOKS = 10_000  # at source ranges that may be missing; a read may need many more


def explain(
    store: Store, catalogue: Catalogue, residency: Residency, keys: KeyRange, now: float
) -> dict[str, Any]:
    """Which joins write into a range, from which sources, fresh or not, and at what cost."""
    tables = store.tables_overlapping(keys)
    return {
        "first": keys.first,
        "last": keys.last,
        "stored_rows": store.count(keys) if keys else 0,
        "missing": [list(gap) for gap in Lookout(store, catalogue, residency, now).missing(keys)],
        "joins": [
            _explain_plan(plan, view, keys, now)
            for table in tables
            for view in catalogue.views.get(table.name, ())
            if view.keys.overlaps(keys)
            for plan in view.plans
        ]
        + [
            _summary(plan) | {"range_count": 0, "ranges": [], "sources": _sources(plan, keys)}
            for table in tables
            for plan in catalogue.pulls.get(table.name, ())
            if plan.output_keys.overlaps(keys)
        ],
    }


def _summary(plan: Plan) -> dict[str, Any]:
    counters = plan.counters
    return {
        "name": plan.join.name,
        "join": plan.join.text,
        "maintenance": plan.join.maintenance,
        "computes": counters.computes,
        "updater_runs": counters.updater_runs,
    }


def _explain_plan(plan: Plan, view: View, keys: KeyRange, now: float) -> dict[str, Any]:
    wanted = keys.clip(view.keys)
    parts: list[StatusRange | KeyRange] = [
        *view.statuses.overlapping(wanted),
        *view.statuses.gaps(wanted),
    ]
    parts.sort(key=lambda part: part.first)
    ranges = [
        _explain_status(plan, part, now)
        if isinstance(part, StatusRange)
        else _explain_gap(plan, part)
        for part in parts[:MAX_RANGES]
    ]
    return _summary(plan) | {"range_count": len(parts), "ranges": ranges}


def _explain_gap(plan: Plan, gap: KeyRange) -> dict[str, Any]:
    return {
        "first": gap.first,
        "last": gap.last,
        "state": "not computed",
        "sources": _sources(plan, gap),
    }


def _explain_status(plan: Plan, status: StatusRange, now: float) -> dict[str, Any]:
    contexts = [context for context in status.contexts.values() if context.step.plan is plan]
    sources = [
        {
            "source": context.step.plan.join.sources[context.step.level].text,
            "first": updater.keys.first,
            "last": updater.keys.last,
        }
        for context in contexts
        for updater in context.links
    ]
    found: dict[str, Any] = {
        "first": status.first,
        "last": status.last,
        "state": "fresh" if _is_fresh(status, now) else "stale",
        "rows": _rows(status),
        "source_rows_read": status.rows_read,
        "waiting_changes": sum(len(context.log or ()) for context in contexts),
        "source_ranges": len(sources),
        "sources": sources[:MAX_LISTED] or _sources(plan, status.keys),
    }
    if status.expires is not None:
        found["expires_in_seconds"] = max(0.0, status.expires - now)
    return found


def _is_fresh(status: StatusRange, now: float) -> bool:
    return status.fresh and (status.expires is None or now < status.expires)


def _rows(status: StatusRange) -> int:
    view = status.view
    if view.table.rows == view.rows:
        return view.table.count(status.keys)
    return sum(view.writes(key) for keys, _ in view.table.spans(status.keys) for key in keys)


def _sources(plan: Plan, keys: KeyRange) -> list[dict[str, str]]:
    """The source ranges where none are watched: what the output range alone tells."""
    slots = slots_of_range(plan.join.output, keys)
    if slots is None:
        return []
    found = [(source.text, source.pattern.containing_range(slots)) for source in plan.join.sources]
    return [{"source": text, "first": first, "last": last} for text, (first, last) in found]


class Lookout:
    """Finds what a read would miss: it goes the way of the read, and computes nothing.

    What would be found missing only after something else was computed is not seen, and of
    much that is missing only the first.
    """

    def __init__(
        self, store: Store, catalogue: Catalogue, residency: Residency, now: float
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._residency = residency
        self._now = now
        self._execution = Execution(lambda step, keys: _spans(store, step, keys))
        self._missing: dict[KeyRange, None] = {}
        self._looks = 0

    def missing(self, keys: KeyRange) -> list[KeyRange]:
        """The first of the ranges that a read of `keys` would ask for."""
        if not self._residency.remote:
            return []
        self._note(keys)
        for table in self._store.tables_overlapping(keys):
            for view in self._catalogue.views.get(table.name, ()):
                self._look_below(view, keys)
            for plan in self._catalogue.pulls.get(table.name, ()):
                self._execution.derive_range(plan, keys, self._enter)
        return sorted(self._missing)[:MAX_RANGES]

    def _note(self, keys: KeyRange) -> None:
        self._missing.update(dict.fromkeys(self._residency.missing(keys)))

    def _look_below(self, view: View, keys: KeyRange) -> None:
        """Look at the sources of what would be computed or settled."""
        keys = keys.clip(view.keys)
        stale = (one for one in view.statuses.overlapping(keys) if not _is_fresh(one, self._now))
        for part in [*(one.keys.clip(keys) for one in stale), *view.statuses.gaps(keys)]:
            for plan in view.plans:
                self._execution.derive_range(plan, part, self._enter)

    def _enter(self, step: Step, slots: Slots, source: KeyRange, ranges: list[KeyRange]) -> bool:
        known = len(self._missing)
        self._looks += 1
        if known >= MAX_RANGES or self._looks > MAX_LOOKS:
            return False
        for keys in ranges:
            self._note(keys)
            for view in step.feeders:
                self._look_below(view, keys)
            for pull in step.pulls:
                self._execution.derive_range(pull, keys, self._enter)
        # The rows of the last source lead nowhere.
        return len(self._missing) == known and not step.is_last


def _spans(store: Store, step: Step, keys: KeyRange) -> Iterable[tuple[list[str], list[Value]]]:
    table = store.tables.get(step.table)
    return table.spans(keys) if table is not None else ()
