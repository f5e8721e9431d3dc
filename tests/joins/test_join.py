"""What a checked join knows about itself. What is refused is in `test_parser.py`."""

from dataclasses import replace

import pytest

from pequod.errors import JoinError
from pequod.joins.join import CacheJoin, Source, checked
from pequod.joins.parser import parse
from pequod.joins.pattern import Pattern, Slot


def _slots(text: str) -> dict[str, Slot]:
    [join] = parse(text)
    patterns = [join.output, *(source.pattern for source in join.sources)]
    slots = [slot for pattern in patterns for slot in pattern.slots]
    known = {slot.name: slot for slot in slots}
    assert all(known[slot.name] == slot for slot in slots), "a slot is the same everywhere"
    return known


# A join, and its slots as (width, stops).
AGREED = {
    "t|<a> = copy p|<a>": {"a": (None, "|")},
    "t|<a:3> = copy p|<a>": {"a": (3, "|")},
    "t|<a> = copy p|<a:3>": {"a": (3, "|")},
    "t|<a:3> = copy p|<a:3>": {"a": (3, "|")},
    "t|<a:003> = copy p|<a:3>": {"a": (3, "|")},
    "t|<a>|<b> = copy p|<b>|<a:3> check s|<a>|<b>": {"a": (3, "|"), "b": (None, "|")},
    "t|<a>-<b> = copy p|<a>|<b>": {"a": (None, "|-"), "b": (None, "|")},
    "t|<a>|<b> = copy p|<b>-<a>": {"a": (None, "|"), "b": (None, "|-")},
    "t|<a>-<b> = copy p|<a>+|<b>-": {"a": (None, "|-+"), "b": (None, "|-")},
    "t|<a:2>-<b> = copy p|<b>|<a>+": {"a": (2, "|"), "b": (None, "|")},
    "t|<a><b> = copy p|<a:2>|<b>": {"a": (2, "|"), "b": (None, "|")},
    "t|<a:512> = copy p|<a>": {"a": (512, "|")},
}


@pytest.mark.parametrize("text", AGREED)
def test_slots_agree_in_the_whole_join(text):
    slots = _slots(text)
    assert {name: (slot.width, slot.stops) for name, slot in slots.items()} == AGREED[text]


# A join, its table, the number of its value source, whether it aggregates and is determined.
KNOWN = {
    "t|<a> = copy p|<a>": ("t", 0, False, True),
    "|<a> = copy p|<a>": ("", 0, False, True),
    "t|<a>|<b> = check s|<a>|<b> copy p|<b>": ("t", 1, False, True),
    "t|<a> = check s|<a>|<b> copy p|<a>": ("t", 1, False, False),
    "t|x|<a> = check s|<a> check r|<a> max p|<a>|<b>": ("t", 2, True, False),
    "t|<a>|<b> = count p|<b>|<a> check s|<a>": ("t", 0, True, True),
}


@pytest.mark.parametrize("text", KNOWN)
def test_what_a_join_knows(text):
    [join] = parse(text)
    assert (join.table, join.value_level, join.aggregates, join.determined) == KNOWN[text]
    assert join.operator == join.sources[join.value_level].operator


# A join and parts of its warning; none if it is not ambiguous.
WARNED = {
    "t|<a> = copy p|<a>": [],
    "t|<a> = check s|<a>|<b> copy p|<a>": [],
    "t|<a> = count p|<a>|<b>": [],
    "t|<a> = copy p|<a>|<b>": ["ambiguous", "p|<a>|<b>", "add <b> to the output"],
    "t|<b> = check s|<a> copy p|<c>|<a>|<b>": ["ambiguous", "greatest", "add <a>, <c> to"],
    # Literals that were probably meant otherwise.
    "t|<a>|{b} = copy p|<a>": ["{b} is literal in t|<a>|{b}; slots are written <b>"],
    "t|<a> = copy p|<a>|[b]": ["[b] is literal in p|<a>|[b]; slots are written <b>"],
    "t|$b|<a> = copy p|<a>": ["$b is literal in t|$b|<a>; slots are written <b>"],
    "t|<a> = copy p|:b|<a>": [":b is literal in p|:b|<a>; slots are written <b>"],
    "t|k:b|{}|<a>{b} = copy p|<a>:b|$|:1": [],
    "t|<a> = copy app:p|<a>": [],
    "name:t|<a> = copy p|<a>": ["name: is a part of the table's name", "as in name: t|"],
}


@pytest.mark.parametrize("text", WARNED)
def test_warnings(text):
    [join] = parse(text)
    assert len(join.warnings) == bool(WARNED[text])
    for part in WARNED[text]:
        assert part in join.warnings[0]


@pytest.mark.parametrize(
    ("operator", "lazy", "text"),
    [
        ("copy", False, "copy p|<a>"),
        ("copy", True, "lazy copy p|<a>"),
        ("sum", True, "lazy sum p|<a>"),
        ("check", True, "check p|<a>"),
        ("check", False, "eager check p|<a>"),
    ],
)
def test_the_text_of_a_source_says_what_is_unusual(operator, lazy, text):
    assert Source(operator, Pattern.parse("p|<a>"), lazy).text == text


def test_checking_twice_changes_nothing():
    [join] = parse("t|<a>-<b> = check s|<a:3>|<b> copy p|<b>+|<a>")
    assert checked(join) == join


def test_equality_is_that_of_meaning():
    [one] = parse("t|<a:3> = copy p|<a>")
    [other] = parse("t|<a> = copy p|<a:3>")
    assert one == other
    assert one.text != other.text
    assert one != replace(other, name="other")


def test_a_join_made_by_hand_is_checked_too():
    source = Source("copy", Pattern.parse("p|<a>"), lazy=False)
    join = CacheJoin("j", Pattern.parse("t|<b>"), (source,))
    with pytest.raises(JoinError, match="output slot <b> is unbound"):
        checked(join)
    zero = Pattern("t|<a:0>", ("t|", Slot("a", 0)))
    with pytest.raises(JoinError, match="slot <a:0> is empty"):
        checked(CacheJoin("j", zero, (source,)))
