"""A database in memory for tests of residency and eviction: the loader a server would have."""

from collections.abc import Callable, Iterable

from pequod import Cache
from pequod.keys import KeyRange, Pair, Value
from tests.oracle import expected_pairs

MAX_ROUNDS = 10


class Database:
    """Rows behind a cache: all keys of `remote` live here, and reads of the cache load them."""

    def __init__(self, cache: Cache, remote: Iterable[KeyRange], joins: Iterable[str] = ()) -> None:
        self.cache = cache
        self.remote = list(remote)
        self.joins = list(joins)
        self.rows: dict[str, Value] = {}  # what the database holds, and what only the cache does
        self.loads: list[list[KeyRange]] = []  # one list for each round
        for keys in self.remote:
            cache.declare_remote(keys)
        for text in self.joins:
            cache.add_join(text)

    def store(self, *keys: str, value: Value = "1") -> None:
        """Put rows into the database behind the back of the cache, which must not have them."""
        self.rows.update(dict.fromkeys(keys, value))

    def put(self, key: str, value: Value = "1") -> None:
        self.rows[key] = value
        self.cache.put(key, value)

    def put_many(self, *keys: str) -> None:
        self.rows.update(dict.fromkeys(keys, "1"))
        self.cache.put_many([(key, "1") for key in keys])

    def remove(self, key: str) -> None:
        self.rows.pop(key, None)
        self.cache.remove(key)

    def remove_range(self, first: str, last: str) -> None:
        self.rows = {key: value for key, value in self.rows.items() if not first <= key < last}
        self.cache.remove_range(first, last)

    def select(self, keys: KeyRange) -> list[Pair]:
        """The rows of a range as they are now."""
        return sorted(
            (key, value)
            for key, value in self.rows.items()
            if key in keys and any(key in remote for remote in self.remote)
        )

    def load(self, missing: list[KeyRange], meanwhile: Callable[[], None] | None = None) -> None:
        """Fetch all of it, and let something happen before it is installed."""
        loadings = [self.cache.loading(keys) for keys in missing]
        for loading in loadings:
            loading.pairs = self.select(loading.keys)
        if meanwhile is not None:
            meanwhile()
        for loading in loadings:
            with loading:
                pass
        self.loads.append(missing)

    def scan(self, keys: KeyRange) -> list[Pair]:
        """Freshen, load what is missing, ask again; the oracle must confirm the answer."""
        for _ in range(MAX_ROUNDS):
            missing = self.cache.freshen(keys)
            if not missing:
                break
            self.load(missing)
        pairs = self.cache.scan(*keys)
        assert pairs == expected_pairs(self.joins, self.rows, *keys)
        self.cache._check()
        return pairs
