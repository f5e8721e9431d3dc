"""Rows that are put in runs: many at once, and yet as if one by one."""

import random
import sys

from pequod import Cache, prefix
from pequod.engine.rows import CROWDED
from tests.oracle import expected_pairs

TIMELINE = "t|<user>|<time>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"


def test_random_runs_are_as_good_as_single_puts():
    for seed in range(60):
        chance = random.Random(seed)
        one, many = Cache(), Cache()
        for cache in (one, many):
            cache.add_join(TIMELINE)
        watched = [cache.watch("p|", "p}") if seed % 3 == 0 else None for cache in (one, many)]
        base = {}
        for _ in range(6):
            tables = chance.choice(("p", "s", "x", "psx"))
            keys = [
                f"{chance.choice(tables)}|{chance.choice('abc')}|{chance.randrange(30):02}"
                for _ in range(chance.randrange(40))
            ]
            keys += chance.choice(([], ["lone", "lonely"], ["p|é|1"], ["p|a"]))
            rows = [(key, chance.choice(("1", "2", "text", b"3"))) for key in keys]
            if chance.random() < 0.8:
                rows = sorted(dict(rows).items())
            base.update(rows)
            many.put_many(rows)
            for key, value in rows:
                one.put(key, value)
            many._check()
            for first, last in (prefix(""), prefix("p|a|"), prefix("t|")):
                expected = expected_pairs([TIMELINE], base, first, last)
                assert many.scan(first, last) == one.scan(first, last) == expected, f"seed {seed}"
            assert many.stats()["bytes"] == one.stats()["bytes"], f"seed {seed}"
            if watched[0]:
                assert watched[0].changes() == watched[1].changes()


def test_runs_into_a_crowded_subtable():
    cache = Cache()
    base = {f"p|a|{number:07}": "x" for number in range(0, 4 * CROWDED, 2)}
    cache.put_many(base)
    cache.put("p|a|0000001", "y")  # in the middle of many: now they are large
    more = {f"p|a|{number:07}": "z" for number in range(4 * CROWDED, 5 * CROWDED)}
    cache.put_many(more)
    cache._check()
    assert cache.scan("p|", "p}") == sorted({**base, "p|a|0000001": "y", **more}.items())


def test_rows_far_apart_cost_nothing_for_what_lies_between():
    """One post into many timelines: a row each, in key order, thousands of other rows between."""
    cache = Cache()
    cache.put_many([(f"t|u{user:05}|0001", "1") for user in range(5000)])
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        cache.put_many([(f"t|u{user:05}|0002", "1") for user in (1, 2500, 4999)])
    finally:
        sys.setprofile(None)
    assert calls < 500
    assert cache.count("t|", "t}") == 5003
