"""Small random joins, and every short text: what the tests of patterns count on."""

import random
from collections.abc import Iterator
from itertools import product

from pequod.errors import JoinError
from pequod.joins.join import CacheJoin
from pequod.joins.parser import parse
from pequod.joins.pattern import Pattern

# `|` sorts between `{` and `}`; a slot may hold them as well as letters.
ALPHABET = "ab{}~"
_AFTER_SLOT = ("|", "|", "|", "-", "}", "|k|", "")


def texts(alphabet: str, longest: int) -> Iterator[str]:
    """Every text of up to so many characters of an alphabet.

    >>> list(texts("ab", 2))
    ['', 'a', 'b', 'aa', 'ab', 'ba', 'bb']
    """
    for length in range(longest + 1):
        yield from map("".join, product(alphabet, repeat=length))


def agreed(*texts: str) -> list[Pattern]:
    """Patterns whose slots agree as those of one join do."""
    [join] = parse(f"joined| = count {texts[0]} {' '.join(f'check {text}' for text in texts[1:])}")
    return [source.pattern for source in join.sources]


def random_join(rng: random.Random) -> CacheJoin:
    """A join of two sources over the slots a, b and c, some of them with a width."""
    while True:
        widths = {name: rng.choice(("", "", ":1", ":2")) for name in "abc"}
        first, second = (rng.sample("abc", rng.randint(1, 3)) for _ in range(2))
        bound = sorted({*first, *second})
        output = rng.choices(bound, k=rng.randint(1, 4))
        patterns = [
            f"{table}|" + "".join(_dressed(rng, name + widths[name]) for name in names)
            for table, names in zip("tsp", (output, first, second))
        ]
        try:
            [join] = parse("{} = check {} copy {}".format(*map(_trimmed, patterns)))
        except JoinError:
            continue  # nothing parts two of its slots
        return join


def random_slots(rng: random.Random, join: CacheJoin) -> dict[str, str]:
    """A value for each slot of a join, many of them prefixes of each other."""
    slots = {slot.name: slot for source in join.sources for slot in source.pattern.slots}
    values = {}
    for name, slot in slots.items():
        if slot.width is not None:
            values[name] = "".join(rng.choices(ALPHABET + "|", k=slot.width))
        else:
            allowed = [character for character in ALPHABET if character not in slot.stops]
            values[name] = "".join(rng.choices(allowed, k=rng.choice((1, 1, 2, 3))))
    return values


def _dressed(rng: random.Random, slot: str) -> str:
    return f"<{slot}>{rng.choice(_AFTER_SLOT)}"


def _trimmed(pattern: str) -> str:
    """Most patterns end in a slot."""
    return pattern.removesuffix("|") if pattern.count("|") > 1 else pattern
