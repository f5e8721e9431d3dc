"""Python's garbage collector, set so that a large cache is not stopped by it.

A full collection looks at every object of the cache, a second for millions of rows. The engine
drops what it holds without leaving cycles, so only young objects need looking at: those that
live on are frozen, out of the collector's sight, before they are many.
"""

import asyncio
import gc
import time
from typing import Any

YOUNG = 2_000  # objects, before the youngest are looked at
OLDER = 10  # such looks, before those that outlived one are looked at again
NEVER = 1_000_000_000
FEW = 2  # batches of objects that are quickly looked at before they are frozen
TICK_SECONDS = 0.5

# The collector is one for the process, which may run several servers.
_running: set["Collector"] = set()
_before: list[int] = []


class Collector:
    """Keeps the pauses of the garbage collector short, and measures them."""

    def __init__(self) -> None:
        self.collections = 0
        self.longest_seconds = 0.0
        self._began = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if not _running:
            _before[:] = gc.get_threshold()
            gc.set_threshold(YOUNG, OLDER, NEVER)
        _running.add(self)
        gc.collect()
        gc.freeze()
        gc.callbacks.append(self._measure)
        self._tick()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        gc.callbacks.remove(self._measure)
        _running.discard(self)
        if not _running:
            gc.set_threshold(*_before)
            gc.unfreeze()

    def stats(self) -> dict[str, Any]:
        return {
            "gc_collections_total": self.collections,
            "gc_pause_seconds_max": self.longest_seconds,
        }

    def _tick(self) -> None:
        batches = gc.get_count()[2]
        if batches:
            if batches <= FEW:
                gc.collect()
            gc.freeze()
        self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    def _measure(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
            return
        self.collections += 1
        self.longest_seconds = max(self.longest_seconds, time.perf_counter() - self._began)
