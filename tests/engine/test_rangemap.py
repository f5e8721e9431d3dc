"""Disjoint ranges against something simpler: a list of (first, last) searched from end to end."""

import random
from string import ascii_lowercase

import pytest

from pequod.engine.rangemap import RangeMap
from pequod.keys import KeyRange, point

BOUNDS = [*ascii_lowercase[:8], "a|", "a|b", "aa", "é", "\U0001f40b"]


class Piece:
    """The least thing that a range map can hold."""

    def __init__(self, first: str, last: str) -> None:
        self.first, self.last = first, last

    def __repr__(self) -> str:
        return f"Piece({self.first!r}, {self.last!r})"


def made(*ranges: tuple[str, str]) -> RangeMap[Piece]:
    pieces: RangeMap[Piece] = RangeMap()
    for first, last in ranges:
        pieces.add(Piece(first, last))
    pieces._check()
    return pieces


def ends(pieces: list[Piece]) -> list[tuple[str, str]]:
    return [(piece.first, piece.last) for piece in pieces]


def test_an_empty_map_is_one_gap() -> None:
    pieces = made()
    assert len(pieces) == 0
    assert pieces.at("a") is None
    assert pieces.overlapping(KeyRange("a", "z")) == []
    assert pieces.gaps(KeyRange("a", "z")) == [KeyRange("a", "z")]
    assert pieces.gaps(KeyRange("z", "a")) == []


def test_ranges_are_half_open() -> None:
    pieces = made(("b", "d"))
    assert pieces.at("a") is None
    assert ends([piece for key in ("b", "c", "czz") if (piece := pieces.at(key))]) == [
        ("b", "d"),
        ("b", "d"),
        ("b", "d"),
    ]
    assert pieces.at("d") is None
    assert pieces.overlapping(KeyRange("a", "b")) == []
    assert pieces.overlapping(KeyRange("d", "e")) == []
    assert ends(pieces.overlapping(point("b"))) == [("b", "d")]


@pytest.mark.parametrize(
    ("keys", "found", "gaps"),
    [
        (("a", "z"), [("b", "d"), ("d", "f"), ("h", "k")], [("a", "b"), ("f", "h"), ("k", "z")]),
        (("c", "e"), [("b", "d"), ("d", "f")], []),
        (("b", "f"), [("b", "d"), ("d", "f")], []),
        (("e", "i"), [("d", "f"), ("h", "k")], [("f", "h")]),
        (("f", "h"), [], [("f", "h")]),
        (("c", "d"), [("b", "d")], []),
        (("c", "c"), [], []),
        (("e", "c"), [], []),
    ],
)
def test_overlaps_and_gaps(
    keys: tuple[str, str], found: list[tuple[str, str]], gaps: list[tuple[str, str]]
) -> None:
    pieces = made(("d", "f"), ("h", "k"), ("b", "d"))
    assert ends(pieces.overlapping(KeyRange(*keys))) == found
    assert pieces.gaps(KeyRange(*keys)) == gaps


def test_neighbours() -> None:
    pieces = made(("b", "d"), ("d", "f"))
    before, after = pieces.ending_at("d"), pieces.starting_at("d")
    assert before is not None
    assert after is not None
    assert ends([before, after]) == [("b", "d"), ("d", "f")]
    assert pieces.ending_at("c") is None
    assert pieces.ending_at("b") is None
    assert pieces.starting_at("c") is None


def test_a_piece_may_leave_while_the_map_is_walked() -> None:
    pieces = made(("a", "b"), ("b", "c"), ("c", "d"))
    for piece in pieces:
        pieces.remove(piece)
    assert len(pieces) == 0


def test_mistakes_are_assertions() -> None:
    pieces = made(("b", "d"))
    with pytest.raises(AssertionError, match="empty range"):
        pieces.add(Piece("x", "x"))
    with pytest.raises(AssertionError, match="another item"):
        pieces.remove(Piece("b", "d"))
    overlapping: RangeMap[Piece] = RangeMap()
    overlapping.add(Piece("b", "d"))
    overlapping.add(Piece("c", "e"))
    with pytest.raises(AssertionError, match="overlap"):
        overlapping._check()


@pytest.mark.parametrize("seed", range(30))
def test_as_a_list_would(seed: int) -> None:
    rng = random.Random(seed)
    pieces: RangeMap[Piece] = RangeMap()
    listed: list[Piece] = []
    for _ in range(120):
        keys = KeyRange(*sorted(rng.sample(BOUNDS, 2)))
        if listed and rng.random() < 0.3:
            gone = listed.pop(rng.randrange(len(listed)))
            pieces.remove(gone)
        elif all(not keys.overlaps(KeyRange(piece.first, piece.last)) for piece in listed):
            listed.append(Piece(*keys))
            pieces.add(listed[-1])
        pieces._check()
        listed.sort(key=lambda piece: piece.first)
        assert list(pieces) == listed
        judge(pieces, listed, KeyRange(rng.choice(BOUNDS), rng.choice(BOUNDS)))


def judge(pieces: RangeMap[Piece], listed: list[Piece], keys: KeyRange) -> None:
    """Ask everything, and the list the same."""
    shared = [piece for piece in listed if keys.overlaps(KeyRange(piece.first, piece.last))]
    assert pieces.overlapping(keys) == shared, keys
    gaps = pieces.gaps(keys)
    assert all(gaps), "a gap is never empty"
    for key in (*BOUNDS, "a{", "e\0", "zz"):
        holders = [piece for piece in listed if piece.first <= key < piece.last]
        assert pieces.at(key) is (holders[0] if holders else None), key
        assert sum(key in gap for gap in gaps) == (key in keys and not holders), key
        starting = [piece for piece in listed if piece.first == key]
        assert pieces.starting_at(key) is (starting[0] if starting else None), key
        ending = [piece for piece in listed if piece.last == key]
        assert pieces.ending_at(key) is (ending[0] if ending else None), key
