"""What a range is made of: the answer of `explain`, computed without changing anything."""

from typing import Any

from pequod.engine.catalogue import Catalogue
from pequod.engine.plan import Plan
from pequod.engine.residency import Residency
from pequod.engine.status import StatusRange, View
from pequod.engine.store import Store
from pequod.joins.containing import slots_of_range
from pequod.keys import KeyRange

MAX_LISTED = 20  # source ranges shown for one status range


def explain(
    store: Store, catalogue: Catalogue, residency: Residency, keys: KeyRange, now: float
) -> dict[str, Any]:
    """Which joins write into a range, from which sources, fresh or not, and at what cost."""
    tables = store.tables_overlapping(keys)
    return {
        "first": keys.first,
        "last": keys.last,
        "stored_rows": sum(len(span) for table in tables for span, _ in table.spans(keys)),
        "missing": [list(gap) for gap in residency.missing(keys)],
        "joins": [
            _explain_plan(plan, view, keys, now)
            for table in tables
            for view in catalogue.views.get(table.name, ())
            if view.keys.overlaps(keys)
            for plan in view.plans
        ]
        + [
            _summary(plan) | {"ranges": [], "sources": _sources(plan, keys)}
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
    ranges = [_explain_status(plan, status, now) for status in view.statuses.overlapping(wanted)]
    ranges += [
        {"first": gap.first, "last": gap.last, "state": "not computed"}
        for gap in view.statuses.gaps(wanted)
    ]
    return _summary(plan) | {"ranges": sorted(ranges, key=lambda one: one["first"])}


def _explain_status(plan: Plan, status: StatusRange, now: float) -> dict[str, Any]:
    expired = status.expires is not None and now >= status.expires
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
        "state": "fresh" if status.fresh and not expired else "stale",
        "rows": _rows(status),
        "source_rows_read": status.rows_read,
        "waiting_changes": sum(len(context.log or ()) for context in contexts),
        "source_ranges": len(sources),
        "sources": sources[:MAX_LISTED] or _sources(plan, status.keys),
    }
    if status.expires is not None:
        found["expires_in_seconds"] = max(0.0, status.expires - now)
    return found


def _rows(status: StatusRange) -> int:
    view = status.view
    spans = view.table.spans(status.keys)
    if view.table.rows == view.rows:
        return sum(len(keys) for keys, _ in spans)
    return sum(view.writes(key) for keys, _ in spans for key in keys)


def _sources(plan: Plan, keys: KeyRange) -> list[dict[str, str]]:
    """The source ranges of a join that watches none: what the output range alone tells."""
    slots = slots_of_range(plan.join.output, keys)
    if slots is None:
        return []
    found = [(source.text, source.pattern.containing_range(slots)) for source in plan.join.sources]
    return [{"source": text, "first": first, "last": last} for text, (first, last) in found]
