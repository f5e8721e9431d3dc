"""`Cache`: the engine's face. It checks what callers say and keeps the hot paths short.

A scan of a fresh range finds its subtable by one dict lookup, compares it with the hint left
there by the last slow scan, and slices. Everything else takes the slow path, which freshens
first and leaves a hint. Not thread-safe: one thread, or one event loop, owns a cache.
"""

import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from operator import lt
from typing import Any

from pequod.digests import RowsDigest
from pequod.engine.catalogue import Catalogue
from pequod.engine.eviction import Eviction
from pequod.engine.explain import explain
from pequod.engine.maintenance import Maintenance
from pequod.engine.plan import Plan
from pequod.engine.reading import Reading
from pequod.engine.requests import (
    check_key,
    check_settings,
    check_value,
    checked_flag,
    checked_keys,
    checked_limit,
    checked_pairs,
    checked_range,
)
from pequod.engine.residency import UNREAD_GRACE, Loading, Residency, ResidentRange
from pequod.engine.statistics import check_account, statistics
from pequod.engine.status import View
from pequod.engine.store import Store, Table
from pequod.engine.watching import Watch
from pequod.errors import BadRequest, ComputedKey
from pequod.joins.join import CacheJoin
from pequod.joins.parser import parse
from pequod.keys import BAR, EVERYTHING, KeyRange, Pair, Value, point, prefix, table_of


class Cache:
    """An ordered key-value cache whose cache joins keep themselves fresh.

    >>> cache = Cache()
    >>> [join] = cache.add_join("karma|<author> = count vote|<author>|<id>|<voter>;")
    >>> cache.put("vote|ann|1|bob", "1")
    >>> cache.get("karma|ann")
    '1'
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        memory_limit: int | None = None,
        subtables: Mapping[str, int] | None = None,
    ) -> None:
        """An empty cache.

        `clock` tells the time in seconds, for snapshots. Beyond `memory_limit` bytes, computed and
        remote ranges go, least recently used first; base data that exists only here stays.
        `subtables` gives, for a table, the number of bars up to which keys share a subtable.
        """
        check_settings(clock, memory_limit, subtables)
        self._clock = clock
        self._memory_limit = memory_limit
        self._tick = 0
        self._store = Store(subtables)
        self._jump = self._store.jump
        self._residency = Residency(self._store.account)
        self._store.is_remote = self._residency.is_remote
        self._catalogue = Catalogue(self._store)
        self._maintenance = Maintenance(
            self._store, self._residency, self._catalogue.views, self._catalogue.pulls
        )
        self._reading = Reading(self._store, self._catalogue, self._residency, self._maintenance)
        self._eviction = Eviction(self._store, self._catalogue, self._residency, self._maintenance)
        self._notify = self._maintenance.updating.notify

    # Reads.

    def scan(
        self, first: str, last: str, limit: int | None = None, reverse: bool = False
    ) -> list[Pair]:
        """The rows with `first <= key < last`, in key order or reversed, at most `limit`."""
        if first.__class__ is str and last.__class__ is str:
            bar = first.find(BAR, first.find(BAR) + 1) + 1
            subtable = self._jump.get(first[:bar])
            if subtable is not None:
                hint = subtable.hint
                if hint is not None and hint.first <= first and last <= hint.last:
                    self._tick = hint.used = self._tick + 1
                    hint.tally.hits += 1
                    if limit is None:
                        limit = sys.maxsize
                    elif limit.__class__ is not int or limit < 0:
                        limit = checked_limit(limit)
                    if reverse.__class__ is not bool:
                        checked_flag(reverse, "reverse")  # type: ignore[unreachable]
                    return subtable.rows.page(first, last, limit, reverse)
        keys = checked_range(first, last)
        most = checked_limit(limit)
        checked_flag(reverse, "reverse")
        self._begin()
        pairs = self._reading.scan(keys, most, reverse)
        self._limit_memory()
        return pairs

    def get(self, key: str) -> Value | None:
        """The value of a key, or None."""
        check_key(key)
        bar = key.find(BAR, key.find(BAR) + 1) + 1
        subtable = self._jump.get(key[:bar])
        if subtable is not None:
            hint = subtable.hint
            if hint is not None and hint.first <= key < hint.last:
                self._tick = hint.used = self._tick + 1
                hint.tally.hits += 1
                return subtable.rows.get(key)
        table = self._store.tables.get(table_of(key))
        if table.plain if table is not None else not self._residency.is_remote(point(key)):
            if table is not None:
                table.hits += 1
            return self._store.get(key)
        self._begin()
        if table is not None and self._reading.settled_at(key, table):
            value = self._store.get(key)
            self._limit_memory()
            return value
        pairs = self.scan(*point(key))
        return pairs[0][1] if pairs else None

    def count(self, first: str, last: str) -> int:
        """The number of rows with `first <= key < last`."""
        keys = checked_range(first, last)
        self._begin()
        rows = self._reading.count(keys)
        self._limit_memory()
        return rows

    def digest(self, first: str, last: str) -> tuple[int, str]:
        """The number of rows with `first <= key < last`, and a digest of them: `pequod.digests`."""
        state = RowsDigest()
        state.add(self.scan(first, last))
        return state.rows, state.hexdigest()

    def _begin(self) -> None:
        self._tick += 1
        self._reading.begin(self._tick, self._clock())

    # Writes.

    def put(self, key: str, value: Value) -> None:
        """Set a base row; a key that a join computes is refused."""
        check_key(key)
        check_value(value)
        self._put(key, value)
        self._limit_memory()

    def put_many(self, pairs: Iterable[Pair] | Mapping[str, Value]) -> None:
        """Set many base rows, or, if one of them is refused, none."""
        rows = checked_pairs(pairs)
        if not self._put_run(rows):
            for key, _ in rows:
                self.check_not_computed(key)
            for key, value in rows:
                self._put(key, value)
        self._limit_memory()

    def _put_run(self, rows: list[Pair]) -> bool:
        """Set rows all at once if they are new, in key order, and nobody has to know of them."""
        if len(rows) < 2:
            return False
        keys = [key for key, _ in rows]
        name = table_of(keys[0])
        if not name or name != table_of(keys[-1]) or not all(map(lt, keys, islice(keys, 1, None))):
            return False
        table = self._store.table(name)
        if not table.plain or table.updaters or table.watches is not None:
            return False
        if table.page(keys[0], keys[-1] + "\0", 1, False):  # counting them would take much longer
            return False
        self._store.splice(keys, [value for _, value in rows])
        return True

    def _put(self, key: str, value: Value) -> None:
        table = self._store.table(table_of(key))
        if not table.plain:
            self.check_not_computed(key)
            self._residency.note(key, value)
            if self._residency.is_missing(key):
                return
        old = self._store.put(table, key, value)
        if table.updaters and old != value:
            self._notify(table, key, old, value)

    def remove(self, key: str) -> bool:
        """Remove a base row; False if there was none."""
        check_key(key)
        self.check_not_computed(key)
        self._residency.note(key, None)
        table = self._store.tables.get(table_of(key))
        if table is None:
            return False
        old = self._store.remove(table, key)
        if old is not None:
            self._notify(table, key, old, None)
            if not table.rows:
                self._store.prune(table)
        return old is not None

    def remove_range(self, first: str, last: str) -> int:
        """Remove the base rows of a range and say how many there were; computed rows stay."""
        keys = checked_range(first, last)
        self._residency.note_removed(keys)
        removed = 0
        for key, _ in self._store.scan(keys):
            if self._catalogue.is_base(key, self._store.tables[table_of(key)]):
                removed += self.remove(key)
        return removed

    def check_not_computed(self, key: str) -> None:
        """Raise `ComputedKey` if a join computes this key, so that nobody may write it."""
        table = self._store.tables.get(table_of(key))
        if table is None or table.plain:
            return
        plan = self._catalogue.writer(key, table.name)
        if plan is not None:
            raise ComputedKey(
                f"{key!r} is computed by join {plan.join.name} ({plan.join.output.text}); "
                "write its sources instead"
            )

    # Joins.

    def add_join(self, text: str) -> list[dict[str, Any]]:
        """Install the joins of `text`, all or none; gives the name and warnings of each."""
        return self._add_joins(parse(text))

    def adopt_join(self, name: str, text: str) -> None:
        """Install a join under the name that another cache gave it."""
        self._add_joins([replace(join, name=name) for join in parse(text)])

    def _add_joins(self, joins: list[CacheJoin]) -> list[dict[str, Any]]:
        new, named = self._catalogue.prepare(joins)
        self._uncompute(self._catalogue.outgoing(new), new)
        self._catalogue.adopt(new)
        for plan in new:
            self._mark(self._store.table(plan.join.table))
        self._store.wake(EVERYTHING)
        return [
            {
                "name": name,
                "warnings": join.warnings
                if is_new
                else [*join.warnings, f"already installed as {name}"],
            }
            for join, (name, is_new) in zip(joins, named, strict=True)
        ]

    def drop_join(self, name: str) -> None:
        """Take a join and all it computed away."""
        plan = self._catalogue.plan(name)
        self._uncompute(self._catalogue.outgoing([], plan), [plan])
        self._catalogue.remove(name)
        self._mark(self._store.table(plan.join.table))
        self._store.wake(EVERYTHING)

    def joins(self) -> list[dict[str, Any]]:
        """The installed joins in the order of their installation."""
        return [
            {
                "name": plan.join.name,
                "text": plan.join.text,
                "maintenance": plan.join.maintenance,
                "warnings": plan.join.warnings,
            }
            for plan in self._catalogue.plans.values()
        ]

    def _uncompute(self, views: list[View], plans: list[Plan]) -> None:
        """Forget what these views computed, and what was computed where these plans write."""
        for view in views:
            for status in view.statuses:
                self._maintenance.drop(status)
        for plan in plans:
            table = self._store.table(plan.join.table)
            self._maintenance.drop_dependents(table, plan.output_keys)

    def _mark(self, table: Table) -> None:
        """Note whether reads of a table may go straight to its rows."""
        views, pulls = self._catalogue.views, self._catalogue.pulls
        remote = self._residency.is_remote(table.keys)
        table.plain = not (views.get(table.name) or pulls.get(table.name) or remote)
        for subtable in table:
            subtable.hint = None
        for view in views.get(table.name, ()):
            for status in view.statuses:
                status.disturb()

    # Watching.

    def watch(self, first: str, last: str, wake: Callable[[Watch], object] = id) -> Watch:
        """Watch a range; `wake` is called when it may have changed, and `changes()` tells how.

        The rows as they are now are in `rows`. `wake` is called in the middle of a change, so it
        must not use the cache: let it note that there is something to look at.
        """
        return Watch(checked_range(first, last), wake, self._read_watched, self._store.watches)

    def _read_watched(self, watch: Watch) -> list[Pair]:
        self._begin()
        pairs = self._reading.watched(watch)
        self._limit_memory()
        return pairs

    # Residency.

    def declare_remote(self, keys: tuple[str, str]) -> None:
        """From now on these base keys live elsewhere and are missing until they are loaded."""
        keys = checked_keys(keys)
        if not keys:
            return
        for gap in self._residency.remote.gaps(keys):
            found = [
                key
                for key, _ in self._store.scan(gap)
                if self._catalogue.is_base(key, self._store.tables[table_of(key)])
            ]
            if found:
                raise BadRequest(
                    f"{len(found)} base rows, {found[0]!r} for one, exist only here and would be "
                    "lost; declare a range remote before it is filled, or remove them"
                )
            for table in self._store.tables_overlapping(gap):
                self._maintenance.drop_dependents(table, gap)
        self._residency.declare_remote(keys)
        for table in self._store.tables_overlapping(keys):
            self._mark(table)
        self._store.wake(EVERYTHING)

    def freshen(self, keys: tuple[str, str]) -> list[KeyRange]:
        """Make a range ready to read; gives the base ranges that must be loaded first."""
        keys = checked_keys(keys)
        self._begin()
        return self._reading.freshen(keys)

    def loading(self, keys: tuple[str, str]) -> Loading:
        """Open a load of a remote range; see `Loading`."""
        loading = Loading(checked_keys(keys), self._close_loading)
        self._residency.loadings.add(loading)
        return loading

    def _close_loading(self, loading: Loading, succeeded: bool) -> None:
        is_open = loading in self._residency.loadings
        self._residency.loadings.discard(loading)
        if not (succeeded and is_open):
            return
        loading.pairs = checked_pairs(loading.pairs)
        keys, values = loading.rows()
        self._check_none_computed(keys)
        self._tick += 1
        for gap in self._residency.missing(loading.keys):
            start = bisect_left(keys, gap.first)
            end = bisect_left(keys, gap.last, start)
            self._store.splice(keys[start:end], values[start:end])
            self._residency.arrive(ResidentRange(gap, self._tick + UNREAD_GRACE))
        self._limit_memory()

    def _check_none_computed(self, keys: list[str]) -> None:
        """`check_not_computed` for keys in order; where no join writes, it costs nothing."""
        start = 0
        while start < len(keys):
            name = table_of(keys[start])
            end = bisect_left(keys, prefix(name + BAR).last, start) if name else start + 1
            if name in self._catalogue.views or name in self._catalogue.pulls:
                for key in keys[start:end]:
                    self.check_not_computed(key)
            start = end

    def evict(self, keys: tuple[str, str]) -> None:
        """Take computed and remote data of a range out of memory; it comes back when read."""
        keys = checked_keys(keys)
        self._eviction.evict(keys)

    def invalidate(self, keys: tuple[str, str]) -> None:
        """What is here of a remote range is wrong, and so is what is on its way: load it anew."""
        keys = checked_keys(keys)
        for loading in list(self._residency.loadings):
            if loading.keys.overlaps(keys):
                self._residency.loadings.discard(loading)
        self._eviction.invalidate(keys)

    def when_forgotten(self, forgotten: Callable[[KeyRange], object]) -> None:
        """Have a function called with each remote range that leaves memory.

        It is called in the middle of a change, so it must not use the cache.
        """
        self._eviction.forgotten = forgotten

    @property
    def is_over_limit(self) -> bool:
        """True if what is here takes more memory than it may."""
        return self._memory_limit is not None and self._store.account.bytes > self._memory_limit

    def _limit_memory(self) -> None:
        if self._memory_limit is not None and self._store.account.bytes > self._memory_limit:
            self._eviction.make_room(self._memory_limit, self._tick)

    # Introspection.

    def explain(self, first: str, last: str) -> dict[str, Any]:
        """Which joins make up a range, from which sources, fresh or not, and at what cost."""
        keys = checked_range(first, last)
        return explain(self._store, self._catalogue, self._residency, keys, self._clock())

    def stats(self) -> dict[str, Any]:
        """Counts and bytes, in all, per table and per join."""
        found = statistics(self._store, self._catalogue, self._residency)
        return {"memory_limit": self._memory_limit, **found}

    def _check(self) -> None:
        """Verify every structure; tests call it after each step."""
        self._store._check()
        self._residency._check()
        check_account(self._store, self._catalogue, self._residency)
