"""A cache beside its base rows and joins, so that the oracle can be asked the same."""

from typing import Any

from pequod import Cache, prefix
from pequod.keys import Pair, Value
from tests.oracle import END, expected_pairs

KARMA = "karma|<author> = count vote|<author>|<id>|<voter>"
PAGE = "page|<id>|<who> = check comment|<id>|<who> copy karma|<who>"
BEST = "best|<id> = max page|<id>|<who>"
TIMELINE = "t|<user>|<time>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
TWIP: dict[str, Value] = {"s|ann|bob": "1", "p|bob|100": "hi", "p|bob|10": "ten", "p|eve|9": "no"}


class World:
    """A cache whose every scan the oracle must confirm."""

    def __init__(self, *joins: str, base: dict[str, Value] | None = None) -> None:
        self.joins = joins
        self.base: dict[str, Value] = {}
        self.now = 0.0
        self.cache = Cache(clock=lambda: self.now)
        for join in joins:
            self.cache.add_join(join)
        for key, value in (base or {}).items():
            self.put(key, value)

    def put(self, key: str, value: Value = "1") -> None:
        self.cache.put(key, value)
        self.base[key] = value

    def remove(self, key: str) -> None:
        self.cache.remove(key)
        del self.base[key]

    def scan(self, first: str = "", last: str = END) -> list[Pair]:
        """The rows of a range, which the oracle must confirm."""
        pairs = self.cache.scan(first, last)
        assert pairs == expected_pairs(self.joins, self.base, first, last)
        self.cache._check()
        return pairs

    def updater_runs(self) -> int:
        return sum(join["updater_runs"] for join in self.cache.stats()["joins"].values())

    def ranges(self, first: str) -> list[dict[str, Any]]:
        """The status ranges that `explain` shows."""
        shown = self.cache.explain(*prefix(first))["joins"][0]["ranges"]
        return [one for one in shown if one["state"] != "not computed"]
