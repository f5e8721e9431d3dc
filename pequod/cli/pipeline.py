"""The command `pequod pipeline`: worlds, traces, and cache joins at scale.

The pipeline's libraries are large and not everybody's, so they are imported when a command runs.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pequod.cli.commands import tls_of
from pequod.cli.output import write_json
from pequod.client import Client
from pequod.errors import BadData, BadRequest
from pequod.joins.parser import parse
from pequod.keys import EVERYTHING, KeyRange, prefix

if TYPE_CHECKING:
    from pequod.pipeline.jobs import Engine

DONE, DIFFERENT = 0, 1
PLAIN_EDGES = 8_000_000  # worlds up to this size are made sooner than Spark has started
BAR_WIDTH = 30

EXAMPLES = """\
examples:
  pequod pipeline graph --users 1800000 --edges 72000000 --out world/
  pequod pipeline trace --world world/ --checks-per-user 50 --out trace/
  pequod pipeline newp --out news/                     articles, comments and votes
  pequod pipeline materialize --joins twip.pq --base world/kv --out views/
  pequod pipeline load --from world/kv --from views/ --to pequod://localhost:7709
  pequod pipeline verify --joins twip.pq --base world/kv --against pequod://localhost:7709
  pequod pipeline dump --from pequod://localhost:7709 --prefix 't|' --out dump/

Spark runs in this process unless --master spark://host:port or --remote sc://host:port says
otherwise. A job that was broken off goes on where it was when the same command is given again.
"""


def add_command(subparsers: Any) -> None:
    """Add `pequod pipeline` and its commands to the command line."""
    top = subparsers.add_parser(
        "pipeline",
        help="make worlds and traces, materialize cache joins, load and verify servers",
        description="Worlds, traces, and cache joins at scale, on Spark where it pays.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    sparks = spark_options()

    def command(run: Any, name: str, told: str, *parents: Any) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = commands.add_parser(
            name,
            help=told,
            description=told[0].upper() + told[1:] + ".",
            epilog=EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            parents=parents,
        )
        parser.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="answer in JSON"
        )
        parser.set_defaults(run=run)
        return parser

    one = command(graph, "graph", "make a social graph and its rows", sparks)
    one.add_argument("--users", type=int, default=100_000, help="default: %(default)s")
    one.add_argument("--edges", type=int, help="follows (default: 40 for each user)")
    one.add_argument("--posts", type=int, help="posts so far (default: 2 for each user)")
    one.add_argument("--post-bytes", type=int, default=100, help="default: %(default)s")
    one.add_argument("--plot", action="store_true", help="draw the degree distributions")
    _common(one)
    news = command(newp, "newp", "make a Newp world: articles, comments, votes", sparks)
    for name, number in (("articles", 100_000), ("users", 50_000), ("comments", 1_000_000)):
        news.add_argument(f"--{name}", type=int, default=number, help="default: %(default)s")
    news.add_argument("--votes", type=int, default=2_000_000, help="default: %(default)s")
    _common(news)
    tracing = command(trace, "trace", "make the operations of load generators", sparks)
    tracing.add_argument("--world", type=_folder, required=True, help="a folder made by `graph`")
    tracing.add_argument("--checks-per-user", type=int, default=50, help="default: %(default)s")
    tracing.add_argument("--active", type=int, default=70, help="percent (default: %(default)s)")
    tracing.add_argument("--clients", type=int, default=8, help="default: %(default)s")
    tracing.add_argument(
        "--mix",
        default="5,9,85,1",
        help="shares of login, subscribe, check and post (default: %(default)s)",
    )
    _common(tracing, partitions=False)

    joining = argparse.ArgumentParser(add_help=False)
    joining.add_argument("--joins", type=Path, required=True, help="a file with cache joins")
    joining.add_argument("--base", type=_folder, required=True, help="a folder of base rows")
    joining.add_argument("--prefix", help="only computed keys that start so")
    joining.add_argument("--partitions", type=int, default=16, help="default: %(default)s")
    making = command(materialize, "materialize", "compute all rows of cache joins", sparks, joining)
    making.add_argument("--out", type=_folder, required=True, help="the folder to write")
    serving = argparse.ArgumentParser(add_help=False)
    serving.add_argument("--timeout", type=float, default=60.0, help="seconds for a call")
    serving.add_argument(
        "--ca",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help="certificate (PEM) to trust with pequods://",
    )
    loading = command(load, "load", "bring rows into a server or a cluster", serving)
    loading.add_argument(
        "--from", dest="folders", type=_folder, action="append", required=True, metavar="FOLDER",
        help="a folder of base rows, or of views; may be given several times",
    )  # fmt: skip
    loading.add_argument(
        "--to", required=True, metavar="URL", help="a server, or the map of a cluster, a TOML file"
    )
    verifying = command(
        verify, "verify", "compare a server with Spark's own answer", sparks, joining, serving
    )
    verifying.add_argument(
        "--against", required=True, metavar="URL", help="a server, or the folder of a dump"
    )
    verifying.add_argument(
        "--views", type=_folder, help="where to keep Spark's answer (default: nowhere)"
    )
    dumping = command(dump, "dump", "write the rows of a server into a folder", serving)
    dumping.add_argument("--from", dest="source", required=True, metavar="URL")
    dumping.add_argument("--prefix", default="", help="only keys that start so")
    dumping.add_argument("--out", type=_folder, required=True, help="the folder to write")


def _folder(text: str) -> Path:
    """A folder by its whole path: the workers of a cluster stand elsewhere."""
    return Path(text).absolute()


def spark_options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    group = options.add_argument_group("Spark")
    group.add_argument("--master", default="", help="spark://host:port, or local[2]")
    group.add_argument("--remote", default="", help="sc://host:port, a Spark Connect server")
    group.add_argument("--memory", default="4g", help="of the driver (default: %(default)s)")
    group.add_argument("--plain", action="store_true", help="without Spark, if that is possible")
    return options


def _common(parser: argparse.ArgumentParser, partitions: bool = True) -> None:
    parser.add_argument("--seed", type=int, default=1, help="of all chance (default: %(default)s)")
    parser.add_argument("--out", type=_folder, required=True, help="the folder to write")
    if partitions:
        parser.add_argument(
            "--partitions", type=int, default=16, help="files (default: %(default)s)"
        )


# Commands.


def graph(options: argparse.Namespace) -> int:
    twip = _module("twip")
    edges = 40 * options.users if options.edges is None else options.edges
    posts = 2 * options.users if options.posts is None else options.posts
    spec = twip.TwipSpec(options.users, edges, options.seed, posts, options.post_bytes)
    with _engine(options, edges) as engine, progress("graph") as told:
        manifest = twip.write_world(spec, options.out, engine, _parts(options), told)
    summary = _module("plots").summary(options.out)
    _answer(options, {"out": str(options.out), "digest": manifest.facts["digest"], **summary})
    if options.plot:
        print(_module("plots").degree_plot(options.out))
    return DONE


def newp(options: argparse.Namespace) -> int:
    module = _module("newp")
    names = ("articles", "users", "comments", "votes", "seed")
    spec = module.NewpSpec(**{name: getattr(options, name) for name in names})
    with _engine(options, spec.votes) as engine, progress("newp") as told:
        module.write_newp(spec, options.out, engine, _parts(options), told)
    rows = _module("files").Manifest.load(options.out / "kv").rows
    _answer(options, {"out": str(options.out), "rows": rows})
    return DONE


def trace(options: argparse.Namespace) -> int:
    module = _module("trace")
    try:
        login, subscribe, check, post = map(int, options.mix.split(","))
        mix = module.Mix(login, subscribe, check, post)
    except ValueError as error:
        raise BadRequest(f"--mix is four numbers such as 5,9,85,1, not {options.mix}") from error
    spec = module.trace_spec(
        options.world,
        checks_per_user=options.checks_per_user,
        active_percent=options.active,
        clients=options.clients,
        mix=mix,
        seed=options.seed,
    )
    with _engine(options, spec.graph.edges) as engine, progress("trace") as told:
        manifest = module.write_trace(spec, options.world, options.out, engine, told)
    _answer(options, {"out": str(options.out), **manifest.facts["operations"]})
    return DONE


def materialize(options: argparse.Namespace) -> int:
    _materialize(options, options.out)
    return DONE


def _materialize(options: argparse.Namespace, out: Path) -> None:
    try:
        joins = parse(options.joins.read_text("utf-8"))
    except OSError as error:
        raise BadRequest(f"cannot read {options.joins}: {error.strerror}") from error
    if options.plain:
        raise BadRequest("cache joins are computed by Spark; leave --plain out")
    module = _module("materialize")
    keys, parts = _keys(options), _parts(options)
    manifest = module.materialized(joins, options.base, out, keys)
    if manifest is None:
        with _session(options) as spark, progress("materialize") as told:
            manifest = module.materialize(spark, joins, options.base, out, keys, parts, told)
    for warning in manifest.facts["warnings"]:
        print(f"pequod: {warning}", file=sys.stderr)
    if options.run is materialize:
        files = len(manifest.files)
        _answer(options, {"out": str(out), "rows": manifest.rows, "files": files})


def load(options: argparse.Namespace) -> int:
    begun = time.monotonic()
    with progress("load") as told:
        rows = _module("load").load(
            options.folders, options.to, told, timeout=options.timeout, tls=tls_of(options)
        )
    seconds = time.monotonic() - begun
    _answer(options, {"rows": rows, "seconds": round(seconds, 1)})
    return DONE


def verify(options: argparse.Namespace) -> int:
    module = _module("verify")
    with TemporaryDirectory(prefix="pequod-verify-") as scratch:
        views = options.views or Path(scratch)
        _materialize(options, views)
        with progress("verify") as told:
            if "://" in options.against:
                with _client(options, options.against) as client:
                    holder = module.ServerHolder(client)
                    found = module.verify(views, holder, _keys(options), told)
            else:
                holder = module.FolderHolder(Path(options.against))
                found = module.verify(views, holder, _keys(options), told)
    _answer(options, {"rows": found.rows, "ranges": found.ranges, **found.counts})
    for kind, keys in found.keys.items():
        for key in keys:
            print(f"{kind}: {key}", file=sys.stderr)
    return DONE if found.good else DIFFERENT


def dump(options: argparse.Namespace) -> int:
    with _client(options, options.source) as client, progress("dump") as told:
        module = _module("verify")
        manifest = module.dump(client, options.out, prefix(options.prefix), lambda n: told(n, 0))
    _answer(options, {"out": str(options.out), "rows": manifest.rows})
    return DONE


# What they share.


def _module(name: str) -> Any:
    """A module of the pipeline; it says what to install if a library is missing."""
    try:
        return import_module(f"pequod.pipeline.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("pequod"):
            raise
        raise BadData(
            f"the pipeline needs {error.name}, which is not installed; "
            "run pip install 'pequod[spark]'"
        ) from error


def _client(options: argparse.Namespace, url: str) -> Client:
    return Client(url, timeout=options.timeout, tls=tls_of(options))


def _keys(options: argparse.Namespace) -> KeyRange:
    return prefix(options.prefix) if options.prefix else EVERYTHING


def _parts(options: argparse.Namespace) -> int:
    parts: int = options.partitions
    if parts < 1:
        raise BadRequest(f"--partitions is 1 or more, not {parts}")
    return parts


@contextmanager
def _session(options: argparse.Namespace) -> Iterator[Any]:
    if options.master and options.remote:
        raise BadRequest("give --master or --remote, not both")
    session = _module("spark").Session(options.master, options.remote, options.memory)
    with session.open() as spark:
        yield spark


@contextmanager
def _engine(options: argparse.Namespace, size: int) -> Iterator["Engine"]:
    """Spark, or for what is small this process alone."""
    asked = options.master or options.remote or "PYSPARK_GATEWAY_PORT" in os.environ
    if options.plain or (size <= PLAIN_EDGES and not asked):
        yield _module("jobs").PlainEngine()
        return
    with _session(options) as spark:
        yield _module("spark").SparkEngine(spark)


def _answer(options: argparse.Namespace, found: dict[str, Any]) -> None:
    if options.json:
        write_json(found)
        return
    width = max(map(len, found))
    for name, value in found.items():
        shown = f"{value:,}" if isinstance(value, int) else "-" if value is None else str(value)
        print(f"{name.replace('_', ' '):{width}}  {shown}")


@contextmanager
def progress(name: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, if somebody looks at it."""
    begun = time.monotonic()
    shown = False

    def told(done: int, total: int) -> None:
        nonlocal shown
        if not sys.stderr.isatty():
            return
        shown = True
        share = done / total if total else 0.0
        bar = "#" * round(share * BAR_WIDTH)
        seconds = time.monotonic() - begun
        told_total = f" of {total:,}" if total else ""
        line = f"\r{name}  [{bar:{BAR_WIDTH}}]  {done:,}{told_total}  {seconds:.0f} s "
        print(line, end="", file=sys.stderr, flush=True)

    try:
        yield told
    finally:
        if shown:
            print(file=sys.stderr)
