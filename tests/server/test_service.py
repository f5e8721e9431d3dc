"""The methods as callers may use them: limits, and what confined callers do not learn."""

import pytest

from pequod import BadRequest, BadValue, Cache, Forbidden, OversizedKey, TooLarge, UnknownMethod
from pequod.config import ServerConfig
from pequod.keys import prefix
from pequod.server.access import ADMIN, ANYBODY, Principal
from pequod.server.service import Service


@pytest.fixture
def service():
    limits = {"max_rows": 10, "max_batch": 6, "max_reply": 2000, "max_key": 20}
    return Service(Cache(), ServerConfig(**limits, max_value=100, max_join=100))


@pytest.fixture
def methods(service):
    return service.caller(ANYBODY).methods


def test_rows_at_once(methods):
    rows = [(f"k|{number:02}", "v") for number in range(11)]
    for write in (methods["put_many"], methods["write"]):
        with pytest.raises(TooLarge, match="max_batch"):
            write(rows[:7])
    assert methods["count"]("", "z") == 0
    methods["put_many"](rows[:6])
    methods["write"](rows[6:10])
    assert methods["scan"]("k|", "k}") == rows[:10]
    methods["put"](*rows[10])
    with pytest.raises(TooLarge, match="iterate"):
        methods["scan"]("k|", "k}")
    with pytest.raises(TooLarge, match="iterate"):
        methods["scan"]("k|", "k}", 11)
    assert len(methods["scan"]("k|", "k}", 10)) == 10
    with pytest.raises(TooLarge, match="part by part"):
        methods["digest"]("k|", "k}")
    with pytest.raises(TooLarge, match="part by part"):
        methods["remove_range"]("k|", "k}")
    assert methods["remove_range"]("k|", "k|05") == 5
    assert methods["remove_range"]("k|", "k}") == 6


def test_sizes(methods):
    with pytest.raises(OversizedKey, match="max_key"):
        methods["put"]("k" * 21, "v")
    with pytest.raises(BadValue, match="max_value"):
        methods["put_many"]([("k", "v"), ("l", "v" * 101)])
    with pytest.raises(TooLarge, match="max_join"):
        methods["add_join"]("//" + "x" * 100)
    assert methods["count"]("", "z") == 0


def test_timed(methods):
    methods["put"]("k", "v")
    microseconds, value = methods["timed"]("get", "k")
    assert value == "v"
    assert 0 < microseconds < 1e6
    with pytest.raises(UnknownMethod):
        methods["timed"]("nothing")
    with pytest.raises(UnknownMethod):
        methods["timed"](7)
    with pytest.raises(BadRequest, match="scan"):
        methods["timed"]("scan", "a")


def test_a_confined_admin_learns_nothing_of_others(service):
    service.caller(ANYBODY).methods["add_join"]("hid: q|<x> = copy secret|<x>;")
    mine = service.caller(Principal("a", ADMIN, (prefix("a|"), prefix("b|")))).methods
    for ask in (
        lambda: mine["add_join"]("hid: b|<x> = copy a|<x>;"),
        lambda: mine["drop_join"]("hid"),
        lambda: mine["drop_join"]("nobody"),
        lambda: mine["timed"]("joins"),
        lambda: mine["timed"]("get", "secret|1"),
    ):
        with pytest.raises(Forbidden) as caught:
            ask()
        assert "secret" not in str(caught.value)
    assert mine["add_join"]("b|<x> = copy a|<x>;") == [{"name": "b#1", "warnings": []}]
