"""The table mapping: what it refuses, keys of rows, and bounds that hold every row of a range."""

import random
from dataclasses import replace

import pytest

from pequod import BadRequest
from pequod.backing.mapping import NUMBER, TEXT, read_tables, tables_of
from pequod.keys import KeyRange, point, prefix

KINDS = {"a": TEXT, "b": TEXT, "n": NUMBER, "m": NUMBER}


def table(key, **more):
    [one] = tables_of(f'[[table]]\nname = "things"\nkey = "{key}"')
    return replace(one, kinds=KINDS, **more)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense", "not TOML"),
        ("", "[[table]] entries"),
        ("[table]\nname = 'x'", "[[table]] entries"),
        ("[[table]]\nkey = 'p|<a>'", "has a name"),
        ("[[table]]\nname = 'x'", "it has a key"),
        ("[[table]]\nname = 'x'\nkey = 'p'", "begins with the name of a table and a bar"),
        ("[[table]]\nname = 'x'\nkey = '<a>|<b>'", "begins with the name"),
        ("[[table]]\nname = 'x'\nkey = 'p|<a'", "not like"),
        ("[[table]]\nname = 'x'\nkey = 'p|'", "has no columns"),
        ("[[table]]\nname = 'x'\nkey = 'p|<a>|<a>'", "a column twice"),
        ("[[table]]\nname = 'x'\nkey = 'p|<a><b>'", "nothing parts a, b"),
        ("[[table]]\nname = 'x'\nkey = 'p|<a>-<b>'", "followed by a bar"),
        ("[[table]]\nname = 'x'\nkey = 'p|<a>'\nmode = 'aside'", 'mode is "around" or "through"'),
        ("[[table]]\nname = 'x'\nkey = 'p|<a>'\nvalue = 3", "value is a column"),
        ("[[table]]\nname = 'x'\nkey = 'p|<a>'\nvlaue = 'b'", "no setting is named 'vlaue'"),
        (
            "[[table]]\nname = 'x'\nkey = 'p|<a>'\n[[table]]\nname = 'y'\nkey = 'p|q|<a>'",
            "share a beginning",
        ),
    ],
)
def test_a_mapping_that_makes_no_sense_is_refused(text, said, tmp_path):
    path = tmp_path / "tables.toml"
    path.write_text(text)
    with pytest.raises(BadRequest) as found:
        read_tables(str(path))
    assert said in str(found.value)
    assert str(path) in str(found.value)


def test_a_mapping_that_is_not_there():
    with pytest.raises(BadRequest, match="cannot read nowhere"):
        read_tables("nowhere.toml")


@pytest.mark.parametrize(
    ("key", "cells", "expected"),
    [
        ("p|<a>|<n:4>", ("bob", "7"), "p|bob|0007"),
        ("p|<a>|<n:4>", ("bob", "12345"), None),
        ("p|<a>|<n:4>", ("bob", "-7"), None),
        ("p|<a>|<n>", ("bob", "-7"), "p|bob|-7"),
        ("p|<a>|<b>", ("bob", "x|y"), None),
        ("p|<a>|<b>", ("", "x"), None),
        ("p|<a>|<b>", (None, "x"), None),
        ("p|<a:3>|x", ("bob",), "p|bob|x"),
        ("p|<a:3>|x", ("liza",), None),
        ("p|<a>x", ("axb",), None),
        ("p|<a:2><b>", ("ab", "c"), "p|abc"),
        ("p|<n:4>|x", ("7",), "p|0007|x"),
        ("p|<n:4>", ("-7",), None),
        ("p|<n:4>", ("12345",), None),
        ("p|<n:4>", (None,), None),
    ],
)
def test_keys_of_rows(key, cells, expected):
    one = table(key)
    assert one.key_maker()(cells) == expected
    if expected is not None and len(cells) > 1:  # the first cell is the same in all rows
        head = one.key_maker()(cells).rpartition(cells[-1].rjust(one.slots[-1].width or 0, "0"))[0]
        assert one.key_maker(len(cells) - 1)(cells[-1:], head) == expected


@pytest.mark.parametrize(
    ("key", "keys", "expected"),
    [
        ("p|<a>|<n:4>", prefix("p|bob|"), (("bob",), None, None)),
        ("p|<a>|<n:4>", KeyRange("p|bob|0012", "p|bob|01"), (("bob",), 12, 199)),
        ("p|<a>|<n:4>", point("p|bob|0012"), (("bob", 12), None, None)),
        ("p|<a>|<n:4>", point("p|bob|12"), (("bob",), 1200, None)),
        ("p|<a>|<n:4>", prefix("p|"), ((), None, None)),
        ("p|<a>|<n:4>", prefix("q|"), None),
        ("p|<a>|<b>", KeyRange("p|bob|c", "p|bob|d"), (("bob",), "c", "d")),
        ("p|<a>|<n>", point("p|bob|007"), None),
    ],
)
def test_bounds(key, keys, expected):
    found = table(key).bounds(keys)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert found.equal == expected[0]
        if expected[1:] != (1200, None):
            assert (found.least, found.most) == expected[1:]


PATTERNS = ("p|<a>|<n:3>", "p|<a>|<b>", "p|<a:2>|<n>", "p|<n:3><a>", "p|<a>|x|<b:2>|<n>", "p|<n>")


@pytest.mark.parametrize("seed", range(60))
def test_bounds_hold_every_row_of_a_range(seed):
    chance = random.Random(seed)
    one = table(chance.choice(PATTERNS))
    key_of = one.key_maker()

    def cell(column):
        if KINDS[column] == NUMBER:
            return str(chance.choice((0, 1, 5, 9, 10, 11, 99, 100, 101, 999)))
        return "".join(chance.choice("ab}{") for _ in range(chance.choice((1, 2, 2, 2, 3))))

    rows = [[cell(column) for column in one.key_columns] for _ in range(60)]
    keyed = [(key, row) for row in rows if (key := key_of(row)) is not None]
    texts = [key for key, _ in keyed] + ["p|", "p}", "p|a", "p|10", "o", "q"]
    for _ in range(100):
        first, last = sorted(chance.choice(texts) for _ in range(2))
        first, last = first[: chance.randint(1, 20)], last + chance.choice(("", "\0", "}", "|"))
        keys = chance.choice((KeyRange(first, last), prefix(first), point(last)))
        bounds = one.bounds(keys)
        for key, row in keyed:
            if key in keys:
                assert bounds is not None, (keys, key)
                typed = [
                    int(text) if KINDS[column] == NUMBER else text
                    for column, text in zip(one.key_columns, row)
                ]
                assert typed[: len(bounds.equal)] == list(bounds.equal), (keys, key, bounds)
                if bounds.least is not None:
                    assert typed[len(bounds.equal)] >= bounds.least, (keys, key, bounds)
                if bounds.most is not None:
                    assert typed[len(bounds.equal)] <= bounds.most, (keys, key, bounds)
        for key, row in keyed:
            assert one.slots_of(key) == tuple(
                int(text) if KINDS[column] == NUMBER else text
                for column, text in zip(one.key_columns, row)
            )
