"""Status ranges: how they wait, expire, merge, and go when joins come and go."""

import random
from itertools import pairwise

import pytest

from pequod import Cache, prefix
from pequod.engine import updating
from pequod.engine.maintenance import MAX_FRAGMENTS
from tests.engine.world import BEST, KARMA, PAGE, TIMELINE, TWIP, World

TOP = "top|<day> = snapshot 10 count hit|<day>|<n>"
NEWS = {"vote|bob|1|ann": "1", "comment|7|bob": "hm"}


def test_a_join_installed_late_is_seen_by_computed_ranges() -> None:
    world = World(TIMELINE, base=TWIP | {"ad|ann|1": "buy"})
    world.scan("t|", "t}")
    world.joins += ("t|<user>|<n>|ad = copy ad|<user>|<n>",)
    world.cache.add_join(world.joins[1])
    assert ("t|ann|1|ad", "buy") in world.scan("t|", "t}")
    world.put("ad|ann|2", "more")
    assert len(world.scan("t|", "t}")) == 4
    world.joins = world.joins[1:]
    world.cache.drop_join("t#1")
    assert world.scan("t|", "t}") == [("t|ann|1|ad", "buy"), ("t|ann|2|ad", "more")]


def test_dropping_an_inner_join_takes_what_was_computed_from_it() -> None:
    world = World(KARMA, PAGE, BEST, base={"vote|bob|1|ann": "1", "comment|7|bob": "hm"})
    world.scan()
    world.joins = world.joins[1:]
    world.cache.drop_join("karma#1")
    assert world.scan("best|", "best}") == []
    world.put("karma|bob", "5")
    assert world.scan("best|", "best}") == [("best|7", "5")]


def test_log_overflow_computes_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updating, "LOG_LIMIT", 3)
    world = World(TIMELINE, base=TWIP)
    world.scan("t|ann|", "t|ann}")
    computes = world.cache.stats()["joins"]["t#1"]["computes"]
    for number in range(9):
        world.put(f"s|ann|poster{number}")
        world.put(f"p|poster{number}|1", "x")
    assert len(world.scan("t|ann|", "t|ann}")) == 11
    assert world.cache.stats()["joins"]["t#1"]["computes"] == computes + 1


def test_dirt_over_three_levels() -> None:
    checked = "seen|<a> = check vote|<a>|<id>|<v> copy name|<a>"
    page = "page|<id>|<who> = check comment|<id>|<who> check seen|<who> copy name|<who>"
    world = World(checked, page, BEST, base={**NEWS, "name|bob": "Bob", "name|eve": "Eve"})
    assert world.scan("best|", "best}") == [("best|7", "Bob")]
    world.put("comment|7|eve")
    assert world.scan("best|", "best}") == [("best|7", "Bob")]
    world.put("vote|eve|1|ann")
    levels = ("seen|eve", "page|", "best|")
    assert [one["state"] for level in levels for one in world.ranges(level)] == ["stale"] * 3
    assert world.ranges("seen|bob")[0]["state"] == "fresh"
    assert world.scan("best|", "best}") == [("best|7", "Eve")]
    assert [one["state"] for level in levels for one in world.ranges(level)] == ["fresh"] * 3
    world.remove("vote|bob|1|ann")
    world.remove("vote|eve|1|ann")
    assert world.scan("best|", "best}") == []


def test_snapshots_expire_and_refresh_by_difference() -> None:
    ranked = "rank|<day> = copy top|<day>"
    world = World(TOP, ranked, base={"hit|1|a": "", "hit|2|a": "", "hit|3|a": ""})
    first = world.scan("rank|", "rank}")
    world.cache.put("hit|1|b", "")
    world.cache.remove("hit|2|a")
    world.now = 9.9
    assert world.cache.scan(*prefix("rank|")) == first
    assert world.ranges("top|")[0]["expires_in_seconds"] == pytest.approx(0.1)
    runs = world.cache.stats()["joins"]["rank#1"]["updater_runs"]
    computes = world.cache.stats()["joins"]["rank#1"]["computes"]
    world.now = 10.0
    assert world.ranges("top|")[0]["state"] == "stale"
    assert world.cache.scan(*prefix("rank|")) == [("rank|1", "2"), ("rank|3", "1")]
    assert world.cache.scan(*prefix("top|")) == [("top|1", "2"), ("top|3", "1")]
    stats = world.cache.stats()["joins"]["rank#1"]
    assert stats["updater_runs"] == runs + 2, "a row changed and a row went"
    assert stats["computes"] == computes, "by difference, not anew"
    world.cache._check()


def test_adjacent_scans_of_one_timeline_become_one_status_range() -> None:
    world = World(TIMELINE, base={"s|ann|bob": "1"})
    cuts = [f"t|ann|{number:03d}" for number in range(101)]
    pieces = list(pairwise(cuts))
    random.Random(1).shuffle(pieces)
    for number in range(100):
        world.put(f"p|bob|{number:03d}", str(number))
    for first, last in pieces:
        world.scan(first, last)
    assert [(one["first"], one["last"]) for one in world.ranges("t|")] == [(cuts[0], cuts[-1])]
    world.put("p|bob|0505", "between")
    assert len(world.scan(cuts[0], cuts[-1])) == 101


def test_many_gets_in_one_subtable_leave_few_status_ranges() -> None:
    world = World(TIMELINE, base={"s|ann|bob": "1"})
    for number in range(200):
        world.put(f"p|bob|{number:03d}", str(number))
    for number in random.Random(2).sample(range(200), 200):
        assert world.cache.get(f"t|ann|{number:03d}|bob") == str(number)
        assert len(world.ranges("t|ann|")) <= MAX_FRAGMENTS + 1
    world.put("p|bob|100", "changed")
    world.scan("t|", "t}")


@pytest.mark.parametrize("bars", [2, 0])
def test_fragments_outside_of_subtables_are_bounded_by_reading_them(bars: int) -> None:
    world = World()
    world.cache = Cache(subtables={"o": bars})
    world.joins = ("o|<a:3> = copy k|<a>",) if bars else ("o|<a:3>|x = copy k|<a>",)
    world.cache.add_join(world.joins[0])
    for number in range(200):
        world.put(f"k|{number:03d}", str(number))
    output_key = "o|{:03d}" if bars else "o|{:03d}|x"
    for number in range(0, 200, 2):
        assert world.cache.get(output_key.format(number)) == str(number)
    [view] = world.cache._catalogue.views["o"]
    assert len(view.statuses) == 100
    world.scan("o|050", "o|150")
    assert len(view.statuses) <= 53
    world.scan("o|", "o}")
    assert len(view.statuses) == 1
    world.put("k|100", "changed")
    world.scan("o|", "o}")


def test_timelines_that_are_scanned_together_stay_apart() -> None:
    world = World(TIMELINE)
    for number in range(50):
        world.put(f"s|{number:02d}|bob")
        world.cache.scan(*prefix(f"t|{number:02d}|"))
    world.put("p|bob|1")
    world.scan("t|", "t}")
    assert len(world.cache._catalogue.views["t"][0].statuses) > 50


def test_interleaved_joins_share_a_page() -> None:
    world = World(
        "page|<id>|a = copy article|<id>",
        "page|<id>|n = count vote|<id>|<v>",
        "page|<id>|c|<n> = copy comment|<id>|<n>",
        base={"article|1": "text", "vote|1|ann": "", "comment|1|1": "hm", "page|1|z": "base"},
    )
    assert [key for key, _ in world.scan("page|1|", "page|1}")] == [
        "page|1|a",
        "page|1|c|1",
        "page|1|n",
        "page|1|z",
    ]
    world.put("vote|1|bob")
    world.remove("comment|1|1")
    world.put("article|1", "better")
    assert len(world.scan("page|1|", "page|1}")) == 3


def test_celebrities_are_pulled() -> None:
    world = World(
        "ct|<time>|<poster> = copy cp|<poster>|<time>",
        TIMELINE,
        "t|<user>|<time>|<poster> = pull copy ct|<time>|<poster> check s|<user>|<poster>",
        base={**TWIP, "s|ann|star": "1", "s|ben|star": "1", "cp|star|5": "glitter"},
    )
    assert ("t|ann|5|star", "glitter") in world.scan("t|ann|", "t|ann}")
    assert world.scan("t|ben|", "t|ben}") == [("t|ben|5|star", "glitter")]
    rows = world.cache.stats()["tables"]["t"]["keys"]
    world.put("cp|star|6", "more")
    assert len(world.scan("t|ben|", "t|ben}")) == 2
    assert world.cache.stats()["tables"]["t"]["keys"] == rows, "pulled rows are never stored"


def test_ambiguous_join_warns_and_the_greatest_key_wins() -> None:
    world = World(base={"s|ann|bob": "1", "s|ann|eve": "1", "p|bob|1": "bob's", "p|eve|1": "eve's"})
    world.joins = ("t|<user>|<time> = check s|<user>|<poster> copy p|<poster>|<time>",)
    [answer] = world.cache.add_join(world.joins[0])
    assert "ambiguous" in answer["warnings"][0]
    assert "<poster>" in answer["warnings"][0]
    assert world.scan("t|", "t}") == [("t|ann|1", "eve's")]
    world.put("p|bob|1", "bob's new")
    assert world.scan("t|", "t}") == [("t|ann|1", "eve's")]
    world.remove("s|ann|eve")
    assert world.scan("t|", "t}") == [("t|ann|1", "bob's new")]
    world.remove("p|bob|1")
    assert world.scan("t|", "t}") == []


@pytest.mark.parametrize(("operator", "order"), [("min", ["-1", "9", "10"]), ("max", ["10", "9"])])
def test_min_and_max_lose_the_extreme(operator: str, order: list[str]) -> None:
    world = World(f"o|<a> = {operator} x|<a>|<b>", base={f"x|1|{v}": v for v in ("10", "9", "-1")})
    for extreme in order:
        assert world.scan("o|", "o}") == [("o|1", extreme)]
        world.remove(f"x|1|{extreme}")
    world.put("x|1|again", "7")
    world.scan("o|", "o}")


WANTED = "rank|<day> = check want|<day> copy top|<day>"


def test_a_snapshot_that_is_read_late_reaches_dependents_of_dependents() -> None:
    world = World(TOP, WANTED, "all|<day> = copy rank|<day>", base={"hit|1|a": ""})
    assert world.scan("all|", "all}") == []
    world.put("want|1")
    assert world.scan("all|", "all}") == [("all|1", "1")]
    world.cache.put("hit|1|b", "")
    world.now = 10.0
    assert world.cache.scan(*prefix("all|")) == [("all|1", "2")]


def test_a_snapshot_that_is_not_read_any_more_may_go() -> None:
    world = World(TOP, WANTED, base={"hit|1|a": "", "want|1": "", "want|2": ""})
    assert world.scan("rank|", "rank}") == [("rank|1", "1")]
    world.remove("want|1")
    assert world.scan("rank|", "rank}") == []
    world.cache.evict(prefix("top|1"))
    world.now = 10.0
    assert world.scan("rank|", "rank}") == []


def test_joins_that_meet_on_some_keys_come_and_go() -> None:
    wide, narrow = "o|<a>|<b> = copy x|<a>|<b>", "o|z|<b> = copy y|<b>"
    world = World(wide, base={"x|a|1": "x", "x|z|1": "x", "y|1": "y", "y|2": "y"})
    world.scan("o|a|", "o|a}")
    world.scan("o|z|", "o|z}")
    world.joins = (wide, narrow)
    world.cache.add_join(narrow)
    world.put("x|a|2", "x")
    world.put("x|z|3", "x")
    assert len(world.scan("o|", "o}")) == 5
    world.joins = (wide,)
    world.cache.drop_join("o#2")
    world.put("x|a|3", "x")
    world.remove("x|z|1")
    assert len(world.scan("o|", "o}")) == 4


def test_evicting_and_computing_again_leaves_the_same_links() -> None:
    world = World(TIMELINE, base=TWIP | {"s|ben|eve": "1"})

    def links() -> list[tuple[int, int]]:
        views = [view for views in world.cache._catalogue.views.values() for view in views]
        updaters = [(table.updaters.updaters, 0) for table in world.cache._store.tables.values()]
        return updaters + [(view.contexts, view.links) for view in views]

    bare = links()
    world.scan()
    before = links()
    assert before != bare
    for _ in range(50):
        world.cache.evict(prefix("t|"))
        assert links() == bare
        world.scan()
        assert links() == before
