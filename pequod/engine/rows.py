"""Rows in key order: two parallel lists, or a sorted dict where there are many."""

from bisect import bisect_left
from itertools import islice
from typing import TYPE_CHECKING

from sortedcontainers import SortedDict, SortedList

from pequod.keys import Pair, Value

if TYPE_CHECKING:
    from pequod.engine.store import Subtable

SortedKeys = SortedList  # for the store, which need not know the library

CROWDED = 8192  # rows; from here on an insert in the middle of a list moves too much memory


class Rows:
    """Rows in key order: two parallel lists, so that a row costs little more than its key."""

    __slots__ = ("keys", "owner", "values")

    def __init__(self, owner: "Subtable") -> None:
        self.owner = owner
        self.keys: list[str] = []
        self.values: list[Value] = []

    def __len__(self) -> int:
        return len(self.keys)

    def get(self, key: str) -> Value | None:
        keys = self.keys
        place = bisect_left(keys, key)
        return self.values[place] if place < len(keys) and keys[place] == key else None

    def put(self, key: str, value: Value) -> Value | None:
        """Set a row and give back its old value."""
        keys = self.keys
        if not keys or key > keys[-1]:  # the paper's output hint: most rows come at the end
            keys.append(key)
            self.values.append(value)
            return None
        place = bisect_left(keys, key)
        if keys[place] == key:
            old = self.values[place]
            self.values[place] = value
            return old
        if len(keys) >= CROWDED:
            return self.owner.make_large().put(key, value)
        keys.insert(place, key)
        self.values.insert(place, value)
        return None

    def pop(self, key: str) -> Value | None:
        keys = self.keys
        place = bisect_left(keys, key)
        if place == len(keys) or keys[place] != key:
            return None
        if len(keys) >= CROWDED:
            return self.owner.make_large().pop(key)
        del keys[place]
        return self.values.pop(place)

    def span(self, first: str, last: str) -> tuple[list[str], list[Value]]:
        """The keys and the values of a range."""
        low = bisect_left(self.keys, first)
        high = bisect_left(self.keys, last, low)
        return self.keys[low:high], self.values[low:high]

    def pairs(self, first: str, last: str) -> list[Pair]:
        keys = self.keys
        low = bisect_left(keys, first)
        high = bisect_left(keys, last, low)
        return list(zip(keys[low:high], self.values[low:high]))

    def page(self, first: str, last: str, limit: int, reverse: bool) -> list[Pair]:
        """At most `limit` rows from either end of a range."""
        # Most reads want the newest rows, which come at the end, and find one or none. Looking
        # there first spares a search whose every step goes to another place in memory.
        keys = self.keys
        high = len(keys)
        if high and keys[-1] >= last:
            high = bisect_left(keys, last)
        if not high or keys[high - 1] < first:
            return []
        low = high - 1
        if low and keys[low - 1] >= first:
            low = bisect_left(keys, first, 0, low)
        if high - low > limit:
            low, high = (high - limit, high) if reverse else (low, low + limit)
        pairs = list(zip(keys[low:high], self.values[low:high]))
        if reverse:
            pairs.reverse()
        return pairs

    def count(self, first: str, last: str) -> int:
        low = bisect_left(self.keys, first)
        return bisect_left(self.keys, last, low) - low

    def splice(self, keys: list[str], values: list[Value]) -> None:
        """Add rows that are new and in order."""
        place = bisect_left(self.keys, keys[0])
        if place == len(self.keys) or self.keys[place] > keys[-1]:
            self.keys[place:place] = keys
            self.values[place:place] = values
            return
        rows = dict(zip(self.keys, self.values, strict=True))
        rows.update(zip(keys, values, strict=True))
        self.keys[:] = sorted(rows)
        self.values[:] = [rows[key] for key in self.keys]

    def cut(self, first: str, last: str) -> tuple[list[str], list[Value]]:
        """Take the rows of a range out and give them back."""
        low = bisect_left(self.keys, first)
        high = bisect_left(self.keys, last, low)
        keys, values = self.keys[low:high], self.values[low:high]
        del self.keys[low:high]
        del self.values[low:high]
        return keys, values

    def _check(self) -> None:
        assert len(self.keys) == len(self.values), "keys and values are not parallel"
        assert all(a < b for a, b in zip(self.keys, self.keys[1:], strict=False)), "out of order"


class LargeRows:
    """The same for many rows that come in any order."""

    __slots__ = ("_rows", "_table")

    def __init__(self, rows: Rows) -> None:
        self._rows = SortedDict(zip(rows.keys, rows.values, strict=True))
        self._table = rows.owner.table
        self._table.account_large(len(self._rows))

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: str) -> Value | None:
        value: Value | None = self._rows.get(key)
        return value

    def put(self, key: str, value: Value) -> Value | None:
        old: Value | None = self._rows.get(key)
        self._rows[key] = value
        if old is None:
            self._table.account_large(1)
        return old

    def pop(self, key: str) -> Value | None:
        old: Value | None = self._rows.pop(key, None)
        if old is not None:
            self._table.account_large(-1)
        return old

    def span(self, first: str, last: str) -> tuple[list[str], list[Value]]:
        keys = list(self._rows.irange(first, last, (True, False))) if first < last else []
        return keys, [self._rows[key] for key in keys]

    def pairs(self, first: str, last: str) -> list[Pair]:
        return list(zip(*self.span(first, last), strict=True))

    def page(self, first: str, last: str, limit: int, reverse: bool) -> list[Pair]:
        if last <= first:
            return []
        keys = self._rows.irange(first, last, (True, False), reverse)
        return [(key, self._rows[key]) for key in islice(keys, limit)]

    def count(self, first: str, last: str) -> int:
        if last <= first:
            return 0
        return int(self._rows.bisect_left(last) - self._rows.bisect_left(first))

    def splice(self, keys: list[str], values: list[Value]) -> None:
        self._rows.update(zip(keys, values, strict=True))
        self._table.account_large(len(keys))

    def cut(self, first: str, last: str) -> tuple[list[str], list[Value]]:
        keys, values = self.span(first, last)
        for key in keys:
            del self._rows[key]
        self._table.account_large(-len(keys))
        return keys, values

    def _check(self) -> None:
        keys = list(self._rows)
        assert keys == sorted(self._rows.keys()), "out of order"
