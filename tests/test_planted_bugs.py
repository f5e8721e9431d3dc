"""The random scenarios bite: each of these bugs, planted on purpose, is caught by them."""

from collections.abc import Callable
from typing import Any

import pytest

from pequod.engine.execution import Execution
from pequod.engine.maintenance import Maintenance
from pequod.engine.operators import Max
from pequod.engine.outputs import Outputs
from pequod.engine.plan import Step
from pequod.engine.residency import Residency
from pequod.engine.status import StatusRange
from pequod.engine.updating import Updating
from pequod.engine.watching import WatchIndex
from pequod.joins import containing
from tests.scenarios import random_scenario, run

SEEDS = range(600)


def main_range_only(ranges: list[Any]) -> list[Any]:
    """Trap 1: the keys whose slot is a proper prefix of a bound are forgotten."""
    return [keys for keys in ranges[:1] if keys]


def soil_alone(self: Updating, status: StatusRange) -> None:
    """Trap 2: dirt does not travel to the ranges computed from this one."""
    status.fresh = False
    status.disturb()


def log_last(self: StatusRange, context: Any, key: str, old: Any, new: Any) -> None:
    """Trap 3: the log keeps the last change of a key and not the net change."""
    context.note(key, old)
    self.pending = {**(self.pending or {}), context: None}


def first_wins(self: Execution, found: Any) -> dict[str, Any]:
    """Ambiguity: the first derivation of a key wins, not the greatest value-source key."""
    rows: dict[str, Any] = {}
    for plan, derivations in found:
        if plan.join.aggregates:
            derivations = self._folded_with_key(plan, derivations)
        for output_key, _, value in derivations:
            rows.setdefault(output_key, value)
    return rows


def forget_hints(self: StatusRange) -> None:
    """What is disturbed wakes nobody."""
    for hint in (self.hints or {}).values():
        hint.void()
    self.hints = None


def nothing(*_: Any, **__: Any) -> None:
    """Something that must happen does not."""


def yes(*_: Any) -> bool:
    return True


def no_values(*_: Any) -> tuple[str, ...]:
    return ()


PLANTED: dict[str, tuple[object, str, Callable[..., Any]]] = {
    "trap 1, slots that are prefixes of a bound": (containing, "_united", main_range_only),
    "trap 2, dirt does not travel": (Updating, "soil", soil_alone),
    "trap 3, the last change and not the net change": (StatusRange, "log", log_last),
    "a slot that is bound but not pinned is not tested": (Step, "tested_values", no_values),
    "the extreme is lost": (Max, "remove", yes),
    "the first derivation wins": (Execution, "combined", first_wins),
    "invalidation stops at the first range": (Maintenance, "drop_dependents", nothing),
    "a load outranks a later change": (Residency, "note", nothing),
    "keys that had to wait are forgotten": (Outputs, "redo", nothing),
    "a watch sleeps through what waits": (StatusRange, "disturb", forget_hints),
    "a watch sleeps through what is written": (StatusRange, "wake", nothing),
    "a watch sleeps through base data": (WatchIndex, "wake", nothing),
    "a range that grew does not know it": (Maintenance, "_widen", nothing),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, bug = PLANTED[name]
    monkeypatch.setattr(owner, attribute, bug)
    for seed in SEEDS:
        try:
            run(random_scenario(seed))
        except (AssertionError, KeyError):
            return
    pytest.fail(f"{len(SEEDS)} seeds did not notice: {name}")
