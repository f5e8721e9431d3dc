"""Which homes an answer may depend on: those of its rows, and of what they are computed from."""

from collections.abc import Callable

from pequod.cluster.partition import ClusterMap
from pequod.joins.containing import slots_of_range
from pequod.joins.join import CacheJoin
from pequod.keys import KeyRange

MAX_REMEMBERED = 20_000  # ranges of which we know the homes


class Behind:
    """Finds homes from the joins and the map, without looking at any row."""

    def __init__(self, joins: Callable[[], list[CacheJoin]]) -> None:
        self._joins = joins
        self._known: dict[KeyRange, tuple[str, ...]] = {}

    def forget(self) -> None:
        """The joins or the map are others now."""
        self._known.clear()

    def homes(self, keys: KeyRange, partitions: ClusterMap) -> tuple[str, ...]:
        """The homes whose rows may be in a range, or in what it is computed from."""
        found = self._known.get(keys)
        if found is None:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            found = self._known[keys] = self._find(keys, partitions)
        return found

    def _find(self, keys: KeyRange, partitions: ClusterMap) -> tuple[str, ...]:
        homes: set[str] = set()
        todo, seen = [keys], set()
        while todo:
            one = todo.pop()
            if one in seen:
                continue
            seen.add(one)
            for _, some in partitions.pieces(one):
                homes.update(some)
            for join in self._joins():
                if not join.output.containing_range({}).overlaps(one):
                    continue
                slots = slots_of_range(join.output, one)
                if slots is not None:
                    todo += [source.pattern.containing_range(slots) for source in join.sources]
        return tuple(home for home in partitions.homes if home in homes)
