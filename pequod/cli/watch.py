"""`pequod watch`: a range as it changes, in the terminal."""

import argparse
import asyncio
import sys
from typing import Any

from pequod.cli.commands import connection_options, range_of, range_options, tls_of
from pequod.cli.output import row_line, write_json
from pequod.client import AsyncClient
from pequod.client.calls import Event


def add_command(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "watch",
        help="print the rows of a range, then each change",
        description="Print the rows of a range, then each change, until interrupted.",
        epilog="example:\n  pequod watch --prefix 't|ann|'\n\n"
        "A row that came or changed is printed after +, a key that has gone after -. If too much\n"
        "was missed while the connection was lost, a line of = comes, and then all rows anew.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[range_options(), connection_options()],
    )
    parser.add_argument("--events", type=_count, metavar="N", help="stop after so many")
    parser.set_defaults(run=watch)


def watch(options: argparse.Namespace) -> int:
    asyncio.run(_watch(options))
    return 0


async def _watch(options: argparse.Namespace) -> None:
    async with AsyncClient(options.url, timeout=options.timeout, tls=tls_of(options)) as client:
        events = client.watch(*range_of(options))
        seen = 0
        async for event in events:
            if seen and event.kind == "init" and not options.json:
                print("=" * 8)
            _show(event, options.json)
            seen += 1
            if seen == options.events:
                await events.aclose()
                return


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("the least is 1")
    return number


def _show(event: Event, as_json: bool) -> None:
    if as_json:
        found: dict[str, Any] = {"event": event.kind, "id": event.id}
        if event.kind == "init":
            found["rows"] = [list(row) for row in event.rows]
        else:
            found["key"] = event.key
            if event.kind == "update":
                found["value"] = event.value
        write_json(found)
    elif event.kind == "init":
        for row in event.rows:
            print(row_line(row))
    elif event.kind == "update":
        assert event.value is not None, "an update has a value"
        print(f"+ {row_line((event.key, event.value))}")
    else:
        print(f"- {row_line((event.key, '')).rstrip()}")
    sys.stdout.flush()
