"""A home whose rows are in a database: what that tells goes on, numbered, to subscribers."""

from collections.abc import Callable

from pequod.cluster.home import Home
from pequod.engine.cache import Cache
from pequod.keys import Value


class Recorded:
    """Where a database puts its changes: into the cache with the home's rows, and on record."""

    def __init__(
        self, base: Cache, home: Callable[[], Home | None], new_epoch: Callable[[], str]
    ) -> None:
        """`home` is asked each time: with another map, a node may become one, or be one no more."""
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
        removed = self._base.remove_range(first, last)
        self._renew()
        return removed

    def invalidate(self, keys: tuple[str, str]) -> None:
        self._base.invalidate(keys)
        self._renew()

    def _record(self, key: str, value: Value | None) -> None:
        home = self._home()
        if home is not None and home.map.is_home(key, home.name):
            home.record([(key, value)])

    def _renew(self) -> None:
        """Not all rows that have changed are known here, so subscribers must fetch again."""
        home = self._home()
        if home is not None:
            home.renew(self._new_epoch())
