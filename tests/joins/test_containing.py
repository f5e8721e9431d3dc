"""Slot sets and containing ranges against all keys made of a few short values."""

import random
import time
from itertools import pairwise, product

import pytest

from pequod.joins.containing import Containment, slots_of_range
from pequod.joins.parser import parse
from pequod.joins.pattern import Pattern, Slot, SlotSet
from pequod.keys import KeyRange, point, prefix

# Values that are prefixes of each other, with the neighbours of the bar and what lies far off.
VALUES = ["a", "aa", "ab", "b", "a{", "a}", "a~", "{", "}", "~", "a-", "-", "\0", "a\0", "é"]
FIXED_VALUES = [*VALUES, "|", "||", "a|", "|a"]

# The output and the source whose keys are looked for; other sources bind the slots left over.
PATTERNS = [
    ("t|<a>", "p|<a>"),
    ("t|<a>|<b>", "p|<b>"),
    ("t|<a>|<b>", "p|<b>|<a>"),
    ("t|<a>|<b>", "p|<a>|<b>"),
    ("t|<a>|<b>", "p|<b>|<c>"),
    ("t|<a>|<b>|<c>", "p|<c>|<b>"),
    ("t|<a>|<b>|<c>", "p|<b>|<c>"),
    ("t|<a>|k|<b>", "p|<a>|x|<b>"),
    ("t|<a>-<b>", "p|<a>|<b>"),
    ("t|<a>|<b>-", "p|<b>|<a>{"),
    ("t|<a>}<b>", "p|<b>}<a>"),
    ("t|<a>|<a>", "p|<a>"),
    ("t|<a>", "p|<a>|<a>"),
    ("t|<a>|x", "p|<a>"),
    ("t|x", "p|<a>"),
    ("t|<a>", "p|x"),
    ("t|<a:1>", "p|<a>"),
    ("t|<a:2>", "p|<a>"),
    ("t|<a>|<b:1>", "p|<b>|<a>"),
    ("t|<a>|<b:2>|<c>", "p|<b>|<c>"),
    ("t|<a>|<b:2>|<c>", "p|<c>|<b>"),
    ("t|<a:1><b:2>", "p|<a>|<b>"),
    ("t|<a:1><b:2>", "p|<b><a>"),
    ("t|<a:2><b>", "p|<a>-<b>"),
    ("t|<a:1><a>", "p|<a>"),
]


def containing_ranges(
    output: Pattern, source: Pattern, slots: SlotSet, keys: KeyRange
) -> list[KeyRange]:
    known, whole = output.containing_range(slots), source.containing_range(slots)
    return Containment(output, source, frozenset(slots)).ranges(known, whole, keys)


def _join_patterns(output: str, source: str) -> tuple[Pattern, Pattern]:
    """Both patterns as the join that has them agrees upon."""
    [join] = parse(f"{output} = copy {source} check z|{output}|{source}")
    return join.output, join.sources[0].pattern


def _values(slot: Slot) -> list[str]:
    if slot.width is not None:
        return [value for value in FIXED_VALUES if len(value) == slot.width]
    return [value for value in VALUES if not set(value) & set(slot.stops)]


def _sample(slots: list[Slot], rng: random.Random, most: int = 400) -> list[dict[str, str]]:
    """Full slot sets: all there are, or as many as `most` of them."""
    names = [slot.name for slot in slots]
    every = [dict(zip(names, values, strict=True)) for values in product(*map(_values, slots))]
    return rng.sample(every, most) if len(every) > most else every


def _random_bound(rng: random.Random, keys: list[str]) -> str:
    key = rng.choice(keys)
    cut = rng.choice([len(key), rng.randint(0, len(key))])
    return key[:cut] + rng.choice(["", "", "", "\0", "|", "}", "a", "~", "|a"])


def _random_range(rng: random.Random, keys: list[str]) -> KeyRange:
    """A range that is not empty, mostly around some of `keys`."""
    kind = rng.random()
    if kind < 0.15:
        return point(_random_bound(rng, keys))
    if kind < 0.3:
        return prefix(_random_bound(rng, keys))
    while True:
        found = KeyRange(*sorted((_random_bound(rng, keys), _random_bound(rng, keys))))
        if found:
            return found


def _fits(slots: SlotSet, known: SlotSet) -> bool:
    return all(slots.get(name, value) == value for name, value in known.items())


@pytest.mark.parametrize("texts", PATTERNS, ids=" = ".join)
@pytest.mark.parametrize("seed", range(3))
def test_containing_ranges_miss_no_source_key(texts, seed):
    rng = random.Random(f"{texts} {seed}")
    output, source = _join_patterns(*texts)
    slots = {slot.name: slot for slot in (*output.slots, *source.slots)}
    sample = _sample(list(slots.values()), rng)
    output_keys = sorted({output.fill(row) for row in sample})
    found = 0
    for _ in range(200):
        names = rng.sample(sorted(slots), rng.randint(0, len(slots)))
        row = rng.choice(sample)
        known = {name: row[name] for name in names}
        keys = _random_range(rng, output_keys)
        ranges = containing_ranges(output, source, known, keys)
        assert all(ranges), f"an empty range for {known} in {keys}"
        for before, after in pairwise(ranges):
            assert before.last < after.first, f"{ranges} for {known} in {keys}"
        for row in sample:
            if _fits(row, known) and output.fill(row) in keys:
                key = source.fill(row)
                assert any(key in part for part in ranges), f"{key!r} for {known} in {keys}"
                found += 1
    assert found


@pytest.mark.parametrize("texts", [texts for texts in PATTERNS if ":" in texts[0]], ids=" = ".join)
def test_containing_ranges_are_tight_for_fixed_widths(texts):
    """Where the first unknown slot is the same in both, no other value of it is read."""
    rng = random.Random(str(texts))
    output, source = _join_patterns(*texts)
    slots = {slot.name: slot for slot in (*output.slots, *source.slots)}
    sample = _sample(list(slots.values()), rng)
    output_keys = sorted({output.fill(row) for row in sample})
    for _ in range(300):
        names = rng.sample(sorted(slots), rng.randint(0, len(slots) - 1))
        row = rng.choice(sample)
        known = {name: row[name] for name in names}
        free = [part for part in output.parts if isinstance(part, Slot) and part.name not in known]
        sought = [
            part for part in source.parts if isinstance(part, Slot) and part.name not in known
        ]
        if not free or free[0].width is None or free[:1] != sought[:1]:
            continue
        keys = _random_range(rng, output_keys)
        ranges = containing_ranges(output, source, known, keys)
        head = output.containing_range(known).first
        for row in sample:
            if _fits(row, known) and any(source.fill(row) in part for part in ranges):
                assert keys.overlaps(prefix(head + row[free[0].name])), (
                    f"{row} for {known} in {keys}"
                )


@pytest.mark.parametrize("texts", PATTERNS, ids=" = ".join)
def test_slots_of_a_range_hold_in_all_its_keys(texts):
    rng = random.Random(str(texts))
    output, _ = _join_patterns(*texts)
    keys = sorted({output.fill(row) for row in _sample(list(output.slots), rng)})
    found = set()
    for _ in range(600):
        part = _random_range(rng, keys)
        slots = slots_of_range(output, part)
        found.add(slots is None)
        for key in keys:
            if key in part:
                assert slots is not None, f"{key!r} is in {part}"
                assert _fits(output.match(key) or {}, slots), f"{slots} but {key!r} in {part}"
    assert found == {True, False}


T = Pattern.parse("t|<user>|<time>")
F = Pattern.parse("t|<user>|<time:3>")


@pytest.mark.parametrize(
    ("pattern", "keys", "slots"),
    [
        (T, KeyRange("t|ann|1", "t|ann|3"), {"user": "ann"}),
        (T, prefix("t|ann|"), {"user": "ann"}),
        (T, prefix("t|ann"), {}),
        (T, prefix("t|"), {}),
        (T, KeyRange("t|ann|", "t|bob|"), {}),
        (T, point("t|ann|100"), {"user": "ann", "time": "100"}),
        (T, point("t|ann"), None),
        (T, prefix("u|"), None),
        (T, prefix("t||"), None),
        (T, prefix("t|ann|100|"), None),
        (F, prefix("t|ann|100"), {"user": "ann", "time": "100"}),
        (F, prefix("t|ann|10"), {"user": "ann"}),
        (F, prefix("t|ann|1000"), None),
        (Pattern.parse("t|<a>|<a>|<b>"), prefix("t|x|x|"), {"a": "x"}),
        (Pattern.parse("t|<a>|<a>|<b>"), prefix("t|x|y|"), None),
    ],
)
def test_slots_of_range(pattern, keys, slots):
    assert slots_of_range(pattern, keys) == slots


# Output, source, slots, output range, and the ranges one would write down by hand.
BY_HAND = [
    ("t|<u>|<n:3>", "p|<n>", {"u": "a"}, ("t|a|100", "t|a|200"), [("p|100", "p|200")]),
    ("t|<u>|<n:3>", "p|<n>", {"u": "a"}, ("t|a|1", "t|a|2"), [("p|1", "p|2")]),
    ("t|<u>|<n:3>", "p|<n>", {"u": "a"}, ("t|a|", "t|a}"), [("p|", "p}")]),
    ("t|<u>|<n:3>", "p|<n>", {"u": "a"}, ("t|b|", "t|b}"), []),
    (
        "t|<u>|<n:3>|<p>",
        "p|<p>|<n>",
        {"u": "a", "p": "b"},
        ("t|a|1", "t|a|2"),
        [("p|b|1", "p|b|2")],
    ),
    ("t|<u>|<n:3>|<p>", "s|<u>|<p>", {"u": "a"}, ("t|a|1", "t|a|2"), [("s|a|", "s|a}")]),
    # What follows a slot counts, too, as long as it is fixed and the same in both.
    ("t|<n:2>|<m:2>|<p>", "p|<n>|<m>", {}, ("t|10|20|b", "t|10|33"), [("p|10|20", "p|10|33")]),
    ("t|<n>|<p>", "p|<n>|<p>", {}, ("t|100|", "t|2|b"), [("p|100|", "p|2|b")]),
    ("t|<u>|<p>", "s|<u>|<p>", {"u": "a", "p": "b"}, ("t|", "t}"), [("s|a|b", "s|a|b\0")]),
    # `t|10|b` lies above `t|100|b`, so a source key below the bounds can give a key within.
    (
        "t|<n>|<p>",
        "p|<n>",
        {},
        ("t|100|", "t|2"),
        [("p|1", "p|1\0"), ("p|10", "p|10\0"), ("p|100", "p|2")],
    ),
]


@pytest.mark.parametrize(("output", "source", "slots", "keys", "expected"), BY_HAND)
def test_containing_ranges_by_hand(output, source, slots, keys, expected):
    patterns = _join_patterns(output, source)
    assert containing_ranges(*patterns, slots, KeyRange(*keys)) == expected


@pytest.mark.parametrize("seed", range(60))
def test_tails_that_are_alike_give_exactly_the_keys_of_the_range(seed):
    rng = random.Random(seed)
    tail = rng.choice(("<a>|<b>", "<a>-<a>|<b:2>", "<b:2><a>", "<a>|x", "<a>|<b:1>-"))
    output, source = _join_patterns(f"t|<u>|{tail}", f"p|{tail}")
    sample = _sample(list(output.slots), rng, 200)
    for _ in range(40):
        row = rng.choice(sample)
        keys = _random_range(rng, [output.fill(row) for row in sample])
        ranges = containing_ranges(output, source, {"u": row["u"]}, keys)
        for other in sample:
            if other["u"] == row["u"]:
                inside = any(source.fill(other) in part for part in ranges)
                assert inside == (output.fill(other) in keys), f"{other} in {keys}"


def test_a_long_bound_is_no_burden():
    """It has a million prefixes, each of them a value the slot may have."""
    output, source = _join_patterns("t|<u>|<n>|<p>", "p|<p>|<n>")
    keys = KeyRange("t|ann|" + "1" * 1_000_000, "t|ann|2")
    start = time.process_time()
    ranges = containing_ranges(output, source, {"u": "ann", "p": "bob"}, keys)
    assert ranges == [("p|bob|", "p|bob}")]
    assert slots_of_range(output, keys) == {"u": "ann"}
    assert time.process_time() - start < 1
