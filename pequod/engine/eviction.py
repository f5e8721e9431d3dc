"""Making room: the least recently used computed and remote ranges go first.

Whatever a recently read range was computed from counts as recently used too: taking it would
take the reader along. What exists only here is never a candidate.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heapreplace

from pequod.engine.catalogue import Catalogue
from pequod.engine.maintenance import Maintenance
from pequod.engine.residency import Residency, ResidentRange
from pequod.engine.status import StatusRange
from pequod.engine.store import Store
from pequod.keys import KeyRange

Candidate = StatusRange | ResidentRange


class Eviction:
    """Takes out of memory what can come back."""

    def __init__(
        self, store: Store, catalogue: Catalogue, residency: Residency, maintenance: Maintenance
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._residency = residency
        self._maintenance = maintenance
        # Looking at all candidates takes long, so it is done once for many that go.
        self._queue: list[tuple[int, int, Candidate]] = []
        self.forgotten: Callable[[KeyRange], object] = id  # told of remote ranges that go
        self._queued_at = -1  # whatever is not in the queue was used then or later

    def evict(self, keys: KeyRange) -> None:
        """Take out all computed and remote data of a range."""
        for table in self._store.tables_overlapping(keys):
            for view in self._catalogue.views.get(table.name, ()):
                for status in view.statuses.overlapping(keys):
                    self._evict_status(status)
        self._evict_resident(keys)

    def invalidate(self, keys: KeyRange) -> None:
        """Take out the remote data of a range, and what was computed from it."""
        self._evict_resident(keys)

    def make_room(self, limit: int, now: int) -> None:
        """Get under a limit of bytes, but for what is read right now."""
        while self._store.account.bytes > limit:
            one = self._least_recently_used(now)
            if one is None:
                return
            if isinstance(one, StatusRange):
                self._evict_status(one)
            else:
                self._evict_resident(one.keys)

    def _least_recently_used(self, now: int) -> Candidate | None:
        """Takes it from the queue; None if there is nothing but what is read right now."""
        queue = self._queue
        while True:
            if not queue or queue[0][0] >= self._queued_at:
                if self._queued_at == now:
                    return None
                self._line_up(now)
                continue
            used, number, one = queue[0]
            if self._is_gone(one):
                heappop(queue)
                continue
            latest = self._last_used(one, now)
            if latest <= used:
                heappop(queue)
                return one
            heapreplace(queue, (latest, number, one))

    def _line_up(self, now: int) -> None:
        candidates: list[Candidate] = list(self._residency.resident)
        for views in self._catalogue.views.values():
            candidates.extend(status for view in views for status in view.statuses)
        self._queue[:] = [(_last_used(one), number, one) for number, one in enumerate(candidates)]
        heapify(self._queue)
        self._queued_at = now

    def _is_gone(self, one: Candidate) -> bool:
        if isinstance(one, StatusRange):
            return one.dropped
        return self._residency.resident.starting_at(one.first) is not one

    def _last_used(self, one: Candidate, now: int) -> int:
        """When a range, or anything computed from it, was last read; a watch always reads."""
        if isinstance(one, StatusRange):
            if one.watches is not None:
                return now
        elif any(watch.overlaps(one.keys) for watch in self._store.watches):
            return now
        latest = _last_used(one)
        for reader in self._readers(one):
            if latest < now:
                latest = max(latest, self._last_used(reader, now))
        return latest

    def _readers(self, one: Candidate) -> list[StatusRange]:
        """What was computed from a range."""
        if isinstance(one, StatusRange):
            return one.view.table.updaters.statuses(one.keys, one.view)
        return [
            status
            for table in self._store.tables_overlapping(one.keys)
            for status in table.updaters.statuses(one.keys)
        ]

    def _evict_status(self, status: StatusRange) -> None:
        if not status.dropped:
            status.view.table.evictions += 1
            self._maintenance.drop(status, evicted=True)

    def _evict_resident(self, keys: KeyRange) -> None:
        """Make remote keys missing again, and forget all that was computed from them."""
        for gone in self._residency.leave(keys):
            self.forgotten(gone)
            self._store.wake(gone)
            for table in self._store.tables_overlapping(gone):
                table.evictions += 1
                self._maintenance.drop_dependents(table, gone)
                for span, _ in list(table.spans(gone)):
                    for key in span:
                        if self._catalogue.is_base(key, table):
                            self._store.remove(table, key)


def _last_used(one: Candidate) -> int:
    return one.last_used if isinstance(one, StatusRange) else one.used
