"""The command line of the benchmarks."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from loadgen.backing import QUICK_TRIAL, Trial, measure_backing
from loadgen.engine import QUICK, Plan, measure_engine
from loadgen.options import new_file, percents, positive
from loadgen.pauses import measure_pauses
from loadgen.pipeline import QUICK_WORLD, World, measure_pipeline
from loadgen.report import STDOUT, Findings, benchmark_file, progress, table, write_json
from loadgen.rpc import QUICK_LOAD, Load, measure_rpc
from loadgen.scale import QUICK_SCALE, Scale, measure_scale
from pequod import PequodError

EXAMPLES = """\
examples:
  python -m loadgen twip --plot twip.png --json twip.json    Pequod and its rivals, side by side
  python -m loadgen twip --systems redis --users 5000        only one rival, a smaller world
  python -m loadgen twip --driver sockets                    the servers alone
  python -m loadgen twip --systems redis --rate 5000         latencies at a given load
  python -m loadgen materialization --plot figure8.png       none, dynamic, full
  python -m loadgen newp --plot figure9.png                  interleaved joins, or not, or Redis
  python -m loadgen ablations                                without subtables, hints, sharing
  python -m loadgen all --quick                              everything, in under 10 minutes
  python -m loadgen report                                   docs/benchmarks.md from those files
  python -m loadgen compare old/twip.json new/twip.json      what got faster or slower
  python -m loadgen engine                       the engine in one process, after some minutes
  python -m loadgen engine --quick               the same in seconds, at sizes too small to judge
  python -m loadgen engine --json | jq .ratios   JSON on standard output, the table on error
  python -m loadgen rpc                          the server and its clients, beside Redis
  python -m loadgen scale                        a cluster with more and more compute servers
  python -m loadgen backing                      PostgreSQL behind the cache
  python -m loadgen pauses                       the garbage collector, with 10 million rows
  python -m loadgen pipeline                     the jobs of the data pipeline, with 12 million rows
  python -m loadgen pipeline --full              also at the paper's size: 72 million edges
"""
Add = Callable[..., argparse.ArgumentParser]  # name, what it does, parsers of shared options
RESULTS = Path("docs/benchmarks")
DOCUMENT = Path("docs/benchmarks.md")
INSTALL = "the benchmarks need more packages: pip install 'pequod[bench,plot]'"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark that the command line names."""
    options = parser().parse_args(arguments)
    options.command = " ".join(sys.argv[1:] if arguments is None else arguments)
    try:
        options.run(options)
    except PequodError as error:
        raise SystemExit(f"{options.command.partition(' ')[0]}: {error}") from error


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m loadgen",
        description="Benchmarks of Pequod.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    benchmarks = top.add_subparsers(title="benchmarks", metavar="BENCHMARK", required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--quick", action="store_true", help="small sizes, few rounds")
    shared.add_argument("--seed", type=int, default=1, help="of all chance (default: %(default)s)")
    written = argparse.ArgumentParser(add_help=False)
    written.add_argument(
        "--json",
        nargs="?",
        const=STDOUT,
        type=json_target,
        metavar="FILE",
        help='write all measurements to FILE as JSON; no FILE or "-" is standard output',
    )

    def add(
        name: str, told: str, *parents: argparse.ArgumentParser, more: str = ""
    ) -> argparse.ArgumentParser:
        return benchmarks.add_parser(
            name,
            parents=list(parents),
            help=told,
            description=more or f"{told[0].upper()}{told[1:]}.",
            epilog=EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    _add_figures(add, shared, written)
    engine = add(
        "engine",
        "the engine in one process, against bare loops over dicts and sorted lists",
        shared,
        written,
    )
    engine.set_defaults(run=run_engine)
    rpc = add("rpc", "a server and its clients, against Redis and redis-py", shared, written)
    rpc.set_defaults(run=run_rpc)
    backing = add(
        "backing", "PostgreSQL behind a server: followed, loaded, against SQL", shared, written
    )
    backing.set_defaults(run=run_backing)
    pauses = add(
        "pauses",
        "how long a server with 10 million rows stands still for the garbage collector",
        shared,
        written,
    )
    pauses.add_argument("--rows", type=positive, default=10_000_000, help="default: %(default)s")
    pauses.set_defaults(run=run_pauses)
    scale = add(
        "scale",
        "Figure 10: Twip on one server, and on clusters with 2 and 4 compute servers",
        shared,
        written,
    )
    scale.set_defaults(run=run_scale)
    pipeline = add(
        "pipeline",
        "the jobs of the data pipeline: graph, trace, materialize, load, verify",
        shared,
        written,
        more="The jobs of the data pipeline, whole commands, with their peak memory.",
    )
    pipeline.add_argument("--full", action="store_true", help="also 1.8M users with 72M edges")
    pipeline.set_defaults(run=run_pipeline)
    return top


def _add_figures(
    add: Add, shared: argparse.ArgumentParser, written: argparse.ArgumentParser
) -> None:
    """The commands for the paper's figures, and those on their files."""
    drawn = argparse.ArgumentParser(add_help=False)
    drawn.add_argument("--plot", type=new_file, metavar="FILE", help="draw the figure into FILE")
    twip = add("twip", "Figure 7: Twip on Pequod and its rivals", shared, written, drawn)
    _twip_options(twip)
    strategies = add("materialization", "Figure 8: none, dynamic, full", shared, written, drawn)
    strategies.add_argument("--users", type=positive, help="default: 5000, with --quick 400")
    strategies.add_argument(
        "--active",
        type=percents,
        metavar="PERCENTS",
        help="shares of active users, with commas, rising",
    )
    newp = add("newp", "Figure 9: interleaved joins or not, or Redis", shared, written, drawn)
    newp.add_argument(
        "--articles",
        type=positive,
        help="half as many users, 10 comments and 20 votes for each (default: 20000, quick: 5000)",
    )
    newp.add_argument(
        "--sessions", type=positive, help="of each turn (default: 40000, quick: 5000)"
    )
    ablations = add("ablations", "section 4, each optimization taken out", shared, written, drawn)
    ablations.add_argument("--users", type=positive, help="default: 10000, with --quick 3000")
    ablations.add_argument("--rounds", type=positive, default=3, help="default: %(default)s")
    for one in (twip, strategies, newp, ablations):
        one.set_defaults(run=run_figure, benchmark=one.prog.split()[-1])
    everything = add("all", "all of these, and the report", shared)
    everything.add_argument(
        "--out", type=Path, default=RESULTS, help="folder for the files (default: %(default)s)"
    )
    everything.set_defaults(run=run_all)
    report = add("report", "write docs/benchmarks.md from the files of `all`")
    report.add_argument("--files", type=Path, default=RESULTS, help="default: %(default)s")
    report.add_argument("--output", type=Path, default=DOCUMENT, help="default: %(default)s")
    report.set_defaults(run=run_report)
    compare = add("compare", "what got faster or slower between two runs, with the noise")
    compare.add_argument("old", type=Path)
    compare.add_argument("new", type=Path)
    compare.set_defaults(run=run_compare)


def _twip_options(twip: argparse.ArgumentParser) -> None:
    try:
        from loadgen.commands import add_twip_options
    except ImportError:  # `run_figure` says what is missing
        return
    add_twip_options(twip)


def json_target(text: str) -> str:
    """Refuse a file that cannot be written before the minutes of measuring, not after."""
    return text if text == STDOUT else str(new_file(text))


def run_engine(options: argparse.Namespace) -> None:
    _report("engine", measure_engine(QUICK if options.quick else Plan(), options.seed), options)


def run_rpc(options: argparse.Namespace) -> None:
    _report("rpc", measure_rpc(QUICK_LOAD if options.quick else Load()), options)


def run_backing(options: argparse.Namespace) -> None:
    _report("backing", measure_backing(QUICK_TRIAL if options.quick else Trial()), options)


def run_pauses(options: argparse.Namespace) -> None:
    rows, calls = (20_000, 2_000) if options.quick else (options.rows, 200_000)
    _report("pauses", measure_pauses(rows, calls, options.seed), options)


def run_figure(options: argparse.Namespace) -> None:
    try:
        from loadgen.commands import COMMANDS
    except ImportError as error:
        raise SystemExit(f"{INSTALL} ({error})") from error
    found = COMMANDS[options.benchmark](options)
    _report(found.name, found.findings, options, found.table)
    if options.plot is not None:
        from loadgen.plots import draw

        draw(benchmark_file(found.name, found.findings, options.command), options.plot)


def run_all(options: argparse.Namespace) -> None:
    from loadgen.everything import run_everything

    run_everything(options.out, options.quick, options.seed, main)


def run_report(options: argparse.Namespace) -> None:
    from loadgen.document import write_document

    write_document(options.files, options.output)


def run_compare(options: argparse.Namespace) -> None:
    from loadgen.compare import compare_files

    print(compare_files(options.old, options.new))


def run_scale(options: argparse.Namespace) -> None:
    _report(
        "scale", measure_scale(QUICK_SCALE if options.quick else Scale(), options.seed), options
    )


def run_pipeline(options: argparse.Namespace) -> None:
    world = QUICK_WORLD if options.quick else World()
    _report("pipeline", measure_pipeline(world, options.full, options.seed), options)


def _report(
    benchmark: str, findings: Findings, options: argparse.Namespace, own_table: str = ""
) -> None:
    progress("done")
    if options.json is not None:
        write_json(benchmark, findings, options.json, options.command)
    told = sys.stderr if options.json == STDOUT else sys.stdout
    if own_table:
        print(own_table, end="\n\n", file=told)
    print(table(findings.ratios), file=told)


if __name__ == "__main__":
    main()
