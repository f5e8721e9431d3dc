"""Disjoint key ranges in order, each an item with `first` and `last`."""

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from sortedcontainers import SortedDict

from pequod.keys import KeyRange


class Ranged(Protocol):
    """Anything that covers the keys from `first` up to `last`."""

    first: str
    last: str


Item = TypeVar("Item", bound=Ranged)


class RangeMap(Generic[Item]):
    """Items over disjoint ranges; finding one takes logarithmic time.

    >>> numbers = RangeMap()
    >>> numbers.gaps(KeyRange("a", "z"))
    [KeyRange(first='a', last='z')]
    """

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: SortedDict[str, Item] = SortedDict()

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return iter(list(self._items.values()))

    def add(self, item: Item) -> None:
        assert item.first < item.last, f"empty range [{item.first!r}, {item.last!r})"
        self._items[item.first] = item

    def remove(self, item: Item) -> None:
        removed = self._items.pop(item.first)
        assert removed is item, f"another item starts at {item.first!r}"

    def at(self, key: str) -> Item | None:
        """The item whose range holds `key`."""
        place = self._items.bisect_right(key) - 1
        if place < 0:
            return None
        item: Item = self._items.peekitem(place)[1]
        return item if key < item.last else None

    def overlapping(self, keys: KeyRange) -> list[Item]:
        """The items that share a key with `keys`, in order."""
        items, (first, last) = self._items, keys
        if not items or first >= last:
            return []
        found: list[Item] = []
        place = items.bisect_right(first)
        if place:
            before: Item = items.peekitem(place - 1)[1]
            if first < before.last:
                found.append(before)
                if last <= before.last:  # as it mostly is
                    return found
        if place < len(items) and items.peekitem(place)[0] < last:
            found += [items[one] for one in items.irange(first, last, (False, False))]
        return found

    def gaps(self, keys: KeyRange) -> list[KeyRange]:
        """The parts of `keys` that no item covers, in order."""
        gaps = []
        first = keys.first
        for item in self.overlapping(keys):
            if first < item.first:
                gaps.append(KeyRange(first, item.first))
            first = max(first, item.last)
        if first < keys.last:
            gaps.append(KeyRange(first, keys.last))
        return gaps

    def count(self, keys: KeyRange) -> int:
        """How many items start in `keys`."""
        return int(self._items.bisect_left(keys.last) - self._items.bisect_left(keys.first))

    def ending_at(self, key: str) -> Item | None:
        """The item whose range ends just before `key`."""
        place = self._items.bisect_left(key) - 1
        if place < 0:
            return None
        item: Item = self._items.peekitem(place)[1]
        return item if item.last == key else None

    def starting_at(self, key: str) -> Item | None:
        item: Item | None = self._items.get(key)
        return item

    def _check(self) -> None:
        last = ""
        for first, item in self._items.items():
            assert first == item.first < item.last, f"[{item.first!r}, {item.last!r}) at {first!r}"
            assert last <= first, f"ranges overlap at {first!r}"
            last = item.last
