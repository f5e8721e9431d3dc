"""The command line of the benchmarks."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from loadgen.backing import QUICK_TRIAL, Trial, measure_backing
from loadgen.engine import QUICK, Plan, measure_engine
from loadgen.pauses import measure_pauses
from loadgen.report import STDOUT, Findings, progress, table, write_json
from loadgen.rpc import QUICK_LOAD, Load, measure_rpc
from loadgen.scale import QUICK_SCALE, Scale, measure_scale

EXAMPLES = """\
examples:
  python -m loadgen engine                       a table, after some minutes
  python -m loadgen engine --quick               the same in seconds, at sizes too small to judge
  python -m loadgen engine --json engine.json    the table, and all measurements in a file
  python -m loadgen engine --json | jq .ratios   JSON on standard output, the table on error
  python -m loadgen rpc                          the server and its clients, beside Redis
  python -m loadgen scale                        a cluster with more and more compute servers
  python -m loadgen backing                      PostgreSQL behind the cache
  python -m loadgen pauses                       the garbage collector, with 10 million rows
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark that the command line names."""
    options = parser().parse_args(arguments)
    options.run(options)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m loadgen",
        description="Benchmarks of Pequod.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    benchmarks = top.add_subparsers(title="benchmarks", metavar="BENCHMARK", required=True)

    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--json",
        nargs="?",
        const=STDOUT,
        type=json_target,
        metavar="FILE",
        help='write all measurements to FILE as JSON; no FILE or "-" is standard output',
    )
    shared.add_argument("--quick", action="store_true", help="small sizes, few rounds")
    shared.add_argument("--seed", type=int, default=1, help="of all chance (default: %(default)s)")

    engine = benchmarks.add_parser(
        "engine",
        parents=[shared],
        help="the engine in one process, against bare loops over dicts and sorted lists",
        description="Speed, growth and memory of the engine, against bare hand-written loops.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    engine.set_defaults(run=run_engine)
    rpc = benchmarks.add_parser(
        "rpc",
        parents=[shared],
        help="a server and its clients, against Redis and redis-py",
        description="Server CPU, throughput and latency over the network, against Redis.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    rpc.set_defaults(run=run_rpc)
    backing = benchmarks.add_parser(
        "backing",
        parents=[shared],
        help="PostgreSQL behind a server: following its changes, loading, against SQL itself",
        description="A server over PostgreSQL, against triggers with NOTIFY, and against SQL.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    backing.set_defaults(run=run_backing)
    pauses = benchmarks.add_parser(
        "pauses",
        parents=[shared],
        help="how long a server with 10 million rows stands still for the garbage collector",
        description="The longest pause of the garbage collector in a large, busy server.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    pauses.add_argument("--rows", type=int, default=10_000_000, help="default: %(default)s")
    pauses.set_defaults(run=run_pauses)
    scale = benchmarks.add_parser(
        "scale",
        parents=[shared],
        help="Twip on one server, and on clusters with 2 and 4 compute servers",
        description="Server CPU of a timeline check as compute servers are added.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    scale.set_defaults(run=run_scale)
    return top


def json_target(text: str) -> str:
    """Refuse a file that cannot be written before the minutes of measuring, not after."""
    directory = Path(text).absolute().parent
    if text != STDOUT and not os.access(directory, os.W_OK):
        raise argparse.ArgumentTypeError(f"cannot write into {directory}")
    return text


def run_engine(options: argparse.Namespace) -> None:
    _report("engine", measure_engine(QUICK if options.quick else Plan(), options.seed), options)


def run_rpc(options: argparse.Namespace) -> None:
    _report("rpc", measure_rpc(QUICK_LOAD if options.quick else Load()), options)


def run_backing(options: argparse.Namespace) -> None:
    _report("backing", measure_backing(QUICK_TRIAL if options.quick else Trial()), options)


def run_pauses(options: argparse.Namespace) -> None:
    rows, calls = (20_000, 2_000) if options.quick else (options.rows, 200_000)
    _report("pauses", measure_pauses(rows, calls, options.seed), options)


def run_scale(options: argparse.Namespace) -> None:
    _report(
        "scale", measure_scale(QUICK_SCALE if options.quick else Scale(), options.seed), options
    )


def _report(benchmark: str, findings: Findings, options: argparse.Namespace) -> None:
    progress("done")
    if options.json is not None:
        write_json(benchmark, findings, options.json)
    print(table(findings.ratios), file=sys.stderr if options.json == STDOUT else sys.stdout)


if __name__ == "__main__":
    main()
