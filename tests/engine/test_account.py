"""The memory account against the truth: what the process grew by, in worlds of many kinds.

Each world is built in a process of its own, which prints the growth of its resident memory
and what `stats` says. Run this file to see the figures:  python -m tests.engine.test_account
"""

import gc
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pequod import Cache, prefix

TIMELINE = "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;"
TOLERANCE = 0.2


def base_rows(cache: Cache) -> None:
    """Long subtables of short rows."""
    for number in range(300_000):
        cache.put(f"p|user{number % 100:03d}|{number:010d}", "1")


def lone_rows(cache: Cache) -> None:
    """A subtable for every row."""
    for number in range(60_000):
        cache.put(f"profile|user{number:07d}|name", "1")


def one_bar(cache: Cache) -> None:
    """No subtables, in no order."""
    for number in range(200_000):
        cache.put(f"karma|user{number * 7919 % 200_000:07d}", "1")


def many_tables(cache: Cache) -> None:
    for number in range(10_000):
        cache.put(f"user{number:05d}|name", "1")


def large_values(cache: Cache) -> None:
    for number in range(30_000):
        cache.put(f"p|user{number % 100:03d}|{number:010d}", f"{number:01000d}")


def unicode_keys(cache: Cache) -> None:
    for number in range(200_000):
        cache.put(f"p|Зоя{number % 100:03d}|{number:010d}", "1")


def timelines(cache: Cache) -> None:
    """Status ranges, contexts and links: 3,000 users who follow 40 each."""
    cache.add_join(TIMELINE)
    users = 3_000
    for user in range(users):
        for place in range(40):
            cache.put(f"s|user{user:05d}|user{(user * 31 + place * 97) % users:05d}", "1")
        cache.put(f"p|user{user:05d}|{user:010d}", "1")
    for user in range(users):
        cache.scan(*prefix(f"t|user{user:05d}|"))


def aggregates(cache: Cache) -> None:
    cache.add_join("karma|<author> = sum vote|<author>|<id>|<voter>;")
    for number in range(100_000):
        cache.put(f"vote|user{number % 30_000:05d}|{number:07d}|bob", "1")
    cache.scan(*prefix("karma|"))


def point_reads(cache: Cache) -> None:
    """A status range for each key."""
    cache.add_join("karma|<author> = count vote|<author>|<id>|<voter>;")
    for number in range(20_000):
        cache.put(f"vote|user{number:05d}|1|bob", "1")
    for number in range(20_000):
        cache.get(f"karma|user{number:05d}")


WORLDS: dict[str, Callable[[Cache], None]] = {
    build.__name__: build
    for build in (
        base_rows,
        lone_rows,
        one_bar,
        many_tables,
        large_values,
        unicode_keys,
        timelines,
        aggregates,
        point_reads,
    )
}


def resident_bytes() -> int:
    fields = Path("/proc/self/statm").read_text("ascii").split()
    return int(fields[1]) * 4096


def measure(world: str) -> tuple[int, int]:
    """The growth of this process while it builds a world, and what the account says."""
    cache = Cache()
    cache.put("warm|up|1", "1")
    gc.collect()
    before = resident_bytes()
    WORLDS[world](cache)
    gc.collect()
    return resident_bytes() - before, cache.stats()["bytes"]


@pytest.mark.parametrize("world", WORLDS)
def test_account_is_within_a_fifth_of_the_truth(world: str) -> None:
    call = [sys.executable, "-m", "tests.engine.test_account", world]
    printed = subprocess.run(call, check=True, capture_output=True, text=True, timeout=120).stdout
    truth, account = json.loads(printed)
    assert abs(account - truth) <= TOLERANCE * truth, f"{account:,} for {truth:,}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
    else:
        for name in WORLDS:
            call = [sys.executable, "-m", "tests.engine.test_account", name]
            truth, account = json.loads(subprocess.check_output(call))
            print(f"{name:15} {truth:>12,} bytes, the account says {account / truth:.2f} of it")
