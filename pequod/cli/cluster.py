"""`pequod cluster`: check the map of a cluster, run one on this machine, and look at one."""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from pequod.cli.commands import add_json_option
from pequod.cli.output import write_json, write_table
from pequod.client import AsyncClient
from pequod.client.address import address_of
from pequod.cluster.partition import ClusterMap
from pequod.errors import BadRequest, PequodError, Unavailable
from pequod.joins.join import CacheJoin
from pequod.joins.parser import parse
from pequod.wire import DEFAULT_PORT

START_SECONDS = 30.0
STOP_SECONDS = 8.0

# The base tables of Twip, for a cluster that is started without joins.
TWIP = {"p|": ("p|<poster>|<time:10>", "poster"), "s|": ("s|<user>|<poster>", "user")}

EPILOG = """\
examples:
  pequod cluster up -n 3 --joins twip.pq        three servers here; the map is cluster/cluster.toml
  pequod cluster check cluster.toml             is the map right, and what does it say?
  pequod cluster status cluster.toml            how the servers see each other
  pequod cluster apply new.toml                 move rows to other homes, while it runs

A cluster's map has [nodes], and a [[partition]] for each table of base keys; see docs/cluster.md.
"""


def add_command(subparsers: Any) -> None:
    """Add `cluster` to the command line."""
    parser = subparsers.add_parser(
        "cluster",
        help="check the map of a cluster, run one here, look at one",
        description="Check, run and look at clusters of servers.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    check = actions.add_parser("check", help="check a map, and print what it says")
    check.add_argument("map", metavar="MAP", help="the cluster's map, a TOML file")
    add_json_option(check)
    check.set_defaults(run=run_check)

    status = actions.add_parser("status", help="how the servers of a cluster see each other")
    status.add_argument("map", metavar="MAP", help="the cluster's map, a TOML file")
    status.add_argument("--timeout", type=float, default=3.0, metavar="SECONDS", help="for each")
    add_json_option(status)
    status.set_defaults(run=run_status)

    apply = actions.add_parser("apply", help="give a cluster that runs another map")
    apply.add_argument("map", metavar="MAP", help="the new map; all its nodes must run")
    apply.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="for a step")
    add_json_option(apply)
    apply.set_defaults(run=run_apply)

    up = actions.add_parser("up", help="run a whole cluster on this machine, until Ctrl-C")
    up.add_argument("-n", type=int, default=3, metavar="N", help="homes (default: %(default)s)")
    up.add_argument("--computes", type=int, default=0, help="servers that only compute")
    up.add_argument("--joins", action="append", metavar="FILE", help="cache joins to install")
    up.add_argument("--map", metavar="MAP", help="run the servers of this map instead")
    up.add_argument("--directory", default="cluster", help="for the map (default: %(default)s)")
    up.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help="of the first server; 0: free ones"
    )
    up.set_defaults(run=run_up)


# The map.


def run_check(options: argparse.Namespace) -> int:
    """Print a map, or raise what is wrong with it."""
    partitions = ClusterMap.read(options.map)
    for url in partitions.nodes.values():
        address_of(url, None, None)
    if options.json:
        write_json(
            {
                "nodes": partitions.nodes,
                "homes": partitions.homes,
                "compute": partitions.compute,
                "partitions": [line for one in partitions.partitions for line in one.lines()],
                "version": partitions.version,
            }
        )
    else:
        print("\n".join(partitions.lines()))
    return 0


# The servers.


def run_status(options: argparse.Namespace) -> int:
    """Print what every node says; the exit code is 3 if one does not answer."""
    partitions = ClusterMap.read(options.map)
    found = asyncio.run(_ask_all(partitions, options.timeout))
    if options.json:
        write_json(found)
    else:
        _write_status(found)
    return 3 if any("error" in one for one in found.values()) else 0


async def _ask_all(partitions: ClusterMap, timeout: float) -> dict[str, dict[str, Any]]:
    async def ask(url: str) -> dict[str, Any]:
        async with AsyncClient(url, timeout=timeout) as client:
            try:
                return await client.cluster()
            except PequodError as error:
                return {"error": str(error)}

    answers = await asyncio.gather(*(ask(url) for url in partitions.nodes.values()))
    return dict(zip(partitions.nodes, answers, strict=True))


def _write_status(found: dict[str, dict[str, Any]]) -> None:
    nodes: list[Sequence[Any]] = []
    links: list[Sequence[Any]] = []
    for name, one in found.items():
        home = one.get("home")
        if "error" in one:
            nodes.append((name, one["error"], "", "", "", ""))
        elif home is None:
            nodes.append((name, "computes", "", "", "", one["map"]))
        else:
            kind = "home, durable" if home["durable"] else "home"
            log = f"{home['log_entries']} entries"
            nodes.append((name, kind, home["epoch"], home["number"], log, one["map"]))
        for other, seen in one.get("homes", {}).items():
            told = (found.get(other) or {}).get("home") or {}
            behind = told["number"] - seen["number"] if told.get("epoch") == seen["epoch"] else "?"
            age = "never" if seen["age_seconds"] is None else f"{seen['age_seconds']:.2f} s"
            state = "live" if seen["live"] else "lost"
            links.append((name, other, state, behind, age, seen["ranges"], seen["restarted"]))
    write_table(("node", "is", "epoch", "number", "log", "map"), nodes)
    print()
    write_table(("node", "of home", "link", "behind", "age", "ranges", "restarts"), links)


# Another map.


def run_apply(options: argparse.Namespace) -> int:
    """Take all nodes to another map, step by step."""
    partitions = ClusterMap.read(options.map)
    text = Path(options.map).read_text("utf-8")
    asyncio.run(_apply(partitions, text, options.timeout))
    if options.json:
        write_json({"version": partitions.version})
    else:
        print(f"all nodes have map {partitions.version}, and keep it for their next start")
    return 0


async def _apply(partitions: ClusterMap, text: str, timeout: float) -> None:
    async with contextlib.AsyncExitStack() as stack:
        clients = {
            name: await stack.enter_async_context(AsyncClient(url, timeout=timeout))
            for name, url in partitions.nodes.items()
        }
        for name, client in clients.items():
            running = await client.cluster()
            if strangers := running["homes"].keys() - clients.keys():
                raise BadRequest(
                    f"home {min(strangers)} of node {name} is not in the new map; keep it as a node"
                )
        try:
            for step in ("freeze", "pull", "leave"):
                await _step(clients, step, text)
        except BaseException:
            with contextlib.suppress(PequodError):  # whoever is dead starts with the old map
                await _step(clients, "thaw", text)
            raise
        await _step(clients, "switch", text)


async def _step(clients: dict[str, AsyncClient], step: str, text: str) -> None:
    print(f"{step} ...", file=sys.stderr, flush=True)
    done = await asyncio.gather(
        *(client.move(step, text) for client in clients.values()), return_exceptions=True
    )
    for name, error in zip(clients, done, strict=True):
        if isinstance(error, PequodError):
            raise type(error)(f"node {name}, step {step}: {error}") from error
        if isinstance(error, BaseException):
            raise error


# A cluster here.


def run_up(options: argparse.Namespace) -> int:
    """Run servers until interrupted."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end as by Ctrl-C
    path = Path(options.map) if options.map else _write_map(options)
    partitions = ClusterMap.read(str(path))
    with contextlib.ExitStack() as stack:
        for name in partitions.nodes:
            stack.callback(_end, _start(path, name, options.joins or ()))
        for name, url in partitions.nodes.items():
            _wait(name, url)
            kind = "home" if name in partitions.homes else "computes"
            print(f"{name}  {url}  {kind}", flush=True)
        print(f'map {path}; AsyncClient("{path}") reads and writes. Ctrl-C ends it.', flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
    return 0


def _write_map(options: argparse.Namespace) -> Path:
    if not 1 <= options.n <= len(ascii_lowercase) or options.computes < 0:
        raise BadRequest(f"-n is from 1 up to {len(ascii_lowercase)}")
    homes = list(ascii_lowercase[: options.n])
    names = homes + [f"x{number}" for number in range(1, options.computes + 1)]
    first = options.port
    ports = range(first, first + len(names)) if first else [_free_port() for _ in names]
    lines = ["[nodes]"]
    lines += [f'{name} = "pequod://127.0.0.1:{port}"' for name, port in zip(names, ports)]
    if options.computes:
        lines.insert(0, f"compute = {json.dumps(names[options.n :])}\n")
    for pattern, slot in _base_patterns(options.joins or ()):
        lines += ["", "[[partition]]", f"key = {json.dumps(pattern)}"]
        lines += [f"hash = {json.dumps(slot)}", f"homes = {json.dumps(homes)}"]
    directory = Path(options.directory)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "cluster.toml"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def _base_patterns(files: Sequence[str]) -> list[tuple[str, str]]:
    """A pattern for each base table that joins read, with its first slot."""
    try:
        joins: list[CacheJoin] = [j for file in files for j in parse(Path(file).read_text("utf-8"))]
    except OSError as error:
        raise BadRequest(f"joins: cannot read {error.filename}: {error.strerror}") from error
    outputs = {join.output.literal_head for join in joins}
    found = dict(TWIP) if not joins else {}
    for join in joins:
        for source in join.sources:
            pattern = source.pattern
            if pattern.literal_head not in outputs and pattern.slots:
                entry = (pattern.text, pattern.slots[0].name)
                found.setdefault(pattern.literal_head, entry)
    return list(found.values())


def _start(path: Path, name: str, joins: Sequence[str]) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "pequod", "serve", "--cluster", str(path), "--node", name]
    for file in joins:
        command += ["--joins", file]
    return subprocess.Popen([*command, "--log-level", "warning"], env=os.environ)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait(name: str, url: str) -> None:
    address = address_of(url, None, None)
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection((address.host, address.port), 1.0).close()
            return
        except OSError as error:
            if time.monotonic() > end:
                raise Unavailable(f"node {name} does not start at {url}: {error}") from error
            time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
