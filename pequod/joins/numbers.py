"""What a value is to an aggregate: a decimal number, exact, or no number at all."""

import re
from fractions import Fraction
from typing import Final

from pequod.keys import Value

MAX_NUMBER: Final = 100  # characters; a longer text is no number
AVG_PLACES: Final = 6

NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")


def number_of(value: Value) -> int | Fraction | None:
    """The number a value is, or None.

    >>> number_of("12"), number_of("1.5"), number_of("1e3"), number_of(b"1")
    (12, Fraction(3, 2), None, None)
    """
    if isinstance(value, bytes) or len(value) > MAX_NUMBER or not NUMBER.fullmatch(value):
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
