"""Watched ranges; random ones are part of the scenarios in `tests/test_random.py`."""

import pytest

from pequod import BadKey, Cache, MissingData, prefix
from pequod.keys import Change

TIMELINE = "t|<user>|<time:3>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;"
CELEBRITY = """
    ct|<time:3>|<poster> = copy cp|<poster>|<time>;
    t|<user>|<time:3>|<poster> = pull copy ct|<time>|<poster> check s|<user>|<poster>;
"""


@pytest.fixture
def cache():
    made = Cache()
    made.add_join(TIMELINE)
    made.put_many({"s|ann|bob": "1", "p|bob|100": "Hi"})
    return made


def test_a_watch_starts_with_the_rows_of_its_range(cache):
    with cache.watch(*prefix("t|ann|")) as watch:
        assert watch.rows == {"t|ann|100|bob": "Hi"}
        assert not watch.awake
        assert watch.changes() == []


def test_it_is_woken_once_until_it_looks(cache):
    woken = []
    watch = cache.watch(*prefix("t|ann|"), woken.append)
    cache.put("p|bob|120", "again")
    cache.put("p|bob|130", "and again")
    assert woken == [watch]
    assert [change.key for change in watch.changes()] == ["t|ann|120|bob", "t|ann|130|bob"]
    cache.put("p|bob|100", "Ho")
    assert woken == [watch, watch]
    assert watch.changes() == [Change("t|ann|100|bob", "Hi", "Ho")]
    cache.remove("p|bob|100")
    assert watch.changes() == [Change("t|ann|100|bob", "Ho", None)]


def test_changes_are_net_and_in_order(cache):
    watch = cache.watch(*prefix("t|ann|"))
    cache.put("p|bob|050", "early")
    cache.put("p|bob|100", "Ho")
    cache.put("p|bob|100", "Hi")
    cache.put("p|bob|200", "late")
    cache.remove("p|bob|050")
    assert watch.changes() == [Change("t|ann|200|bob", None, "late")]


def test_what_waits_is_settled(cache):
    watch = cache.watch(*prefix("t|ann|"))
    cache.put("p|liz|110", "Hello")
    assert not watch.awake
    cache.put("s|ann|liz", "1")  # a check source is lazy
    assert watch.awake
    assert watch.changes() == [Change("t|ann|110|liz", None, "Hello")]


def test_others_are_not_woken(cache):
    cache.put("s|liz|bob", "1")
    ann, liz = (cache.watch(*prefix(f"t|{user}|")) for user in ("ann", "liz"))
    cache.remove("s|liz|bob")
    cache.put("s|jim|bob", "1")
    assert (ann.awake, liz.awake) == (False, True)


def test_base_rows(cache):
    watch = cache.watch("p|bob|", "p|bob|200")
    cache.put("p|bob|300", "beyond")
    cache.put("p|liz|100", "elsewhere")
    assert not watch.awake
    cache.put("p|bob|150", "here")
    assert watch.changes() == [Change("p|bob|150", None, "here")]
    cache.put("p|bob|150", "here")
    assert not watch.awake
    cache.remove_range("p|", "p}")
    assert [change.key for change in watch.changes()] == ["p|bob|100", "p|bob|150"]


def test_tables_that_come_later(cache):
    watch = cache.watch("", "z")
    cache.put("new|1", "1")
    assert watch.changes() == [Change("new|1", None, "1")]


def test_joins_that_come_and_go(cache):
    watch = cache.watch("n|", "n}")
    cache.add_join("followers: n|<user> = count s|<user>|<poster>")
    assert watch.changes() == [Change("n|ann", None, "1")]
    cache.put("s|ann|liz", "1")
    assert watch.changes() == [Change("n|ann", "1", "2")]
    cache.drop_join("followers")
    assert watch.changes() == [Change("n|ann", "2", None)]


def test_rows_of_pull_joins(cache):
    cache.add_join(CELEBRITY)
    watch = cache.watch(*prefix("t|ann|"))
    cache.put("cp|zoe|110", "Stars")
    assert watch.changes() == []
    cache.put("s|ann|zoe", "1")
    assert watch.changes() == [Change("t|ann|110|zoe", None, "Stars")]
    cache.put("cp|zoe|120", "again")
    assert watch.changes() == [Change("t|ann|120|zoe", None, "again")]
    cache.remove("s|ann|zoe")
    assert len(watch.changes()) == 2


def test_snapshots_say_when_to_look():
    now = [0.0]
    cache = Cache(clock=lambda: now[0])
    cache.add_join("n|<day> = snapshot 30 count hit|<day>|<id>")
    cache.put("hit|mon|1", "1")
    watch = cache.watch("n|", "n}")
    assert watch.expires == 30
    cache.put("hit|mon|2", "1")
    assert watch.changes() == []
    now[0] = 31.0
    assert watch.changes() == [Change("n|mon", "1", "2")]
    assert watch.expires == 61


def test_eviction_wakes_and_loses_nothing(cache):
    watch = cache.watch(*prefix("t|ann|"))
    cache.evict(prefix("t|"))
    assert watch.awake
    assert watch.changes() == []
    cache.put("p|bob|120", "again")
    assert watch.changes() == [Change("t|ann|120|bob", None, "again")]


def test_what_is_watched_is_not_evicted_for_lack_of_room():
    cache = Cache(memory_limit=20_000)
    cache.add_join(TIMELINE)
    cache.put("s|ann|bob", "1")
    watch = cache.watch(*prefix("t|ann|"))
    for number in range(100):
        cache.put(f"s|u{number}|bob", "1")
        cache.scan(*prefix(f"t|u{number}|"))
    assert cache.stats()["tables"]["t"]["evictions"] > 0
    assert not watch.awake
    cache.put("p|bob|100", "Hi")
    assert watch.changes() == [Change("t|ann|100|bob", None, "Hi")]


def test_missing_data_leaves_the_watch_as_it_was(cache):
    cache.declare_remote(prefix("u|"))
    with pytest.raises(MissingData):
        cache.watch(*prefix("u|"))
    with cache.loading(prefix("u|")) as loading:
        loading.pairs = [("u|ann", "Ann")]
    watch = cache.watch(*prefix("u|"))
    cache.evict(prefix("u|"))
    assert watch.awake
    with pytest.raises(MissingData):
        watch.changes()
    assert watch.awake
    assert watch.rows == {"u|ann": "Ann"}
    with cache.loading(prefix("u|")) as loading:
        loading.pairs = [("u|ann", "Anna")]
    assert watch.changes() == [Change("u|ann", "Ann", "Anna")]


def test_a_closed_watch_sleeps_and_leaves_nothing(cache):
    woken = []
    watch = cache.watch("", "z", woken.append)
    watch.close()
    cache.put("p|bob|120", "again")
    cache.put("new|1", "1")
    assert woken == []
    assert watch.changes() == []
    assert cache._store.watches == {}
    assert all(table.watches is None for table in cache._store.tables.values())
    assert all(status.watches is None for status in cache._catalogue.views["t"][0].statuses)


def test_bad_ranges(cache):
    with pytest.raises(BadKey):
        cache.watch("a", 7)
    assert cache.watch("z", "a").rows == {}


def test_an_eviction_right_after_the_look_wakes_again():
    """The inner join's range goes for lack of room, and takes the watched one along."""
    cache = Cache(memory_limit=1)
    cache.add_join("n|<a> = count x|<a>|<b>; best|<g> = check y|<g>|<a> copy n|<a>;")
    cache.declare_remote(prefix("x|"))
    with cache.loading(prefix("x|")):
        pass
    cache.put("y|1|a", "1")
    watch = cache.watch(*prefix("best|"))
    for number in range(5):
        cache.scan("", "z")
        cache.put(f"x|a|{number}", "1")
        assert [change.new for change in watch.changes()] == [str(number + 1)]
