"""`pequod serve` and `pequod token`: settings from flags, then variables, then a file."""

import argparse
import asyncio
import json
import logging
import os
import secrets
import signal
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from pequod.cli.commands import add_json_option
from pequod.cli.output import write_json
from pequod.client.address import address_of
from pequod.cluster.partition import ClusterMap
from pequod.config import ALIASES, ServerConfig
from pequod.errors import BadRequest
from pequod.server.access import ROLES, hash_of

log = logging.getLogger("pequod")

_ONE_OF = {"files": "file", "texts": "text", "count": "n", "secret": "text"}
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")

EPILOG = """\
examples:
  pequod serve --joins twip.pq
  pequod serve --config pequod.toml --check     is everything right with it?
  pequod serve --cluster cluster.toml --node a
  PEQUOD_MEMORY_LIMIT=2GB pequod serve --port 7800
  pequod serve --db sqlite:///twip.db --tables twip.toml --joins twip.pq
  pequod serve --db postgresql://app@db/twip --tables twip.toml --joins twip.pq --memory 2GB

Every setting is a flag (--max-rows 5000), a variable (PEQUOD_MAX_ROWS=5000) or a line in the file
of --config (max_rows = 5000); a flag beats a variable, and a variable the file. The token that may
do everything is no flag, since others could see it: PEQUOD_TOKEN, or `token = "..."` in the file.
"""

TOKEN_EPILOG = """\
example:
  pequod token --name web --role write --prefix 't|' --prefix 'p|' >> tokens.toml
  pequod serve --tokens tokens.toml

The part for the file goes to standard output; it has only the hash. The token itself, for the
client's PEQUOD_TOKEN, goes to standard error.
"""


def add_commands(subparsers: Any) -> None:
    """Add `serve` and `token` to the command line."""
    serving = subparsers.add_parser(
        "serve",
        help="run a server",
        description="Run a server, until it is stopped by SIGTERM or Ctrl-C.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serving.add_argument("--config", metavar="FILE", help="settings in TOML")
    serving.add_argument(
        "--check", action="store_true", help="check all settings and files, and exit"
    )
    serving.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS,
        help="with --check: print the settings as JSON",
    )
    for one in fields(ServerConfig):
        _add_flag(serving, one.name, one.default, one.metadata)
    serving.set_defaults(run=serve)

    token = subparsers.add_parser(
        "token",
        help="make a token for a server",
        description="Make a token, and the part of a token file that lets it in.",
        epilog=TOKEN_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    token.add_argument("--name", default="client", help="default: %(default)s")
    token.add_argument("--role", choices=ROLES, default="write", help="default: %(default)s")
    token.add_argument("--prefix", action="append", help="confine it to such keys; may be repeated")
    add_json_option(token)
    token.set_defaults(run=make_token)


def _add_flag(
    parser: argparse.ArgumentParser, name: str, default: Any, metadata: Mapping[str, Any]
) -> None:
    kind = metadata["kind"]
    if kind in ("secret", "counts"):
        return
    flag = f"--{name.replace('_', '-')}"
    shown = "" if default in (None, (), False) else f" (default: {default})"
    options: dict[str, Any] = {"help": metadata["help"] + shown, "default": None}
    if kind == "flag":
        options["action"] = "store_true"
    else:
        options["metavar"] = _ONE_OF.get(kind, kind).upper()
        options["choices"] = metadata["choices"]
        if kind in ("files", "texts"):
            options["action"] = "append"
            options["help"] += "; may be repeated"
        if metadata["choices"]:
            del options["metavar"]
    shorter = [f"--{short}" for short, long in ALIASES.items() if long == name]
    parser.add_argument(flag, *shorter, **options)


# Settings.


def configuration(options: argparse.Namespace, environment: Mapping[str, str]) -> ServerConfig:
    """The settings of flags, variables and file, in that order of precedence."""
    path = options.config or environment.get("PEQUOD_CONFIG")
    try:
        from_file = ServerConfig.settings(_file(path)) if path else {}
    except BadRequest as error:
        raise BadRequest(f"{path}: {error}") from error
    written: dict[str, Any] = {}
    for one in fields(ServerConfig):
        kind, flag = one.metadata["kind"], getattr(options, one.name, None)
        variable = environment.get(f"PEQUOD_{one.name.upper()}")
        if flag is not None and flag is not False:
            written[one.name] = flag
        elif variable:
            written[one.name] = variable.split(",") if kind in ("files", "texts") else variable
    read = {name: _read(name, value) for name, value in written.items()}
    settings = {**from_file, **ServerConfig.settings(read)}
    return ServerConfig(**{**_own_address(settings), **settings})


def _own_address(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Where the map of the cluster says that this server is."""
    cluster, node = settings.get("cluster"), settings.get("node")
    if not cluster or not node:
        return {}
    url = ClusterMap.read(cluster).nodes.get(node)
    if url is None:
        return {}  # the server says what is wrong
    address = address_of(url, None, None)
    return {"host": address.host, "port": address.port}


def _file(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise BadRequest(f"cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadRequest(f"is not TOML: {error}") from error


def _read(name: str, value: Any) -> Any:
    """A setting from the text of a flag or a variable."""
    kinds = {one.name: one.metadata["kind"] for one in fields(ServerConfig)}
    number: dict[str, Callable[[str], float]] = {"count": int, "seconds": float}
    if not isinstance(value, str):
        return value
    if kinds[name] == "flag" and value.lower() in _TRUE + _FALSE:
        return value.lower() in _TRUE
    if kinds[name] == "counts":
        return {table: _whole(name, bars) for table, _, bars in _parted(value)}
    if kinds[name] in number:
        try:
            return number[kinds[name]](value)
        except ValueError as error:
            raise BadRequest(f"{name}: {value!r:.60} is not a number") from error
    return value


def _parted(text: str) -> list[tuple[str, str, str]]:
    return [part.partition("=") for part in text.split(",")]


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise BadRequest(f"{name}: write table=number, as in t=2, not {text!r:.60}") from error


# Running.


def serve(options: argparse.Namespace) -> int:
    """Run a server until it is told to stop."""
    from pequod.server.server import Server  # aiohttp takes a while to import

    config = configuration(options, os.environ)
    _log_to_stderr(config)
    server = Server(config)
    if options.check:
        if options.json:
            shown = {one.name: getattr(config, one.name) for one in fields(config)}
            hidden = {name: "set" for name in ("token", "db") if shown[name]}
            write_json(shown | hidden)
        else:
            joins = len(server.cache.joins())
            print(f"fine: would listen on {config.host}:{config.port}, {joins} joins")
        return 0
    _allow_many_files()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_run(server))
    logging.shutdown()
    os._exit(0)  # to give millions of rows back one by one would take Python seconds


async def _run(server: Any) -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if told.is_set():  # told twice: at once
            os._exit(1)
        told.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    async with server:
        log.info("listening on %s", server.url)
        await told.wait()
        log.info("stopping")
        await server.give_notice()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it exists."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _allow_many_files() -> None:
    """Each connection is a file to the system, and the usual limit is 1024."""
    try:
        import resource
    except ImportError:  # Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class _JsonFormatter(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _log_to_stderr(config: ServerConfig) -> None:
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S")
    handler.setFormatter(_JsonFormatter() if config.log_format == "json" else text)
    logging.basicConfig(level=config.log_level.upper(), handlers=[handler], force=True)


# Tokens.


def make_token(options: argparse.Namespace) -> int:
    """Print a new token and its part of a token file."""
    token = secrets.token_urlsafe(32)
    entry: dict[str, Any] = {"name": options.name, "sha256": hash_of(token), "role": options.role}
    if options.prefix:
        entry["prefixes"] = options.prefix
    if options.json:
        write_json({"token": token, **entry})
        return 0
    print("[[token]]")
    for name, value in entry.items():
        print(f"{name} = {json.dumps(value, ensure_ascii=False)}")
    print(flush=True)
    print(f"PEQUOD_TOKEN={token}", file=sys.stderr)
    return 0
