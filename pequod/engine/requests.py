"""What callers may say: checks of keys, values, ranges and limits, each with a clear error."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from pequod.errors import BadKey, BadRequest, BadValue, OversizedKey
from pequod.keys import END, MAX_KEY, KeyRange, Pair

MAX_VALUE = 64 * 1024 * 1024  # characters or bytes


def check_key(key: object) -> None:
    if key.__class__ is not str:
        raise BadKey(f"a key is text, not {type(key).__name__}{_cure(key)}")
    assert isinstance(key, str), "checked above"
    if not key:
        raise BadKey("a key is never empty")
    if len(key) > MAX_KEY:
        raise OversizedKey(f"a key has at most {MAX_KEY} characters, not {len(key)}")
    if not key.isascii():
        if key[0] == END:
            raise BadKey("a key may not start with the last character of Unicode")
        if _has_surrogates(key):
            raise BadKey(f"a key is valid Unicode, and {key[:30]!r} has a lone surrogate")


def check_value(value: object) -> None:
    if value.__class__ is not str and value.__class__ is not bytes:
        raise BadValue(f"a value is str or bytes, not {type(value).__name__}{_cure(value)}")
    assert isinstance(value, (str, bytes)), "checked above"
    if isinstance(value, str) and not value.isascii() and _has_surrogates(value):
        raise BadValue(f"a text is valid Unicode, and {value[:30]!r} has a lone surrogate")
    if len(value) > MAX_VALUE:
        raise BadValue(f"a value has at most {MAX_VALUE} characters, not {len(value)}")


def _cure(found: object) -> str:
    """What to do about a kind of text, StrEnum for one; it may compare and print as it likes."""
    return "; give str(...) of it" if isinstance(found, str) else ""


def checked_range(first: object, last: object) -> KeyRange:
    if not isinstance(first, str) or not isinstance(last, str):
        wrong = last if isinstance(first, str) else first
        raise BadKey(f"a range has text at both ends, not {type(wrong).__name__}")
    return KeyRange(first, last)


def checked_keys(keys: object) -> KeyRange:
    """A range handed over as one pair."""
    if not isinstance(keys, (tuple, list)) or len(keys) != 2:
        raise BadRequest(f"a range is a pair (first, last), not {keys!r:.60}")
    return checked_range(*keys)


def checked_flag(flag: object, name: str) -> bool:
    if not isinstance(flag, bool):
        raise BadRequest(f"{name} is True or False, not {flag!r:.40}")
    return flag


def checked_pairs(pairs: object) -> list[Pair]:
    """Rows handed over as pairs or as a mapping."""
    if isinstance(pairs, Mapping):
        pairs = pairs.items()
    if not isinstance(pairs, Iterable) or isinstance(pairs, (str, bytes)):
        raise BadRequest(f"rows are pairs of key and value, not {type(pairs).__name__}")
    rows = list(pairs)
    if _plainly_good(rows):
        return rows
    for pair in rows:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise BadRequest(f"rows are pairs of key and value, not {pair!r:.60}")
        check_key(pair[0])
        check_value(pair[1])
    return rows


def _plainly_good(rows: list[Any]) -> bool:
    """True if all rows are good at first sight: tuples of short texts in ASCII, all at once."""
    if set(map(type, rows)) != {tuple} or set(map(len, rows)) != {2}:
        return False
    keys, values = zip(*rows)
    return _short_ascii(keys, 1, MAX_KEY) and _short_ascii(values, 0, MAX_VALUE)


def _short_ascii(texts: tuple[Any, ...], least: int, most: int) -> bool:
    if set(map(type, texts)) != {str}:
        return False
    lengths = set(map(len, texts))
    return least <= min(lengths) and max(lengths) <= most and "".join(texts).isascii()


def check_settings(clock: object, memory_limit: object, subtables: object) -> None:
    """What a cache is made with."""
    if not callable(clock):
        raise BadRequest(f"clock is a function that gives seconds, not {clock!r:.60}")
    if memory_limit is not None and not _is_count(memory_limit):
        raise BadRequest(f"memory_limit is a number of bytes or None, not {memory_limit!r:.60}")
    if subtables is None:
        return
    if not isinstance(subtables, Mapping):
        raise BadRequest(f"subtables maps tables to numbers of bars, not {subtables!r:.60}")
    for name, bars in subtables.items():
        if not isinstance(name, str) or not _is_count(bars):
            raise BadRequest(f"subtables maps tables to numbers of bars, not {name!r} to {bars!r}")


def checked_limit(limit: object) -> int:
    """How many rows that allows."""
    if type(limit) is int and limit >= 0:
        return limit if limit < sys.maxsize else sys.maxsize
    if limit is None:
        return sys.maxsize
    raise BadRequest(f"a limit is a number of rows or None, not {limit!r:.60}")


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
