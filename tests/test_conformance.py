"""The 60 scenarios that every Pequod must pass, each as a test of its own."""

import json
from pathlib import Path
from typing import Any

import pytest

from pequod import Cache

SCENARIOS = json.loads((Path(__file__).parent / "conformance.json").read_text("utf-8"))


class FakeClock:
    """A clock that only `sleep` moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[one["name"] for one in SCENARIOS])
def test_scenario(scenario: dict[str, Any]) -> None:
    clock = FakeClock()
    play(scenario, Cache(clock=clock), clock)


def play(scenario: dict[str, Any], cache: Any, clock: FakeClock) -> None:
    """Do the steps of a scenario with anything that has the methods of `Cache`."""
    for text in scenario["joins"]:
        cache.add_join(text)
    for number, (operation, *arguments) in enumerate(scenario["steps"]):
        where = f"step {number}: {operation} {arguments}"
        match operation:
            case "put":
                cache.put(*arguments)
            case "remove":
                cache.remove(arguments[0])
            case "addjoin":
                cache.add_join(arguments[0])
            case "sleep":
                clock.now += arguments[0]
            case "scan":
                *keys, expected = arguments
                assert [list(pair) for pair in cache.scan(*keys)] == expected, where
            case "count":
                *keys, expected = arguments
                assert cache.count(*keys) == expected, where
            case "get":
                key, expected = arguments
                assert cache.get(key) == expected, where
            case _:
                raise AssertionError(f"unknown operation in {where}")
        if isinstance(cache, Cache):
            cache._check()
