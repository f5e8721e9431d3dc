"""The oracle judges the engine, so here the oracle is judged: by hand-made answers, by the
conformance scenarios, and by something simpler yet, a nested loop over everything."""

import json
from collections import defaultdict
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracle import (
    decimal_text,
    expected_pairs,
    is_computed,
    number,
    parse,
    staleness_seconds,
)

SCENARIOS = json.loads(Path(__file__).with_name("conformance.json").read_text("utf-8"))
TIMELINE = "t|<user>|<time>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"


def test_slots_may_start_with_the_last_character() -> None:
    base = {"p|\U0010ffff|1": "last"}
    assert expected_pairs(["o|<a> = copy p|<a>|<n>"], base, "o|", "o}") == [
        ("o|\U0010ffff", "last")
    ]


class OracleCache:
    """A cache that asks the oracle at every read, and remembers what a snapshot join may keep."""

    def __init__(self, joins: list[str]) -> None:
        self.joins, self.base, self.now = joins, {}, 0.0
        self.remembered = {}  # range -> (when it was computed, its pairs)

    def scan(self, first, last):
        then, pairs = self.remembered.get((first, last), (None, None))
        if then is None or self.now - then >= staleness_seconds(self.joins, pairs[0][0]):
            pairs = expected_pairs(self.joins, self.base, first, last)
            if pairs:
                self.remembered[first, last] = (self.now, pairs)
        return pairs


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario["name"])
def test_the_oracle_conforms(scenario):
    cache = OracleCache(list(scenario["joins"]))
    for step in scenario["steps"]:
        match step:
            case ["put", key, value]:
                assert not is_computed(cache.joins, key), step
                cache.base[key] = value
            case ["remove", key]:
                cache.base.pop(key, None)
            case ["addjoin", text]:
                cache.joins.append(text)
            case ["sleep", seconds]:
                cache.now += seconds
            case ["scan", first, last, answer]:
                assert [list(pair) for pair in cache.scan(first, last)] == answer, step
            case ["count", first, last, answer]:
                assert len(cache.scan(first, last)) == answer, step
            case ["get", key, answer]:
                assert dict(cache.scan(key, key + "\0")).get(key) == answer, step
            case _:
                raise AssertionError(f"unknown step {step}")


def rows(joins: str, base: dict, prefix: str = "o|") -> dict:
    """The computed rows whose keys start with `prefix`."""
    return dict(expected_pairs([joins], base, prefix, prefix[:-1] + "}"))


@pytest.mark.parametrize(
    ("pattern", "key", "slots"),
    [
        ("k|<a>|<b>", "k|1|2", {"a": "1", "b": "2"}),
        ("k|<a>|<b>", "k|1|2|3", None),
        ("k|<a>|<b>", "k||2", None),
        ("k|<a>|<b>", "k|1|", None),
        ("k|<a>|<b>", "kk|1|2", None),
        ("k|<a>", "k|a\nb", {"a": "a\nb"}),
        ("k|<a:2>", "k|||", {"a": "||"}),
        ("k|<a:2>", "k|\U0001f40bé", {"a": "\U0001f40bé"}),
        ("k|<a:2>", "k|1", None),
        ("k|<a:2>", "k|123", None),
        ("k|<a:1><b:2>", "k|123", {"a": "1", "b": "23"}),
        ("k|<a>-<b>", "k|1-2", {"a": "1", "b": "2"}),
        ("k|<a>-<b>", "k|1-2-3", {"a": "1", "b": "2-3"}),
        ("k|<a>|<a>", "k|1|1", {"a": "1"}),
        ("k|<a>|<a>", "k|1|10", None),
        ("k|<a>.x", "k|1.x", {"a": "1"}),
        ("k|<a>.x", "k|1yx", None),
        ("k|on", "k|on", {}),
    ],
)
def test_a_key_matches_as_a_whole(pattern, key, slots):
    (join,) = parse(f"o|<z> = check {pattern} copy z|<z>")
    assert join.sources[0].match(key) == slots


def test_a_width_given_once_holds_everywhere():
    join = "o|<a>|<b> = check x|<a:2>|<b> copy y|<b>|<a>"
    assert rows(join, {"x|1||2": "", "y|2|1|": "v"}) == {"o|1||2": "v"}


def test_a_stop_given_once_holds_everywhere():
    join = "o|<a> = check x|<a>-<b> copy y|<a>"
    assert rows(join, {"x|1-2": "", "y|1": "v", "y|1-2": "not a slot here"}) == {"o|1": "v"}


def test_comments_names_modes_and_several_joins_in_one_text():
    text = """
    // the first of two
    first: o|<a> = pull lazy check x|<a> eager copy y|<a>;
    second#2: o|<a> = snapshot 2.5
        count z|<a>|<b>; // and nothing after it
    """
    assert [(join.name, join.operator, join.snapshot_seconds) for join in parse(text)] == [
        ("first", "copy", 0.0),
        ("second#2", "count", 2.5),
    ]


def test_what_is_computed_and_how_stale_it_may_be():
    joins = [TIMELINE, "f|<a> = snapshot 3 count x|<a>|<b>", "f|<a> = copy y|<a>"]
    assert is_computed(joins, "t|ann|1|bob")
    assert not is_computed(joins, "t|ann|meta")
    assert [staleness_seconds(joins, key) for key in ("t|ann|1|bob", "f|1", "f|1|2")] == [0, 3, 0]


def test_ranges_are_half_open_and_may_be_empty_or_reversed():
    base = {"a": "1", "b": "2", "c": "3"}
    assert expected_pairs([], base, "a", "c") == [("a", "1"), ("b", "2")]
    assert expected_pairs([], base, "b", "b") == []
    assert expected_pairs([], base, "c", "a") == []


def test_of_several_tuples_the_greatest_value_source_key_wins():
    ambiguous = "o|<time> = check s|<poster> copy p|<poster>|<time>"
    base = {"s|ann": "", "s|bob": "", "p|ann|1": "from ann", "p|bob|1": "from bob"}
    assert rows(ambiguous, base) == {"o|1": "from bob"}
    assert rows(ambiguous, base | {"s|zed": "", "p|zed|2": "-"})["o|1"] == "from bob"
    del base["s|bob"]
    assert rows(ambiguous, base) == {"o|1": "from ann"}


def test_of_several_joins_the_greatest_value_source_key_wins():
    joins = "o|<a> = copy x|<a>; o|<a> = sum y|<a>|<b>; o|<a> = count w|<a>|<b>"
    assert rows(joins, {"x|1": "x", "y|1|1": "5", "w|1|1": "x"}) == {"o|1": "5"}
    # A row that is no number does not count, so it does not compete either.
    assert rows(joins, {"x|1": "x", "y|1|1": "five"}) == {"o|1": "x"}


def test_at_a_tie_the_join_installed_first_wins():
    count, copy = "o|<a> = count x|<a>|<b>", "o|<a> = copy x|<a>|<b>"
    base = {"x|1|1": "p", "x|1|2": "q"}
    assert rows(f"{count}; {copy}", base) == {"o|1": "2"}
    assert rows(f"{copy}; {count}", base) == {"o|1": "q"}


def test_aggregates_fold_over_tuples():
    join = "o|<a> = check x|<a>|<b> sum y|<a>"
    assert rows(join, {"x|1|1": "", "x|1|2": "", "y|1": "5"}) == {"o|1": "10"}


@pytest.mark.parametrize(
    ("operator", "values", "answer"),
    [
        ("count", ["x", b"", "1"], "3"),
        ("sum", ["0.1", "0.2"], "0.3"),
        ("sum", ["+1", "-1."], "0"),
        ("sum", ["-.5"], "-0.5"),
        ("sum", ["-0"], "0"),
        ("sum", ["1", "x", b"1", "1e3", "1_0", " 1", "1\n", "", "-", ".", "١", "NaN"], "1"),
        ("sum", ["x"], None),
        ("sum", ["9" * 100, "1"], "1" + "0" * 100),
        ("sum", ["9" * 101, "1"], "1"),
        ("sum", ["100", "0.00"], "100"),
        ("sum", ["." + "0" * 98 + "1", "1"], "1." + "0" * 98 + "1"),
        ("avg", ["1", "2"], "1.5"),
        ("avg", ["2", "0", "0"], "0.666667"),
        ("avg", ["0.000001", "0"], "0"),
        ("avg", ["0.000003", "0"], "0.000002"),
        ("avg", ["-0.000001", "0"], "0"),
        ("avg", ["10", "x"], "10"),
        ("avg", [b"1"], None),
        ("min", ["10", "9"], "9"),
        ("max", ["10", "9"], "10"),
        ("min", ["1.0", "1", "x", b"0"], "1"),
        ("max", ["1.0", "1", "+1"], "1.0"),
        ("max", ["1", "x", "", b""], b""),
        ("max", ["1", "", "-"], "-"),
        ("min", ["x", "", b""], ""),
        ("max", ["é", "z", "\U0001f40b"], "\U0001f40b"),
    ],
)
def test_aggregates(operator, values, answer):
    base = {f"x|1|{place}": value for place, value in enumerate(values)}
    expected = {} if answer is None else {"o|1": answer}
    assert rows(f"o|<a> = {operator} x|<a>|<b>", base) == expected


def test_joins_over_joins():
    joins = "n|<a> = count x|<a>|<b>; m|<g> = check y|<g>|<a> max n|<a>; o|all = sum m|<g>"
    base = {"x|1|1": "", "x|1|2": "", "x|2|1": "", "y|g|1": "", "y|g|2": "", "y|h|2": ""}
    assert rows(joins, base) == {"o|all": "3"}


def test_a_cycle_is_an_error_of_the_test():
    with pytest.raises(AssertionError, match="cycle"):
        expected_pairs(["o|<a> = count x|<a>; x|<a> = sum o|<a>"], {"x|1": "7"})


numbers = st.from_regex(r"[+-]?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})", fullmatch=True)


@given(st.lists(numbers.filter(str.isascii), min_size=1, max_size=8))
def test_arithmetic_agrees_with_the_decimal_module(texts):
    exact = Context(prec=200, rounding=ROUND_HALF_EVEN)
    total = Decimal(0)
    for text in texts:
        total = exact.add(total, Decimal(text))
    size = sum((number(text) for text in texts), Fraction())
    average = exact.quantize(exact.divide(total, Decimal(len(texts))), Decimal("0.000001"))
    assert Decimal(decimal_text(size, 100)) == total
    assert Decimal(decimal_text(size / len(texts), 6)) == average
    for text in (decimal_text(size, 100), decimal_text(size / len(texts), 6)):
        assert text == f"{Decimal(text).normalize(exact):f}"
        assert text != "-0"


JOINS = (
    TIMELINE,
    "o|<a>|<c> = check x|<a>|<b> check x|<b>|<c> count x|<c>|<a>",
    "o|<a> = check x|<b> copy x|<a>|<b>",
    "o|<b>-<a> = check x|<a> copy x|<b>-<a>",
    "o|<a> = count x|<a>|<a>",
    "o|<a>|<b> = copy x|<a> check s|<b>",
)


@given(
    st.sampled_from(JOINS),
    st.dictionaries(
        st.from_regex(r"[xsp]\|[12]([|-][12]){0,2}", fullmatch=True),
        st.sampled_from(("1", "-2", "v", b"1")),
        max_size=12,
    ),
)
def test_a_join_is_a_filtered_product(text, base):
    """The definition without any index: every tuple of rows, kept if its slots agree."""
    (join,) = parse(text)
    groups = defaultdict(list)
    for keys in product(base, repeat=len(join.sources)):
        matches = [source.match(key) for source, key in zip(join.sources, keys)]
        if None in matches:
            continue
        slots = {name: found for match in matches for name, found in match.items()}
        if all(match.items() <= slots.items() for match in matches):
            groups[join.output.fill(slots)].append(keys[join.value_place])
    computed = {
        output_key: str(len(group)) if join.operator == "count" else base[max(group)]
        for output_key, group in groups.items()
    }
    assert dict(expected_pairs([text], base)) == base | computed
