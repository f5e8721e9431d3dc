"""Keys and ranges of keys: the words every other module speaks.

A key is text, ordered by code points. A range is half-open, `first <= key < last`. The
text before a key's first bar names its table: `t|ann|100` belongs to table `t`.
"""

from typing import NamedTuple

Value = str | bytes
Pair = tuple[str, Value]

BAR = "|"
MAX_KEY = 4096  # characters
END = "\U0010ffff"  # above every key: no key may start with it

_AFTER_BAR = chr(ord(BAR) + 1)
_BEFORE_SURROGATES, _AFTER_SURROGATES = 0xD7FF, 0xE000


class KeyRange(NamedTuple):
    """The keys from `first` up to, not including, `last`; it is false when empty."""

    first: str
    last: str

    def __bool__(self) -> bool:
        return self.first < self.last

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.first <= key < self.last

    def overlaps(self, other: "KeyRange") -> bool:
        """True if some key is in both.

        >>> KeyRange("a", "c").overlaps(KeyRange("b", "d")), prefix("a").overlaps(prefix("b"))
        (True, False)
        """
        return max(self.first, other.first) < min(self.last, other.last)

    def clip(self, other: "KeyRange") -> "KeyRange":
        """The part of this range that lies in `other`, maybe empty."""
        return KeyRange(max(self.first, other.first), min(self.last, other.last))


EVERYTHING = KeyRange("", END)


class Change(NamedTuple):
    """The one event: `key` had the value `old` and now has `new`; None is no value."""

    key: str
    old: Value | None
    new: Value | None


def successor(text: str) -> str:
    """The least text above every text that starts with `text`.

    >>> successor("t|ann|")
    't|ann}'
    """
    if text[-1:] == BAR:  # by far the most frequent
        return text[:-1] + _AFTER_BAR
    text = text.rstrip(END)
    if not text:
        return END
    code = ord(text[-1])
    return text[:-1] + chr(_AFTER_SURROGATES if code == _BEFORE_SURROGATES else code + 1)


def prefix(text: str) -> KeyRange:
    """The range of all keys that start with `text`.

    >>> prefix("t|ann|")
    KeyRange(first='t|ann|', last='t|ann}')
    >>> prefix("") == EVERYTHING
    True
    """
    return KeyRange(text, successor(text))


def point(key: str) -> KeyRange:
    """The range of that one key.

    >>> "a" in point("a"), "aa" in point("a")
    (True, False)
    """
    return KeyRange(key, key + "\0")


def table_of(key: str) -> str:
    """The table a key belongs to: its text before the first bar.

    >>> table_of("t|ann|100"), table_of("lone")
    ('t', '')
    """
    bar = key.find(BAR)
    return key[:bar] if bar >= 0 else ""
