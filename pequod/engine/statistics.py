"""The answer of `stats`: counts and bytes, in all, per table and per join."""

from collections import Counter
from typing import Any

from pequod.engine.catalogue import Catalogue
from pequod.engine.plan import Plan
from pequod.engine.status import View
from pequod.engine.store import Store, Table
from pequod.engine.weights import (
    LARGE_ROW_BYTES,
    SUBTABLE_BYTES,
    TABLE_BYTES,
    row_bytes,
    value_bytes,
)
from pequod.keys import EVERYTHING


def total_bytes(store: Store, catalogue: Catalogue) -> int:
    """What everything weighs, without looking at each table: every put with a limit asks."""
    views = [view for views in catalogue.views.values() for view in views]
    watched = {name for plan in catalogue.plans.values() for name in plan.source_tables}
    watched &= store.tables.keys()
    return (
        store.account.bytes
        + TABLE_BYTES * len(store.tables)
        + SUBTABLE_BYTES * len(store.jump)
        + LARGE_ROW_BYTES * sum(len(subtable.rows) for subtable in store.account.large)
        + sum(store.tables[name].updaters.bytes for name in watched)
        + sum(view.overhead_bytes for view in views)
    )


def statistics(store: Store, catalogue: Catalogue) -> dict[str, Any]:
    """Everything that is counted, as plain dicts."""
    hits = _hits(catalogue)
    tables = {name: _table(table, catalogue) for name, table in sorted(store.tables.items())}
    joins = {name: _join(plan, hits) for name, plan in catalogue.plans.items()}
    return {
        "keys": sum(table["keys"] for table in tables.values()),
        "bytes": sum(table["bytes"] for table in tables.values()),
        "tables": tables,
        "joins": joins,
    }


def _hits(catalogue: Catalogue) -> Counter[View]:
    """For each view, the reads that found what it had computed; a pull join computes always."""
    found: Counter[View] = Counter()
    for views, tally in catalogue.hits.items():
        found.update(dict.fromkeys(views, tally.hits))
    return found


def _table_bytes(table: Table, catalogue: Catalogue) -> int:
    views = catalogue.views.get(table.name, ())
    return table.total_bytes + sum(view.overhead_bytes for view in views)


def _table(table: Table, catalogue: Catalogue) -> dict[str, int]:
    plans = [plan for view in catalogue.views.get(table.name, ()) for plan in view.plans]
    plans += catalogue.pulls.get(table.name, [])
    return {
        "keys": table.rows,
        "bytes": _table_bytes(table, catalogue),
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
        "bytes": view.bytes + view.overhead_bytes if view else 0,
        "hits": hits[view] if view else 0,
        "computes": counters.computes,
        "updater_runs": counters.updater_runs,
        "invalidations": counters.invalidations,
        "evictions": counters.evictions,
        "skipped_values": counters.skipped,
    }


def check_account(store: Store, catalogue: Catalogue) -> None:
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
    tables = sum(_table_bytes(table, catalogue) for table in store.tables.values())
    assert tables == total_bytes(store, catalogue), "the total is not that of the tables"
