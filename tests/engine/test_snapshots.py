"""Snapshots: they stay, expire each at its time, refresh by difference, and take readers along."""

import pytest

from pequod import prefix
from pequod.keys import Value
from tests.engine.world import World

TOP = "top|<day> = snapshot 10 count hit|<day>|<n>"
BOARD = "board|<day> = copy top|<day>"
MON: dict[str, Value] = {"hit|mon|1": "1"}


def test_a_snapshot_stays_until_it_expires() -> None:
    world = World(TOP, base=MON)
    assert world.scan("top|", "top}") == [("top|mon", "1")]
    world.put("hit|mon|2")
    for now, answer in ((0.0, "1"), (9.9, "1"), (10.0, "2"), (19.9, "2")):
        world.now = now
        assert world.cache.get("top|mon") == answer
    world.remove("hit|mon|1")
    world.remove("hit|mon|2")
    assert world.cache.get("top|mon") == "2"
    world.now = 20.0
    assert world.scan("top|", "top}") == []


def test_an_empty_snapshot_stays_too() -> None:
    world = World(TOP)
    assert world.cache.get("top|mon") is None
    world.put("hit|mon|1")
    assert world.cache.get("top|mon") is None
    world.now = 10.0
    assert world.cache.get("top|mon") == "1"


def test_a_snapshot_watches_nothing() -> None:
    world = World(TOP, base=MON)
    world.scan()
    world.put("hit|mon|2")
    assert world.updater_runs() == 0
    assert world.cache._store.table("hit").updaters.updaters == 0


def test_pieces_of_a_snapshot_expire_each_at_its_time() -> None:
    world = World(TOP, base=MON | {"hit|tue|1": "1"})
    assert world.cache.get("top|mon") == "1"
    world.now = 6.0
    assert world.cache.get("top|tue") == "1"
    world.put("hit|mon|2")
    world.put("hit|tue|2")
    for now, answers in ((12.0, ["2", "1"]), (17.0, ["2", "2"])):
        world.now = now
        assert [world.cache.get(f"top|{day}") for day in ("mon", "tue")] == answers
    world.now = 40.0
    world.scan()


def test_readers_hear_only_of_rows_that_changed() -> None:
    world = World(TOP, BOARD, base={f"hit|day{day}|1": "1" for day in range(20)})
    assert len(world.scan("board|", "board}")) == 20
    world.put("hit|day7|2")
    world.now = 11.0
    runs = world.updater_runs()
    assert ("board|day7", "2") in world.scan("board|", "board}")
    assert world.updater_runs() == runs + 1


def test_readers_of_readers_follow_the_expiry() -> None:
    total = "all|<x> = check want|<x> sum board|<day>"
    world = World(TOP, BOARD, total, base=MON | {"hit|tue|1": "1", "want|x": "1"})
    assert world.cache.get("all|x") == "2"
    world.put("hit|tue|2")
    world.put("hit|wed|1")
    for now, answer in ((5.0, "2"), (9.5, "2"), (10.5, "4")):
        world.now = now
        assert world.cache.get("all|x") == answer
        world.cache._check()
    world.remove("hit|wed|1")
    world.now = 21.0
    assert world.cache.get("all|x") == "3"


def test_a_reader_of_two_snapshots_follows_the_sooner() -> None:
    slow = "slow|<day> = snapshot 100 count hit|<day>|<n>"
    both = "both|<day>|<n> = check slow|<day> check top|<day> copy hit|<day>|<n>"
    world = World(TOP, slow, both, base=MON)
    world.scan()
    world.remove("hit|mon|1")
    assert world.cache.scan(*prefix("both|")) == [], "the row itself is not a snapshot"
    world.put("hit|tue|1")
    assert world.cache.scan(*prefix("both|")) == []
    world.now = 10.0
    assert world.cache.scan(*prefix("both|")) == [], "one of the two is still old"
    world.now = 100.0
    assert world.scan("both|", "both}") == [("both|tue|1", "1")]


def test_a_snapshot_over_a_lazy_join_settles_it_first() -> None:
    lazy = "n|<day> = lazy count hit|<day>|<n>"
    world = World(lazy, "top|<day> = snapshot 10 copy n|<day>", base=MON)
    assert world.scan("top|", "top}") == [("top|mon", "1")]
    world.put("hit|mon|2")
    assert world.cache.get("n|mon") == "2"
    assert world.cache.get("top|mon") == "1"
    world.now = 11.0
    assert world.scan("top|", "top}") == [("top|mon", "2")]


def test_a_snapshot_of_a_pull_join() -> None:
    pull = "n|<day> = pull count hit|<day>|<n>"
    world = World(pull, "top|<day> = snapshot 10 copy n|<day>", base=MON)
    assert world.cache.get("top|mon") == "1"
    world.put("hit|mon|2")
    assert [world.cache.get(key) for key in ("n|mon", "top|mon")] == ["2", "1"]
    world.now = 10.0
    assert world.cache.get("top|mon") == "2"


def test_evicting_a_snapshot_takes_its_readers() -> None:
    world = World(TOP, BOARD, base=MON)
    world.scan()
    world.put("hit|mon|2")
    world.cache.evict(prefix("top|"))
    assert world.ranges("board|") == []
    assert world.scan("board|", "board}") == [("board|mon", "2")]


def test_dropping_a_snapshot_join_takes_its_readers() -> None:
    world = World(TOP, BOARD, base=MON)
    world.scan()
    world.joins = (BOARD,)
    world.cache.drop_join("top#1")
    assert world.scan("board|", "board}") == []


def test_a_snapshot_keeps_its_part_in_a_contest_when_its_source_is_evicted() -> None:
    world = World(
        "z|<a> = copy zb|<a>",
        "o|<a> = snapshot 100 copy z|<a>",
        "o|<a> = copy y|<a>",
        "top|<a> = copy o|<a>",
        base={"zb|1": "from z", "y|1": "from y"},
    )
    world.scan()
    world.cache.evict(prefix("z|"))
    world.put("y|1", "again from y")
    world.put("y|2", "alone")
    assert world.scan("o|", "o}") == [("o|1", "from z"), ("o|2", "alone")]
    assert world.scan("top|", "top}") == [("top|1", "from z"), ("top|2", "alone")]
    world.cache.evict(prefix("z|"))
    world.remove("y|2")
    assert world.scan("top|", "top}") == [("top|1", "from z")]


@pytest.mark.parametrize("operator", ["count", "sum", "min", "max", "avg"])
def test_refreshing_again_and_again_agrees_with_the_oracle(operator: str) -> None:
    board = f"board|<day> = snapshot 10 {operator} hit|<day>|<n>"
    world = World(board, "copy|<day> = copy board|<day>", base=MON)
    for step in range(30):
        world.put(f"hit|{step % 3}|{step % 7}", str(step * 37 % 11))
        if step % 4 == 3:
            world.remove(f"hit|{step % 3}|{step % 7}")
        world.now += 10.0
        world.scan()
