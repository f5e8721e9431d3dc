"""The outline of values of any shape."""

from dataclasses import dataclass
from typing import NamedTuple

import pytest

from apps.twip.outline import outline


@dataclass(frozen=True)
class Installed:
    name: str
    warnings: tuple[str, ...] = ()


class Range(NamedTuple):
    first: str
    last: str


@pytest.mark.parametrize(
    ("value", "lines"),
    [
        (7, ["7"]),
        ("Hello", ["Hello"]),
        ([], ["none"]),
        ({}, ["none"]),
        (0, ["0"]),
        (False, ["no"]),
        (0.25, ["0.25"]),
        (Range("a", "b"), ["first a, last b"]),
        ([("a|1", "x"), ("a|22", "y")], ["a|1   x", "a|22  y"]),
        (
            [Installed("t#1"), Installed("k#1", ("odd",))],
            ["name  warnings", "t#1   none", "k#1   [odd]"],
        ),
        ({"p": {"keys": 9}, "s": {"keys": 1000}}, ["    keys", "p      9", "s  1,000"]),
        ({"a": {"b": {"c": 1}}, "of": 2}, ["a", "     c", "  b  1", "of  2"]),
        ([{"a": 1}, {"b": {"c": [1, 2]}}], ["- a 1", "-    c", "  b  [1, 2]"]),
    ],
)
def test_outline(value, lines):
    assert outline(value) == lines


def test_long_things_are_broken_to_the_width():
    stats = {"tables": {name: dict.fromkeys(("keys", "bytes", "hits"), 10**9) for name in "ps"}}
    wide, narrow = outline(stats, 60), outline(stats, 30)
    assert wide[2].split() == ["p", *["1,000,000,000"] * 3]
    assert len(narrow) > len(wide)
    assert all(len(line) <= 30 for line in narrow)
