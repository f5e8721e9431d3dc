"""Making room: the least recently used computed and remote ranges go first.

Whatever a recently read range was computed from counts as recently used too: taking it would
take the reader along. What exists only here is never a candidate.
"""

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heapreplace

from pequod.engine.residency import ResidentRange
from pequod.engine.status import StatusRange
from pequod.keys import KeyRange

Candidate = StatusRange | ResidentRange

SLACK = 0.95  # of the limit: making room a little at a time would look at everything each time


def make_room(
    candidates: Iterable[Candidate],
    dependents: Callable[[KeyRange], list[StatusRange]],
    now: int,
    is_enough: Callable[[], bool],
    evict: Callable[[Candidate], None],
) -> int:
    """Evict until it is enough or nothing is left but what is read right now; how many went."""
    heap = [(_last_used(one), number, one) for number, one in enumerate(candidates)]
    heapify(heap)
    evicted = 0
    while heap and not is_enough():
        used, number, one = heap[0]
        if isinstance(one, StatusRange) and one.dropped:
            heappop(heap)
            continue
        latest = max((_last_used(reader) for reader in dependents(one.keys)), default=used)
        if latest > used:
            heapreplace(heap, (latest, number, one))
            continue
        if used >= now:
            break
        heappop(heap)
        evict(one)
        evicted += 1
    return evicted


def _last_used(one: Candidate) -> int:
    return one.last_used if isinstance(one, StatusRange) else one.used
