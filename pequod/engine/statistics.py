"""The answer of `stats`: counts and bytes, in all, per table and per join."""

from collections import Counter
from typing import Any

from pequod.engine.catalogue import Catalogue
from pequod.engine.plan import Plan
from pequod.engine.residency import Residency
from pequod.engine.status import View
from pequod.engine.store import Store, Table
from pequod.engine.weights import (
    RESIDENT_BYTES,
    row_bytes,
    value_bytes,
)
from pequod.keys import EVERYTHING


def statistics(store: Store, catalogue: Catalogue, residency: Residency) -> dict[str, Any]:
    """Everything that is counted, as plain dicts."""
    hits = _hits(catalogue)
    tables = {
        name: _table(table, catalogue, residency) for name, table in sorted(store.tables.items())
    }
    joins = {name: _join(plan, hits) for name, plan in catalogue.plans.items()}
    return {
        "keys": sum(table["keys"] for table in tables.values()),
        "bytes": store.account.bytes,
        "tables": tables,
        "joins": joins,
    }


def _hits(catalogue: Catalogue) -> Counter[View]:
    """For each view, the reads that found what it had computed; a pull join computes always."""
    found: Counter[View] = Counter()
    for views, tally in catalogue.hits.items():
        found.update(dict.fromkeys(views, tally.hits))
    return found


def _plans(table: Table, catalogue: Catalogue) -> list[Plan]:
    pushed = [plan for view in catalogue.views.get(table.name, ()) for plan in view.plans]
    return pushed + catalogue.pulls.get(table.name, [])


def _table_bytes(table: Table, catalogue: Catalogue, residency: Residency) -> int:
    views = catalogue.views.get(table.name, ())
    return (
        table.total_bytes
        + sum(view.overhead_bytes for view in views)
        + sum(plan.bytes for plan in _plans(table, catalogue))
        + RESIDENT_BYTES * _resident_ranges(table, residency)
    )


def _resident_ranges(table: Table, residency: Residency) -> int:
    """How many of them start in a table; some start in none, and weigh only in the total."""
    return residency.resident.count(table.keys) if table.name else 0


def _table(table: Table, catalogue: Catalogue, residency: Residency) -> dict[str, int]:
    plans = _plans(table, catalogue)
    return {
        "keys": table.rows,
        "bytes": _table_bytes(table, catalogue, residency),
        "hits": table.hits
        + sum(one.hits for views, one in catalogue.hits.items() if views[0].table is table),
        "computes": sum(plan.counters.computes for plan in plans),
        "updater_runs": sum(plan.counters.updater_runs for plan in plans),
        "invalidations": sum(plan.counters.invalidations for plan in plans),
        "evictions": table.evictions,
    }


def _join(plan: Plan, hits: Counter[View]) -> dict[str, int]:
    counters = plan.counters
    view = plan.view
    return {
        "keys": view.rows if view else 0,
        "bytes": plan.bytes + (view.bytes + view.overhead_bytes if view else 0),
        "hits": hits[view] if view else 0,
        "computes": counters.computes,
        "updater_runs": counters.updater_runs,
        "invalidations": counters.invalidations,
        "evictions": counters.evictions,
        "skipped_values": counters.skipped,
    }


def check_account(store: Store, catalogue: Catalogue, residency: Residency) -> None:
    """Weigh every row again, and compare."""
    for table in store.tables.values():
        views = catalogue.views.get(table.name, [])
        for view in views:
            view._check()
        size = 0
        for keys, values in table.spans(EVERYTHING):
            for key, value in zip(keys, values, strict=True):
                writer = next((view for view in views if view.writes(key)), None)
                size += writer.row_bytes(key) if writer else row_bytes(key) + value_bytes(value)
        assert size == table.bytes, f"table {table.name!r}: {size} bytes, not {table.bytes}"
    tables = store.tables.values()
    size = sum(_table_bytes(table, catalogue, residency) for table in tables)
    elsewhere = len(residency.resident) - sum(_resident_ranges(one, residency) for one in tables)
    size += RESIDENT_BYTES * elsewhere
    assert size == store.account.bytes, f"{size} bytes in all, not {store.account.bytes}"
