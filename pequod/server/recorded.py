"""A home whose rows are in a database: what that tells goes on, numbered, to subscribers."""

from collections.abc import Callable

from pequod.cluster.home import Home
from pequod.engine.cache import Cache
from pequod.keys import Value


class Recorded:
    """Where a database puts its changes: into the cache with the home's rows, and on record."""

    def __init__(self, base: Cache, home: Home, new_epoch: Callable[[], str]) -> None:
        self._base = base
        self._home = home
        self._new_epoch = new_epoch

    def put(self, key: str, value: Value) -> None:
        self._base.put(key, value)
        self._record(key, value)

    def remove(self, key: str) -> bool:
        removed = self._base.remove(key)
        self._record(key, None)
        return removed

    def remove_range(self, first: str, last: str) -> int:
        # Not all rows that go are known here, so subscribers must fetch again.
        removed = self._base.remove_range(first, last)
        self._home.renew(self._new_epoch())
        return removed

    def invalidate(self, keys: tuple[str, str]) -> None:
        self._base.invalidate(keys)
        self._home.renew(self._new_epoch())

    def _record(self, key: str, value: Value | None) -> None:
        if self._home.map.is_home(key, self._home.name):
            self._home.record([(key, value)])
