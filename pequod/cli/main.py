"""Where the command line begins: its commands, its errors, its exit codes."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

import shtab

from pequod.cli import commands, demo, pipeline, serve, top, watch
from pequod.errors import AccessDenied, PequodError, ProtocolError, Unavailable

DONE, NOTHING, REFUSED, UNREACHABLE, DENIED, INTERRUPTED = 0, 1, 2, 3, 4, 130

EPILOG = """\
examples:
  pequod serve --joins twip.pq                  a server, on pequod://127.0.0.1:7709
  pequod addjoin 'karma|<author> = count vote|<author>|<id>|<voter>;'
  pequod put 's|ann|bob' 1
  pequod scan --prefix 't|ann|' --limit 20 --reverse
  pequod COMMAND --help                         all about a command

The server is that of --url, or of the variable PEQUOD_URL; a token is that of PEQUOD_TOKEN.

exit codes: 0 done, 1 there is no such key, 2 a mistake in the request, 3 the server cannot be
reached, 4 it does not let you do that.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the answer is the exit code."""
    options = parser().parse_args(arguments)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except PequodError as error:
        print(f"pequod: {error}", file=sys.stderr)
        return exit_code(error)
    except (UnicodeError, OverflowError) as error:
        print(f"pequod: {error}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader has gone, as in `pequod scan ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    return code


def exit_code(error: PequodError) -> int:
    if isinstance(error, Unavailable | ProtocolError):
        return UNREACHABLE
    return DENIED if isinstance(error, AccessDenied) else REFUSED


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(
        prog="pequod",
        description="Pequod: an ordered key-value cache whose views keep themselves fresh.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument("--version", action="version", version=f"pequod {version('pequod')}")
    subparsers = whole.add_subparsers(title="commands", metavar="COMMAND", required=True)
    serve.add_commands(subparsers)
    demo.add_command(subparsers)
    commands.add_commands(subparsers)
    watch.add_command(subparsers)
    top.add_command(subparsers)
    pipeline.add_command(subparsers)
    completion = subparsers.add_parser(
        "completion",
        help="print a script that completes commands in your shell",
        epilog='example:\n  eval "$(pequod completion bash)"',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    completion.add_argument("shell", choices=shtab.SUPPORTED_SHELLS)
    completion.set_defaults(run=lambda options: _complete(whole, options.shell))
    return whole


def _complete(whole: argparse.ArgumentParser, shell: str) -> int:
    print(shtab.complete(whole, shell))
    return DONE
