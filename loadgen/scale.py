"""Twip on one server and on clusters: what a timeline check costs as compute servers are added.

A cluster has one home, which takes all writes, and compute servers, which take all reads, as in the
paper's section 5.5; a user is always read at the same one. All systems run side by side and take
turns, so that a busy moment of the machine hits all of them. There are more servers than
cores, so it is the CPU time of the servers that is compared, not how long anything takes.
"""

import asyncio
import json
import random
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from loadgen.report import Findings, Ratio, progress
from loadgen.servers import CLIENT_CORE, ServerProcess, free_port, pin, start_pequod
from loadgen.world import TIMELINE, follow_key, post_key, timeline_range, user_name
from pequod import AsyncClient

AT_ONCE = 16  # calls that are under way, for each server that is read
PAGE = 20  # rows of a timeline check
CLUSTERS = (2, 4)  # compute servers

MAX_CPU_RATIO = 1.15
FOLLOWS_PER_100_CHECKS, POSTS_PER_100_CHECKS = 10, 1  # as in the paper


@dataclass(frozen=True)
class Scale:
    """How much to do."""

    users: int = 1500
    followees: int = 30
    posts: int = 10  # of each user, before
    checks: int = 8000  # in each round
    rounds: int = 5


QUICK_SCALE = Scale(users=60, followees=8, posts=4, checks=300, rounds=1)


@dataclass
class System:
    """A server or a cluster that runs the load."""

    name: str
    client: Any
    readers: list[ServerProcess]
    home: ServerProcess
    check_seconds: list[float] = field(default_factory=list)  # of CPU, for each round
    mixed_seconds: list[float] = field(default_factory=list)
    home_seconds: list[float] = field(default_factory=list)
    client_bytes: int = 0
    subscription_bytes: int = 0
    cache_bytes: int = 0

    def cpu(self) -> float:
        return sum(server.cpu_seconds() for server in self.readers)


def measure_scale(scale: Scale, seed: int) -> Findings:
    """Run the load everywhere, and compare."""
    pin(0, CLIENT_CORE)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory()))
        single = stack.enter_context(start_pequod())
        systems = [
            System("single", AsyncClient(f"pequod://127.0.0.1:{single.port}"), [single], single)
        ]
        systems += [_start_cluster(stack, directory, number) for number in CLUSTERS]
        asyncio.run(_run(systems, scale, seed))
    return _findings(systems, scale)


def _start_cluster(stack: ExitStack, directory: Path, computes: int) -> System:
    names = ["home", *(f"x{number}" for number in range(computes))]
    ports = {name: free_port() for name in names}
    lines = [f"compute = {json.dumps(names[1:])}", "[nodes]"]
    lines += [f'{name} = "pequod://127.0.0.1:{port}"' for name, port in ports.items()]
    for table in ("p", "s"):
        lines += ["[[partition]]", f'table = "{table}"', 'home = "home"']
    path = directory / f"cluster{computes}.toml"
    path.write_text("\n".join(lines), "utf-8")
    servers = {}
    for name, port in ports.items():
        command = [sys.executable, "-m", "pequod", "serve", "--cluster", str(path), "--node", name]
        servers[name] = stack.enter_context(ServerProcess(command, port))
    for server in servers.values():
        server.wait(r"listening on \S+")
    home = servers.pop("home")
    return System(f"{computes} computes", AsyncClient(str(path)), list(servers.values()), home)


# The load.


async def _run(systems: list[System], scale: Scale, seed: int) -> None:
    users = [user_name(number) for number in range(scale.users)]
    for system in systems:
        progress(f"{system.name}: {scale.users} users log in")
        chance = random.Random(seed)
        await system.client.add_join(TIMELINE)
        rows = list(_base(users, scale, chance))
        for start in range(0, len(rows), 2000):
            await system.client.put_many(rows[start : start + 2000])
        await _all(system, (system.client.scan(*timeline_range(user)) for user in users))
    for number in range(scale.rounds):
        progress(f"round {number + 1} of {scale.rounds}")
        for system in systems:
            await _check(system, users, scale, random.Random(seed + number))
        for system in systems:
            await _mix(system, users, scale, random.Random(seed + number), number)
    for system in systems:
        system.cache_bytes = sum([(await one.stats())["bytes"] for one in _reading(system)])
        await system.client.close()


def _base(users: list[str], scale: Scale, chance: random.Random) -> Iterator[tuple[str, str]]:
    for user in users:
        for poster in chance.sample(users, scale.followees):
            yield follow_key(user, poster), "1"
        for time in range(scale.posts):
            yield (
                post_key(user, chance.randrange(10**9)),
                f"{user} says hello for the {time}th time",
            )


async def _check(system: System, users: list[str], scale: Scale, chance: random.Random) -> None:
    """Timeline checks and nothing else."""
    chosen = chance.choices(users, k=scale.checks)
    before = system.cpu()
    await _all(system, (system.client.scan(*timeline_range(user), PAGE, True) for user in chosen))
    system.check_seconds.append(system.cpu() - before)


async def _mix(
    system: System, users: list[str], scale: Scale, chance: random.Random, number: int
) -> None:
    """The paper's mix of checks, follows and posts."""
    calls: list[Callable[[], Awaitable[Any]]] = []
    client, now = system.client, 10**9 + number * scale.checks
    for turn in range(scale.checks // 4):
        user = chance.choice(users)
        calls.append(lambda user=user: client.scan(*timeline_range(user), PAGE, True))
        if turn % 100 < FOLLOWS_PER_100_CHECKS:
            key = follow_key(chance.choice(users), chance.choice(users))
            calls.append(lambda key=key: client.put(key, "1"))
        if turn % 100 < POSTS_PER_100_CHECKS:
            key = post_key(chance.choice(users), now + turn)
            calls.append(lambda key=key, user=user: client.put(key, f"{user} says hello again"))
    before, home, told = system.cpu(), system.home.cpu_seconds(), await _told(system)
    done = await _all(system, (call() for call in calls))
    system.mixed_seconds.append(system.cpu() - before)
    system.home_seconds.append(system.home.cpu_seconds() - home)
    system.subscription_bytes += await _told(system) - told
    system.client_bytes += sum(map(_weight, done))


async def _all(system: System, calls: Iterable[Awaitable[Any]]) -> list[Any]:
    """The results of all calls, some of them under way at any time."""
    at_once = AT_ONCE * len(system.readers)
    found: list[Any] = []
    batch: list[Awaitable[Any]] = []
    for call in calls:
        batch.append(call)
        if len(batch) == at_once:
            found += await asyncio.gather(*batch)
            batch = []
    return found + await asyncio.gather(*batch)


def _reading(system: System) -> list[Any]:
    if system.name == "single":
        return [system.client]
    return [system.client.at(name) for name in system.client.map.compute]


async def _told(system: System) -> int:
    """The bytes between the compute servers and the home so far."""
    if system.name == "single":
        return 0
    return sum([(await one.cluster())["homes"]["home"]["bytes"] for one in _reading(system)])


def _weight(result: Any) -> int:
    """The bytes of a call and its answer on the wire, to within a few."""
    if isinstance(result, list):
        return 40 + sum(len(key) + len(value) + 4 for key, value in result)
    return 90


# What it has come to.


def _findings(systems: list[System], scale: Scale) -> Findings:
    findings = Findings()
    single = systems[0]
    for system in systems:
        findings.results.append(
            {
                "system": system.name,
                "cpu_us_per_check": median(system.check_seconds) / scale.checks * 1e6,
                "cpu_us_per_check_in_mix": median(system.mixed_seconds) / (scale.checks // 4) * 1e6,
                "home_cpu_us_per_check_in_mix": 0.0
                if system is single
                else median(system.home_seconds) / (scale.checks // 4) * 1e6,
                "client_bytes": system.client_bytes,
                "subscription_bytes": system.subscription_bytes,
                "cache_bytes": system.cache_bytes,
            }
        )
    for number, system in zip(CLUSTERS, systems[1:]):
        ratio = median(
            ours / theirs for ours, theirs in zip(system.check_seconds, single.check_seconds)
        )
        basis = (
            f"{median(system.check_seconds) / scale.checks * 1e6:.1f} us, "
            f"single server {median(single.check_seconds) / scale.checks * 1e6:.1f} us"
        )
        findings.ratios.append(Ratio(f"cpu_per_check_{number}", ratio, MAX_CPU_RATIO, basis))
    four = systems[-1]
    share = four.subscription_bytes / (four.subscription_bytes + four.client_bytes)
    basis = f"{four.subscription_bytes} of {four.subscription_bytes + four.client_bytes} bytes"
    findings.ratios.append(Ratio("subscription_bytes_share_4", share, 0.25, basis))
    basis = f"{four.cache_bytes / 1e6:.1f} MB, single server {single.cache_bytes / 1e6:.1f} MB"
    duplication = four.cache_bytes / single.cache_bytes
    findings.ratios.append(Ratio("memory_duplication_4", duplication, 2.0, basis))
    return findings
