"""Random scenarios against the oracle, and a look at the referee itself.

`PEQUOD_SEEDS` and `PEQUOD_FIRST_SEED` say how many and from which seed on.
"""

import os
import re
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from pequod import Cache
from pequod.keys import Pair, Value
from tests.generator import Scenario, random_scenario
from tests.runner import Runner, run, smallest
from tests.scenarios import main

SEEDS = int(os.environ.get("PEQUOD_SEEDS", "3000"))
FIRST_SEED = int(os.environ.get("PEQUOD_FIRST_SEED", "0"))
CHUNK = 100

MAX_REFUSED_SHARE = 0.05  # a refused join tests little


@pytest.mark.parametrize("first", range(FIRST_SEED, FIRST_SEED + SEEDS, CHUNK))
def test_every_answer_is_what_the_oracle_says(first: int) -> None:
    seeds = range(first, min(first + CHUNK, FIRST_SEED + SEEDS))
    refused = sum(run(random_scenario(seed)) > 0 for seed in seeds)
    assert refused <= max(1, MAX_REFUSED_SHARE * len(seeds)), f"{refused} of {len(seeds)} refused"


def test_a_seed_gives_the_same_scenario_again() -> None:
    assert random_scenario(7) == random_scenario(7) != random_scenario(8)


TIMELINE = "j: t|<u>|<n>|<p> = check s|<u>|<p> copy p|<p>|<n>"
SNAPSHOT = TIMELINE.replace("check", "snapshot 1 check")
POST = (("put", "s|ann|bob", "1"), ("put", "p|bob|1", "hi"))
READ = ("scan", "t|ann|", "t|ann}", None, False)


class Lossy(Cache):
    """Loses the last row of a scan."""

    def scan(self, *arguments: Any, **options: Any) -> list[Pair]:
        return super().scan(*arguments, **options)[:-1]


class Cheating(Cache):
    """Knows no row but the first."""

    def get(self, key: str) -> Value | None:
        return "hi" if key == "t|ann|1|bob" else None


class Unsure(Cache):
    """Never says that it removed anything."""

    def remove(self, key: str) -> bool:
        return super().remove(key) and False


class Unfenced(Cache):
    """Takes what a join computes, and loses it."""

    def put(self, key: str, value: Value) -> None:
        if not key.startswith("t|"):
            super().put(key, value)


class Late(Cache):
    """Keeps a snapshot for longer than it may."""

    def __init__(self, clock: Callable[[], float], **options: Any) -> None:
        super().__init__(clock=lambda: clock() // 10, **options)


class Unwilling(Cache):
    """Loads nothing."""

    def loading(self, keys: tuple[str, str]) -> Any:
        return nullcontext(SimpleNamespace())


WRONG: dict[type[Cache], tuple[Scenario, str]] = {
    Lossy: (Scenario(0, (TIMELINE,), (*POST, READ)), "'t|ann|1|bob' is None, not 'hi'"),
    Cheating: (
        Scenario(0, (TIMELINE,), (*POST, ("put", "p|bob|1", "ho"), ("get", "t|ann|1|bob"))),
        "got 'hi', not 'ho'",
    ),
    Unsure: (Scenario(0, (), (*POST, ("remove", "p|bob|1"))), "removed: False"),
    Unfenced: (
        Scenario(0, (TIMELINE,), (("put", "t|ann|1|bob", "ho"),)),
        "not refused with ComputedKey",
    ),
    Late: (
        Scenario(0, (SNAPSHOT,), (*POST, READ, ("remove", "s|ann|bob"), ("sleep", 1), READ)),
        "'t|ann|1|bob' is 'hi', not None",
    ),
    Unwilling: (
        Scenario(0, (TIMELINE,), (*POST, READ), remote=(("p|", "p}"),)),
        "no answer after 12 rounds",
    ),
}


@pytest.mark.parametrize("wrong_cache", WRONG)
def test_a_wrong_answer_is_noticed(wrong_cache: type[Cache]) -> None:
    scenario, complaint = WRONG[wrong_cache]
    run(scenario)
    last = f"seed 0, step {len(scenario.steps) - 1}: {re.escape(str(scenario.steps[-1]))}"
    with pytest.raises(AssertionError, match=f"(?s){last}.*{re.escape(complaint)}") as caught:
        run(scenario, wrong_cache)
    text = str(caught.value)
    replay = text[text.index("Scenario(") : -1]
    assert eval(replay, {"Scenario": Scenario}) == scenario


@pytest.mark.parametrize(("seconds", "possible"), [(0.5, {"hi", "ho"}), (1, {"ho"})])
def test_a_snapshot_may_be_as_old_as_it_says(seconds: float, possible: set[str]) -> None:
    steps = (*POST, ("sleep", 1), READ, ("put", "p|bob|1", "ho"), ("sleep", seconds), READ)
    runner = Runner(Scenario(0, (), ()), Cache)
    for step in (("add_join", SNAPSHOT), *steps):
        runner.apply(step)
    assert runner._possible("t|ann|1|bob") == possible


def test_a_failure_is_made_smaller() -> None:
    noise = (("put", "x|1", "1"), ("sleep", 1), ("evict", "", "z"))
    steps = (*noise, POST[0], *noise, POST[1], *noise, READ, *noise)
    long = Scenario(0, (TIMELINE, "k: o|<a> = copy x|<a>"), steps, memory_limit=100)
    assert smallest(long, Lossy) == Scenario(0, (TIMELINE,), (*POST, READ))


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3", "--first", "5", "--steps", "10", "--jobs", "1"]) == 0
    assert capsys.readouterr().err.startswith("3 scenarios, 0 failed, 0 with a join refused, ")


def test_the_command_line_reports_failures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cache, "count", lambda *_: -1)
    arguments = ["--seeds", "20", "--jobs", "1"]
    assert main([*arguments, "--keep-going"]) == 1
    output = capsys.readouterr()
    assert 1 < len(output.out.splitlines()) <= 20
    assert all(line.startswith("seed ") for line in output.out.splitlines())
    assert main(arguments) == 1
    smaller = capsys.readouterr().out.partition("made smaller")[2]
    assert "AssertionError: counted -1, not 0 to 0" in smaller
    assert "joins=()" in smaller
