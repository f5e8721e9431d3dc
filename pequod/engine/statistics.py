"""The answer of `stats`: counts and bytes, in all, per table and per join."""

from typing import Any

from pequod.engine.catalogue import Catalogue
from pequod.engine.plan import Plan
from pequod.engine.store import Store, Table


def total_bytes(store: Store, catalogue: Catalogue) -> int:
    """What rows and bookkeeping of all tables weigh."""
    return sum(_table_bytes(table, catalogue) for table in store.tables.values())


def statistics(store: Store, catalogue: Catalogue) -> dict[str, Any]:
    """Everything that is counted, as plain dicts."""
    tables = {name: _table(table, catalogue) for name, table in sorted(store.tables.items())}
    joins = {name: _join(plan) for name, plan in catalogue.plans.items()}
    return {
        "keys": sum(table["keys"] for table in tables.values()),
        "bytes": sum(table["bytes"] for table in tables.values()),
        "tables": tables,
        "joins": joins,
    }


def _table_bytes(table: Table, catalogue: Catalogue) -> int:
    views = catalogue.views.get(table.name, ())
    return table.total_bytes + sum(view.overhead_bytes for view in views)


def _table(table: Table, catalogue: Catalogue) -> dict[str, int]:
    plans = [plan for view in catalogue.views.get(table.name, ()) for plan in view.plans]
    plans += catalogue.pulls.get(table.name, [])
    return {
        "keys": table.rows,
        "bytes": _table_bytes(table, catalogue),
        "hits": table.hits,
        "computes": sum(plan.counters.computes for plan in plans),
        "updater_runs": sum(plan.counters.updater_runs for plan in plans),
        "invalidations": sum(plan.counters.invalidations for plan in plans),
        "evictions": table.evictions,
    }


def _join(plan: Plan) -> dict[str, int]:
    counters = plan.counters
    view = plan.view
    return {
        "keys": view.rows if view else 0,
        "bytes": view.bytes + view.overhead_bytes if view else 0,
        "hits": view.table.hits if view else 0,
        "computes": counters.computes,
        "updater_runs": counters.updater_runs,
        "invalidations": counters.invalidations,
        "evictions": counters.evictions,
        "skipped_values": counters.skipped,
    }
