"""Fair timing on a noisy machine: rivals take turns, and the median of the turns counts.

A core that is slow for a second is then slow for everybody. The cyclic garbage collector is
off while a job is timed unless the trial is about it, and what was built before is frozen, for
all sides alike: a collection that falls into one side's turn would be charged to it alone.
"""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

from loadgen.bare import Pair

Call = Callable[[str, str], object]


def nothing(first: str) -> None:
    """The undo of a job that changes nothing."""


@dataclass(frozen=True)
class Trial:
    """One job of one side at one size: `call` is timed over `pairs()`.

    Afterwards `undo`, given the first of each pair, leaves the world as it was.
    `pairs` makes new strings for each round. A request that came over the network has no
    cached hashes either.
    """

    job: str
    side: str
    rows: int
    pairs: Callable[[], list[Pair]]
    call: Call
    undo: Callable[[str], object] = nothing
    collector: bool = False


@dataclass(frozen=True)
class Timing:
    """The time of one call of a trial, round by round."""

    trial: Trial
    seconds: list[float]

    @property
    def microseconds(self) -> float:
        return median(self.seconds) * 1e6

    def result(self) -> dict[str, object]:
        """A line for the report's `results`."""
        return {
            "job": self.trial.job,
            "side": self.trial.side,
            "rows": self.trial.rows,
            "collector": "on" if self.trial.collector else "off",
            "microseconds": self.microseconds,
            "best_microseconds": min(self.seconds) * 1e6,
            "rounds": len(self.seconds),
        }


def seconds_per_call(call: Call, pairs: Sequence[Pair]) -> float:
    """The mean time of `call(first, second)` over `pairs`.

    >>> seconds_per_call(str.startswith, [("t|ann|", "t|")]) > 0
    True
    """
    start = perf_counter()
    for first, second in pairs:
        call(first, second)
    return (perf_counter() - start) / len(pairs)


def freeze() -> None:
    """Turn the collector off and keep it away, later too, from all there is now."""
    gc.collect()
    gc.freeze()
    gc.disable()


def take_turns(trials: Sequence[Trial], rounds: int) -> list[Timing]:
    """Time every trial once a round, there and back."""
    samples: list[list[float]] = [[] for _ in trials]
    order = list(range(len(trials)))
    for _ in range(rounds):
        for index in order:
            samples[index].append(turn(trials[index]))
        order.reverse()
    return [Timing(trial, seconds) for trial, seconds in zip(trials, samples)]


def turn(trial: Trial) -> float:
    """Do the job of `trial` twice and give the time of the second.

    The first brings back what the other trials have pushed out of the processor's cache.
    """
    seconds = 0.0
    for _ in range(2):
        pairs = trial.pairs()
        if trial.collector:
            gc.enable()
        seconds = seconds_per_call(trial.call, pairs)
        gc.disable()
        for first, _ in pairs:
            trial.undo(first)
    return seconds
