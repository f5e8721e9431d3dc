"""The same loops for an application: many simulated users, each awaiting its own calls."""

import asyncio
from collections.abc import Iterator, Sequence
from time import perf_counter, process_time
from typing import Any

from loadgen.replay.loop import MAX_OPEN, Stint
from loadgen.systems.application import Application
from loadgen.twip_world import Operation
from pequod.pipeline.trace import POST, SUBSCRIBE


class Callers:
    """Replays operations on an application, and keeps readings if asked to."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._read_rows = 0
        self.answers: dict[int, Any] | None = None

    async def closed_loop(self, operations: Sequence[Operation], window: int) -> Stint:
        """As fast as it goes, by `window` users at once, each with one operation at a time."""
        stint, cpu, rows = self._begin(len(operations))
        rest = iter(enumerate(operations))
        await asyncio.gather(*(self._caller(rest, stint.latencies) for _ in range(window)))
        return self._end(stint, cpu, rows)

    async def _caller(self, rest: Iterator[tuple[int, Operation]], latencies: list[float]) -> None:
        for number, operation in rest:
            begun = perf_counter()
            await self._do(number, operation)
            latencies[number] = perf_counter() - begun

    async def open_loop(self, operations: Sequence[Operation], rate: float) -> Stint:
        """`rate` operations a second, each timed from the moment it should have begun."""
        stint, cpu, rows = self._begin(len(operations))
        running: set[asyncio.Task[None]] = set()

        async def one(number: int, operation: Operation) -> None:
            await self._do(number, operation)
            stint.latencies[number] = perf_counter() - (stint.started + number / rate)

        async with asyncio.TaskGroup() as group:  # one that fails ends them all
            for number, operation in enumerate(operations):
                wait = stint.started + number / rate - perf_counter()
                if wait > 0 or number % 64 == 0:
                    await asyncio.sleep(max(0.0, wait))
                if len(running) > MAX_OPEN:
                    raise SystemExit(
                        f"{MAX_OPEN} operations are outstanding: {rate:,.0f}/s is too much"
                    )
                task = group.create_task(one(number, operation))
                running.add(task)
                task.add_done_callback(running.discard)
        return self._end(stint, cpu, rows)

    async def _do(self, number: int, operation: Operation) -> None:
        kind, user, time, argument = operation
        if kind == POST:
            await self._application.post(user, time, argument)
        elif kind == SUBSCRIBE:
            await self._application.subscribe(user, argument)
        else:
            reading = await self._application.read(user, argument)
            self._read_rows += len(reading)
            if self.answers is not None:
                self.answers[number] = self._application.rows(reading)

    def _begin(self, total: int) -> tuple[Stint, float, int]:
        stint = Stint(perf_counter(), latencies=[0.0] * total)
        return stint, process_time(), self._read_rows

    def _end(self, stint: Stint, cpu: float, rows: int) -> Stint:
        stint.ended = perf_counter()
        stint.cpu_seconds = process_time() - cpu
        stint.rows = self._read_rows - rows
        return stint
