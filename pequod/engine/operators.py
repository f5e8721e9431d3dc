"""The operators that fold many values into one: count, sum, min, max, avg.

A fold changes by difference: `add` and `remove` take one source value each. Numbers are
exact: integers stay integers, decimals are fractions until they are written out.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Protocol

from pequod.joins.numbers import AVG_PLACES, decimal_text, number_of, order_of
from pequod.keys import Value


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
        return decimal_text(round(Fraction(self.total) / self.rows, AVG_PLACES))


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
