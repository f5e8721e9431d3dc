"""What a change does: eager and lazy sources, the log, contested keys, groups by difference."""

import random

import pytest

from pequod import prefix
from pequod.engine import updating
from pequod.keys import Value
from tests.engine.world import TIMELINE, TWIP, World

EAGER = "t|<user>|<time>|<poster> = eager check s|<user>|<poster> copy p|<poster>|<time>"
LAZY = "t|<user>|<time>|<poster> = check s|<user>|<poster> lazy copy p|<poster>|<time>"
AMBIGUOUS = "t|<user>|<time> = check s|<user>|<poster> copy p|<poster>|<time>"


def state(world: World, text: str = "t|") -> tuple[str, int]:
    """Of the one status range: fresh or stale, and how many changes wait in it."""
    [one] = world.ranges(text)
    return one["state"], one["waiting_changes"]


def test_checks_are_lazy_and_values_are_eager_by_default() -> None:
    world = World(TIMELINE, base=TWIP)
    world.scan("t|", "t}")
    world.put("p|bob|7", "at once")
    assert state(world) == ("fresh", 0)
    assert world.cache.stats()["joins"]["t#1"]["keys"] == 3
    world.put("s|ann|eve")
    assert state(world) == ("stale", 1)
    assert world.cache.stats()["joins"]["t#1"]["keys"] == 3
    world.scan("t|", "t}")
    assert state(world) == ("fresh", 0)


def test_an_eager_check_is_applied_at_once() -> None:
    world = World(EAGER, base=TWIP)
    world.scan("t|", "t}")
    world.put("s|ann|eve")
    assert state(world) == ("fresh", 0)
    assert world.cache.stats()["joins"]["t#1"]["keys"] == 3
    world.remove("s|ann|bob")
    assert state(world) == ("fresh", 0)
    assert world.scan("t|", "t}") == [("t|ann|9|eve", "no")]


def test_a_lazy_value_waits_for_a_read() -> None:
    world = World(LAZY, base=TWIP)
    world.scan("t|", "t}")
    for number in range(5):
        world.put(f"p|bob|{number}", "later")
    assert state(world) == ("stale", 5)
    assert world.cache.stats()["joins"]["t#1"]["keys"] == 2
    assert len(world.scan("t|", "t}")) == 7


def test_the_log_holds_the_net_change_of_each_key() -> None:
    world = World(TIMELINE, base=TWIP)
    world.scan("t|", "t}")
    for _ in range(50):
        world.put("s|ann|eve")
        world.remove("s|ann|eve")
        world.remove("s|ann|bob")
        world.put("s|ann|bob")
    assert state(world)[1] == 0, "nothing has changed in the end"
    world.put("s|ann|eve")
    assert state(world)[1] == 1
    assert len(world.scan("t|", "t}")) == 3


@pytest.mark.parametrize("join", [TIMELINE, EAGER, LAZY])
@pytest.mark.parametrize("seed", range(15))
def test_any_order_of_follows_and_posts_without_reads(join: str, seed: int) -> None:
    rng = random.Random(seed)
    world = World(join, "n|<u> = count t|<u>|<time>|<poster>", base=TWIP)
    world.scan()
    for step in range(40):
        key = rng.choice(("s|ann|bob", "s|ann|eve", "p|bob|1", "p|bob|10", "p|eve|1"))
        if key in world.base and rng.random() < 0.6:
            world.remove(key)
        else:
            world.put(key, str(step))
        if rng.random() < 0.1:
            world.scan(*rng.choice((prefix("t|"), prefix("n|"), prefix("t|ann|1"))))
        world.cache._check()
    world.scan()


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_a_log_that_overflows_is_thrown_away_with_its_range(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updating, "LOG_LIMIT", limit)
    world = World(TIMELINE, "n|<u> = count t|<u>|<time>|<poster>", base=TWIP)
    for round_ in range(3):
        world.scan()
        for number in range(8):
            world.put(f"s|ann|{round_}-{number}")
            world.put(f"p|{round_}-{number}|1", "x")
        waiting = sum(one["waiting_changes"] for one in world.ranges("t|"))
        assert waiting <= limit + 1, "no more than the limit is kept"
        assert len(world.scan("t|", "t}")) == 2 + 8 * (round_ + 1)


def test_a_change_wakes_only_those_it_concerns() -> None:
    world = World(TIMELINE, base={f"s|user{number}|poster{number}": "1" for number in range(50)})
    for number in range(50):
        world.scan(*prefix(f"t|user{number}|"))
    runs = world.updater_runs()
    world.put("p|poster7|1", "hello")
    assert world.updater_runs() == runs + 1
    world.put("p|nobody|1", "hello")
    world.put("q|poster7|1", "another table")
    assert world.updater_runs() == runs + 1


@pytest.mark.parametrize("join", [TIMELINE, EAGER, LAZY, AMBIGUOUS, "t|<p> = sum p|<p>|<n>"])
def test_a_put_that_changes_nothing_wakes_nobody(join: str) -> None:
    world = World(join, "copy|<a>|<b> = copy t|<a>|<b>", base=TWIP)
    world.scan()
    runs = world.updater_runs()
    for key, value in TWIP.items():
        world.put(key, value)
        world.cache.put_many([(key, value)])
    assert world.updater_runs() == runs
    assert {one["state"] for one in world.ranges("t|")} == {"fresh"}


def test_an_output_that_does_not_change_wakes_nobody_downstream() -> None:
    world = World(
        "best|<who> = max vote|<who>|<n>",
        "page|<who> = copy best|<who>",
        base={"vote|bob|1": "9", "vote|bob|2": "5"},
    )
    world.scan()
    runs = world.cache.stats()["joins"]["page#1"]["updater_runs"]
    world.put("vote|bob|3", "7")
    world.remove("vote|bob|2")
    assert world.cache.stats()["joins"]["page#1"]["updater_runs"] == runs
    world.remove("vote|bob|1")
    assert world.cache.stats()["joins"]["page#1"]["updater_runs"] == runs + 1
    assert world.scan("page|", "page}") == [("page|bob", "7")]


def test_a_bytes_value_is_another_value_than_its_text() -> None:
    world = World("copy|<a> = copy x|<a>", base={"x|1": "a"})
    world.scan()
    world.put("x|1", b"a")
    assert world.scan("copy|", "copy}") == [("copy|1", b"a")]


@pytest.mark.parametrize("seed", range(15))
def test_contested_keys_of_three_joins(seed: int) -> None:
    """Whichever derivations come and go, the greatest value-source key wins."""
    rng = random.Random(seed)
    world = World(
        "o|<a> = copy x|<a>|<b>", "o|<a> = check w|<a>|<b> copy y|<b>", "o|<a> = max z|<a>|<b>"
    )
    keys = [f"{table}|{a}|{b}" for table in "xwz" for a in "12" for b in "12"] + ["y|1", "y|2"]
    for step in range(60):
        key = rng.choice(keys)
        if key in world.base and rng.random() < 0.5:
            world.remove(key)
        else:
            world.put(key, str(step))
        if step % 3 == 0:
            world.scan("o|", "o}")
    world.scan()


def test_equal_keys_of_two_joins_go_to_the_one_installed_first() -> None:
    values: dict[str, Value] = {"x|1": "5"}
    world = World("o|<a> = count x|<a>", "o|<a> = copy x|<a>", base=values)
    assert world.scan("o|", "o}") == [("o|1", "1")]
    world.put("x|1", "6")
    assert world.scan("o|", "o}") == [("o|1", "1")]


@pytest.mark.parametrize("operator", ["count", "sum", "min", "max", "avg"])
@pytest.mark.parametrize("hurry", ["eager", "lazy"])
def test_groups_by_difference(operator: str, hurry: str) -> None:
    rng = random.Random(operator + hurry)
    world = World(f"o|<u> = check s|<u>|<p> {hurry} {operator} v|<p>|<n>")
    values: tuple[Value, ...] = ("1", "9", "10", "-0.50", "0.1", "x", "", b"7")
    for step in range(150):
        key = rng.choice(("s|a|1", "s|a|2", "s|b|1", "v|1|1", "v|1|2", "v|2|1", "v|2|2"))
        if key in world.base and rng.random() < 0.4:
            world.remove(key)
        else:
            world.put(key, rng.choice(values))
        if step % 2:
            world.scan("o|", "o}")


def test_skipped_values_are_counted() -> None:
    world = World("o|<p> = sum v|<p>|<n>", base={"v|1|1": "1", "v|1|2": "no number"})
    assert world.scan("o|", "o}") == [("o|1", "1")]
    assert world.cache.stats()["joins"]["o#1"]["skipped_values"] == 1
    world.put("v|1|3", b"2")
    assert world.cache.stats()["joins"]["o#1"]["skipped_values"] == 2
    world.scan("o|", "o}")


@pytest.mark.parametrize(
    "joins",
    [
        ("o|<p> = pull sum v|<p>|<n>",),
        ("o|<p> = snapshot 1 avg v|<p>|<n>",),
        ("o|<p> = sum v|<p>|<n>", "o|<p> = copy w|<p>"),
    ],
)
def test_skipped_values_are_counted_whatever_the_maintenance(joins: tuple[str, ...]) -> None:
    world = World(*joins, base={"v|1|1": "1", "v|1|2": "no number", "v|2|1": b"1"})
    assert world.scan("o|", "o}") == [("o|1", "1")]
    assert world.cache.stats()["joins"]["o#1"]["skipped_values"] == 2
