"""One suite over Cache, Client, AsyncClient and HTTP: same methods, same results, same errors."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from pequod import (
    AsyncClient,
    BadKey,
    BadRequest,
    BadValue,
    Cache,
    Client,
    ComputedKey,
    JoinError,
    JoinSyntaxError,
    OversizedKey,
    UnknownJoin,
    prefix,
)
from pequod.digests import RowsDigest
from tests.faces import FACES, METHODS, face
from tests.test_conformance import SCENARIOS, FakeClock, play

TIMELINE = "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;"


@pytest.fixture(params=FACES)
def pq(request: pytest.FixtureRequest) -> Iterator[Any]:
    with face(request.param) as one:
        yield one


@pytest.fixture
def twip(pq: Any) -> Any:
    """Ann follows Bob and Liz, who have posted."""
    pq.add_join(TIMELINE)
    pq.put_many({"s|ann|bob": "1", "s|ann|liz": "1"})
    pq.put_many([("p|bob|0000000100", "Hi"), ("p|liz|0000000124", b"\x00\xff")])
    return pq


def test_rows(pq):
    assert pq.put("k|1", "text") is None
    assert pq.put("k|2", b"\x00bytes\xff") is None
    assert pq.put("k|é|\U0001f40b", "ünïcode") is None
    assert pq.get("k|1") == "text"
    assert pq.get("k|2") == b"\x00bytes\xff"
    assert pq.get("k|none") is None
    assert pq.scan("k|", "k}") == [
        ("k|1", "text"),
        ("k|2", b"\x00bytes\xff"),
        ("k|é|\U0001f40b", "ünïcode"),
    ]
    assert pq.count("k|", "k}") == 3
    expected = RowsDigest()
    expected.add(pq.scan("k|", "k}"))
    assert tuple(pq.digest("k|", "k}")) == (3, expected.hexdigest())
    assert pq.remove("k|1") is True
    assert pq.remove("k|1") is False
    assert pq.remove_range("k|", "k}") == 2
    assert pq.scan("", "z") == []
    assert pq.scan("z", "a") == []


def test_a_timeline(twip):
    rows = [("t|ann|0000000100|bob", "Hi"), ("t|ann|0000000124|liz", b"\x00\xff")]
    assert twip.scan(*prefix("t|ann|")) == rows
    assert twip.scan(*prefix("t|ann|"), limit=1, reverse=True) == rows[1:]
    assert twip.scan(*prefix("t|ann|"), limit=1) == rows[:1]
    assert twip.scan(*prefix("t|ann|"), reverse=True) == rows[::-1]
    assert twip.scan(*prefix("t|ann|"), limit=0) == []
    assert twip.count(*prefix("t|")) == 2
    twip.remove("s|ann|liz")
    assert twip.scan(*prefix("t|ann|")) == rows[:1]


def test_joins(twip):
    [installed] = twip.add_join("again: n|<user> = count s|<user>|<poster>")
    assert installed == {"name": "again", "warnings": []}
    assert [join["name"] for join in twip.joins()] == ["t#1", "again"]
    assert twip.get("n|ann") == "2"
    assert twip.drop_join("again") is None
    assert twip.get("n|ann") is None
    assert twip.joins() == [
        {"name": "t#1", "text": TIMELINE, "maintenance": "push", "warnings": []}
    ]


def test_introspection_is_that_of_the_cache(twip):
    cache = Cache()
    cache.add_join(TIMELINE)
    cache.put_many({"s|ann|bob": "1", "s|ann|liz": "1"})
    cache.put_many([("p|bob|0000000100", "Hi"), ("p|liz|0000000124", b"\x00\xff")])
    for one in (cache, twip):
        one.scan(*prefix("t|ann|"))
    assert twip.explain(*prefix("t|ann|")) == cache.explain(*prefix("t|ann|"))
    found = twip.stats()
    found.pop("server", None)
    assert found == cache.stats()


@pytest.mark.parametrize(
    ("method", "args", "error"),
    [
        ("put", ("", "1"), BadKey),
        ("put", (7, "1"), BadKey),
        ("put", ("k|1", 7), BadValue),
        ("put", ("k|1", None), BadValue),
        ("put", ("t|ann|0000000001|bob", "1"), ComputedKey),
        ("put_many", ([("a|1", "1"), ("t|ann|0000000001|bob", "1")],), ComputedKey),
        ("put_many", ("ab",), BadRequest),
        ("get", (None,), BadKey),
        ("scan", ("a", 1), BadKey),
        ("scan", ("a", "b", -1), BadRequest),
        ("scan", ("a", "b", None, "no"), BadRequest),
        ("scan", ("a", "b", None, ""), BadRequest),
        ("scan", ("a", "b", None, 0), BadRequest),
        ("add_join", ("t|<user> = cpoy p|<user>",), JoinSyntaxError),
        ("add_join", ("t|<user>|<x> = copy p|<user>",), JoinError),
        ("add_join", (7,), BadRequest),
        ("drop_join", ("nobody",), UnknownJoin),
    ],
)
def test_bad_input_is_the_same_error_and_changes_nothing(twip, method, args, error):
    before = twip.scan("", "~")
    with pytest.raises(error) as caught:
        getattr(twip, method)(*args)
    assert type(caught.value) is error
    cache = Cache()
    cache.add_join(TIMELINE)
    with pytest.raises(error) as expected:
        getattr(cache, method)(*args)
    assert str(caught.value) == str(expected.value)
    assert caught.value.details() == expected.value.details()
    assert twip.scan("", "~") == before


def test_a_key_over_the_limit(twip):
    with pytest.raises(OversizedKey):
        twip.put("k" * 5000, "1")
    assert twip.get("p|bob|0000000100") == "Hi"


@pytest.mark.parametrize("kind", FACES[1:])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=[one["name"] for one in SCENARIOS])
def test_conformance(scenario: dict[str, Any], kind: str) -> None:
    clock = FakeClock()
    with face(kind, clock) as one:
        play(scenario, one, clock)


@pytest.mark.parametrize("client", [Client, AsyncClient])
@pytest.mark.parametrize("name", METHODS)
def test_signatures_are_those_of_the_cache(client: type, name: str) -> None:
    theirs, ours = (inspect.signature(getattr(one, name)) for one in (client, Cache))
    # Only a server has a database behind it, whose writes give tokens to read after.
    shared = [one for one in theirs.parameters.values() if one.name != "after"]
    assert shared == list(ours.parameters.values())
    if name not in ("put", "put_many"):
        assert theirs.return_annotation == ours.return_annotation
