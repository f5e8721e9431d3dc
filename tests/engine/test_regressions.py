"""Bugs that were found by looking or by chance, each as small as it could be made."""

import pytest

from pequod import Cache, JoinError, prefix
from pequod.engine import updating
from pequod.wire import packer


class FakeClock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_reader_learns_of_a_second_snapshot_that_expires_sooner() -> None:
    clock = FakeClock()
    cache = Cache(clock=clock)
    cache.add_join("""
        k|<g> = snapshot 1000 count kk|<g>|<n>;
        c|<x> = snapshot 10 count v|<x>|<n>;
        b|<g>|<x> = check m|<g>|<x> copy c|<x>;
        a|<g>|<x> = check k|<g> copy b|<g>|<x>;
    """)
    cache.put_many({"kk|g|1": "1", "v|1|1": "1"})
    assert cache.scan(*prefix("a|")) == []
    clock.now = 1
    cache.put("m|g|1", "1")
    assert cache.scan(*prefix("a|")) == [("a|g|1", "1")]
    cache.put("v|1|2", "1")
    clock.now = 500
    assert cache.scan(*prefix("a|")) == [("a|g|1", "2")]


def test_a_log_that_overflows_while_it_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updating, "LOG_LIMIT", 10)
    cache = Cache()
    cache.add_join("c|<a>|<n>|<b> = check a|<a>|<b> copy b|<b>|<n>")
    cache.add_join("e|<d>|<n>|<b> = check d|<d>|<a> lazy copy c|<a>|<n>|<b>")
    cache.put_many({"d|x|1": "", "d|y|1": ""})
    cache.scan(*prefix("e|"))
    cache.put_many((f"b|w|{number}", "") for number in range(12))
    cache.put("a|1|w", "")
    assert len(cache.scan(*prefix("e|"))) == 24
    cache._check()


def test_a_neighbour_dropped_while_it_grows_keeps_no_links(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(updating, "LOG_LIMIT", 1)
    cache = Cache()
    cache.add_join("k|<a> = lazy check c|<b>|<c> lazy check b|<a>|<b> copy v|<c>|<d>")
    cache.add_join("kk|<a> = copy k|<a>")
    cache.count("kk|ab", "kk|ab\0")
    cache.scan(*prefix("kk|"))
    cache.put_many({"c|100|ab": "", "c|ab|ab": "2"})
    cache.scan("c|ab|100", "kk|1001", limit=0)
    cache.scan(*prefix("kk|"))
    cache._check()


def test_joins_over_joins_too_deep_for_the_stack_are_refused() -> None:
    cache = Cache()
    for number in range(64):
        cache.add_join(f"t{number + 1}|<a> = copy t{number}|<a>")
    with pytest.raises(JoinError, match="t65"):
        cache.add_join("t65|<a> = copy t64|<a>")
    cache.put("t0|x", "1")
    assert cache.get("t64|x") == "1"


def test_views_that_merge_leave_nothing_behind() -> None:
    cache = Cache()
    cache.add_join("j1: o|<a>|<b> = copy x|<a>|<b>")
    cache.put("x|a|1", "1")
    assert cache.scan(*prefix("o|a|")) == [("o|a|1", "1")]
    cache.add_join("j2: o|k|<b> = copy y|<b>")
    cache.drop_join("j2")
    cache.drop_join("j1")
    cache.put("x|a|2", "2")
    assert cache.scan(*prefix("o|")) == []
    cache._check()


def test_fragments_stay_if_their_hull_misses_data() -> None:
    cache = Cache()
    cache.add_join("o|<g>|<n:3> = copy x|<g>|<n:3>")
    cache.declare_remote(prefix("x|"))
    for number in range(0, 60, 3):
        keys = (f"x|g|{number:03d}", f"x|g|{number:03d}\0")
        with cache.loading(keys) as loading:
            loading.pairs = [(keys[0], "1")]
        assert cache.get(f"o|g|{number:03d}") == "1"
    assert cache.stats()["joins"]["o#1"]["keys"] == 20
    cache._check()


def test_a_loading_that_is_forgotten_is_not_open() -> None:
    cache = Cache()
    cache.declare_remote(prefix("x|"))
    cache.loading(prefix("x|"))
    assert not cache._residency.loadings


def test_hundreds_of_joins_install_quickly_and_thousands_are_refused() -> None:
    cache = Cache()
    assert len(cache.add_join(";".join(f"o{n}|<x>=copy b|<x>" for n in range(500)))) == 500
    with pytest.raises(JoinError, match="at most 500"):
        cache.add_join(";".join(f"p{n}|<x>=copy b|<x>" for n in range(2_000)))


def test_a_value_weighs_the_same_after_it_was_sent():
    """Python keeps the UTF-8 of a text that was encoded by C code, and `getsizeof` then grows."""
    cache = Cache()
    key, value = "k|ünï", "cödé" * 100
    cache.put(key, value)
    packer()((key, value))
    cache._check()
    cache.put(key, value + "!")
    cache.remove(key)
    cache._check()


def test_a_range_that_cannot_grow_for_missing_data_keeps_none_of_the_links() -> None:
    """They were those of keys that it never had, so that nobody took them away again."""
    cache = Cache()
    cache.add_join("t|<user>|<time>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>")
    cache.declare_remote(prefix("p|"))
    cache.put_many({"s|a|b": "1", "s|d|a": "1", "s|d|b": "1"})

    def load(poster: str) -> None:
        with cache.loading(prefix(f"p|{poster}|")) as loading:
            loading.pairs = [(f"p|{poster}|1", "Hi")]

    load("b")
    assert cache.scan("t|", "t|b") == [("t|a|1|b", "Hi")]
    assert cache.freshen(prefix("t|")) == [prefix("p|a|")]
    cache.remove("s|d|b")
    load("a")
    whole = [("t|a|1|b", "Hi"), ("t|d|1|a", "Hi")]
    assert cache.scan(*prefix("t|")) == whole
    cache.put("p|b|7", "Ho")
    assert cache.scan(*prefix("t|")) == [whole[0], ("t|a|7|b", "Ho"), whole[1]]
    cache._check()
