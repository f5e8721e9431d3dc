"""Base data that lives elsewhere, with a database in memory: missing, loading, resident."""

import random
from collections.abc import Callable

import pytest

from pequod import Cache, KeyRange, prefix
from pequod.errors import BadKey, BadRequest, BadValue, ComputedKey, MissingData
from pequod.keys import EVERYTHING, Value
from tests.engine.database import Database
from tests.oracle import expected_pairs

TIMELINE = "t|<user>|<time>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
COUNT = "n|<user> = count t|<user>|<time>|<poster>"
TOP = "top|<group>|<user> = check g|<group>|<user> copy n|<user>"
FOLLOWS, POSTS, ANN, BOB = prefix("s|"), prefix("p|"), prefix("t|ann|"), prefix("p|bob|")


def twip(*joins: str) -> Database:
    """Follows and posts in the database; ann follows bob and eve."""
    database = Database(Cache(), [FOLLOWS, POSTS], joins or (TIMELINE,))
    database.store("s|ann|bob", "s|ann|eve")
    database.store("p|bob|1", "p|bob|2", "p|eve|1", value="old")
    return database


def test_freshen_names_what_is_missing_until_it_is_loaded() -> None:
    database = twip()
    cache = database.cache
    assert cache.freshen(ANN) == [prefix("s|ann|")]
    with pytest.raises(MissingData) as caught:
        cache.scan(*ANN)
    assert caught.value.missing == [prefix("s|ann|")]
    database.load([prefix("s|ann|")])
    assert cache.freshen(ANN) == [BOB, prefix("p|eve|")], "all at once, and in order"
    database.load([BOB, prefix("p|eve|")])
    assert cache.freshen(ANN) == []
    assert cache.scan(*ANN) == [
        ("t|ann|1|bob", "old"),
        ("t|ann|1|eve", "old"),
        ("t|ann|2|bob", "old"),
    ]
    database.put("p|eve|3", "new")
    assert ("t|ann|3|eve", "new") in database.scan(ANN)
    assert len(database.loads) == 2, "changes of what is resident need no load"


@pytest.mark.parametrize("pulled", [False, True])
def test_explain_names_what_a_read_would_miss(pulled: bool) -> None:
    database = twip(TIMELINE.replace("= check", "= pull check") if pulled else TIMELINE)
    cache = database.cache
    for _ in range(3):
        shown = cache.explain(*ANN)["missing"]
        missing = cache.freshen(ANN)
        assert shown == [list(keys) for keys in missing]
        database.load(missing)
    assert missing == []
    database.put("s|ann|liz")
    assert cache.explain(*ANN)["missing"] == [list(prefix("p|liz|"))], "a change that waits"


def test_explain_looks_through_joins_over_joins() -> None:
    database = twip(TIMELINE, COUNT, TOP)
    database.put("g|1|ann")
    cache = database.cache
    assert cache.explain("top|1|", "top|1}")["missing"] == [["s|ann|", "s|ann}"]]
    database.load([prefix("s|ann|"), BOB])
    assert cache.explain("top|1|", "top|1}")["missing"] == [["p|eve|", "p|eve}"]]
    database.load([prefix("p|eve|")])
    assert cache.explain("top|1|", "top|1}")["missing"] == []
    assert cache.stats()["joins"]["t#1"]["computes"] == 0, "looking computes nothing"


@pytest.mark.parametrize(
    "read",
    [
        lambda cache: cache.get("p|bob|1"),
        lambda cache: cache.scan(*BOB),
        lambda cache: cache.count(*BOB),
        lambda cache: cache.scan("a", "z", limit=1),
        lambda cache: cache.get("t|ann|1|bob"),
    ],
)
def test_no_read_answers_from_missing_data(read: Callable[[Cache], object]) -> None:
    database = twip()
    with pytest.raises(MissingData, match="load them"):
        read(database.cache)
    for keys in (FOLLOWS, POSTS):
        database.load([keys])
    assert read(database.cache)


def test_200_followees_take_two_rounds() -> None:
    database = twip()
    for number in range(200):
        database.store(f"s|ann|user{number}", f"p|user{number}|1")
    assert len(database.scan(ANN)) == 203
    assert [len(round_) for round_ in database.loads] == [1, 202]
    database.cache.evict(POSTS)
    assert len(database.scan(ANN)) == 203
    assert len(database.loads) == 3, "the follows are still here"


def test_only_the_gap_is_missing() -> None:
    database = twip()
    database.load([KeyRange("p|bob|1", "p|bob|2"), KeyRange("p|c", "p|eve|1")])
    assert database.cache.freshen(KeyRange("p|a", "p|z")) == [
        KeyRange("p|a", "p|bob|1"),
        KeyRange("p|bob|2", "p|c"),
        KeyRange("p|eve|1", "p|z"),
    ]
    assert database.cache.freshen(KeyRange("a", "b")) == []
    assert database.cache.freshen(KeyRange("p|z", "p|a")) == []


CHANGES: dict[str, list[tuple[str, ...]]] = {
    "put": [("put", "p|bob|1", "new")],
    "put of a new key": [("put", "p|bob|3", "new")],
    "remove": [("remove", "p|bob|1")],
    "remove_range": [("remove_range", "p|bob|", "p|bob|2")],
    "put, then remove": [("put", "p|bob|3", "new"), ("remove", "p|bob|3")],
    "remove, then put": [("remove", "p|bob|1"), ("put", "p|bob|1", "new")],
    "put, then remove_range": [("put", "p|bob|1", "new"), ("remove_range", "p|", "p}")],
    "remove_range, then put": [("remove_range", "p|", "p}"), ("put", "p|bob|1", "new")],
    "put_many": [("put_many", "p|bob|1", "p|bob|9")],
}


@pytest.mark.parametrize("changes", CHANGES)
def test_changes_while_a_load_is_open_win(changes: str) -> None:
    database = twip()

    def change() -> None:
        for method, *arguments in CHANGES[changes]:
            getattr(database, method)(*arguments)

    database.load([prefix("s|ann|")])
    database.load([BOB, prefix("p|eve|")], meanwhile=change)
    database.scan(ANN)
    assert len(database.loads) == 2, "nothing else had to be loaded"
    database.scan(POSTS)


def test_a_put_to_a_missing_key_is_not_stored_but_outranks_an_open_load() -> None:
    database = twip()
    cache = database.cache
    cache.put("p|bob|1", "lost here, kept by the database")
    assert cache.stats()["keys"] == 0
    with cache.loading(BOB) as loading:
        loading.pairs = [("p|bob|1", "old"), ("p|bob|2", "old")]
        cache.put("p|bob|1", "new")
        assert cache.stats()["keys"] == 0
    assert cache.scan(*BOB) == [("p|bob|1", "new"), ("p|bob|2", "old")]


def test_a_load_that_fails_installs_nothing() -> None:
    database = twip()
    cache = database.cache

    def fail() -> None:
        with cache.loading(BOB) as loading:
            loading.pairs = [("p|bob|1", "half of it")]
            cache.put("p|bob|2", "new")
            raise ConnectionError("the database went away")

    with pytest.raises(ConnectionError):
        fail()
    assert cache.stats()["keys"] == 0
    assert cache.freshen(BOB) == [BOB]
    assert not cache._residency.loadings
    assert database.scan(BOB) == [("p|bob|1", "old"), ("p|bob|2", "old")]


@pytest.mark.parametrize(
    ("pair", "error"),
    [
        (("", "x"), BadKey),
        (("p|bob|3", 3), BadValue),
        (("t|ann|1|bob", "x"), ComputedKey),
    ],
)
def test_a_load_with_a_bad_row_installs_nothing(
    pair: tuple[str, Value], error: type[Exception]
) -> None:
    cache = twip().cache
    with pytest.raises(error), cache.loading(KeyRange("", "z")) as loading:
        loading.pairs = [("p|bob|1", "good"), pair]
    assert cache.stats()["keys"] == 0
    assert cache.freshen(BOB) == [BOB]


@pytest.mark.parametrize("outer_first", [True, False])
def test_overlapping_loads(outer_first: bool) -> None:
    """Both know of the changes made while they were open, whichever is installed first."""
    database = twip()
    cache = database.cache
    outer, inner = cache.loading(POSTS), cache.loading(BOB)
    outer.pairs, inner.pairs = database.select(POSTS), database.select(BOB)
    database.put("p|bob|1", "both know")
    first, second = (outer, inner) if outer_first else (inner, outer)
    with first:
        pass
    database.put("p|bob|2", "after the first")
    database.put("p|eve|1", "after the first")
    with second:
        pass
    database.scan(POSTS)
    assert database.loads == []


def test_rows_outside_of_the_range_are_not_installed() -> None:
    cache = twip().cache
    with cache.loading(BOB) as loading:
        loading.pairs = [("p|bob|1", "old"), ("p|eve|1", "not asked for")]
    assert cache.freshen(prefix("p|eve|")) == [prefix("p|eve|")]
    assert cache.stats()["keys"] == 1


def test_eviction_of_a_base_range_invalidates_what_depends_on_it_transitively() -> None:
    database = twip(TIMELINE, COUNT, TOP)
    database.put("g|all|ann")
    top = prefix("top|")
    answer = database.scan(top)
    assert answer == [("top|all|ann", "3")]
    rounds = len(database.loads)
    database.cache.evict(BOB)
    assert database.cache.freshen(top) == [BOB]
    assert [database.cache.stats()["joins"][name]["keys"] for name in ("t#1", "n#1", "top#1")] == [
        0,
        0,
        0,
    ]
    assert database.scan(top) == answer
    assert database.loads[rounds:] == [[BOB]], "the rest of the base data stayed"


def test_what_does_not_depend_on_it_stays_computed() -> None:
    database = twip()
    database.store("s|zoe|eve")
    database.scan(ANN)
    database.scan(prefix("t|zoe|"))
    computes = database.cache.stats()["joins"]["t#1"]["computes"]
    database.cache.evict(BOB)
    assert database.cache.freshen(prefix("t|zoe|")) == []
    assert database.cache.stats()["joins"]["t#1"]["computes"] == computes


def test_a_range_with_rows_that_exist_only_here_does_not_become_remote() -> None:
    cache = Cache()
    cache.add_join(TIMELINE)
    cache.put_many({"s|ann|bob": "1", "p|bob|1": "only here"})
    with pytest.raises(BadRequest, match=r"1 base rows, 'p\|bob\|1' for one"):
        cache.declare_remote(POSTS)
    assert cache.scan(*ANN) == [("t|ann|1|bob", "only here")]
    cache.declare_remote(prefix("p|eve|"))
    assert cache.freshen(ANN) == []
    cache.put("s|ann|eve", "1")
    assert cache.freshen(ANN) == [prefix("p|eve|")]


@pytest.mark.parametrize("remote", [KeyRange("a", "z"), EVERYTHING, KeyRange("p|b", "p|c")])
def test_tables_that_nobody_has_seen_yet_may_be_remote(remote: KeyRange) -> None:
    database = Database(Cache(), [remote])
    database.store("p|bob|1", value="from there")
    with pytest.raises(MissingData):
        database.cache.get("p|bob|1")
    with pytest.raises(MissingData):
        database.cache.scan(*BOB)
    assert database.scan(BOB) == [("p|bob|1", "from there")]
    assert database.cache.get("p|bob|1") == "from there"


@pytest.mark.parametrize("seed", range(200))
def test_no_write_is_lost_in_random_interleavings(seed: int) -> None:
    """Loads that open and close at any moment between writes, evictions and reads."""
    rng = random.Random(seed)
    database = twip(TIMELINE, COUNT)
    cache = database.cache
    keys = [f"s|ann|{user}" for user in "abc"] + [f"p|{user}|{n}" for user in "abc" for n in (1, 2)]
    ranges = [FOLLOWS, POSTS, prefix("s|ann|"), *(prefix(f"p|{user}|") for user in "abc")]
    open_loads = []
    for step in range(60):
        match rng.choice(
            ("open", "open", "close", "close", "put", "put", "remove", "evict", "read")
        ):
            case "open":
                loading = cache.loading(rng.choice(ranges))
                loading.pairs = database.select(loading.keys)
                open_loads.append(loading)
            case "close" if open_loads:
                with open_loads.pop(rng.randrange(len(open_loads))):
                    pass
            case "put":
                database.put(rng.choice(keys), str(step))
            case "remove" if rng.random() < 0.2:
                database.remove_range(*rng.choice(ranges))
            case "remove":
                database.remove(rng.choice(keys))
            case "evict":
                cache.evict(rng.choice([*ranges, prefix("t|"), prefix("n|")]))
            case "read":
                asked = rng.choice([*ranges, prefix("t|"), prefix("n|"), ANN])
                if not cache.freshen(asked):
                    answer = expected_pairs(database.joins, database.rows, *asked)
                    assert cache.scan(*asked) == answer, f"step {step}"
        cache._check()
    for loading in open_loads:
        with loading:
            pass
    for asked in (FOLLOWS, POSTS, prefix("t|"), prefix("n|")):
        database.scan(asked)
