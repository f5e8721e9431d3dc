"""What is refused leaves no trace: no row, no table, no join, not a byte in the account."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from pequod import Cache, prefix
from pequod.engine.requests import MAX_KEY, MAX_VALUE, check_key, check_value, checked_limit
from pequod.errors import BadKey, BadRequest, BadValue, ComputedKey, JoinError, PequodError
from tests.engine.world import TIMELINE, TWIP
from tests.oracle import END


class Text(str):
    """Text of a class of its own, whose comparisons nobody knows."""

    __slots__ = ()


REFUSALS: dict[str, tuple[type[PequodError], Callable[[Cache], object]]] = {
    "put: bad value": (BadValue, lambda cache: cache.put("new|x|1", 1)),
    "put: bad key": (BadKey, lambda cache: cache.put("new|\ud800", "1")),
    "put: key of a class of its own": (BadKey, lambda cache: cache.put(Text("new|x"), "1")),
    "put: value of a class of its own": (BadValue, lambda cache: cache.put("new|x", Text("1"))),
    "put: computed": (ComputedKey, lambda cache: cache.put("t|new|1|x", "1")),
    "remove: computed": (ComputedKey, lambda cache: cache.remove("t|new|1|x")),
    "put_many: late bad key": (BadKey, lambda c: c.put_many([("new|x|1", "1"), ("", "1")])),
    "put_many: late bad value": (BadValue, lambda c: c.put_many({"new|x|1": "1", "p|x|1": 1})),
    "put_many: computed": (
        ComputedKey,
        lambda cache: cache.put_many([("new|x|1", "1"), ("p|bob|10", "!"), ("t|a|1|b", "1")]),
    ),
    "put_many: a pair of three": (BadRequest, lambda c: c.put_many([("new|x", "1", "2")])),
    "put_many: no pairs": (BadRequest, lambda cache: cache.put_many(5)),
    "put_many: None": (BadRequest, lambda cache: cache.put_many(None)),
    "put_many: a text": (BadRequest, lambda cache: cache.put_many("ab")),
    "add_join: no text": (BadRequest, lambda cache: cache.add_join(None)),
    "add_join: the second is broken": (
        JoinError,
        lambda cache: cache.add_join("new|<a> = copy y|<a>; newer|<a> = copy"),
    ),
    "add_join: the second is in the way of base data": (
        JoinError,
        lambda cache: cache.add_join("new|<a> = copy y|<a>; p|<a>|<b> = copy z|<a>|<b>"),
    ),
    "add_join: recursion": (
        JoinError,
        lambda cache: cache.add_join("new|<a> = copy y|<a>; y|<a> = copy new|<a>"),
    ),
    "add_join: push over pull": (
        JoinError,
        lambda cache: cache.add_join("new|<a> = pull copy y|<a>; newer|<a> = copy new|<a>"),
    ),
    "drop_join: unknown": (JoinError, lambda cache: cache.drop_join("new")),
    "drop_join: no text": (JoinError, lambda cache: cache.drop_join(["t#1"])),
    "scan: bad reverse": (BadRequest, lambda cache: cache.scan("t|zoe|", "t|zoe}", 1, "no")),
    "scan: no reverse": (BadRequest, lambda cache: cache.scan("t|zoe|", "t|zoe}", 1, None)),
    "scan: bad limit": (BadRequest, lambda cache: cache.scan("t|zoe|", "t|zoe}", limit=-1)),
    "scan: bad end": (BadKey, lambda cache: cache.scan("new|", None)),
    "evict: no range": (BadRequest, lambda cache: cache.evict(("t|",))),
    "loading: no range": (BadRequest, lambda cache: cache.loading(None)),
    "declare_remote: no range": (BadRequest, lambda cache: cache.declare_remote("p|")),
}


def twip() -> Cache:
    cache = Cache()
    cache.add_join(TIMELINE)
    cache.put_many(TWIP)
    cache.scan(*prefix("t|ann|"))
    return cache


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused_leaves_no_trace(name: str) -> None:
    error, call = REFUSALS[name]
    cache = twip()
    stats, shown, joins = cache.stats(), cache.explain("", END), cache.joins()
    with pytest.raises(error) as caught:
        call(cache)
    assert str(caught.value), "it says what is wrong"
    assert cache.stats() == stats
    assert cache.explain("", END) == shown
    assert cache.joins() == joins
    cache._check()


@pytest.mark.parametrize(
    "ask",
    [
        lambda cache: cache.get("new|x|1"),
        lambda cache: cache.scan(*prefix("new|")),
        lambda cache: cache.count(*prefix("new|")),
        lambda cache: cache.explain(*prefix("new|")),
        lambda cache: cache.remove("new|x|1"),
        lambda cache: cache.remove("p|nobody|1"),
        lambda cache: cache.remove_range(*prefix("new|")),
        lambda cache: cache.evict(prefix("new|")),
        lambda cache: cache.put_many([]),
    ],
)
def test_what_finds_nothing_leaves_no_trace(ask: Callable[[Cache], object]) -> None:
    cache = twip()
    stats = cache.stats()
    ask(cache)
    assert cache.stats() == stats


def test_the_longest_key_and_value_that_fit() -> None:
    check_key("k" * MAX_KEY)
    with pytest.raises(BadKey, match=str(MAX_KEY)):
        check_key("k" * (MAX_KEY + 1))
    check_value(bytes(MAX_VALUE))
    with pytest.raises(BadValue, match=str(MAX_VALUE)):
        check_value(bytes(MAX_VALUE + 1))


@pytest.mark.parametrize("limit", [0, 1, 10**30])
def test_limits(limit: int) -> None:
    assert checked_limit(limit) == min(limit, sys.maxsize)
    assert checked_limit(None) >= 10**9


@pytest.mark.parametrize("memory_limit", [-1, True, False, 1.5, "1", b"1"])
def test_a_memory_limit_is_a_number_of_bytes(memory_limit: Any) -> None:
    with pytest.raises(BadRequest, match="memory_limit"):
        Cache(memory_limit=memory_limit)


@pytest.mark.parametrize("subtables", [{"t": -1}, {"t": "2"}, {"t": None}, {3: 2}, {"t": True}])
def test_subtables_are_numbers_of_bars(subtables: Any) -> None:
    with pytest.raises(BadRequest, match="subtables"):
        Cache(subtables=subtables)


def test_a_text_of_a_class_of_its_own_is_told_the_cure() -> None:
    for check, error in ((check_key, BadKey), (check_value, BadValue)):
        with pytest.raises(error, match=r"not Text; give str\(\.\.\.\) of it"):
            check(Text("k"))
        with pytest.raises(error, match=r"not int$"):
            check(5)
