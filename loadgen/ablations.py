"""The optimizations of section 4, each taken out: subtables, output hints, value sharing.

The trace of Twip runs inside one process, as the paper's factor analysis did, once with everything
and once without each. Subtables are a setting of the cache. The others are no settings, so this
module reaches into the engine and puts a simpler method in the place of the clever one:

- without output hints, every row of a timeline is searched for its place, not appended at the end;
- without value sharing, every row of a timeline has a copy of its text.
"""

import random
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

from loadgen.process import in_fresh_process, resident_bytes
from loadgen.progress import Bar
from loadgen.replay.clients import digest
from loadgen.report import Findings, Ratio, progress
from loadgen.systems.pequod_system import FOLLOWS, TIMELINE
from loadgen.timing import freeze
from loadgen.twip_world import Load, TwipWorld
from pequod import Cache
from pequod.pipeline.trace import CHECK, LOGIN, POST, SUBSCRIBE

NOTHING, SUBTABLES, HINTS, SHARING = "nothing", "subtables", "output hints", "value sharing"
WITHOUT = (NOTHING, SUBTABLES, HINTS, SHARING)
PAPER = {SUBTABLES: (1.55, 1 / 1.17), HINTS: (1.11, 1.0), SHARING: (1.0, 1.14)}  # time, memory
SAMPLE = 1000


@dataclass(frozen=True)
class Measured:
    """One run without one of them."""

    without: str
    microseconds: float  # of CPU, per operation
    growth_bytes: int
    digests: dict[int, str]


def measure_ablations(load: Load, rounds: int) -> Findings:
    """CPU per operation and memory, with everything and without each."""
    findings = Findings(facts={"users": load.users, "checks_per_user": load.checks_per_user})
    runs: dict[str, list[Measured]] = {without: [] for without in WITHOUT}
    with TemporaryDirectory() as directory:
        world = TwipWorld.write(load, Path(directory))
        for at in Bar(rounds * len(WITHOUT), "runs, each without something"):
            without = WITHOUT[at % len(WITHOUT)]
            measured = in_fresh_process(run, world, without)
            runs[without].append(measured)
            if measured.digests != runs[NOTHING][0].digests:
                raise SystemExit(f"without {without} some timelines are different")
    progress(f"all gave the same answers on {len(runs[NOTHING][0].digests)} timelines")
    whole = _medians(runs[NOTHING])
    for without in WITHOUT:
        microseconds, growth = _medians(runs[without])
        findings.results.append(
            {
                "without": without,
                "microseconds": microseconds,
                "growth_bytes": growth,
                "time_ratio": microseconds / whole[0],
                "memory_ratio": growth / whole[1],
                "paper_time_ratio": PAPER.get(without, (1.0, 1.0))[0],
                "paper_memory_ratio": PAPER.get(without, (1.0, 1.0))[1],
            }
        )
        if without is NOTHING:
            continue
        name = without.replace(" ", "_")
        spread = [a.microseconds / b.microseconds for a, b in zip(runs[without], runs[NOTHING])]
        basis = f"{microseconds:.1f} us per operation without {without}, {whole[0]:.1f} with"
        value = microseconds / whole[0]
        findings.ratios.append(
            Ratio(f"without_{name}_time", value, 0.9, basis, True, (min(spread), max(spread)))
        )
        basis = f"{growth / 1e6:.0f} MB without {without}, {whole[1] / 1e6:.0f} with"
        findings.ratios.append(Ratio(f"without_{name}_memory", growth / whole[1], 0.8, basis, True))
    return findings


def _medians(runs: Sequence[Measured]) -> tuple[float, float]:
    return median(run.microseconds for run in runs), median(run.growth_bytes for run in runs)


def run(world: TwipWorld, without: str) -> Measured:
    """Replay the trace on a cache in this process, which is a fresh one."""
    operations = sorted(
        (one for client in range(world.clients) for one in world.operations(client)),
        key=lambda operation: operation[2],
    )
    calls = [_call(*operation) for operation in operations]
    rows = [pair for pairs in world.pairs() for pair in pairs]
    before = resident_bytes()
    cache = Cache(subtables={"t": 1, "p": 1, "s": 1} if without == SUBTABLES else None)
    cache.add_join(TIMELINE)
    cache.put_many([(key[:], _own(value)) for key, value in rows])
    if without in (HINTS, SHARING):
        _take_out(cache, without)
    for user in {user for kind, user, _, _ in operations if kind in (LOGIN, CHECK)}:
        cache.scan(f"t|u{user:07}|", f"t|u{user:07}}}")
    freeze()
    begun = process_time()
    for is_scan, first, second in calls:
        if is_scan:
            cache.scan(first, second)
        else:
            cache.put(first, second)
    microseconds = (process_time() - begun) / len(calls) * 1e6
    growth = resident_bytes() - before
    sample = random.Random(1).sample(range(world.users), min(SAMPLE, world.users))
    return Measured(without, microseconds, growth, {user: _digest(cache, user) for user in sample})


def _call(kind: int, user: int, time: int, argument: Any) -> tuple[bool, str, str]:
    if kind == POST:
        return False, f"p|u{user:07}|{time:010}", argument
    if kind == SUBSCRIBE:
        return False, f"s|u{user:07}|u{argument:07}", FOLLOWS
    return True, f"t|u{user:07}|{argument:010}", f"t|u{user:07}}}"


def _own(text: str) -> str:
    """A copy; single characters have none."""
    return (text + " ")[:-1]


def _digest(cache: Cache, user: int) -> str:
    rows = cache.scan(f"t|u{user:07}|", f"t|u{user:07}}}")
    return digest([(int(key[11:21]), int(key[23:]), str(text)) for key, text in rows])


def _take_out(cache: Cache, part: str) -> None:
    """Put a simpler method in the place of a clever one, for all rows of this process."""
    kind: Any = type(cache._store.table("t").main.rows)
    put, splice = kind.put, kind.splice

    def searching_put(self: Any, key: str, value: Any) -> Any:
        place = bisect_left(self.keys, key)
        if place < len(self.keys) and self.keys[place] == key:
            old, self.values[place] = self.values[place], value
            return old
        if place == len(self.keys) and not self.keys:
            return put(self, key, value)
        self.keys.insert(place, key)
        self.values.insert(place, value)
        return None

    def copying_put(self: Any, key: str, value: Any) -> Any:
        return put(self, key, _own(value) if key.startswith("t|") else value)

    def copying_splice(self: Any, keys: list[str], values: list[Any]) -> None:
        splice(self, keys, [_own(value) for value in values])

    if part == HINTS:
        kind.put = searching_put
    else:
        kind.put, kind.splice = copying_put, copying_splice


def ablations_table(findings: Findings) -> str:
    """A row for each thing that is missing."""
    lines = [
        f"{'without':14} {'us/op':>7} {'ratio':>6} {'paper':>6} {'MB':>7} {'ratio':>6} {'paper':>6}"
    ]
    for result in findings.results:
        lines.append(
            f"{result['without']:14} {result['microseconds']:>7.2f} {result['time_ratio']:>6.2f} "
            f"{result['paper_time_ratio']:>6.2f} {result['growth_bytes'] / 1e6:>7.0f} "  # type: ignore[operator]
            f"{result['memory_ratio']:>6.2f} {result['paper_memory_ratio']:>6.2f}"
        )
    return "\n".join(lines)
