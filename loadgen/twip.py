"""Figure 7: Twip on Pequod and on its rivals, the same operations on each, side by side.

All servers are started and filled first. Then they take turns, a part of the trace each, so that
a slow minute of the machine is slow for everybody; servers share one core and clients the other,
and whoever is not at work takes no time. At the end a sample of timelines is read from every
system and compared with what the files say they must be.
"""

import random
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from loadgen.progress import Bar
from loadgen.replay.clients import (
    LIBRARIES,
    WINDOW,
    Clients,
    Turn,
    digest,
    percentile,
    spread,
)
from loadgen.report import Findings, Ratio, progress
from loadgen.servers import ServerProcess
from loadgen.systems.base import Missing, System
from loadgen.systems.redis_system import Redis
from loadgen.twip_world import TwipWorld

SAMPLE = 2000  # timelines that are compared
PAPER = {"redis": 1.33, "client-pequod": 1.64, "memcached": 3.98, "postgres": 9.55}
LEAST = {"redis": 1.5, "client-pequod": 1.64, "memcached": 3.0, "postgres": 10.0}


@dataclass(frozen=True)
class Race:
    """How the systems are driven."""

    systems: Sequence[System]
    driver: str = LIBRARIES
    parts: int = 5
    window: int = WINDOW
    rate: float | None = None  # operations a second of all clients together; None: a closed loop


@dataclass
class Runner:
    """A system that runs, its clients, and what was measured of it so far."""

    system: System
    server: ServerProcess
    clients: Clients
    turns: list[Turn] = field(default_factory=list)
    memory_bytes: int = 0
    full_memory_bytes: int = 0

    def take_turn(self, part: int, race: Race, clients: int) -> None:
        rate = race.rate / clients if race.rate else None
        before = self.server.cpu_seconds()
        stints = self.clients.order("replay", part, race.parts, race.window, rate)
        self.turns.append(Turn.of(stints, self.server.cpu_seconds() - before))

    @property
    def seconds(self) -> float:
        return sum(turn.seconds for turn in self.turns)

    @property
    def operations(self) -> int:
        return sum(turn.operations for turn in self.turns)

    @property
    def server_cpu(self) -> float:
        """Seconds per operation."""
        return sum(turn.server_cpu_seconds for turn in self.turns) / self.operations

    def result(self, ours: "Runner") -> dict[str, object]:
        """A line for the report's `results`."""
        latencies = [one for turn in self.turns for one in turn.latencies]
        client_cpu = sum(turn.client_cpu_seconds for turn in self.turns) / self.operations
        return {
            "system": self.system.name,
            "version": self.system.version(),
            "runtime_seconds": self.seconds,
            "runtime_ratio": self.seconds / ours.seconds,
            "paper_ratio": PAPER.get(self.system.name, 1.0 if self is ours else None),
            "operations": self.operations,
            "operations_per_second": self.operations / self.seconds,
            "server_cpu_microseconds": self.server_cpu * 1e6,
            "client_cpu_microseconds": client_cpu * 1e6,
            "p50_milliseconds": percentile(latencies, 50) * 1e3,
            "p99_milliseconds": percentile(latencies, 99) * 1e3,
            "server_memory_bytes": self.memory_bytes,
            "server_memory_all_timelines_bytes": self.full_memory_bytes,
            "rows_read": sum(turn.rows for turn in self.turns),
            "turn_seconds": [turn.seconds for turn in self.turns],
        }


def measure_twip(race: Race, world: TwipWorld, seed: int = 1) -> Findings:
    """Run the trace on all systems that are installed; a wrong answer ends it."""
    with ExitStack() as stack:
        runners = []
        for system in race.systems:
            runner = start(system, world, race.driver, stack)
            if runner is not None:
                runners.append(runner)
        clients = world.clients
        for part in Bar(race.parts, "turns of all systems"):
            # There and back, so that no system always comes after the same other.
            for runner in runners[:: 1 if part % 2 == 0 else -1]:
                runner.take_turn(part, race, clients)
        progress("reading all timelines, for the memory that they take, and comparing a sample")
        for runner in runners:
            runner.memory_bytes = runner.server.memory_bytes()
            runner.clients.order("warm", True)
            runner.full_memory_bytes = runner.server.memory_bytes()
        compared = compare_answers(runners, world, seed)
        findings = findings_of(runners, compared)
    findings.facts |= {
        "users": world.users,
        "operations": world.counts,
        "driver": race.driver,
        "clients": clients,
        "outstanding": race.window * clients if race.rate is None else None,
        "rate": race.rate,
    }
    return findings


def start(system: System, world: TwipWorld, driver: str, stack: ExitStack) -> Runner | None:
    """A server with the world in it and its clients warm, or None if it is not installed."""
    try:
        server = stack.enter_context(system.start())
    except Missing as missing:
        progress(f"without {system.name}: {missing}")
        return None
    progress(f"{system.name}: filling")
    system.fill(server, world)
    clients = stack.enter_context(Clients(system, server, world, driver))
    progress(f"{system.name}: warming up")
    clients.order("warm", False)
    return Runner(system, server, clients)


def compare_answers(runners: Sequence[Runner], world: TwipWorld, seed: int) -> int:
    """Compare timelines of all systems with the files; gives how many, or ends the run."""
    sample = random.Random(seed).sample(range(world.users), min(SAMPLE, world.users))
    expected = {user: digest(rows) for user, rows in world.expected_timelines(sample).items()}
    for runner in runners:
        found: dict[int, str] = {}
        for answer in runner.clients.order("digests", sample):
            found |= answer
        wrong = [user for user in sample if found.get(user) != expected[user]]
        if wrong:
            user = wrong[0]
            raise SystemExit(
                f"{runner.system.name} gives wrong answers: {len(wrong)} of {len(sample)} "
                f"timelines differ, that of user {user} for one (rows and hash {found.get(user)}, "
                f"should be {expected[user]})"
            )
    return len(sample)


def findings_of(runners: Sequence[Runner], compared: int) -> Findings:
    ours = runners[0]
    findings = Findings(results=[runner.result(ours) for runner in runners])
    findings.facts = {
        "timelines_compared": compared,
        "tuning": {runner.system.name: runner.system.tuning for runner in runners},
        "versions": {runner.system.name: runner.system.version() for runner in runners},
    }
    for runner in runners[1:]:
        name = runner.system.name
        turns = [[turn.seconds for turn in one.turns] for one in (ours, runner)]
        basis = f"runtime {runner.seconds:.1f} s, Pequod {ours.seconds:.1f} s"
        findings.ratios.append(
            Ratio(
                name.replace("-", "_"),
                runner.seconds / ours.seconds,
                LEAST.get(name, 1.0),
                basis,
                at_least=True,
                spread=spread(*turns),
            )
        )
        if isinstance(runner.system, Redis):
            findings.ratios += _against_redis(ours, runner)
    return findings


def _against_redis(ours: Runner, redis: Runner) -> list[Ratio]:
    turns = [[turn.server_cpu_seconds for turn in one.turns] for one in (redis, ours)]
    name = redis.system.name.replace("-", "_")
    return [
        Ratio(
            f"server_cpu_vs_{name}",
            ours.server_cpu / redis.server_cpu,
            1.2,
            f"{ours.server_cpu * 1e6:.1f} us of server CPU an operation, "
            f"Redis {redis.server_cpu * 1e6:.1f}",
            spread=spread(*turns),
        ),
        Ratio(
            f"server_memory_vs_{name}",
            ours.full_memory_bytes / redis.full_memory_bytes,
            1.5,
            f"{ours.full_memory_bytes / 1e6:.0f} MB with all timelines, "
            f"Redis {redis.full_memory_bytes / 1e6:.0f}",
        ),
    ]


def systems_table(findings: Findings) -> str:
    """One row per system, and a verdict."""
    head = ("system", "runtime", "ratio", "ops/s", "server", "client", "p50", "p99", "memory")
    units = ("", "s", "", "", "us/op", "us/op", "ms", "ms", "MB")
    lines = [head, units]
    for result in findings.results:
        lines.append(
            (
                str(result["system"]),
                f"{result['runtime_seconds']:.2f}",
                f"{result['runtime_ratio']:.2f}",
                f"{result['operations_per_second']:,.0f}",
                f"{result['server_cpu_microseconds']:.1f}",
                f"{result['client_cpu_microseconds']:.1f}",
                f"{result['p50_milliseconds']:.2f}",
                f"{result['p99_milliseconds']:.2f}",
                f"{result['server_memory_bytes'] / 1e6:.0f}",  # type: ignore[operator]
            )
        )
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    text = "\n".join(
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in lines
    )
    return f"{text}\n\n{verdict(findings)}"


def verdict(findings: Findings) -> str:
    """Who is faster than whom, in one line."""
    rivals = [result for result in findings.results if result["system"] != "pequod"]
    same = f"all gave the same answers on {findings.facts['timelines_compared']} timelines"
    if not rivals:
        return f"Only Pequod ran; {same}."
    said = ", ".join(f"{one['system']} {one['runtime_ratio']:.2f}" for one in rivals)
    return f"Runtimes as multiples of Pequod's: {said}; {same}."
