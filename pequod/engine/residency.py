"""Base data that lives elsewhere: which of it is resident here, and how it gets here.

A range declared *remote* is missing until a loading installs it; then it is resident until
it is evicted. A change that arrives while a loading is open outranks what is loaded.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from operator import lt
from types import TracebackType
from typing import Self
from weakref import WeakSet

from pequod.engine.rangemap import RangeMap
from pequod.engine.weights import RESIDENT_BYTES, Account
from pequod.keys import KeyRange, Pair, Value

# A range that was loaded but not read yet counts as used by the next so many reads: whoever
# asked for it will come back, and must find it, however small the memory.
UNREAD_GRACE = 1000


class RemoteRange:
    """Keys whose home is elsewhere."""

    __slots__ = ("first", "last")

    def __init__(self, keys: KeyRange) -> None:
        self.first, self.last = keys


class ResidentRange:
    """Remote keys that are all here now."""

    __slots__ = ("first", "last", "used")

    def __init__(self, keys: KeyRange, used: int) -> None:
        self.first, self.last = keys
        self.used = used

    @property
    def keys(self) -> KeyRange:
        return KeyRange(self.first, self.last)


class Loading:
    """An open load: set `pairs` before the block ends, and they are installed.

    If the block ends with an exception, nothing is.
    """

    def __init__(self, keys: KeyRange, closed: "Callable[[Loading, bool], None]") -> None:
        self.keys = keys
        self.pairs: Iterable[Pair] = ()
        self.changes: dict[str, Value | None] = {}
        self.removed: list[KeyRange] = []
        self._closed = closed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed(self, kind is None)

    def rows(self) -> tuple[list[str], list[Value]]:
        """What to install, keys and values in order: the load, then the changes."""
        first, last = self.keys
        if not self.changes and not self.removed and self.pairs:
            keys = [key for key, _ in self.pairs]
            if _is_ascending(keys) and first <= keys[0] and keys[-1] < last:  # as they mostly are
                return keys, [value for _, value in self.pairs]
        rows: dict[str, Value] = {key: value for key, value in self.pairs if first <= key < last}
        for gone in self.removed:
            rows = {key: value for key, value in rows.items() if key not in gone}
        for key, value in self.changes.items():
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value
        keys = sorted(rows)
        return keys, [rows[key] for key in keys]


def _is_ascending(keys: list[str]) -> bool:
    return all(map(lt, keys, islice(keys, 1, None)))


class Residency:
    """Which keys are remote, which of them are resident, and the open loadings."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self.remote: RangeMap[RemoteRange] = RangeMap()
        self.resident: RangeMap[ResidentRange] = RangeMap()
        # Open from the moment they are made; one that nobody holds any more is not.
        self.loadings: WeakSet[Loading] = WeakSet()
        self._touched: list[ResidentRange] = []

    def declare_remote(self, keys: KeyRange) -> None:
        for gap in self.remote.gaps(keys):
            self.remote.add(RemoteRange(gap))

    def missing(self, keys: KeyRange) -> list[KeyRange]:
        """The parts of a range that are remote and not resident."""
        missing: list[KeyRange] = []
        for remote in self.remote.overlapping(keys):
            wanted = keys.clip(KeyRange(remote.first, remote.last))
            for gap in self.resident.gaps(wanted):
                if missing and missing[-1].last == gap.first:
                    gap = KeyRange(missing.pop().first, gap.last)
                missing.append(gap)
        return missing

    def is_remote(self, keys: KeyRange) -> bool:
        """True if some of these keys are."""
        return len(self.remote) > 0 and len(self.remote.overlapping(keys)) > 0

    def is_missing(self, key: str) -> bool:
        return self.remote.at(key) is not None and self.resident.at(key) is None

    def note(self, key: str, value: Value | None) -> None:
        """Let open loadings know of a change; it outranks what they load."""
        for loading in self.loadings:
            if key in loading.keys:
                loading.changes[key] = value

    def note_removed(self, keys: KeyRange) -> None:
        """The same for all keys of a range at once."""
        for loading in self.loadings:
            if loading.keys.overlaps(keys):
                loading.removed.append(keys)
                for key in [key for key in loading.changes if key in keys]:
                    del loading.changes[key]

    def want(self, keys: KeyRange) -> list[KeyRange]:
        """A read wants these keys; gives those that are missing."""
        found = self.resident.overlapping(keys)
        self._touched += found
        if len(found) == 1 and found[0].first <= keys.first and keys.last <= found[0].last:
            return []
        return self.missing(keys)

    def end_read(self, used: int, *, succeeded: bool) -> None:
        """What was touched is used now, but waits on if the read found something missing."""
        if succeeded:
            for resident in self._touched:
                resident.used = used
        self._touched.clear()

    def arrive(self, resident: ResidentRange) -> None:
        self.resident.add(resident)
        self._account.bytes += RESIDENT_BYTES

    def leave(self, keys: KeyRange) -> list[KeyRange]:
        """Make a range missing again; gives the parts that were resident."""
        gone = []
        for resident in self.resident.overlapping(keys):
            self.resident.remove(resident)
            self._account.bytes -= RESIDENT_BYTES
            gone.append(resident.keys.clip(keys))
            for rest in (
                KeyRange(resident.first, keys.first),
                KeyRange(keys.last, resident.last),
            ):
                if rest and resident.keys.overlaps(rest):
                    self.arrive(ResidentRange(rest, resident.used))
        return gone

    def _check(self) -> None:
        self.remote._check()
        self.resident._check()
