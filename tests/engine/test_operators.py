"""Folds: numbers, their canonical text, rounding, and the order of min and max."""

import random
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction

import pytest

from pequod.engine.operators import FOLDS, Fold
from pequod.joins.numbers import MAX_NUMBER, decimal_text, number_of, order_of
from pequod.keys import Value
from tests.oracle import expected_pairs

VALUES: tuple[Value, ...] = (
    ("0", "-0", "1", "007", "+3", "9", "10", "-1.50", "0.1", ".5", "1.", "+.25", "9" * MAX_NUMBER)
    + ("", "x", "é", "1e3", "1_0", " 1", "1 ", "1\n", "١", "NaN", "inf", ".", "-", "--1", "1.2.3")
    + ("9" * (MAX_NUMBER + 1), b"", b"1", b"\xff")
)
EXACT = Context(prec=400, rounding=ROUND_HALF_EVEN)


def folded(operator: str, *values: Value) -> Value | None:
    fold = FOLDS[operator]()
    for value in values:
        fold.add(value)
    return fold.result()


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("0", 0),
        ("-0", 0),
        ("007", 7),
        ("+12", 12),
        ("1.50", Fraction(3, 2)),
        ("1.", 1),
        (".5", Fraction(1, 2)),
        ("-.5", Fraction(-1, 2)),
        ("9" * MAX_NUMBER, 10**MAX_NUMBER - 1),
    ],
)
def test_numbers(value: Value, number: int | Fraction) -> None:
    assert number_of(value) == number


@pytest.mark.parametrize(
    "value",
    ["", ".", "+", "-", "1e3", "1_0", " 1", "1 ", "1\n", "١", "½", "NaN", "inf", "0x1", "1,5"]
    + ["--1", "1.2.3", "9" * (MAX_NUMBER + 1), b"", b"1"],
)
def test_no_numbers(value: Value) -> None:
    assert number_of(value) is None
    assert folded("sum", value) is None
    assert folded("avg", value) is None
    assert not FOLDS["sum"]().add(value), "a skipped value is reported, so that it is counted"


@pytest.mark.parametrize(
    ("values", "total"),
    [
        (("1", "2"), "3"),
        (("0.1", "0.2"), "0.3"),
        (("0.10", "0.20"), "0.3"),
        (("1.5", "-1.5"), "0"),
        (("-0",), "0"),
        (("-0.5", "0.25"), "-0.25"),
        (("007", "+1"), "8"),
        (("1.", "x", b"5"), "1"),
        (("9" * 100, "1"), "1" + "0" * 100),
        (("0." + "0" * 97 + "1", "1"), "1." + "0" * 97 + "1"),
    ],
)
def test_sums_are_exact_and_canonical(values: tuple[Value, ...], total: str) -> None:
    assert folded("sum", *values) == total


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        (("1", "2"), "1.5"),
        (("1", "1", "2"), "1.333333"),
        (("2", "2", "1"), "1.666667"),
        (("0.0000005",), "0"),  # half way, and 0 is even
        (("0.0000015",), "0.000002"),  # half way, and 2 is even
        (("0.0000025",), "0.000002"),
        (("-0.0000015",), "-0.000002"),
        (("-0.0000005",), "0"),  # no minus before a zero
        (("0.00000051",), "0.000001"),
        (("10", "x", "20"), "15"),
        (("1.100000",), "1.1"),
        (("100",), "100"),
    ],
)
def test_averages_round_half_even_to_six_places(values: tuple[Value, ...], mean: str) -> None:
    assert folded("avg", *values) == mean


def test_min_and_max_take_numbers_then_texts_then_bytes() -> None:
    rising: list[Value] = ["-2", "-1.5", "-0", "0", "+1", "1", "1.0", "9", "10", "99999999999999"]
    rising += ["", "1e3", "a", "b", "é", "\U0001f40b", b"", b"1", b"\xff"]
    shuffled = random.Random(3).sample(rising, len(rising))
    assert sorted(shuffled, key=order_of) == rising
    for place in range(1, len(rising)):
        two = rising[place - 1 : place + 1]
        for values in (two, two[::-1]):
            assert folded("min", *values) == two[0]
            assert folded("max", *values) == two[1]


def test_min_and_max_give_the_value_as_it_was_put() -> None:
    assert folded("max", "1.50", "007") == "007"
    assert folded("min", "+1", "01") == "+1", "equal numbers by their text"
    assert folded("max", "+1", "01") == "01"


def test_an_extreme_that_goes_asks_to_be_folded_anew() -> None:
    fold = FOLDS["max"]()
    fold.add("3")
    fold.add("9")
    assert fold.remove("3"), "nothing is lost with a lesser value"
    assert not fold.remove("9")


@pytest.mark.parametrize("operator", FOLDS)
def test_a_group_without_rows_has_no_result(operator: str) -> None:
    assert FOLDS[operator]().result() is None


@pytest.mark.parametrize("operator", ["count", "sum", "avg"])
def test_a_group_that_loses_its_rows_has_no_result(operator: str) -> None:
    fold = FOLDS[operator]()
    for value in ("1.5", "-1.5"):
        fold.add(value)
    for value in ("1.5", "-1.5"):
        assert fold.remove(value)
    assert fold.result() is None


def test_decimal_text_as_decimal_writes_it() -> None:
    rng = random.Random(1)
    for _ in range(500):
        text = f"{rng.randint(-(10**9), 10**9)}.{rng.randint(0, 10**6):0{rng.randint(1, 8)}d}"
        plain = format(EXACT.create_decimal(text).normalize(EXACT), "f")
        assert decimal_text(Fraction(text)) == ("0" if plain == "-0" else plain), text


def test_averages_as_decimal_rounds_them() -> None:
    rng = random.Random(2)
    for _ in range(500):
        texts = [f"{rng.randint(-99, 99)}.{rng.randint(0, 9999999):07d}" for _ in range(4)]
        total = sum(map(Decimal, texts))
        mean = EXACT.quantize(EXACT.divide(total, Decimal(4)), Decimal("0.000001"))
        assert Fraction(str(folded("avg", *texts))) == Fraction(mean), texts


@pytest.mark.parametrize("operator", FOLDS)
@pytest.mark.parametrize("seed", range(20))
def test_by_difference_as_the_oracle_folds_anew(operator: str, seed: int) -> None:
    rng = random.Random(seed)
    join = f"o|<a> = {operator} v|<a>|<n>"
    fold: Fold = FOLDS[operator]()
    rows: dict[str, Value] = {}
    for step in range(40):
        if rows and rng.random() < 0.45:
            if not fold.remove(rows.pop(rng.choice(list(rows)))):
                fold = FOLDS[operator]()
                for value in rows.values():
                    fold.add(value)
        else:
            rows[f"v|a|{step}"] = rng.choice(VALUES)
            fold.add(rows[f"v|a|{step}"])
        answer = dict(expected_pairs([join], rows, "o|", "o}"))
        assert fold.result() == answer.get("o|a"), rows
