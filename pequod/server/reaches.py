"""What calls reach: the keys that each method reads or writes, for tokens with prefixes."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pequod.engine.cache import Cache
from pequod.engine.requests import check_key, checked_pairs, checked_range
from pequod.joins.parser import parse
from pequod.keys import EVERYTHING, KeyRange, Value, point, prefix
from pequod.server.claims import checked_changes

Reach = Callable[..., Iterable[KeyRange]]


class Reaches:
    """For each method, a function of its arguments; those that are not here reach everything."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def of(self, name: str) -> Reach:
        found: Reach = getattr(self, f"_{name}", _everything)
        return found

    def _get(self, key: str, *_: Any) -> list[KeyRange]:
        check_key(key)
        return [point(key)]

    _remove = _get

    def _scan(self, first: str, last: str, *_: Any) -> list[KeyRange]:
        return [checked_range(first, last)]

    _count = _digest = _remove_range = _read = _scan

    def _put(self, key: str, value: Value) -> list[KeyRange]:
        return self._get(key)

    def _put_many(self, pairs: Any) -> Iterator[KeyRange]:
        return (point(key) for key, _ in checked_pairs(pairs))

    def _write(self, changes: Any) -> Iterator[KeyRange]:
        return (point(key) for key, _ in checked_changes(changes))

    def _add_join(self, text: str) -> Iterator[KeyRange]:
        """What the joins read and write: whoever installs them makes the one of the other."""
        yield from _of_joins(text)
        names = {join.name for join in parse(text)}
        for installed in self._cache.joins():
            if installed["name"] in names:  # the error would tell of a join that has this name
                yield from _of_joins(installed["text"])

    def _drop_join(self, name: str) -> Iterable[KeyRange]:
        for join in self._cache.joins():
            if join["name"] == name:
                return _of_joins(join["text"])
        return [EVERYTHING]  # that there is none would tell of those of others


def _of_joins(text: str) -> Iterator[KeyRange]:
    for join in parse(text):
        yield prefix(join.output.literal_head)
        for source in join.sources:
            yield prefix(source.pattern.literal_head)


def _everything(*_: Any) -> list[KeyRange]:
    """What tells of the whole cache, or of sources anywhere."""
    return [EVERYTHING]
