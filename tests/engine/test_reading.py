"""Pages of long ranges: what they cost, and how far they make a range fresh."""

import tracemalloc
from collections.abc import Callable

import pytest

from pequod import Cache, KeyRange, prefix
from pequod.engine.maintenance import Maintenance
from pequod.keys import END, Pair
from tests.engine.world import TIMELINE, World

ROWS = 20_000
LARGE = 20 * ROWS  # bytes; a list of all pairs takes several times as much


def peak_bytes(call: Callable[[], object]) -> int:
    call()
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def one_bar() -> Cache:
    cache = Cache()
    cache.put_many((f"k|{number * 7919 % ROWS:06d}", "1") for number in range(ROWS))
    return cache


def many_subtables() -> Cache:
    cache = Cache()
    cache.put_many((f"k|{number // 20:04d}|{number:06d}", "1") for number in range(ROWS))
    return cache


def computed() -> Cache:
    cache = one_bar()
    cache.add_join("o|<a> = copy k|<a>")
    cache.scan(*prefix("o|"))
    return cache


@pytest.mark.parametrize("build", [one_bar, many_subtables, computed])
@pytest.mark.parametrize("keys", [prefix("k|"), prefix("o|"), KeyRange("", END)], ids=str)
def test_a_page_and_a_count_cost_less_than_the_range(
    build: Callable[[], Cache], keys: KeyRange
) -> None:
    cache = build()
    rows = cache.scan(*keys)
    for reverse in (False, True):
        assert cache.scan(*keys, limit=3, reverse=reverse) == rows[:: -1 if reverse else 1][:3]
        page = peak_bytes(lambda reverse=reverse: cache.scan(*keys, limit=3, reverse=reverse))
        assert page < LARGE / 4, f"{page:,} bytes for a page"
    assert cache.count(*keys) == len(rows)
    assert peak_bytes(lambda: cache.count(*keys)) < LARGE / 4


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [1, 7, 100])
def test_pages_put_together_are_the_range(limit: int, reverse: bool) -> None:
    world = World(TIMELINE)
    for user in ("ann", "ann2", "bob", "é"):
        for poster in ("liz", "max"):
            world.put(f"s|{user}|{poster}")
    for number in range(30):
        world.put(f"p|{('liz', 'max')[number % 2]}|{number:03d}")
    world.put("t|lone", "base data in a computed table")
    world.cache.get("t|bob|003|max")
    first, last = "s|ann|", "t}"
    found: list[Pair] = []
    while page := world.cache.scan(first, last, limit=limit, reverse=reverse):
        found += page
        first, last = (first, page[-1][0]) if reverse else (page[-1][0] + "\0", last)
        world.cache._check()
    assert found == world.scan("s|ann|", "t}")[:: -1 if reverse else 1]


def test_a_page_is_made_fresh_only_as_far_as_it_reaches() -> None:
    world = World(TIMELINE)
    for user in ("ann", "bob", "eve"):
        world.put(f"s|{user}|liz")
    for number in range(3):
        world.put(f"p|liz|{number}")
    world.scan(*prefix("t|"))
    computes = world.cache.stats()["joins"]["t#1"]["computes"]
    world.cache.evict(prefix("t|"))
    for user in ("ann", "bob", "eve"):
        world.cache.scan(*prefix(f"t|{user}|"))
    world.cache.evict(prefix("t|eve|"))
    assert len(world.cache.scan(*prefix("t|"), limit=4)) == 4
    fresh = [(one["first"], one["last"]) for one in world.ranges("t|")]
    assert (fresh[0][0], fresh[-1][1]) == ("t|", "t|bob}")
    assert computes == 1


def test_rows_that_go_while_a_page_is_made_fresh() -> None:
    world = World(TIMELINE)
    for user in ("ann", "bob", "eve"):
        world.put(f"s|{user}|liz")
    for number in range(5):
        world.put(f"p|liz|{number}")
    world.scan(*prefix("t|"))
    world.remove("s|ann|liz")
    world.remove("s|bob|liz")
    page = world.cache.scan(*prefix("t|"), limit=2)
    assert page == world.scan(*prefix("t|"))[:2] == [("t|eve|0|liz", "1"), ("t|eve|1|liz", "1")]


def test_limits_beyond_all_numbers() -> None:
    cache = one_bar()
    assert len(cache.scan(*prefix("k|"), limit=10**30)) == ROWS


def hint_of(cache: Cache, within: str):
    return cache._store.jump[within].hint


def test_a_hint_outlives_a_change_that_waits():
    world = World(TIMELINE, base={"s|ann|bob": "1", "p|bob|1": "Hi", "p|eve|2": "Ho"})
    world.scan(*prefix("t|ann|"))
    hint = hint_of(world.cache, "t|ann|")
    assert hint.first == "t|ann|"
    world.put("s|ann|eve", "1")
    assert hint_of(world.cache, "t|ann|") is hint
    assert hint.first == END  # it covers nothing until the follow is settled
    world.scan(*prefix("t|ann|"))
    assert hint_of(world.cache, "t|ann|") is hint
    assert hint.first == "t|ann|"


def test_a_hint_does_not_outlive_its_subtable():
    """A status range over all timelines keeps no single one alive: settling may empty it."""
    world = World(TIMELINE, base={"s|ann|bob": "1", "p|bob|1": "Hi"})
    world.scan(*prefix("t|"))
    world.scan(*prefix("t|ann|"))
    world.remove("s|ann|bob")
    world.scan(*prefix("t|ann|"))
    world.put("s|ann|bob", "1")
    world.scan(*prefix("t|ann|"))


@pytest.mark.parametrize("limit", [1, 2, 9])
@pytest.mark.parametrize("reverse", [False, True])
def test_reads_near_the_end_of_a_subtable(limit, reverse):
    cache = Cache()
    keys = [f"t|ann|{number}" for number in (2, 4, 6)]
    cache.put_many((key, "1") for key in keys)
    bounds = [f"t|ann|{number}" for number in range(9)]
    for first in bounds:
        for last in bounds:
            found = [key for key in keys if first <= key < last]
            found = found[::-1][:limit] if reverse else found[:limit]
            assert [key for key, _ in cache.scan(first, last, limit, reverse)] == found


def test_a_get_settles_what_waits():
    world = World("n|<u> = count s|<u>|<p>", "m|<u> = copy n|<u>", base={"s|ann|bob": "1"})
    assert world.cache.get("n|ann") == "1"
    hits = world.cache.stats()["tables"]["n"]["hits"]
    world.put("s|ann|eve", "1")
    assert world.cache.get("n|ann") == "2"
    assert world.cache.get("m|ann") == "2"
    world.remove("s|ann|eve")
    world.remove("s|ann|bob")
    assert world.cache.get("n|ann") is None
    assert world.cache.get("m|ann") is None
    assert world.cache.stats()["tables"]["n"]["hits"] > hits


PAGES = ("page|<a>|<id>|c|<n> = copy c|<a>|<id>|<n>", "page|<a>|<id>|x = copy x|<a>|<id>")
PAGE_ROWS = {f"c|ann|{id_}|{n}": "1" for id_ in range(3) for n in range(2)}


def read_pages(world: World) -> None:
    for id_ in range(3):
        world.scan(*prefix(f"page|ann|{id_}|"))


def hits_of(world: World) -> int:
    return world.cache.stats()["tables"]["page"]["hits"]


def test_every_range_of_a_subtable_keeps_its_hint(monkeypatch):
    world = World(*PAGES, base=PAGE_ROWS | {f"x|ann|{id_}": "1" for id_ in range(3)})
    read_pages(world)
    hits = hits_of(world)
    monkeypatch.setattr(Maintenance, "freshen", None)  # nobody needs it any more
    read_pages(world)
    read_pages(world)
    world.scan("page|ann|1|c|1", "page|ann|1|x")  # a part of one
    assert hits_of(world) == hits + 7


def test_a_hint_of_an_earlier_read_is_void_with_its_range():
    world = World(*PAGES, base=PAGE_ROWS)
    read_pages(world)
    world.cache.evict(prefix("page|ann|0|"))
    world.put("c|ann|0|7")
    read_pages(world)
    world.cache.add_join("page|<a>|<id>|y = copy y|<a>|<id>")
    world.cache.put("y|ann|1", "2")
    assert ("page|ann|1|y", "2") in world.cache.scan(*prefix("page|ann|1|"))
    assert ("page|ann|1|y", "2") in world.cache.scan(*prefix("page|ann|"))
