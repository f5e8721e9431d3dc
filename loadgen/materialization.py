"""Figure 8: no, dynamic and full materialization of timelines, over the share of active users.

As in the paper, there are only checks and posts; the number of posts is the same everywhere, every
active user checks equally often, and the check:post ratio runs from 1:1 to 100:1. *None* is a pull
join. *Dynamic* is Pequod as it is, started cold: the first check of a user computes its timeline.
*Full* has all timelines, those of inactive users too, from before the clock starts. After each run
a sample of timelines is compared with what the files say they must be.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from loadgen.progress import Bar
from loadgen.replay.clients import SOCKETS, WINDOW, Clients, Turn
from loadgen.report import Findings, Ratio, progress
from loadgen.systems.pequod_system import PULLED, Pequod
from loadgen.twip import Runner, compare_answers
from loadgen.twip_world import Load, TwipWorld
from pequod.pipeline.trace import Mix

NONE, DYNAMIC, FULL = STRATEGIES = ("none", "dynamic", "full")


@dataclass(frozen=True)
class Sweep:
    """The sizes, and the shares of active users in percent."""

    users: int = 5_000
    checks_per_user: int = 55  # a million posts and 1.8 million users, 100 checks to a post
    active: Sequence[int] = (1, 10, 25, 50, 75, 90, 100)
    seed: int = 1


# Without materialization a check takes about a millisecond, and there are so many for each user:
# fewer users in the same proportions take a minute, and nothing else about them is different.
QUICK_SWEEP = Sweep(users=400, active=(1, 10, 50, 100))


def measure_materialization(sweep: Sweep) -> Findings:
    """The runtime of each strategy at each share of active users."""
    findings = Findings(facts={"users": sweep.users, "checks_per_user": sweep.checks_per_user})
    seconds: dict[tuple[str, int], float] = {}
    points = [(active, strategy) for active in sweep.active for strategy in STRATEGIES]
    with TemporaryDirectory() as directory:
        for at in Bar(len(points), "strategies and shares of active users"):
            active, strategy = points[at]
            load = Load(
                users=sweep.users,
                checks_per_user=sweep.checks_per_user,
                active_percent=active,
                mix=Mix(login=0, subscribe=0, check=active, post=1),
                seed=sweep.seed,
            )
            world = TwipWorld.write(load, Path(directory) / str(active))
            turn = run(world, strategy)
            seconds[strategy, active] = turn.seconds
            findings.results.append(
                {
                    "strategy": strategy,
                    "active_percent": active,
                    "runtime_seconds": turn.seconds,
                    "operations": turn.operations,
                    "server_cpu_seconds": turn.server_cpu_seconds,
                    "rows_read": turn.rows,
                }
            )
            progress(f"{active}% active, {strategy}: {turn.seconds:.2f} s")
    least, most = sweep.active[0], sweep.active[-1]
    for name, rival, active in (
        ("full_at_least_active", FULL, least),
        ("none_at_most_active", NONE, most),
    ):
        ours, theirs = seconds[DYNAMIC, active], seconds[rival, active]
        basis = f"{active}% active: {rival} {theirs:.2f} s, dynamic {ours:.2f} s"
        findings.ratios.append(Ratio(name, theirs / ours, 1.0, basis, at_least=True))
    return findings


def run(world: TwipWorld, strategy: str) -> Turn:
    """Replay a trace to its end with one strategy, on a server of its own."""
    system = Pequod()
    if strategy == NONE:
        system = replace(system, join=PULLED)
    with ExitStack() as stack:
        server = stack.enter_context(system.start())
        system.fill(server, world)
        clients = stack.enter_context(Clients(system, server, world, SOCKETS))
        if strategy == FULL:
            clients.order("warm", True)
        before = server.cpu_seconds()
        stints = clients.order("replay", 0, 1, WINDOW, None)
        turn = Turn.of(stints, server.cpu_seconds() - before)
        compare_answers([Runner(system, server, clients)], world, seed=1)
        return turn


def strategies_table(findings: Findings) -> str:
    """A row for each share of active users."""
    by = {
        (result["strategy"], result["active_percent"]): result["runtime_seconds"]
        for result in findings.results
    }
    lines = [f"{'active':>6}" + "".join(f"{name:>12}" for name in STRATEGIES)]
    for active in dict.fromkeys(result["active_percent"] for result in findings.results):
        cells = "".join(f"{by[name, active]:>10.2f} s" for name in STRATEGIES)
        lines.append(f"{active:>5}%{cells}")
    return "\n".join(lines)
