"""The operators that fold many values into one: count, sum, min, max, avg.

A fold changes by difference: `add` and `remove` take one source value each. Numbers are
exact: integers stay integers, decimals are fractions until they are written out.
"""

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Protocol

from pequod.keys import Value

MAX_NUMBER = 100  # characters; a longer text is no number

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")
_AVG_PLACES = 6


class Fold(Protocol):
    """The state of one group."""

    def add(self, value: Value) -> bool:
        """Take a value in; False if it was skipped."""

    def remove(self, value: Value) -> bool:
        """Take a value out; False if the group must be folded anew from its rows."""

    def result(self) -> Value | None:
        """The output value; None if the group has no rows."""


class Count:
    """The number of rows."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows = 0

    def add(self, value: Value) -> bool:
        self.rows += 1
        return True

    def remove(self, value: Value) -> bool:
        self.rows -= 1
        return True

    def result(self) -> Value | None:
        return str(self.rows) if self.rows else None


class Sum:
    """The exact sum of the rows that are numbers."""

    __slots__ = ("rows", "total")

    def __init__(self) -> None:
        self.rows = 0
        self.total: int | Fraction = 0

    def add(self, value: Value) -> bool:
        number = number_of(value)
        if number is None:
            return False
        self.rows += 1
        self.total += number
        return True

    def remove(self, value: Value) -> bool:
        number = number_of(value)
        if number is not None:
            self.rows -= 1
            self.total -= number
        return True

    def result(self) -> Value | None:
        return decimal_text(self.total) if self.rows else None


class Avg(Sum):
    """The mean of the rows that are numbers, rounded half even to six places."""

    __slots__ = ()

    def result(self) -> Value | None:
        if not self.rows:
            return None
        return decimal_text(round(Fraction(self.total) / self.rows, _AVG_PLACES))


class Max:
    """The greatest value; when it goes, the group must be folded anew."""

    __slots__ = ("extreme",)

    def __init__(self) -> None:
        self.extreme: Value | None = None

    def add(self, value: Value) -> bool:
        if self.extreme is None or self._beats(value, self.extreme):
            self.extreme = value
        return True

    def remove(self, value: Value) -> bool:
        return value != self.extreme

    def result(self) -> Value | None:
        return self.extreme

    def _beats(self, value: Value, other: Value) -> bool:
        return order_of(value) > order_of(other)


class Min(Max):
    """The least value."""

    __slots__ = ()

    def _beats(self, value: Value, other: Value) -> bool:
        return order_of(value) < order_of(other)


FOLDS: dict[str, Callable[[], Fold]] = {
    "count": Count,
    "sum": Sum,
    "avg": Avg,
    "min": Min,
    "max": Max,
}


def number_of(value: Value) -> int | Fraction | None:
    """The number a value is, or None.

    >>> number_of("12"), number_of("1.5"), number_of("1e3"), number_of(b"1")
    (12, Fraction(3, 2), None, None)
    """
    if isinstance(value, bytes) or len(value) > MAX_NUMBER or not _NUMBER.fullmatch(value):
        return None
    return int(value) if "." not in value else Fraction(value)


def order_of(value: Value) -> tuple[int, int | Fraction, Value]:
    """A sort key: numbers by size and then by text, then texts, then bytes."""
    if isinstance(value, bytes):
        return (2, 0, value)
    number = number_of(value)
    return (1, 0, value) if number is None else (0, number, value)


def decimal_text(number: int | Fraction) -> str:
    """A number whose denominator divides a power of ten, as canonical decimal text.

    >>> decimal_text(Fraction(-5, 2)), decimal_text(Fraction(4, 2)), decimal_text(0)
    ('-2.5', '2', '0')
    """
    whole, places = Fraction(number), 0
    while whole.denominator != 1:
        whole *= 10
        places += 1
    digits = str(abs(whole.numerator)).rjust(places + 1, "0")
    text = f"{digits[:-places]}.{digits[-places:]}" if places else digits
    return f"-{text}" if whole < 0 else text
