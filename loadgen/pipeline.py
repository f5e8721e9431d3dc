"""The data pipeline's jobs, timed as a user gives them: whole commands, start of Spark included.

A world of 100,000 users, its trace, its timelines, a server that is loaded with both, and the
verification of that server; with `full`, also graph and trace at the size of the paper. The server
is on one core and the loader on the other.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from loadgen.report import Findings, Ratio, progress
from loadgen.servers import CLIENT_CORE, pin, start_pequod

JOINS = "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;\n"
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class World:
    """The sizes of one run."""

    users: int = 100_000
    edges: int = 4_000_000
    posts: int = 200_000
    partitions: int = 16


QUICK_WORLD = World(users=2000, edges=20_000, posts=2000, partitions=2)
FULL_WORLD = World(users=1_800_000, edges=72_000_000, posts=0)


def measure_pipeline(world: World, full: bool, seed: int) -> Findings:
    """Time every job; the folders are made anew and removed."""
    findings = Findings()
    with TemporaryDirectory(prefix="pequod-pipeline-") as name:
        _measure(world, Path(name), seed, findings)
    if full:
        with TemporaryDirectory(prefix="pequod-pipeline-") as name:
            _measure_full(Path(name), seed, findings)
    return findings


def _measure(world: World, folder: Path, seed: int, findings: Findings) -> None:
    kv, views, joins = folder / "world" / "kv", folder / "views", folder / "twip.pq"
    joins.write_text(JOINS, "utf-8")
    _graph(world, folder, seed, findings)
    _trace(world, folder, seed, findings)
    base_of = ("--joins", joins, "--base", kv)
    how = ("--partitions", world.partitions, "--memory", "6g")
    made = _run(findings, "materialize", *base_of, "--out", views, *how)
    rows, seconds = made["rows"], made["seconds"]
    basis = f"{rows:,} rows, sorted, Spark's start included"
    findings.ratios.append(Ratio("materialize_seconds_12m", seconds, 40, basis))
    with start_pequod("--joins", str(joins)) as server:
        url = f"pequod://127.0.0.1:{server.port}"
        base = _run(findings, "load", "--from", kv, "--to", url, core=CLIENT_CORE)
        both = _run(findings, "load", "--from", kv, "--from", views, "--to", url, core=CLIENT_CORE)
        seconds = base["seconds"] + both["seconds"]
        basis = f"{base['rows']:,} put in {base['seconds']:.1f} s, {rows:,} computed in "
        basis += f"{both['seconds']:.1f} s; the server has {server.memory_bytes() >> 20:,} MB"
        ratio = Ratio("load_rows_per_second", both["rows"] / seconds, 200_000, basis, at_least=True)
        findings.ratios.append(ratio)
        checked = _run(findings, "verify", *base_of, "--prefix", "t|", "--against", url, *how)
    basis = f"{checked['rows']:,} rows, Spark's own answer computed anew"
    findings.ratios.append(Ratio("verify_seconds_12m", checked["seconds"], 60, basis))


def _measure_full(folder: Path, seed: int, findings: Findings) -> None:
    made = _graph(FULL_WORLD, folder, seed, findings)
    exponent = f"follower exponent {made['follower_exponent']}"
    basis = (
        f"{made['edges']:,} edges; {exponent}, most followers {made['most_followers_share']:.1%}"
    )
    findings.ratios.append(Ratio("graph_seconds_72m", made["seconds"], 60, basis))
    traced = _trace(FULL_WORLD, folder, seed, findings)
    operations = sum(traced[name] for name in ("login", "subscribe", "check", "post"))
    basis = f"{operations:,} operations"
    findings.ratios.append(Ratio("trace_seconds_70m", traced["seconds"], 150, basis))


def _graph(world: World, folder: Path, seed: int, findings: Findings) -> dict[str, Any]:
    sizes = ("--users", world.users, "--edges", world.edges, "--posts", world.posts)
    out = ("--seed", seed, "--partitions", world.partitions, "--out", folder / "world")
    return _run(findings, "graph", *sizes, *out)


def _trace(world: World, folder: Path, seed: int, findings: Findings) -> dict[str, Any]:
    clients = 16 if world.users > 1_000_000 else 8
    out = ("--seed", seed, "--world", folder / "world", "--out", folder / "trace")
    checks = 5 if world == QUICK_WORLD else 50
    return _run(findings, "trace", "--checks-per-user", checks, "--clients", clients, *out)


def _run(findings: Findings, job: str, *options: object, core: int | None = None) -> dict[str, Any]:
    """Run a command of the pipeline; answers with what it said, and its seconds."""
    progress(f"pipeline {job}")
    command = [sys.executable, "-m", "pequod", "pipeline", job, "--json", *map(str, options)]
    begun = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        if core is not None:
            pin(process.pid, core)
        peak = _Peak(process.pid)
        said, errors = process.communicate()
        peak.stop()
    seconds = time.monotonic() - begun
    if process.returncode:
        raise SystemExit(f"pipeline {job} failed:\n{errors}")
    answer = {**json.loads(said), "seconds": seconds}
    facts = {name: value for name, value in answer.items() if name != "out"}
    findings.results.append({"job": job, **facts, "peak_memory_bytes": peak.bytes})
    return answer


class _Peak:
    """The most memory that a process and all below it have had at once."""

    def __init__(self, process: int) -> None:
        self.bytes = 0
        self._process = process
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.bytes = max(self.bytes, tree_bytes(self._process))
            if self._over.wait(POLL_SECONDS):
                return


def tree_bytes(process: int) -> int:
    """The memory of a process and all below it; 0 where there is no /proc.

    >>> tree_bytes(os.getpid()) > 1_000_000 or not Path("/proc/self").exists()
    True
    """
    children = defaultdict(list)
    pages: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text("ascii", "replace").rpartition(") ")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        number = int(path.parent.name)
        children[int(fields[1])].append(number)
        pages[number] = int(fields[21])
    rest, total = [process], 0
    while rest:
        number = rest.pop()
        total += pages.get(number, 0)
        rest += children[number]
    return total * os.sysconf("SC_PAGE_SIZE")
