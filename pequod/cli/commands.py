"""The methods of a cache as commands, against a server."""

import argparse
import ssl
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from pequod.cli.output import (
    counted,
    range_text,
    row_line,
    row_of,
    size_text,
    write_json,
    write_table,
    write_value,
)
from pequod.client import Client
from pequod.client.calls import PAGE_ROWS
from pequod.errors import BadRequest, PequodError
from pequod.keys import Pair, prefix

TIMEOUT_SECONDS = 10.0
BATCH_ROWS, BATCH_SIZE = 1000, 1 << 20  # that `putmany` sends at a time

Run = Callable[[argparse.Namespace], int]


def add_commands(subparsers: Any) -> None:
    """Add the commands of this module to the command line."""

    def command(
        run: Run, name: str, help_text: str, example: str, *parents: argparse.ArgumentParser
    ) -> argparse.ArgumentParser:
        spellings = {name.replace("_", ""), name.replace("_", "-"), name}
        plain = name.replace("_", "")
        parser: argparse.ArgumentParser = subparsers.add_parser(
            plain,
            aliases=sorted(spellings - {plain}),
            help=help_text,
            description=help_text[0].upper() + help_text[1:] + ".",
            epilog=f"example:\n  pequod {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            parents=[*parents, connection_options()],
        )
        parser.set_defaults(run=run)
        return parser

    keys = range_options()
    value = command(get, "get", "print the value of a key", "get 'p|bob|0000000100'")
    value.add_argument("key")
    one = command(put, "put", "set a row", "put 's|ann|bob' 1")
    one.add_argument("key")
    one.add_argument("value", nargs="?", help="the value; from standard input if left out")
    one.add_argument("--bytes", action="store_true", help="keep the value as bytes, not as text")
    many = command(
        put_many, "put_many", "set many rows from lines of key, tab and value", "putmany rows.tsv"
    )
    many.add_argument("file", nargs="?", help="what `scan` printed; standard input if left out")
    command(remove, "remove", "remove a row", "remove 's|ann|bob'").add_argument("key")
    removing = "remove the base rows of a range and print how many there were"
    command(remove_range, "remove_range", removing, "removerange --prefix 'p|bob|'", keys)
    rows = command(
        scan, "scan", "print the rows of a range", "scan --prefix 't|ann|' --limit 20", keys
    )
    rows.add_argument("--limit", type=_rows_number, metavar="N", help="at most so many rows")
    rows.add_argument("--reverse", action="store_true", help="the last rows first")
    number = command(count, "count", "print how many rows a range has", "count --prefix 'p|'", keys)
    for one in (value, rows, number):
        one.add_argument(
            "--after", metavar="TOKEN", help="wait for the write that gave this token (databases)"
        )
    digesting = "print how many rows a range has, and a digest of them"
    command(digest, "digest", digesting, "digest --prefix 'p|'", keys)
    joining = command(add_join, "add_join", "install cache joins", "addjoin -f twip.pq")
    joining.add_argument("text", nargs="?", help="the joins, in the cache-join language")
    joining.add_argument("-f", "--file", help="a file with joins; - is standard input")
    dropping = "take a join and all it computed away"
    command(drop_join, "drop_join", dropping, "dropjoin timeline").add_argument("name")
    command(joins, "joins", "print the installed joins", "joins")
    explaining = "say which joins make up a range, from which sources, fresh or not"
    command(explain, "explain", explaining, "explain --prefix 't|ann|'", keys)
    command(stats, "stats", "print counts and bytes, by table and by join", "stats --json")


def _rows_number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r:.40} is no number of rows")
    return int(text)


def connection_options(*, with_defaults: bool = False) -> argparse.ArgumentParser:
    """How to reach a server, and how to answer; said before a command or after it.

    The defaults stand before: an option left out after a command does not undo one before it.
    """
    none = None if with_defaults else argparse.SUPPRESS
    options = argparse.ArgumentParser(add_help=False, argument_default=none)
    group = options.add_argument_group("server")
    group.add_argument("--url", help="pequod://host:port (default: PEQUOD_URL, or this machine)")
    group.add_argument("--ca", metavar="FILE", help="certificate (PEM) to trust with pequods://")
    group.add_argument(
        "--timeout",
        type=float,
        default=TIMEOUT_SECONDS if with_defaults else argparse.SUPPRESS,
        metavar="SECONDS",
        help=f"how long to wait for an answer (default: {TIMEOUT_SECONDS:g})",
    )
    options.add_argument(
        "--json",
        action="store_true",
        default=False if with_defaults else argparse.SUPPRESS,
        help="answer in JSON, errors too",
    )
    return options


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """For a command that reaches no server; said before the command, it counts as well."""
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="answer in JSON"
    )


def range_options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("first", nargs="?", help="the first key of the range")
    options.add_argument("last", nargs="?", help="the end of the range, not included")
    options.add_argument("--prefix", help="all keys that start so, instead of first and last")
    return options


def client_of(options: argparse.Namespace) -> Client:
    return Client(options.url, timeout=options.timeout, tls=tls_of(options))


def tls_of(options: argparse.Namespace) -> ssl.SSLContext | None:
    """Whom to trust, if not whom everybody trusts."""
    if options.ca is None:
        return None
    try:
        return ssl.create_default_context(cafile=options.ca)
    except OSError as error:
        raise BadRequest(f"--ca: {options.ca} cannot be used: {error}") from error


def range_of(options: argparse.Namespace) -> tuple[str, str]:
    if options.prefix is not None and options.first is None:
        return prefix(options.prefix)
    if options.prefix is not None or options.last is None:
        raise BadRequest("a range is --prefix PREFIX, or FIRST and LAST")
    return options.first, options.last


def _answer(options: argparse.Namespace, result: Any, show: Callable[[Any], None]) -> None:
    if options.json:
        write_json(result)
    else:
        show(result)


def _silent(result: object) -> None:
    """No news is good news."""


# Rows.


def get(options: argparse.Namespace) -> int:
    with client_of(options) as client:
        value = client.get(options.key, after=options.after)
    if value is None and not options.json:
        print(f"pequod: there is no key {options.key!r}", file=sys.stderr)
    else:
        _answer(options, value, write_value)
    return 1 if value is None else 0


def put(options: argparse.Namespace) -> int:
    value = sys.stdin.buffer.read() if options.value is None else options.value.encode()
    with client_of(options) as client:
        client.put(options.key, value if options.bytes else _text(value))
    _answer(options, None, _silent)
    return 0


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise BadRequest("the value is not UTF-8; put it with --bytes") from error


def put_many(options: argparse.Namespace) -> int:
    done = 0
    with client_of(options) as client, _lines(options.file) as lines:
        try:
            for batch in _batches(_rows(lines)):
                client.put_many(batch)
                done += len(batch)
                if sys.stderr.isatty():
                    print(f"\r{done:,} rows", end="", file=sys.stderr, flush=True)
        except PequodError as error:
            if done:
                print(f"pequod: {done} rows were put before this:", file=sys.stderr)
            raise error
    if sys.stderr.isatty():
        print(file=sys.stderr)
    _answer(options, done, _silent)
    return 0


def _batches(rows: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Rows in parts, none too long for a request."""
    batch: list[Pair] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += len(row[1])
        if len(batch) == BATCH_ROWS or size > BATCH_SIZE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _lines(path: str | None) -> Any:
    if path in (None, "-"):
        return open(0, encoding="utf-8", closefd=False)
    try:
        return open(str(path), encoding="utf-8")
    except OSError as error:
        raise BadRequest(f"cannot read {path}: {error.strerror}") from error


def _rows(lines: Iterable[str]) -> Iterator[Pair]:
    for number, line in enumerate(lines, 1):
        if line != "\n":
            try:
                yield row_of(line.rstrip("\n"))
            except (BadRequest, UnicodeEncodeError) as error:
                raise BadRequest(f"line {number}: {error}") from error


def remove(options: argparse.Namespace) -> int:
    with client_of(options) as client:
        removed = client.remove(options.key)
    _answer(options, removed, _silent)
    return 0 if removed else 1


def remove_range(options: argparse.Namespace) -> int:
    with client_of(options) as client:
        _answer(options, client.remove_range(*range_of(options)), print)
    return 0


def scan(options: argparse.Namespace) -> int:
    first, last = range_of(options)
    with client_of(options) as client:
        if options.after is not None:
            client.scan(first, last, 0, after=options.after)
        rows = client.iterate(first, last, reverse=options.reverse, page=_page(options.limit))
        rows = islice(rows, options.limit)
        if options.json:
            write_json([list(row) for row in rows])
        else:
            for row in rows:
                print(row_line(row))
    return 0


def _page(limit: int | None) -> int:
    return PAGE_ROWS if limit is None else max(1, min(limit, PAGE_ROWS))


def count(options: argparse.Namespace) -> int:
    with client_of(options) as client:
        _answer(options, client.count(*range_of(options), after=options.after), print)
    return 0


def digest(options: argparse.Namespace) -> int:
    with client_of(options) as client:
        _answer(options, client.digest(*range_of(options)), lambda found: print(*found))
    return 0


# Joins.


def add_join(options: argparse.Namespace) -> int:
    if (options.text is None) == (options.file is None):
        raise BadRequest("give either a text of joins, or a file with -f FILE")
    text = options.text
    if text is None:
        try:
            text = (
                sys.stdin.read() if options.file == "-" else Path(options.file).read_text("utf-8")
            )
        except OSError as error:
            raise BadRequest(f"cannot read {options.file}: {error.strerror}") from error
    with client_of(options) as client:
        installed = client.add_join(text)

    def show(_: object) -> None:
        for join in installed:
            print(join["name"])
            for warning in join["warnings"]:
                print(f"pequod: {join['name']}: {warning}", file=sys.stderr)

    _answer(options, installed, show)
    return 0


def drop_join(options: argparse.Namespace) -> int:
    with client_of(options) as client:
        client.drop_join(options.name)
    _answer(options, None, _silent)
    return 0


def joins(options: argparse.Namespace) -> int:
    with client_of(options) as client:
        found = client.joins()

    def show(_: object) -> None:
        for join in found:
            print(f"{join['name']}: {join['text']}")

    _answer(options, found, show)
    return 0


def explain(options: argparse.Namespace) -> int:
    with client_of(options) as client:
        found = client.explain(*range_of(options))
    _answer(options, found, _show_explained)
    return 0


def _show_explained(found: dict[str, Any]) -> None:
    print(f"{_range_of(found)}: {counted(found['stored_rows'], 'row')} stored")
    for first, last in found["missing"]:
        print(f"  missing {range_text(first, last)}")
    for join in found["joins"]:
        print(f"\n{join['name']}: {join['join']}")
        print(
            f"  {join['maintenance']}, computed {counted(join['computes'], 'time')}, "
            f"updated {counted(join['updater_runs'], 'time')}"
        )
        for one in join["ranges"]:
            rows = f", {counted(one['rows'], 'row')}" if "rows" in one else ""
            waits = one.get("waiting_changes")
            waiting = f", waiting: {counted(waits, 'change')}" if waits else ""
            print(f"  {_range_of(one)} {one['state']}{rows}{waiting}")
            _show_sources(one)
            hidden = one.get("source_ranges", 0) - len(one.get("sources", ()))
            if hidden > 0:
                print(f"    and {hidden:,} more")
        _show_sources(join)


def _show_sources(one: dict[str, Any]) -> None:
    for source in one.get("sources", ()):
        print(f"    {source['source']}  {_range_of(source)}")


def _range_of(one: dict[str, Any]) -> str:
    return range_text(one["first"], one["last"])


def stats(options: argparse.Namespace) -> int:
    with client_of(options) as client:
        _answer(options, client.stats(), _show_stats)
    return 0


def _show_stats(found: dict[str, Any]) -> None:
    limit = found["memory_limit"]
    of_limit = f" of {size_text(limit)}" if limit is not None else ""
    server = found["server"]
    print(f"{counted(found['keys'], 'key')}, {size_text(found['bytes'])}{of_limit}")
    print(
        f"{counted(server['connections'], 'connection')}, "
        f"{counted(sum(server['calls'].values()), 'call')}, "
        f"{counted(sum(server['errors'].values()), 'error')}, up {server['uptime_seconds']:,.0f} s"
    )
    for kind, things in (("table", found["tables"]), ("join", found["joins"])):
        if things:
            fields = list(next(iter(things.values())))
            print()
            write_table(
                [kind, *(field.replace("_", " ") for field in fields)],
                ([name, *(thing[field] for field in fields)] for name, thing in things.items()),
            )
