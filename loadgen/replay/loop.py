"""The loop of a client: keep many operations outstanding, and take the time of each.

In a closed loop a new operation begins as soon as few enough are outstanding. In an open loop each
has a time at which it should begin, and its latency counts from there, whether or not the client
was ready: a server that stands still delays all that should have begun meanwhile, and it shows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import Any

from loadgen.systems.conversation import TIMEOUT_SECONDS, Conversation

MAX_OPEN = 50_000  # outstanding in an open loop; beyond it the rate is far too high


@dataclass
class Stint:
    """What a client measured while it replayed some operations."""

    started: float
    ended: float = 0.0
    cpu_seconds: float = 0.0
    rows: int = 0
    latencies: list[float] = field(default_factory=list)  # seconds, in the order of operations


def closed_loop(talk: Conversation, operations: Sequence[Any], window: int) -> Stint:
    """Replay as fast as it goes, at most `window` operations outstanding.

    New ones begin when half of them are answered, so that they leave together.
    """
    total = len(operations)
    rows, cpu = talk.rows, process_time()
    latencies = [0.0] * total
    begun = [0.0] * total
    talk.ended = ended = []
    done = number = 0
    stint = Stint(started=perf_counter())
    begin = talk.begin
    while done < total:
        if number - done <= window // 2 and number < total:
            now = perf_counter()
            last = min(total, done + window)
            begun[number:last] = [now] * (last - number)
            for one in range(number, last):
                begin(one, operations[one])
            number = last
            talk.flush()
        talk.wait(TIMEOUT_SECONDS)
        if ended:
            now = perf_counter()
            for one in ended:
                latencies[one] = now - begun[one]
            done += len(ended)
            ended.clear()
    stint.ended = perf_counter()
    stint.cpu_seconds = process_time() - cpu
    stint.rows = talk.rows - rows
    stint.latencies = latencies
    return stint


def open_loop(talk: Conversation, operations: Sequence[Any], rate: float) -> Stint:
    """Replay `rate` operations a second, evenly, whatever the server does."""
    total = len(operations)
    rows, cpu = talk.rows, process_time()
    latencies = [0.0] * total
    talk.ended = ended = []
    done = number = 0
    started = perf_counter()
    stint = Stint(started)
    while done < total:
        now = perf_counter()
        due = min(total, int((now - started) * rate) + 1)
        if due - done > MAX_OPEN:
            raise SystemExit(f"{MAX_OPEN} operations are outstanding: {rate:,.0f}/s is too much")
        for one in range(number, due):
            talk.begin(one, operations[one])
        number = max(number, due)
        talk.flush()
        if number < total:
            talk.wait(max(0.0, started + number / rate - perf_counter()))
        else:
            talk.wait(TIMEOUT_SECONDS)
        if ended:
            now = perf_counter()
            for one in ended:
                latencies[one] = now - (started + one / rate)
            done += len(ended)
            ended.clear()
    stint.ended = perf_counter()
    stint.cpu_seconds = process_time() - cpu
    stint.rows = talk.rows - rows
    stint.latencies = latencies
    return stint
