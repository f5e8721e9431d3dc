"""The commands that compare systems and draw figures: what each measures, prints and writes."""

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from loadgen.ablations import ablations_table, measure_ablations
from loadgen.materialization import (
    QUICK_SWEEP,
    Sweep,
    measure_materialization,
    strategies_table,
)
from loadgen.newp import QUICK_VOTES, Votes, measure_newp, ways_table
from loadgen.options import positive, rate
from loadgen.replay.clients import LIBRARIES, SOCKETS
from loadgen.report import Findings
from loadgen.systems.registry import LIBRARY_ONLY, SYSTEMS, systems_named
from loadgen.twip import Race, measure_twip, systems_table
from loadgen.twip_world import Load, TwipWorld
from pequod.pipeline.newp import NewpSpec

QUICK_CHECKS = 10
EVERY_SYSTEM = {
    LIBRARIES: ",".join(SYSTEMS),
    SOCKETS: ",".join(name for name in SYSTEMS if name not in LIBRARY_ONLY),
}


@dataclass(frozen=True)
class Benchmark:
    """What a benchmark found, and its own table."""

    name: str
    findings: Findings
    table: str


def add_twip_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--systems",
        metavar="NAMES",
        help=f"with commas, of {EVERY_SYSTEM[LIBRARIES]} (default: all); "
        "pequod is always among them",
    )
    parser.add_argument(
        "--driver",
        choices=(LIBRARIES, SOCKETS),
        default=LIBRARIES,
        help="libraries: an asyncio application, by each system's client library; "
        "sockets: one thin pipelining loop for all, so that the servers alone are measured "
        "(default: %(default)s)",
    )
    parser.add_argument("--users", type=positive, default=20_000, help="default: %(default)s")
    parser.add_argument("--followees", type=positive, default=40, help="of a user, on average")
    parser.add_argument("--active", type=positive, default=70, help="percent of the users who read")
    parser.add_argument(
        "--checks", type=positive, help="readings per active user (default: 50, with --quick 10)"
    )
    parser.add_argument(
        "--clients", type=positive, default=2, help="client processes, all on one core"
    )
    parser.add_argument("--parts", type=positive, default=5, help="turns that systems take")
    parser.add_argument(
        "--rate",
        type=rate,
        metavar="OPS",
        help="an open loop at so many operations a second; latencies count from when an operation "
        "should have begun (default: a closed loop, as fast as it goes)",
    )
    parser.add_argument(
        "--world",
        type=Path,
        metavar="DIR",
        help="replay a world and a trace that the pipeline wrote; needs --trace",
    )
    parser.add_argument("--trace", type=Path, metavar="DIR", help="the trace of --world")


def twip(options: argparse.Namespace) -> Benchmark:
    if (options.world is None) != (options.trace is None):
        raise SystemExit("--world and --trace go together: a trace belongs to a world")
    systems = systems_named(options.systems or EVERY_SYSTEM[options.driver])
    race = Race(systems, options.driver, options.parts, rate=options.rate)
    with ExitStack() as stack:
        if options.world is not None:
            world = TwipWorld.written(options.world, options.trace)
        else:
            folder = Path(stack.enter_context(TemporaryDirectory()))
            world = TwipWorld.write(_load(options), folder)
        findings = measure_twip(race, world, options.seed)
    name = "twip" if options.driver == LIBRARIES else "twip_sockets"
    return Benchmark(name, findings, systems_table(findings))


def _load(options: argparse.Namespace) -> Load:
    return Load(
        users=options.users,
        followees=options.followees,
        checks_per_user=options.checks or (QUICK_CHECKS if options.quick else 50),
        active_percent=options.active,
        clients=options.clients,
        seed=options.seed,
    )


def materialization(options: argparse.Namespace) -> Benchmark:
    sweep = QUICK_SWEEP if options.quick else Sweep()
    if options.users is not None:
        sweep = replace(sweep, users=options.users)
    if options.active is not None:
        sweep = replace(sweep, active=options.active)
    findings = measure_materialization(replace(sweep, seed=options.seed))
    return Benchmark("materialization", findings, strategies_table(findings))


def newp(options: argparse.Namespace) -> Benchmark:
    votes = QUICK_VOTES if options.quick else Votes()
    if options.sessions is not None:
        votes = replace(votes, sessions=options.sessions)
    articles = options.articles or votes.spec.articles
    spec = NewpSpec(articles, articles // 2, 10 * articles, 20 * articles, options.seed)
    votes = replace(votes, spec=spec)
    findings = measure_newp(votes)
    return Benchmark("newp", findings, ways_table(findings))


def ablations(options: argparse.Namespace) -> Benchmark:
    users = options.users or (3_000 if options.quick else 10_000)
    load = Load(users=users, checks_per_user=20 if options.quick else 50, seed=options.seed)
    findings = measure_ablations(load, options.rounds)
    return Benchmark("ablations", findings, ablations_table(findings))


COMMANDS: dict[str, Callable[[argparse.Namespace], Benchmark]] = {
    "twip": twip,
    "materialization": materialization,
    "newp": newp,
    "ablations": ablations,
}
