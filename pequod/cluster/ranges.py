"""A set of keys made of ranges: disjoint, in order, and neighbours are one."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from pequod.keys import KeyRange


class RangeSet:
    """Keys that are in one of some ranges.

    >>> ranges = RangeSet([KeyRange("a", "c"), KeyRange("c", "f")])
    >>> ranges.remove(KeyRange("d", "e"))
    >>> list(ranges), "d" in ranges, "e" in ranges
    ([KeyRange(first='a', last='d'), KeyRange(first='e', last='f')], False, True)
    """

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, ranges: Iterable[tuple[str, str]] = ()) -> None:
        self._firsts: list[str] = []
        self._lasts: list[str] = []
        for first, last in ranges:
            self.add(KeyRange(first, last))

    def __len__(self) -> int:
        return len(self._firsts)

    def __iter__(self) -> Iterator[KeyRange]:
        return map(KeyRange, list(self._firsts), list(self._lasts))

    def __contains__(self, key: str) -> bool:
        place = bisect_right(self._firsts, key) - 1
        return place >= 0 and key < self._lasts[place]

    def add(self, keys: KeyRange) -> None:
        """Take a range in; what it touches becomes one with it."""
        if not keys:
            return
        first, last = keys
        start = bisect_left(self._lasts, first)
        stop = bisect_right(self._firsts, last)
        if start < stop:
            first = min(first, self._firsts[start])
            last = max(last, self._lasts[stop - 1])
        self._firsts[start:stop] = [first]
        self._lasts[start:stop] = [last]

    def remove(self, keys: KeyRange) -> None:
        """Take a range out, with what lies in it of others."""
        if not keys:
            return
        start = bisect_right(self._lasts, keys.first)
        stop = bisect_left(self._firsts, keys.last)
        if start >= stop:
            return
        rest = [
            KeyRange(self._firsts[start], keys.first),
            KeyRange(keys.last, self._lasts[stop - 1]),
        ]
        self._firsts[start:stop] = [one.first for one in rest if one]
        self._lasts[start:stop] = [one.last for one in rest if one]

    def overlapping(self, keys: KeyRange) -> list[KeyRange]:
        """The parts of a range that are in the set."""
        start = bisect_right(self._lasts, keys.first)
        stop = bisect_left(self._firsts, keys.last)
        return [
            KeyRange(max(first, keys.first), min(last, keys.last))
            for first, last in zip(self._firsts[start:stop], self._lasts[start:stop])
        ]

    def clear(self) -> None:
        self._firsts.clear()
        self._lasts.clear()

    def _check(self) -> None:
        before = None
        for first, last in zip(self._firsts, self._lasts, strict=True):
            assert first < last, f"empty range at {first!r}"
            assert before is None or before < first, f"ranges touch at {first!r}"
            before = last
