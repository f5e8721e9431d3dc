"""Key patterns: what they match, where they stop, and which of them share a key."""

import random
import time

import pytest

from pequod.errors import JoinError, JoinSyntaxError
from pequod.joins.pattern import MAX_PATTERN, Pattern, Slot
from pequod.keys import KeyRange
from tests.joins.shapes import agreed, random_join, random_slots, texts

PARTS = {
    "": (),
    "t|": ("t|",),
    "t|<a>": ("t|", Slot("a")),
    "t|<a>|x|<b:10>": ("t|", Slot("a"), "|x|", Slot("b", 10)),
    "t|<a:3><b>": ("t|", Slot("a", 3), Slot("b")),
    "t|<a:007>": ("t|", Slot("a", 7)),
    "<a>|t": (Slot("a"), "|t"),
    "t:1|{a}[b]$c/%s\\d*": ("t:1|{a}[b]$c/%s\\d*",),
    "t|\0|<имя_1>|日": ("t|\0|", Slot("имя_1"), "|日"),
    f"t|<a:{MAX_PATTERN}>": ("t|", Slot("a", MAX_PATTERN)),
}


@pytest.mark.parametrize("text", PARTS)
def test_parts(text):
    pattern = Pattern.parse(text)
    assert pattern.parts == PARTS[text]
    assert pattern.text == text


# The pattern with a caret before the slot at fault, and parts of the message.
BROKEN = [
    ("t|^<a", "'<a' is not closed by '>'; slots are written <user>, without spaces"),
    ("t|^<", "'<' is not closed"),
    ("t|^<a|<b>", "'<a|' is not closed"),
    ("t|<a>|x^>|<b>", "'>' closes no slot; slots are written <user> or <time:10>"),
    ("t|<a>^>", "'>' closes no slot"),
    ("t|^<>", "'<>' is no slot: its name must be letters"),
    ("t|^<:3>", "'<:3>' is no slot: its name"),
    ("t|<b>|^<1a>", "'<1a>' is no slot: its name must be letters, digits and _"),
    ("t|^<a-b>", "'<a-b>' is no slot: its name"),
    ("t|^<a²>", "'<a²>' is no slot: its name"),
    ("t|^<a:>", "'<a:>' is no slot: a width is a number of characters, as in <time:10>"),
    ("t|^<a:x>", "'<a:x>' is no slot: a width"),
    ("t|^<a:-1>", "'<a:-1>' is no slot: a width"),
    ("t|^<a:1.5>", "'<a:1.5>' is no slot: a width"),
    ("t|^<a:٣>", "is no slot: a width"),
    ("t|^<a:1:2>", "'<a:1:2>' is no slot: a width"),
    ("t|^<a:0>", "slot <a:0> has no width; a slot is never empty"),
    ("t|^<a:000>", "slot <a:000> has no width"),
    ("t|^<a:9999>", "slot <a:9999> is too wide: at most 512 characters fit"),
    (f"t|^<a:{'9' * 500}>", "... is too wide"),
    ("^" + "x" * 513, "a key pattern of 513 characters; at most 512 fit"),
]


@pytest.mark.parametrize(("marked", "said"), BROKEN)
def test_broken_patterns(marked, said):
    before, after = marked.split("^")
    with pytest.raises(JoinSyntaxError) as caught:
        Pattern.parse(before + after)
    assert said in str(caught.value)
    assert (caught.value.line, caught.value.column) == (1, len(before) + 1)
    assert len(str(caught.value)) < 200


MATCHES = [
    ("p|<a>|<b>", "p|bob|100", {"a": "bob", "b": "100"}),
    ("p|<a>|<b>", "p|bob|", None),
    ("p|<a>|<b>", "p||1", None),
    ("p|<a>|<b>", "p|bob|1|2", None),
    ("p|<a>|<b>", "q|bob|1", None),
    ("p|<a>|", "p|bob|", {"a": "bob"}),
    ("p|<a>|", "p|bob", None),
    ("p|all", "p|all", {}),
    ("p|all", "p|all|", None),
    ("p|<a:3>|<b>", "p|x|y|z", {"a": "x|y", "b": "z"}),
    ("p|<a:3>", "p|\n\0|", {"a": "\n\0|"}),
    ("p|<a:3>", "p|ab", None),
    ("p|<a:3>", "p|abcd", None),
    ("p|<a:2><b>", "p|abc", {"a": "ab", "b": "c"}),
    ("p|<a:2><b>", "p|ab", None),
    ("p|<a>-<b>", "p|x-y", {"a": "x", "b": "y"}),
    ("p|<a>-<b>", "p|x-y-z", {"a": "x", "b": "y-z"}),
    ("p|<a>--<b>", "p|x-y--z", None),  # one `-` stops <a> already
    ("p|<a>]<b>^<c>", "p|x]y^z", {"a": "x", "b": "y", "c": "z"}),
    ("p|<a>|<a>", "p|x|x", {"a": "x"}),
    ("p|<a>|<a>", "p|x|xx", None),
    ("p|<a:1><a>", "p|xx", {"a": "x"}),
    ("p|<a>|.*", "p|x|.*", {"a": "x"}),
    ("p|<a>|.*", "p|x|yz", None),
    ("p|<имя>", "p|Ахав\U0010ffff", {"имя": "Ахав\U0010ffff"}),
]


@pytest.mark.parametrize(("text", "key", "slots"), MATCHES)
def test_match(text, key, slots):
    [pattern] = agreed(text, "s|<other>")[:1]
    assert pattern.match(key) == slots
    assert pattern.matches(key) == (slots is not None)
    if slots is not None:
        assert pattern.fill(slots) == key


def test_the_stops_of_a_slot_hold_in_the_whole_join():
    first, second = agreed("p|<a>-<b>", "s|<b>|<a>")
    assert second.match("s|y|x") == {"a": "x", "b": "y"}
    assert second.match("s|y|x-x") is None
    assert second.match("s|y-y|x") == {"a": "x", "b": "y-y"}
    assert first.match("p|x-y-y") == {"a": "x", "b": "y-y"}


@pytest.mark.parametrize("seed", range(300))
def test_a_filled_pattern_matches_with_the_same_slots(seed):
    rng = random.Random(seed)
    join = random_join(rng)
    slots = random_slots(rng, join)
    for pattern in (join.output, *(source.pattern for source in join.sources)):
        mine = {name: value for name, value in slots.items() if name in pattern.names}
        assert pattern.match(pattern.fill(slots)) == mine


def test_slots_names_and_heads():
    pattern = Pattern.parse("t|<a>|<b:2>|<a>")
    assert [slot.name for slot in pattern.slots] == ["a", "b"]
    assert pattern.names == {"a", "b"}
    assert pattern.literal_head == "t|"
    assert [(slot.name, after) for slot, after in pattern.followers()] == [
        ("a", "|"),
        ("b", "|"),
        ("a", None),
    ]
    assert pattern.head({}) == ("t|",)
    assert pattern.head({"b": "xx"}) == ("t|",)
    assert pattern.head({"a": "x"}) == ("t|", Slot("a"), "|")
    assert pattern.head(frozenset("ab")) == pattern.parts
    assert Pattern.parse("<a>|t").literal_head == ""
    assert Pattern.parse("").literal_head == ""


CONTAINING = [
    ("p|<a>|<b>", {}, KeyRange("p|", "p}")),
    ("p|<a>|<b>", {"b": "1"}, KeyRange("p|", "p}")),
    ("p|<a>|<b>", {"a": "bob"}, KeyRange("p|bob|", "p|bob}")),
    ("p|<a>|<b>", {"a": "bob", "b": "1"}, KeyRange("p|bob|1", "p|bob|1\0")),
    ("p|<a>|x", {"a": "bob"}, KeyRange("p|bob|x", "p|bob|x\0")),
    ("p|all", {}, KeyRange("p|all", "p|all\0")),
    ("p|<a><b>", {"a": "\U0010ffff"}, KeyRange("p|\U0010ffff", "p}")),
    ("p|<a><b>", {"a": "\ud7ff"}, KeyRange("p|\ud7ff", "p|\ue000")),
]


@pytest.mark.parametrize(("text", "slots", "keys"), CONTAINING)
def test_containing_range(text, slots, keys):
    assert Pattern.parse(text).containing_range(slots) == keys


OVERLAPS = [
    ("t|<a>", "t|<b>", True),
    ("t|<a>", "t|<b>|<c>", False),
    ("t|<a>", "tt|<a>", False),
    ("t|<a>|x", "t|b|<c>", True),
    ("t|<a>|x", "t|b|y<c>", False),
    ("t|<a:5>", "t|<b>|<c>", True),
    ("t|<a:2>", "t|<b>|<c>", False),
    ("t|<a:3>|<b>", "t|<c:4>|<d>", False),
    ("t|<a:3>-<b>", "t|<c:4>-<d>", True),
    ("t|<a:3>|b", "t|<c:4>|b", False),
    ("t|<a>-<b>", "t|<c>~<d>", True),
    ("t|<a>-k", "t|<c>~k", False),
    ("t|x", "t|x", True),
    ("t|x", "t|xx", False),
    ("t|", "t|<a>", False),
]


@pytest.mark.parametrize(("one", "other", "expected"), OVERLAPS)
def test_overlaps(one, other, expected):
    [first] = agreed(one, "s|<z>")[:1]
    [second] = agreed(other, "s|<z>")[:1]
    assert first.overlaps(second) is expected
    assert second.overlaps(first) is expected


def test_overlaps_are_those_of_all_short_keys():
    rng = random.Random(1)
    pieces = ("<a>", "<b>", "<c:1>", "<d:2>", "-", "|", "k")
    keys = [f"t|{text}" for text in texts("-|kx", 7)]
    patterns: dict[str, tuple[Pattern, set[str]]] = {}
    while len(patterns) < 60:
        chosen = rng.sample(pieces, rng.randint(1, 4))
        if sum(piece in "-|k" for piece in chosen) > 2:
            continue
        try:
            [pattern] = agreed("t|" + "".join(chosen), "s|<z>")[:1]
        except JoinError:
            continue  # nothing parts two of its slots
        patterns[pattern.text] = pattern, set(filter(pattern.matches, keys))
    answers = set()
    for one, one_keys in patterns.values():
        for other, other_keys in patterns.values():
            expected = not one_keys.isdisjoint(other_keys)
            answers.add(expected)
            assert one.overlaps(other) == expected, (one.text, other.text)
    assert answers == {True, False}


@pytest.mark.parametrize("seed", range(200))
def test_patterns_that_share_a_key_overlap_also_if_slots_repeat(seed):
    rng = random.Random(seed)
    one, other = random_join(rng), random_join(rng)
    for _ in range(30):
        if other.output.matches(one.output.fill(random_slots(rng, one))):
            assert one.output.overlaps(other.output)


LONG = [
    ("many slots, one long literal", "<a>-" * 127, "-" * 400 + "<b:100>"),
    ("many slots, a wide slot", "<a>-" * 127, "<b:500>"),
    ("many slots twice", "<a>-" * 127, "<b>-" * 126 + "<b>"),
    ("many stops", "".join(f"<a>{chr(0x100 + n)}" for n in range(127)), "<b:500>"),
    ("all but the last character", "<a>" + "-a" * 250 + "x", "<b>" + "-a" * 250 + "y"),
    ("long literals", "a" * 500 + "<a>", "a" * 500 + "<a>"),
]


@pytest.mark.parametrize(("what", "one", "other"), LONG)
def test_overlaps_of_long_patterns_are_quick(what, one, other):
    first, second = agreed("t|" + one, "t|" + other)
    start = time.process_time()
    for _ in range(20):
        first.overlaps(second)
        second.overlaps(first)
    assert time.process_time() - start < 1, what


def test_matching_is_linear():
    [pattern] = agreed("t|" + "<a>-" * 100 + "<b>", "s|<z>")[:1]
    start = time.process_time()
    for _ in range(100):
        assert not pattern.matches("t|" + "x-" * 2000 + "|")
    assert time.process_time() - start < 1
