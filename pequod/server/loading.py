"""Calls that cannot be answered at once: the engine decides what it lacks, the server awaits it.

A call that meets missing data leaves the path of the others. All ranges that it lacks are fetched
together, each range once however many wait for it, and then the call is made again: what was
computed stays computed, so it comes further each time. A change that arrives while a range is on
its way outranks what is fetched, for the loading is open from before the source is asked.

A `Source` is where the data comes from: a database, or other servers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, Protocol, TypeVar

from pequod.engine.cache import Cache
from pequod.engine.rangemap import RangeMap
from pequod.errors import MissingData, SourceDown
from pequod.keys import KeyRange, Pair, Value

Result = TypeVar("Result")

MAX_ROUNDS = 12  # of fetches for a call; a chain of joins needs one for each of its sources


class Source(Protocol):
    """Where base data lives.

    Whatever happens to rows after they were loaded must reach the cache (`put`, `remove`,
    `remove_range`, `invalidate`), and must do so in the order in which it happened there. A change
    that a load does not have may not reach the cache before that load was asked for.
    """

    async def load(self, keys: Sequence[KeyRange]) -> Sequence[Iterable[Pair]]:
        """The rows of each of the ranges."""
        ...

    def takes(self, keys: KeyRange) -> bool:
        """True if writes to some of these keys go to the source first; raises if it refuses."""
        ...

    async def write(self, changes: Sequence[tuple[str, Value | None]]) -> tuple[str, int]:
        """Write rows, or remove those with None, all or none; the cache has them afterwards.

        Gives a token for later reads, and how many rows were removed.
        """
        ...

    def has(self, token: str) -> bool:
        """True if the cache has all up to the write that gave this token."""
        ...

    async def reach(self, token: str) -> None:
        """Wait until it has."""
        ...


class Later(Exception):
    """What a call raises that takes time: wait, and then either that is its result, or try again.

    Not one of our errors, so that nobody takes it for one. What is `patient` may take any time.
    """

    def __init__(
        self, wait: Callable[[], Awaitable[Any]], *, again: bool = False, patient: bool = False
    ) -> None:
        super().__init__("this call takes time")
        self.wait = wait
        self.again = again
        self.patient = patient


class _Fetch:
    """A range that is on its way."""

    __slots__ = ("done", "first", "last")

    def __init__(self, keys: KeyRange, done: "asyncio.Future[None]") -> None:
        self.first, self.last = keys
        self.done = done


class Loader:
    """Finishes the calls that must wait."""

    def __init__(
        self, cache: Cache, source: Source | None, *, seconds: float = 10.0, at_once: int = 4
    ) -> None:
        """A call waits for at most so many seconds; the source is asked so many things at once."""
        self._cache = cache
        self._source = source
        self._seconds = seconds
        self._turns = asyncio.Semaphore(at_once)
        self._fetches: RangeMap[_Fetch] = RangeMap()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.calls = 0  # that had to wait for data
        self.loads = 0
        self.ranges = 0
        self.rows = 0

    @property
    def has_source(self) -> bool:
        """True if some data comes from elsewhere, so that writes give tokens."""
        return self._source is not None

    # Calls.

    async def finish(self, call: Callable[[], Result], reason: MissingData | Later) -> Result:
        """The result of a call that could not be answered at once, for this reason."""
        began = self.ranges
        is_patient = isinstance(reason, Later) and reason.patient
        try:
            async with asyncio.timeout(None if is_patient else self._seconds):
                return await self._finish(call, reason)
        except TimeoutError as error:
            raise SourceDown(
                f"the data behind the cache did not come in {self._seconds:g} seconds; "
                f"{self.ranges - began} ranges were fetched meanwhile, try again"
            ) from error

    async def _finish(self, call: Callable[[], Result], reason: MissingData | Later) -> Result:
        if isinstance(reason, MissingData):
            self.calls += 1
        fetched: list[KeyRange] = []
        for _ in range(MAX_ROUNDS):
            if isinstance(reason, MissingData):
                missing = [KeyRange(*keys) for keys in reason.missing]
                fetched += missing
                await self.fetch(missing)
            else:
                result: Result = await reason.wait()
                if not reason.again:
                    return result
            try:
                result = call()
            except (MissingData, Later) as again:
                reason = again
                continue
            if self._cache.is_over_limit:  # what does not fit is served, and not kept
                for keys in fetched:
                    self._cache.evict(keys)
            return result
        raise SourceDown(f"data went faster than it came, {MAX_ROUNDS} times over; try again")

    def start(self, work: Awaitable[Any]) -> None:
        """Run something beside everything else, and keep it until it ends."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Data.

    async def fetch(self, missing: Sequence[KeyRange]) -> None:
        """Load ranges that are missing; what is on its way already is only waited for."""
        if self._source is None:
            raise MissingData(missing)
        loop = asyncio.get_running_loop()
        waiting: dict[asyncio.Future[None], None] = {}
        new: list[KeyRange] = []
        disjoint = _disjoint(missing)
        if len(self._fetches) == 0:
            new = disjoint
        else:
            for keys in disjoint:
                waiting.update((fetch.done, None) for fetch in self._fetches.overlapping(keys))
                new += self._fetches.gaps(keys)
        if new:
            done = loop.create_future()
            done.add_done_callback(_note)
            fetches = [_Fetch(keys, done) for keys in new]
            for fetch in fetches:
                self._fetches.add(fetch)
            waiting[done] = None
            # A task of its own: others wait for it too, whatever becomes of this call.
            self.start(self._fetch(self._source, fetches, done))
        # Whoever joined a fetch learns of its failure, too: the data is the same.
        await asyncio.gather(*map(asyncio.shield, waiting))

    async def _fetch(
        self, source: Source, fetches: list[_Fetch], done: "asyncio.Future[None]"
    ) -> None:
        try:
            async with self._turns:
                await self._load(source, [KeyRange(one.first, one.last) for one in fetches])
        except asyncio.CancelledError:
            done.set_exception(SourceDown("the server stops"))
            raise
        except Exception as error:  # noqa: BLE001 -- it is told to all who wait
            done.set_exception(error)
        else:
            done.set_result(None)
        finally:
            for fetch in fetches:
                self._fetches.remove(fetch)

    async def _load(self, source: Source, ranges: list[KeyRange]) -> None:
        with ExitStack() as stack:
            loadings = [stack.enter_context(self._cache.loading(keys)) for keys in ranges]
            self.loads += 1
            self.ranges += len(ranges)
            async with asyncio.timeout(self._seconds):
                found = await source.load(ranges)
            for loading, pairs in zip(loadings, found, strict=True):
                loading.pairs = pairs if isinstance(pairs, list) else list(pairs)
                self.rows += len(loading.pairs)

    def stats(self) -> dict[str, int]:
        return {
            "waited_calls": self.calls,
            "loads": self.loads,
            "loaded_ranges": self.ranges,
            "loaded_rows": self.rows,
        }


def _disjoint(ranges: Sequence[KeyRange]) -> list[KeyRange]:
    """The same keys in ranges that do not overlap, in order."""
    found: list[KeyRange] = []
    for keys in sorted(ranges):
        if found and keys.first < found[-1].last:
            keys = KeyRange(found[-1].first, max(found.pop().last, keys.last))
        found.append(keys)
    return found


def _note(future: "asyncio.Future[None]") -> None:
    """Take note of a failure that nobody waits for any more."""
    if not future.cancelled():
        future.exception()
