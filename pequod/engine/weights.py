"""What things weigh in memory, in bytes; `tests/engine/test_account.py` holds it to the truth."""

import sys

from pequod.keys import Value

TABLE_BYTES = 1250
SUBTABLE_BYTES = 540
LARGE_ROW_BYTES = 44  # what a row of a sorted dict weighs more than one of two lists
_ASCII_BYTES = sys.getsizeof("")
_WIDE_BYTES = sys.getsizeof("é") - 2
ROW_BYTES = 20 + _ASCII_BYTES + 8  # two list places with room to grow, a text, alignment
_ALIGNMENT = 16
UPDATER_BYTES = 700
POINT_BYTES = 280  # what an updater of a single key weighs more
INTERVAL_BYTES = 900  # and one in the interval tree
STATUS_BYTES = 800
CONTEXT_BYTES = 330
LINK_BYTES = 56
LOG_BYTES = 260
LOGGED_BYTES = 27  # a change that waits in a log
RESIDENT_BYTES = 210
PLAN_BYTES = 3600
SOURCE_BYTES = 1100
STEP_BYTES = 1450
FOLD_BYTES = {"count": 130, "sum": 220, "avg": 220, "min": 70, "max": 70}


class Account:
    """What everything weighs in all: whoever makes or drops something counts it here."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


def text_bytes(text: str) -> int:
    """What a text weighs; `sys.getsizeof` gives more once it was sent, for Python keeps its UTF-8.

    >>> [text_bytes(text) - sys.getsizeof(text) for text in ("plain", "ünï", "€", "\U0001f40b!")]
    [0, 0, 0, 0]
    """
    if text.isascii():
        return _ASCII_BYTES + len(text)
    try:
        text.encode("latin-1")
        width = 1
    except UnicodeEncodeError:
        width = 2 if len(text.encode("utf-16-le")) == 2 * len(text) else 4
    return _WIDE_BYTES + width * (len(text) + 1)


def row_bytes(key: str) -> int:
    """What a row weighs beside its value."""
    return ROW_BYTES + (len(key) if key.isascii() else text_bytes(key) - _ASCII_BYTES)


def rows_bytes(keys: list[str]) -> int:
    """The same for many rows, at once if all are ASCII."""
    text = "".join(keys)
    return ROW_BYTES * len(keys) + len(text) if text.isascii() else sum(map(row_bytes, keys))


def value_bytes(value: Value) -> int:
    """What a value weighs where it is put; its copies in outputs are shared and free."""
    if len(value) < 2 and (isinstance(value, bytes) or value < "\u0100"):
        return 0  # Python keeps one copy of each, and `shared` finds it
    size = text_bytes(value) if isinstance(value, str) else sys.getsizeof(value)
    return (size + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT


def values_bytes(values: list[Value]) -> int:
    """The same for many values, at once if all are ASCII.

    >>> values_bytes(["a", "text", "x" * 40]) == sum(map(value_bytes, ["a", "text", "x" * 40]))
    True
    """
    try:
        if not "".join(values).isascii():  # type: ignore[arg-type]
            return sum(map(value_bytes, values))
    except TypeError:  # bytes
        return sum(map(value_bytes, values))
    room = _ASCII_BYTES + _ALIGNMENT - 1
    return sum([(room + len(one)) // _ALIGNMENT * _ALIGNMENT for one in values if len(one) > 1])


def shared(value: Value) -> Value:
    """The value, and if it is a single character the one copy of it that Python keeps."""
    return value[0] if len(value) == 1 and isinstance(value, str) else value
