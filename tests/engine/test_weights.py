"""What few worlds have much of, weighed alone: folds, intervals, short values.

Beside `test_account.py`: here one kind of thing outweighs all others, and everything is computed
in small pieces, so that memory which only the computing took is not mistaken for its result.
Run this file to see the figures:  python -m tests.engine.test_weights
"""

import gc
import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from pequod import Cache, prefix
from tests.engine.test_account import TOLERANCE, resident_bytes

DIGITS = "0123456789"  # a character taken from a text is shared by Python; str(1) is not


def folded(cache: Cache, operator: str, decimals: str = "") -> None:
    """30,000 groups in 300 status ranges; digits that are shared weigh nothing."""
    cache.add_join(f"n|<day>|<id> = {operator} hit|<day>|<id>|<x>;")
    for number in range(60_000):
        value = DIGITS[number % 10] + decimals
        cache.put(f"hit|{number % 300:03d}|{number % 30_000:05d}|{number}", value)
    for day in range(300):
        cache.scan(*prefix(f"n|{day:03d}|"))


def counts(cache: Cache) -> None:
    folded(cache, "count")


def averages(cache: Cache) -> None:
    folded(cache, "avg", ".25")


def extremes(cache: Cache) -> None:
    folded(cache, "max")


def snapshots(cache: Cache) -> None:
    folded(cache, "snapshot 1000 count")


def made_digits(cache: Cache) -> None:
    """Texts of one character, each a new one: that is what str() makes of a number."""
    for number in range(200_000):
        cache.put(f"p|user{number % 100:03d}|{number:010d}", str(number % 10))


def wide_characters(cache: Cache) -> None:
    """Texts of one character that Python does not share, being none of Latin-1."""
    for number in range(200_000):
        cache.put(f"p|user{number % 100:03d}|{number:010d}", chr(0x4E00 + number % 999))


def intervals(cache: Cache) -> None:
    """Source ranges that are neither subtables nor keys, all watched for one status range."""
    cache.add_join("o|<a>|<b> = check x|<a>|<c> copy y|<c>-<b>;")
    for number in range(10_000):
        cache.put(f"x|ann|{number:05d}", "1")
    cache.scan(*prefix("o|ann|"))


WORLDS: dict[str, Callable[[Cache], None]] = {
    build.__name__: build
    for build in (
        counts,
        averages,
        extremes,
        snapshots,
        made_digits,
        wide_characters,
        intervals,
    )
}


def measure(world: str) -> tuple[int, int]:
    """The growth of this process while it builds a world, and what the account says."""
    cache = Cache()
    cache.put("warm|up|1", "1")
    gc.collect()
    before = resident_bytes()
    WORLDS[world](cache)
    gc.collect()
    return resident_bytes() - before, cache.stats()["bytes"]


def measured(world: str) -> tuple[int, int]:
    """The same in a process of its own."""
    call = [sys.executable, "-m", "tests.engine.test_weights", world]
    printed = subprocess.run(call, check=True, capture_output=True, text=True, timeout=120).stdout
    truth, account = json.loads(printed)
    return truth, account


@pytest.mark.parametrize("world", WORLDS)
def test_account_is_within_a_fifth_of_the_truth(world: str) -> None:
    truth, account = measured(world)
    assert abs(account - truth) <= TOLERANCE * truth, f"{account:,} for {truth:,}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
    else:
        for name in WORLDS:
            truth, account = measured(name)
            print(f"{name:15} {truth:>12,} bytes, the account says {account / truth:.2f} of it")
