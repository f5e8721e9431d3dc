"""The face of the engine: what it refuses and how it says so, and the shapes of its answers."""

from typing import Any

import pytest

from pequod import Cache, prefix
from pequod.errors import BadKey, BadRequest, BadValue, ComputedKey, JoinError, UnknownJoin
from pequod.keys import END, KeyRange
from tests.engine.world import KARMA, TIMELINE, TWIP

BAD_KEYS = [None, 1, 1.5, b"p|bob|1", ["p"], ("p",), True, "", "k" * 4097, END, END + "p"]
BAD_KEYS += ["p|\ud800", "\udfff", "p|\udc80|1"]
BAD_VALUES = [None, 1, 1.5, True, ["v"], {"v": 1}, bytearray(b"v"), object, "\ud800"]
BAD_LIMITS = [-1, True, False, 1.0, "1", b"1", [1]]
PAIRS = [("p|bob|1", "a"), ("p|bob|2", "b"), ("p|bob|3", "c"), ("p|eve|1", "d")]
COUNTS = {"keys", "bytes", "hits", "computes", "updater_runs", "invalidations", "evictions"}


def twip() -> Cache:
    cache = Cache()
    cache.add_join(TIMELINE)
    cache.put_many(TWIP)
    return cache


def posts() -> Cache:
    cache = Cache()
    cache.put_many(PAIRS)
    return cache


@pytest.mark.parametrize("key", BAD_KEYS, ids=lambda key: ascii(key)[:12])
def test_bad_keys_are_refused(key: Any) -> None:
    cache = posts()
    for call in (
        lambda: cache.put(key, "v"),
        lambda: cache.get(key),
        lambda: cache.remove(key),
        lambda: cache.put_many([("p|bob|9", "v"), (key, "v")]),
    ):
        with pytest.raises(BadKey):
            call()
    assert cache.scan("", END) == PAIRS
    cache._check()


@pytest.mark.parametrize("key", ["k", "k" * 4096, "|", "p|" + END, "p|\0", "é|🐋", "\ue000", "p\n"])
def test_unusual_keys_are_keys(key: str) -> None:
    cache = posts()
    cache.put(key, "v")
    assert cache.get(key) == "v"
    assert cache.scan("", END) == sorted([*PAIRS, (key, "v")])
    assert cache.remove(key) is True
    assert cache.remove(key) is False
    cache._check()


@pytest.mark.parametrize("value", BAD_VALUES, ids=repr)
def test_bad_values_are_refused(value: Any) -> None:
    cache = posts()
    with pytest.raises(BadValue, match="surrogate" if value == "\ud800" else type(value).__name__):
        cache.put("p|bob|1", value)
    with pytest.raises(BadValue):
        cache.put_many({"p|bob|2": "new", "p|bob|1": value})
    assert cache.scan("", END) == PAIRS


@pytest.mark.parametrize("value", ["", "text", "é🐋", "a\0b", b"", b"\xff\0", "1.50"])
def test_values_come_back_as_they_were_put(value: str | bytes) -> None:
    cache = twip()
    cache.put("p|bob|5", value)
    for key in ("p|bob|5", "t|ann|5|bob"):
        found = cache.get(key)
        assert found == value
        assert type(found) is type(value)
        assert cache.scan(key, key + "\0") == [(key, value)]


@pytest.mark.parametrize("wrong", [None, 1, b"p", ("p", "q")])
def test_a_range_has_text_at_both_ends(wrong: Any) -> None:
    cache = posts()
    for call in (cache.scan, cache.count, cache.explain, cache.remove_range):
        with pytest.raises(BadKey, match=type(wrong).__name__):
            call(wrong, "q")
        with pytest.raises(BadKey, match=type(wrong).__name__):
            call("p|bob|1", wrong)
    for read in (cache.freshen, cache.evict, cache.declare_remote, cache.loading):
        with pytest.raises(BadKey):
            read((wrong, "q"))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [None, 0, 2])
def test_a_range_that_ends_before_it_starts_is_empty(limit: int | None, reverse: bool) -> None:
    cache = twip()
    for _ in range(2):  # the second time by the hint that the whole scan leaves
        for first, last in (("t|ann|2", "t|ann|1"), ("t|ann|1", "t|ann|1"), ("p|c", "p|bob|")):
            assert cache.scan(first, last, limit, reverse) == []
            assert cache.count(first, last) == 0
            assert cache.remove_range(first, last) == 0
        assert len(cache.scan(*prefix("t|ann|"))) == 2
    assert cache.freshen(KeyRange("b", "a")) == []
    assert cache.explain("b", "a")["stored_rows"] == 0


@pytest.mark.parametrize("limit", BAD_LIMITS, ids=repr)
def test_bad_limits_are_refused(limit: Any) -> None:
    cache = posts()
    for keys in (("", END), ("p|bob|", "p|bob}"), ("p|bob|", "p|bob}"), ("b", "a")):
        with pytest.raises(BadRequest, match="limit"):
            cache.scan(*keys, limit)
        with pytest.raises(BadRequest, match="limit"):
            cache.scan(*keys, limit=limit, reverse=True)
        cache.scan(*keys)


@pytest.mark.parametrize("first", ["", "p|", "p|bob|"])
@pytest.mark.parametrize("limit", [None, 0, 1, 2, 3, 4, 5, 10**30])
def test_limit_and_reverse(first: str, limit: int | None) -> None:
    cache = posts()
    keys = prefix(first)
    rows = [pair for pair in PAIRS if pair[0] in keys]
    for _ in range(2):
        assert cache.scan(*keys, limit=limit) == rows[:limit]
        assert cache.scan(*keys, limit=limit, reverse=True) == rows[::-1][:limit]
        assert cache.count(*keys) == len(rows)


def test_an_answer_belongs_to_the_caller() -> None:
    cache = twip()
    for keys in (prefix("t|ann|"), prefix("p|bob|"), KeyRange("", END)):
        expected = list(cache.scan(*keys))
        cache.scan(*keys).clear()
        cache.scan(*keys, reverse=True).clear()
        assert cache.scan(*keys) == expected


@pytest.mark.parametrize("bad", [("t|ann|1|bob", "v"), ("p|x", 1), ("", "v"), ("p|x",), "px", None])
def test_put_many_with_one_bad_pair_changes_nothing(bad: Any) -> None:
    cache = twip()
    before = cache.scan("", END)
    with pytest.raises(BadRequest):
        cache.put_many([("p|bob|100", "changed"), ("p|bob|7", "new"), bad, ("s|ann|eve", "1")])
    assert cache.scan("", END) == before
    cache._check()


def test_computed_keys_are_not_written() -> None:
    cache = twip()
    cache.add_join("ct|<time> = pull copy cp|<time>")
    before = cache.scan("", END)
    for key in ("t|ann|100|bob", "t|nobody|1|x", "ct|1"):
        with pytest.raises(ComputedKey, match="write its sources instead"):
            cache.put(key, "v")
        with pytest.raises(ComputedKey):
            cache.remove(key)
    assert cache.remove_range("t|", "t}") == 0
    assert cache.scan("", END) == before


def test_add_join_installs_all_or_none() -> None:
    cache = posts()
    for bad in ("nonsense", "o|<a> = copy", "o|<a> = copy x|<b>", "p|<who>|<n> = copy x|<who>|<n>"):
        with pytest.raises(JoinError):
            cache.add_join(f"{KARMA}; {bad};")
        assert cache.joins() == []
    cache.put("karma|bob", "still base data")
    cache._check()


def test_base_keys_in_the_way_are_counted_and_one_is_shown() -> None:
    cache = posts()
    with pytest.raises(JoinError, match=r"4 keys match .*'p\|bob\|1'"):
        cache.add_join("p|<who>|<n> = copy x|<who>|<n>")
    cache.remove_range(*prefix("p|"))
    assert cache.add_join("p|<who>|<n> = copy x|<who>|<n>") == [{"name": "p#1", "warnings": []}]


def test_unknown_join_is_named_with_those_there_are() -> None:
    cache = twip()
    with pytest.raises(UnknownJoin, match=r"'timeline'.*t#1"):
        cache.drop_join("timeline")
    assert [join["name"] for join in cache.joins()] == ["t#1"]
    cache.drop_join("t#1")
    with pytest.raises(UnknownJoin, match="none"):
        cache.drop_join("t#1")


def test_a_duplicate_join_is_installed_once() -> None:
    cache = twip()
    rows = cache.scan("t|", "t}")
    for text in (TIMELINE, f"  {TIMELINE} ;", f"{TIMELINE}; {TIMELINE}"):
        for answer in cache.add_join(text):
            assert answer == {"name": "t#1", "warnings": ["already installed as t#1"]}
    assert len(cache.joins()) == 1
    assert cache.scan("t|", "t}") == rows
    assert cache.stats()["joins"]["t#1"]["computes"] == 1
    cache.add_join("mine: u|<a> = copy x|<a>")
    with pytest.raises(JoinError, match="another join is named mine"):
        cache.add_join("mine: v|<a> = copy x|<a>")


def test_joins_come_back_as_text_that_can_be_installed() -> None:
    cache = twip()
    cache.add_join("top: top|<day> = snapshot 0.5 count hit|<day>|<n>")
    texts = [join["text"] for join in cache.joins()]
    assert [join["maintenance"] for join in cache.joins()] == ["push", "snapshot"]
    other = Cache()
    other.add_join(" ".join(texts))
    assert [join["text"] for join in other.joins()] == texts


def test_explain_shows_joins_ranges_and_sources() -> None:
    cache = twip()
    cache.scan(*prefix("t|ann|"))
    cache.put("s|ann|eve", "1")
    shown = cache.explain("t|", "t}")
    assert shown.keys() == {"first", "last", "stored_rows", "missing", "joins"}
    assert (shown["first"], shown["last"], shown["stored_rows"]) == ("t|", "t}", 2)
    [join] = shown["joins"]
    assert (join["name"], join["maintenance"], join["computes"]) == ("t#1", "push", 1)
    before, ann, after = join["ranges"]
    sources = [
        {"source": "check s|<user>|<poster>", "first": "s|", "last": "s}"},
        {"source": "copy p|<poster>|<time>", "first": "p|", "last": "p}"},
    ]
    assert (before, after) == (
        {"first": "t|", "last": "t|ann|", "state": "not computed", "sources": sources},
        {"first": "t|ann}", "last": "t}", "state": "not computed", "sources": sources},
    )
    assert join["range_count"] == 3
    assert (ann["state"], ann["rows"], ann["waiting_changes"]) == ("stale", 2, 1)
    assert [source["first"] for source in ann["sources"]] == ["s|ann|", "p|bob|"]
    assert cache.explain("t|", "t}") == shown, "looking changes nothing"


def test_explain_of_many_ranges_stays_small() -> None:
    cache = Cache()
    cache.add_join("n|<p> = count p|<p>|<n>")
    for number in range(300):
        cache.put(f"p|{number:03d}|1", "1")
        cache.get(f"n|{number:03d}")
    [join] = cache.explain("n|", "n}")["joins"]
    assert (join["range_count"], len(join["ranges"])) == (601, 100)
    assert [one["state"] for one in join["ranges"][:3]] == ["not computed", "fresh", "not computed"]


def test_hits_are_those_of_the_joins_that_were_read() -> None:
    cache = twip()
    cache.add_join("page|<p>|n = count p|<p>|<n>; page|<p>|c|<n> = copy p|<p>|<n>")
    cache.add_join("last|<p> = pull max p|<p>|<n>")
    for _ in range(3):
        cache.scan("page|bob|c|", "page|bob|c}")
        cache.get("page|bob|n")
        cache.get("last|bob")
    for _ in range(2):
        cache.scan(*prefix("page|bob|"))
    cache.scan(*prefix("p|bob|"))
    stats = cache.stats()
    assert {name: one["hits"] for name, one in stats["joins"].items()} == {
        "t#1": 0,
        "page#1": 2 + 2 + 1,
        "page#2": 2 + 2 + 1,
        "last#1": 0,
    }
    assert {name: one["hits"] for name, one in stats["tables"].items()} == {
        "p": 1,
        "page": 2 + 2 + 1,
        "s": 0,
        "t": 0,
        "last": 0,
    }
    cache.drop_join("page#1")
    assert cache.stats()["joins"]["page#2"]["hits"] == 5
    cache.drop_join("page#2")
    assert cache.stats()["tables"]["page"]["hits"] == 5


def test_stats_count_per_table_and_per_join() -> None:
    cache = twip()
    cache.scan(*prefix("t|ann|"))
    stats = cache.stats()
    assert stats.keys() == {"memory_limit", "keys", "bytes", "tables", "joins"}
    assert stats["tables"].keys() == {"p", "s", "t"}
    assert all(
        one.keys() >= COUNTS for one in (*stats["tables"].values(), *stats["joins"].values())
    )
    assert stats["keys"] == sum(table["keys"] for table in stats["tables"].values()) == 6
    assert stats["bytes"] == sum(table["bytes"] for table in stats["tables"].values()) > 0
    cache.scan(*prefix("t|ann|"))
    cache.put("p|bob|5", "more")
    cache.evict(prefix("t|"))
    for counts in (cache.stats()["tables"]["t"], cache.stats()["joins"]["t#1"]):
        shown = {name: counts[name] for name in COUNTS - {"bytes"}}
        expected = dict.fromkeys(("hits", "computes", "updater_runs", "evictions"), 1)
        assert shown == {**expected, "keys": 0, "invalidations": 0}


def test_tables_that_emptied_are_forgotten() -> None:
    cache = Cache()
    empty = cache.stats()
    for number in range(100):
        cache.put(f"k{number}|x|1", "v")
        cache.put(f"k{number}|2", "v")
    cache.put("lone", "v")
    assert cache.remove_range("", END) == 201
    assert cache.stats() == empty


def test_a_table_that_emptied_stays_while_it_matters() -> None:
    cache = Cache()
    cache.add_join("n|<who> = count v|<who>|<id>;")
    assert cache.scan(*prefix("n|")) == []
    told = []
    watch = cache.watch(*prefix("w|"), told.append)
    for key in ("v|ann|1", "w|1"):
        cache.put(key, "v")
        watch.changes()
        cache.remove(key)
    assert cache.stats()["tables"].keys() == {"n", "v", "w"}
    cache.put("v|ann|2", "v")
    cache.put("w|2", "v")
    assert cache.get("n|ann") == "1"
    assert [change.key for change in watch.changes()] == ["w|1", "w|2"]
    cache._store._check()
