"""What few worlds have much of, weighed alone: folds, intervals, logs, joins, short values.

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


def three_sources(cache: Cache) -> None:
    """The last of them is watched key by key."""
    cache.add_join("o|<a>|<b>|<c> = check x|<a>|<b> check y|<b>|<c> copy z|<c>|<a>;")
    for number in range(2_500):
        cache.put(f"x|{number // 5:04d}|{number * 13 % 400:04d}", "1")
    for number in range(2_000):
        cache.put(f"y|{number // 5:04d}|{number * 17 % 300:04d}", "1")
    for number in range(20_000):
        cache.put(f"z|{number % 300:04d}|{number * 7 % 500:04d}", "1")
    for a in range(500):
        cache.scan(*prefix(f"o|{a:04d}|"))


def waiting(cache: Cache, timelines: int, posters: int, posts: int) -> None:
    """Posts that nobody has read yet."""
    cache.add_join("t|<u>|<n:6>|<p> = check s|<u>|<p> lazy copy p|<p>|<n>;")
    for user in range(timelines):
        cache.put(f"s|{user:05d}|{user % posters:03d}", "1")
        cache.scan(*prefix(f"t|{user:05d}|"))
    for number in range(posts * posters):
        cache.put(f"p|{number % posters:03d}|{number:06d}", "1")


def long_logs(cache: Cache) -> None:
    waiting(cache, 500, 1, 2_000)


def short_logs(cache: Cache) -> None:
    waiting(cache, 10_000, 200, 8)


def settled_logs(cache: Cache) -> None:
    """What waited is there now, and the room it took is free for it."""
    waiting(cache, 500, 1, 300)
    for user in range(500):
        cache.count(*prefix(f"t|{user:05d}|"))


def installed_joins(cache: Cache) -> None:
    for number in range(300):
        cache.add_join(f"o{number}|<a>|<b> = copy x|<a>|<b> check y|<a>;")


def joins_that_ran(cache: Cache) -> None:
    installed_joins(cache)
    for number in range(300):
        cache.get(f"o{number}|1|2")


def loaded(cache: Cache, rows: int) -> None:
    cache.declare_remote(prefix("x|"))
    for number in range(20_000):
        keys = prefix(f"x|{number:06d}|")
        with cache.loading(keys) as loading:
            loading.pairs = [(f"{keys.first}{row}", "1") for row in range(rows)]


def loaded_ranges(cache: Cache) -> None:
    loaded(cache, 1)


def loaded_nothing(cache: Cache) -> None:
    loaded(cache, 0)


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
        three_sources,
        long_logs,
        short_logs,
        settled_logs,
        installed_joins,
        joins_that_ran,
        loaded_ranges,
        loaded_nothing,
    )
}


def measure(world: str) -> tuple[int, int]:
    """The growth of this process while it builds a world, and what the account says."""
    cache = Cache()
    cache.put("warm|up|1", "1")
    cache.add_join("warm|<a> = copy warmer|<a>")
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
