"""The referee: what a cache with these joins must answer, from the definition alone.

A join is the set of all tuples of source keys, one key for each source, whose slots agree.
The oracle builds that set afresh for every question. It knows no ranges, no updaters, no
freshness, and shares no code with the engine, not even the parser: a mistake made in one of
them is not repeated in the other.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import islice, takewhile
from operator import itemgetter
from typing import NamedTuple

Value = str | bytes
Pair = tuple[str, Value]
Slots = dict[str, str]

END = "\U0010ffff"  # above every key

_COMMENT = re.compile(r"//[^\n]*")
_JOIN = re.compile(r"(?:(?P<name>[\w#-]+)\s*:\s*)?(?P<output>\S+)\s*=\s(?P<rest>.+)", re.DOTALL)
_SLOT = re.compile(r"<(\w+)(?::(\d+))?>")
_SLOT_AND_STOP = re.compile(r"<(\w+)(?::\d+)?>([^<])")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)")

_LONGEST_NUMBER = 100  # characters; so no number has more places after its point
_AVG_PLACES = 6


class Pattern:
    """A key pattern: literals and slots, as a regular expression over whole keys.

    >>> Pattern("t|<user>|<time>", {"time": 2}, {}).match("t|ann||1")
    {'user': 'ann', 'time': '|1'}
    """

    def __init__(self, text: str, widths: Mapping[str, int], stops: Mapping[str, str]) -> None:
        self.prefix, *rest = _SLOT.split(text)
        self.parts = [self.prefix]  # literals at even places, slot names at odd ones
        expression = re.escape(self.prefix)
        for name, _, literal in zip(rest[::3], rest[1::3], rest[2::3]):
            if name in self.parts[1::2]:
                expression += f"(?P={name})"
            elif name in widths:
                expression += f"(?P<{name}>.{{{widths[name]}}})"
            else:
                expression += f"(?P<{name}>[^|{re.escape(stops.get(name, ''))}]+)"
            expression += re.escape(literal)
            self.parts += [name, literal]
        self.names = frozenset(self.parts[1::2])
        self._regex = re.compile(expression, re.DOTALL)
        self._matches: dict[str, Slots | None] = {}

    def match(self, key: str) -> Slots | None:
        """The slots of `key`, or None if it does not match."""
        if key not in self._matches:
            found = self._regex.fullmatch(key)
            self._matches[key] = found.groupdict() if found else None
        return self._matches[key]

    def fill(self, slots: Slots) -> str:
        """The key whose slots these are."""
        return "".join(slots[part] if place % 2 else part for place, part in enumerate(self.parts))


class Join(NamedTuple):
    """One cache join. `push`, `pull`, `lazy` and `eager` are not here: they change no answer."""

    name: str | None
    output: Pattern
    operator: str
    sources: tuple[Pattern, ...]
    value_place: int  # of the value source among the sources
    snapshot_seconds: float  # how old an answer may be


@lru_cache(maxsize=4096)
def parse(text: str) -> tuple[Join, ...]:
    """The joins of a text, which is taken to be correct."""
    statements = _COMMENT.sub("", text).split(";")
    return tuple(_parse_join(statement.strip()) for statement in statements if statement.strip())


def _parse_join(text: str) -> Join:
    found = _JOIN.fullmatch(text)
    assert found, f"the oracle cannot read the join {text!r}"
    words = [word for word in found["rest"].split() if word not in ("push", "pull")]
    snapshot_seconds = 0.0
    if words[0] == "snapshot":
        snapshot_seconds = float(words[1])
        words = words[2:]
    words = [word for word in words if word not in ("eager", "lazy")]
    operators, sources = words[::2], words[1::2]
    value_places = [place for place, word in enumerate(operators) if word != "check"]
    assert len(value_places) == 1, f"{text!r} has {len(value_places)} value sources"

    everywhere = " ".join([found["output"], *sources])
    widths = {name: int(width) for name, width in _SLOT.findall(everywhere) if width}
    stops: defaultdict[str, str] = defaultdict(str)
    for name, stop in _SLOT_AND_STOP.findall(everywhere):
        # The space is the end of a pattern, put there by the line that joined them.
        stops[name] += stop.strip()
    return Join(
        found["name"],
        Pattern(found["output"], widths, stops),
        operators[value_places[0]],
        tuple(Pattern(source, widths, stops) for source in sources),
        value_places[0],
        snapshot_seconds,
    )


def expected_pairs(
    joins: Sequence[str], base: Mapping[str, Value], first: str = "", last: str = END
) -> list[Pair]:
    """The base rows and all computed rows from `first` up to `last`, in key order.

    >>> timeline = "t|<user>|<time>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
    >>> base = {"s|ann|bob": "1", "p|bob|100": "hi", "p|eve|100": "unseen"}
    >>> expected_pairs([timeline], base, "t|", "t}")
    [('t|ann|100|bob', 'hi')]
    """
    return between(expected_rows(joins, base), first, last)


def between(pairs: Sequence[Pair], first: str, last: str) -> list[Pair]:
    """The part of the sorted `pairs` from `first` up to `last`."""
    return list(pairs[bisect_left(pairs, (first,)) : bisect_left(pairs, (last,))])


def _starting_with(pairs: Sequence[Pair], prefix: str) -> Iterator[Pair]:
    """The sorted `pairs` whose keys start so; any character may follow, the last one too."""
    rest = islice(pairs, bisect_left(pairs, (prefix,)), None)
    return takewhile(lambda pair: pair[0].startswith(prefix), rest)


def expected_rows(joins: Sequence[str], base: Mapping[str, Value]) -> list[Pair]:
    """All base rows and all computed rows, in key order.

    Joins may read each other's outputs. Each round feeds the last round's outputs back as
    sources, so after as many rounds as the joins are deep nothing changes any more.
    """
    parsed = [join for text in joins for join in parse(text)]
    computed: dict[str, Value] = {}
    for _ in range(len(parsed) + 2):
        rows = sorted([*base.items(), *computed.items()], key=itemgetter(0))
        again = _outputs_of_all(parsed, rows)
        if again == computed:
            return rows
        computed = again
    raise AssertionError(f"the joins never settle, so they form a cycle: {joins}")


def is_computed(joins: Sequence[str], key: str) -> bool:
    """True if `key` matches the output of a join, so that nobody may put it."""
    return any(join.output.match(key) is not None for text in joins for join in parse(text))


def staleness_seconds(joins: Sequence[str], key: str) -> float:
    """How old the row of `key` may be: 0 unless a snapshot join computes it."""
    outputs = [join for text in joins for join in parse(text) if join.snapshot_seconds]
    return max((j.snapshot_seconds for j in outputs if j.output.match(key) is not None), default=0)


def _outputs_of_all(joins: Sequence[Join], rows: list[Pair]) -> dict[str, Value]:
    """One row for each output key: where joins compete, the greatest value-source key wins."""
    winners: dict[str, Pair] = {}
    for join in joins:
        source_rows = tuple(tuple(_starting_with(rows, source.prefix)) for source in join.sources)
        for output_key, (value_key, value) in _outputs(join, source_rows).items():
            # Not >=: of equal keys the one of the join installed first stays.
            if output_key not in winners or value_key > winners[output_key][0]:
                winners[output_key] = (value_key, value)
    return {output_key: value for output_key, (_, value) in winners.items()}


@lru_cache(maxsize=512)  # most rounds and most steps of a test change the sources of few joins
def _outputs(join: Join, source_rows: tuple[tuple[Pair, ...], ...]) -> dict[str, Pair]:
    """Each output key of `join` with its value and the greatest value-source key behind it."""
    groups: defaultdict[str, list[Pair]] = defaultdict(list)
    for slots, pair in _tuples(join, source_rows):
        groups[join.output.fill(slots)].append(pair)
    folded = {key: _fold(join.operator, group) for key, group in groups.items()}
    return {key: pair for key, pair in folded.items() if pair is not None}


def _tuples(join: Join, source_rows: tuple[tuple[Pair, ...], ...]) -> list[tuple[Slots, Pair]]:
    """All tuples of source rows whose slots agree: their slots, and the value source's row."""
    found: list[tuple[Slots, Pair]] = [({}, ("", ""))]
    bound: frozenset[str] = frozenset()
    for place, (source, rows) in enumerate(zip(join.sources, source_rows)):
        shared = sorted(bound & source.names)
        rows_by_shared = defaultdict(list)
        for pair in rows:
            slots = source.match(pair[0])
            if slots is not None:
                rows_by_shared[tuple(slots[name] for name in shared)].append((slots, pair))
        found = [
            (slots | more, pair if place == join.value_place else value_pair)
            for slots, value_pair in found
            for more, pair in rows_by_shared.get(tuple(slots[name] for name in shared), ())
        ]
        bound |= source.names
    return found


def _fold(operator: str, group: list[Pair]) -> Pair | None:
    """The greatest key among the rows that count, and the value of the group; None if none do."""
    if operator in ("sum", "avg"):
        group = [(key, value) for key, value in group if number(value) is not None]
        if not group:
            return None
    greatest_key, its_value = max(group, key=itemgetter(0))
    values = [value for _, value in group]
    match operator:
        case "copy":
            return greatest_key, its_value
        case "count":
            return greatest_key, str(len(group))
        case "min":
            return greatest_key, min(values, key=_rank)
        case "max":
            return greatest_key, max(values, key=_rank)
    total = sum((number(value) or Fraction() for value in values), Fraction())
    if operator == "sum":
        return greatest_key, decimal_text(total, _LONGEST_NUMBER)
    assert operator == "avg", f"no such operator: {operator}"
    return greatest_key, decimal_text(total / len(group), _AVG_PLACES)


def _rank(value: Value) -> tuple[int, Fraction, Value]:
    """The order of min and max: numbers by size and then by text, other texts, bytes."""
    size = number(value)
    if size is not None:
        return 0, size, value
    return (1 if isinstance(value, str) else 2), Fraction(), value


@lru_cache(maxsize=4096)
def number(value: Value) -> Fraction | None:
    """The decimal number that a value spells out, or None.

    >>> number("-1.50"), number("1e3"), number(b"1")
    (Fraction(-3, 2), None, None)
    """
    if not isinstance(value, str) or len(value) > _LONGEST_NUMBER or not _NUMBER.fullmatch(value):
        return None
    whole, _, decimals = value.lstrip("+-").partition(".")
    size = Fraction(int(whole + decimals), 10 ** len(decimals))
    return -size if value.startswith("-") else size


def decimal_text(size: Fraction, places: int) -> str:
    """The canonical text of a number, rounded half even to so many decimal places.

    >>> decimal_text(Fraction(-5, 2), 6), decimal_text(Fraction(2, 3), 6)
    ('-2.5', '0.666667')
    """
    scaled = round(size * 10**places)
    digits = str(abs(scaled)).zfill(places + 1)
    text = f"{digits[:-places]}.{digits[-places:]}".rstrip("0").rstrip(".")
    return "-" + text if scaled < 0 else text
