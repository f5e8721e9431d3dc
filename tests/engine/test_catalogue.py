"""What may not be installed beside what: each error says the line, the join and the cure."""

import pytest

from pequod import Cache, JoinError

GOOD = "fine: f|<a> = copy g|<a>;\n\n"

# Installed before, the text that is refused, and what the refusal says.
REFUSED = {
    "recursion": (
        "",
        "o|<a> = copy x|<a>; x|<a> = copy o|<a>",
        r"line 3, join o#1: recursion: o#1 -> x#1 -> o#1; .* write into another table",
    ),
    "recursion by way of an installed join": (
        "old: x|<a> = copy o|<a>",
        "new: o|<a> = copy x|<a>",
        r"line 3, join new: recursion: old -> new -> old",
    ),
    "push over pull": (
        "",
        "low: x|<a> = pull copy y|<a>;\nhigh: o|<a> = copy x|<a>",
        r"line 4, join high: push join high reads pull join low, .* make it `pull`",
    ),
    "pull under push": (
        "high: o|<a> = copy x|<a>",
        "low: x|<a> = pull copy y|<a>",
        r"line 3, join low: push join high reads pull join low",
    ),
    "two of one name": (
        "",
        "one: x|<a> = copy y|<a>;\none: o|<a> = copy y|<a>",
        r"line 4, join one: the join of line 3 has the same name; rename one",
    ),
    "a name that is taken": (
        "one: x|<a> = copy y|<a>",
        "one: o|<a> = copy y|<a>",
        r"line 3, join one: another join is named one: x\|<a> = copy y\|<a>; drop it first",
    ),
    "base data": (
        "",
        "base|<a> = copy y|<a>",
        r"line 3, join base#1: it would write over base data: 1 keys match base\|<a>, 'base\|1'",
    ),
    "too deep": (
        ";".join(f"t{number + 1}|<a> = copy t{number}|<a>" for number in range(64)),
        "u|<a> = copy v|<a>;\nt0|<a> = copy u|<a>",
        r"line 4, join t0#1: t63#1 is part of .* more than 128 joins and sources",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_the_line_the_join_and_the_cure(name: str) -> None:
    before, text, said = REFUSED[name]
    cache = Cache()
    cache.put("base|1", "1")
    cache.add_join(before)
    joins = cache.joins()
    with pytest.raises(JoinError, match=f"^{said}"):
        cache.add_join(GOOD + text)
    assert cache.joins() == joins
