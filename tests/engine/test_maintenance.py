"""Keeping outputs fresh: the known traps of the design, each by its number.

Answers are judged by hand and by the oracle; random scenarios are in `tests/test_random.py`.
"""

import pytest

from pequod import prefix
from pequod.errors import ComputedKey, JoinError
from tests.engine.world import BEST, KARMA, PAGE, TIMELINE, TWIP, World
from tests.oracle import END

FIXED = "t|<user>|<time:3>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"


def test_trap_1_delimited_slots_do_not_sort_like_whole_keys() -> None:
    world = World(TIMELINE, base=TWIP)
    assert world.scan("t|ann|100|", "t|ann}") == [("t|ann|100|bob", "hi"), ("t|ann|10|bob", "ten")]
    world.put("p|bob|1", "one")
    assert ("t|ann|1|bob", "one") in world.scan("t|ann|100|", "t|ann}")


def test_trap_2_dirt_travels() -> None:
    lazy = "karma|<author> = lazy count vote|<author>|<id>|<voter>"
    world = World(lazy, PAGE, BEST, base={"vote|bob|1|ann": "1", "comment|7|bob": "hm"})
    assert world.scan("best|", "best}") == [("best|7", "1")]
    world.put("vote|bob|1|eve")
    assert [len(world.ranges(table)) for table in ("karma|", "page|", "best|")] == [1, 1, 1]
    assert {world.ranges(table)[0]["state"] for table in ("karma|", "page|", "best|")} == {"stale"}
    assert world.scan("best|", "best}") == [("best|7", "2")]


def test_trap_3_eager_updates_arrive_while_the_log_waits() -> None:
    world = World(TIMELINE, base=TWIP)
    world.scan("t|", "t}")
    world.put("s|ann|eve")
    world.put("p|bob|101", "eager")
    world.put("p|eve|10", "new")
    world.remove("p|bob|10")
    world.remove("s|ann|bob")
    assert world.scan("t|", "t}") == [("t|ann|10|eve", "new"), ("t|ann|9|eve", "no")]


def test_trap_4_updaters_of_one_range_are_merged() -> None:
    world = World(FIXED)
    for number in range(300):
        world.put(f"s|fan{number:03d}|star")
        world.cache.scan(*prefix(f"t|fan{number:03d}|"))
    table = world.cache._store.table("p")
    assert table.updaters.updaters == 1
    world.put("p|star|001", "hi")
    assert world.updater_runs() == 300
    assert len(world.scan("t|", "t}")) == 300


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("t|a", "t|b"),
        ("p|", "u|"),
        ("t|ann|10", "t|ann|1000"),
        ("t|ann|10|bob", "t|ann|10|bob\0"),
        ("t|ann|100|bob", "t|ann|10|bob"),
        ("t|ann|10|bob", "t|ann|10|bob"),
        ("t|ann|9", "t|ann|1"),
        ("", END),
    ],
)
def test_trap_5_ranges_are_cut_anywhere(first: str, last: str) -> None:
    world = World(TIMELINE, base=TWIP | {"s|ann|eve": "1", "s|a|bob": "1"})
    world.scan(first, last)
    world.put("p|bob|10", "changed")
    world.remove("s|ann|eve")
    world.scan(first, last)
    assert world.cache.get("t|ann|10|bob") == "changed"


def test_trap_6_removing_a_key_a_check_row_and_the_last_row_of_a_group() -> None:
    world = World(TIMELINE, KARMA, base=TWIP | {"vote|bob|1|ann": "1"})
    assert len(world.scan("t|", "t}")) == 2
    world.remove("p|bob|100")
    assert world.scan("t|", "t}") == [("t|ann|10|bob", "ten")]
    world.remove("s|ann|bob")
    assert world.scan("t|", "t}") == []
    assert world.cache.get("karma|bob") == "1"
    world.remove("vote|bob|1|ann")
    assert world.cache.get("karma|bob") is None


def test_trap_6_a_put_that_changes_nothing_wakes_nobody() -> None:
    world = World(TIMELINE, base=TWIP)
    world.scan()
    runs = world.updater_runs()
    world.put("p|bob|100", "hi")
    world.put("s|ann|bob", "another value, which does not matter")
    assert world.cache.remove("p|bob|nothing") is False
    assert world.updater_runs() == runs
    assert [one["state"] for one in world.ranges("t|")] == ["fresh"]
    world.put("p|bob|100", "new")
    assert world.updater_runs() == runs + 1


def test_trap_7_foreign_keys_in_a_source_range_are_ignored() -> None:
    world = World(FIXED, base={"s|ann|bob": "1", "p|bob|100": "hi", "p|bob|1": "short"})
    assert world.scan("t|", "t}") == [("t|ann|100|bob", "hi")]
    for key in ("p|bob|1000", "p|bob|100|x", "s|ann|bob|x", "s|ann|", "p|bob|99"):
        world.put(key)
    assert world.scan("t|", "t}") == [("t|ann|100|bob", "hi")]


def test_trap_8_outputs_are_clipped_to_their_status_range() -> None:
    world = World(TIMELINE, base=TWIP)
    world.scan("t|ann|10|", "t|ann|10}")
    world.put("p|bob|100", "outside")
    assert world.cache.stats()["joins"]["t#1"]["keys"] == 1
    world.scan("t|", "t}")


def test_trap_8_bounds_of_a_later_slot_wait_for_the_earlier() -> None:
    world = World(TIMELINE, base=TWIP | {"s|ben|bob": "1"})
    assert [key for key, _ in world.scan("t|ann|10|c", "t|ben|10|c")] == [
        "t|ben|100|bob",
        "t|ben|10|bob",
    ]


def test_trap_8_follow_unfollow_follow_without_a_read() -> None:
    world = World(TIMELINE, base=TWIP)
    world.scan("t|", "t}")
    for _ in range(3):
        world.remove("s|ann|bob")
        world.put("p|bob|11", "meanwhile")
        world.put("s|ann|bob")
    assert len(world.scan("t|", "t}")) == 3
    world.put("s|ann|eve")
    world.remove("s|ann|eve")
    world.put("p|eve|10", "unseen")
    assert len(world.scan("t|", "t}")) == 3


def test_trap_8_a_removed_check_row_is_taken_off_a_sum() -> None:
    world = World(
        "sum|<u> = check s|<u>|<p> sum n|<p>|<i>", base={"s|ann|bob": "1", "n|bob|1": "5"}
    )
    world.put("s|ann|eve")
    world.put("n|eve|1", "2")
    assert world.scan("sum|", "sum}") == [("sum|ann", "7")]
    world.remove("s|ann|bob")
    assert world.scan("sum|", "sum}") == [("sum|ann", "2")]


def test_trap_8_a_slot_that_is_no_prefix_is_tested() -> None:
    world = World("o|<a>|<b> = check x|<a>|<b> copy y|<c>|<b>", base={"x|1|2": "", "y|0|2": "yes"})
    assert world.scan("o|", "o}") == [("o|1|2", "yes")]
    world.put("y|0|3", "no")
    assert world.scan("o|", "o}") == [("o|1|2", "yes")]


def test_trap_8_an_output_with_two_derivations_outlives_the_first() -> None:
    world = World("o|<a> = check x|<a>|<b> copy y|<a>", base={"x|1|2": "", "x|1|3": "", "y|1": "v"})
    assert world.scan("o|", "o}") == [("o|1", "v")]
    world.remove("x|1|2")
    assert world.scan("o|", "o}") == [("o|1", "v")]
    world.remove("x|1|3")
    assert world.scan("o|", "o}") == []


def test_trap_9_computed_keys_and_base_keys_stay_apart() -> None:
    world = World(TIMELINE, base=TWIP)
    with pytest.raises(ComputedKey, match="t#1"):
        world.put("t|ann|1|bob")
    world.put("t|ann|other", "base data")
    assert ("t|ann|other", "base data") in world.scan("t|", "t}")
    with pytest.raises(JoinError, match="1 keys match"):
        world.cache.add_join("t|<user>|<what> = copy x|<user>|<what>")
