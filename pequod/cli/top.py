"""`pequod top`: what a server does, a line for each moment."""

import argparse
import time
from typing import Any

from pequod.cli.commands import client_of, connection_options
from pequod.cli.output import size_text, write_json

LINES_PER_HEAD = 20

Moment = dict[str, float]

_COLUMNS = {
    "keys": "keys",
    "memory": "bytes",
    "clients": "connections",
    "calls/s": "calls",
    "errors/s": "errors",
    "hits/s": "hits",
    "computes/s": "computes",
    "updates/s": "updater_runs",
    "invalid/s": "invalidations",
    "evict/s": "evictions",
}
_WIDTH = 11


def add_command(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "top",
        help="show what a server does, live",
        description="Print a line with rates, memory and connections at each moment.",
        epilog="example:\n  pequod top --interval 5",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[connection_options()],
    )
    parser.add_argument(
        "--interval", type=float, default=1.0, metavar="SECONDS", help="default: %(default)s"
    )
    parser.add_argument("--lines", type=int, metavar="N", help="stop after so many")
    parser.set_defaults(run=top)


def top(options: argparse.Namespace) -> int:
    """Print lines until there are enough, or for ever."""
    printed = 0
    with client_of(options) as client:
        before, then = moment(client.stats()), time.monotonic()
        while options.lines is None or printed < options.lines:
            time.sleep(max(0.0, options.interval))
            now, at = moment(client.stats()), time.monotonic()
            found = rates(before, now, at - then)
            if options.json:
                write_json(found)
            else:
                if printed % LINES_PER_HEAD == 0:
                    print("".join(name.rjust(_WIDTH) for name in _COLUMNS))
                print("".join(_cell(name, value) for name, value in found.items()), flush=True)
            before, then = now, at
            printed += 1
    return 0


def moment(stats: dict[str, Any]) -> Moment:
    """The figures of `stats` that matter here, summed up."""
    tables, server = stats["tables"].values(), stats["server"]
    counted = {
        field: sum(table[field] for table in tables)
        for field in ("hits", "computes", "updater_runs", "invalidations", "evictions")
    }
    return {
        "keys": stats["keys"],
        "bytes": stats["bytes"],
        "connections": server["connections"],
        "calls": sum(server["calls"].values()),
        "errors": sum(server["errors"].values()),
        **counted,
    }


def rates(before: Moment, now: Moment, seconds: float) -> dict[str, float]:
    """The columns of a line: what is, and what happened per second."""
    return {
        # A table that is forgotten takes its counts along, and a new server begins at 0.
        name: round(max(0.0, now[field] - before[field]) / seconds, 1)
        if "/s" in name
        else now[field]
        for name, field in _COLUMNS.items()
    }


def _cell(name: str, value: float) -> str:
    text = size_text(value) if name == "memory" else f"{value:,.0f}"
    return text.rjust(_WIDTH)
