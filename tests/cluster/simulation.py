"""A cluster in one process, in virtual time, over a network that a seed makes bad.

The servers are the real ones from the methods that a caller may use down to the engine; only
sockets, clock and chance are handed in. Every answer says what it reflects, and is compared with
what the oracle makes of just that: an answer may be old where that was allowed, but what it claims
is true. After the faults everything must heal.

    python -m tests.cluster.simulation --first 17 --seeds 1 --story
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

from pequod.client.tokens import Position
from pequod.cluster import home as homes
from pequod.cluster.home import Log
from pequod.cluster.partition import ClusterMap
from pequod.config import ServerConfig
from pequod.engine.cache import Cache
from pequod.errors import MissingData, PequodError, SourceDown, Unavailable
from pequod.keys import EVERYTHING
from pequod.server.access import ADMIN, Principal
from pequod.server.loading import Later, Loader
from pequod.server.node import Node
from pequod.server.service import Service
from tests.cluster.clients import Client
from tests.cluster.network import Network
from tests.cluster.virtual import VirtualLoop, run
from tests.cluster.world import (
    CHAOS_SECONDS,
    HEAL_SECONDS,
    JOINS,
    RANGES,
    TIMING,
    Violation,
)
from tests.oracle import expected_rows

CONFIG = ServerConfig()
FAULTS = ("loss", "doubling", "partition", "crash", "pause", "breaking", "moves")
BOSS = Principal("simulation", ADMIN)


class Host:
    """One process: a server of the cluster without its sockets."""

    def __init__(self, simulation: "Simulation", name: str) -> None:
        self.name = name
        self.is_dead = False
        loop, options = simulation.loop, simulation.options
        self.cache = Cache(clock=loop.time, memory_limit=options["memory_limit"])
        for join in simulation.joins:
            self.cache.add_join(join)
        self.node = Node(
            name,
            simulation.map,
            self.cache,
            connect=lambda url, *args: simulation.network.connect(
                self, url.removeprefix("pequod://"), *args
            ),
            new_epoch=simulation.new_epoch,
            timing=TIMING,
            clock=loop.time,
            read_seconds=1.5,
            max_log=options["max_log"],
            started=round(loop.time() * 1000),
        )
        self.loader = Loader(self.cache, self.node, seconds=2.0)
        self.methods = Service(self.cache, CONFIG, dict, self.node).caller(BOSS).methods
        if self.node.home is not None:
            simulation.record(self.node.home)
        self.node.start()

    async def call(self, method: str, *args: Any) -> Any:
        """As a connection does it."""
        try:
            return self.methods[method](*args)
        except (MissingData, Later) as reason:
            return await self.loader.finish(lambda: self.methods[method](*args), reason)

    def kill(self) -> None:
        self.is_dead = True
        for task in [
            *self.node._tasks.values(),
            *self.loader._tasks,
            *self.node._base_loader._tasks,
        ]:
            task.cancel()


class Simulation:
    """One run."""

    def __init__(self, seed: int, tell: Callable[[str], object] = id) -> None:
        self.seed = seed
        self.chance = chance = random.Random(seed)
        self.loop = VirtualLoop()
        self._tell = tell
        self._epochs = count(1)
        self._values = count(1)
        self.histories: dict[tuple[str, str], list[tuple[float, tuple[Any, ...]]]] = {}
        self.inherited: dict[tuple[str, str], dict[str, Any]] = {}  # with the rows of others
        self.kept: set[str] = set()  # epochs that ended without losing anything
        self.lives: dict[str, list[tuple[float, str]]] = {}
        self.reads = self.refused = 0
        self.reached: dict[str, int] = {}
        self.options = {
            "memory_limit": chance.choice([None, None, None, 6_000]),
            "max_log": chance.choice([500, 2_000, 1 << 20]),
            "delay": chance.choice([0.001, 0.005, 0.02, 0.08]),
            "loss": chance.choice([0, 0, 0.05, 0.3]),
            "doubling": chance.choice([0, 0, 0.2]),
            "partition": chance.choice([0, 0, 0.3]),
            "crash": chance.choice([0, 0, 0.25, 0.5]),
            "pause": chance.choice([0, 0, 0.25]),
            "breaking": chance.choice([0, 0, 0.4]),
            "evict": chance.choice([0, 0.2, 0.5]),
            "homes": chance.choice([1, 2, 3]),
            "computes": chance.choice([0, 1, 1, 2]),
            "moves": chance.choice([0, 0, 0, 1, 2]),
            "max_ahead": chance.choice([100, 1 << 20]),
            "max_push": chance.choice([2, 2000]),
        }
        homes.MAX_PUSH = self.options["max_push"]
        self.is_quiet = chance.random() < 0.1  # nothing happens that could hold up a write
        if self.is_quiet:
            self.options.update(dict.fromkeys(FAULTS, 0), delay=0.002)
        if self.options["moves"]:  # all nodes must run for that
            self.options["crash"] = 0
        self.joins = chance.sample(JOINS, chance.choice([1, 2, 3]))
        self.map = ClusterMap.parse(self._random_map(self.options["homes"]))
        self.network = Network(chance, self.loop)
        self.network.delay = self.options["delay"]
        self.network.tell = self.tell
        self.hosts: dict[str, Host] = self.network.hosts
        self._dead: list[Host] = []  # kept: a task that is collected while it waits is an error
        self.tell(f"{self.options} {self.joins} {self.map.lines()}")

    def _random_map(self, number: int) -> str:
        """A map with so many homes, in TOML."""
        nodes = "abc"[: self.options["homes"]] + "xy"[: self.options["computes"]]
        homes = list(nodes[:number])
        some = self.chance.sample(homes, len(homes))
        follows: dict[str, Any] = {"key": "s|<user>|<poster>", "hash": "user", "homes": homes}
        if self.chance.random() < 0.5:
            follows = {"range": ["s|", "s}"], "split": [["s|c", some[0]], ["s}", some[-1]]]}
        posts: dict[str, Any] = {"key": "p|<poster>|<time:2>", "hash": "poster", "homes": homes}
        if self.chance.random() < 0.3:
            posts = {"table": "p", "home": some[0]}
        lines = ["[nodes]", *(f'{name} = "pequod://{name}"' for name in nodes)]
        for partition in (follows, posts):
            lines += [
                "[[partition]]",
                *(f"{key} = {json.dumps(v)}" for key, v in partition.items()),
            ]
        return "\n".join(lines)

    def tell(self, text: str) -> None:
        self._tell(f"{self.loop.time():8.3f}  {text}")

    def reach(self, name: str) -> None:
        self.reached[name] = self.reached.get(name, 0) + 1

    # What has happened.

    def new_epoch(self) -> str:
        return f"e{next(self._epochs)}"

    def record(self, home: Any, inherited: dict[str, Any] | None = None) -> None:
        """Keep all that a home does, beside it, from the rows on that it begins with."""
        home._max_ahead = self.options["max_ahead"]
        history = self.histories[home.name, home.epoch] = []
        self.inherited[home.name, home.epoch] = inherited or {}
        self.lives.setdefault(home.name, []).append((self.loop.time(), home.epoch))
        append = partial(Log.append, home.log)

        def recorded(changes: Sequence[Any]) -> int:
            history.append((self.loop.time(), tuple(changes)))
            number = append(changes)
            assert number == len(history), "a change was numbered twice"
            return number

        home.log.append = recorded

    def base_at(self, cut: dict[str, Position]) -> dict[str, Any]:
        """All base rows as they were then, home by home."""
        base: dict[str, Any] = {}
        for home, epoch, number in cut.values():
            base.update(self.inherited[home, epoch])
            history = self.histories[home, epoch]
            if number > len(history):
                raise Violation(f"a cut {home}.{epoch}.{number} of the future")
            for _, changes in history[:number]:
                for key, value in changes:
                    if value is None:
                        base.pop(key, None)
                    else:
                        base[key] = value
        return base

    def now(self) -> dict[str, Position]:
        """Where all homes are."""
        return {
            name: Position(name, host.node.home.epoch, host.node.home.log.number)
            for name, host in self.hosts.items()
            if host.node.home is not None and (name, host.node.home.epoch) in self.histories
        }

    # One run.

    def run(self) -> None:
        run(self._run(), self.loop)
        if self.loop.problems:
            raise Violation(f"unseen errors: {self.loop.problems}")

    async def _run(self) -> None:
        for name in self.map.nodes:
            self.hosts[name] = Host(self, name)
        await asyncio.sleep(0.3)
        self.network.loss, self.network.doubling = self.options["loss"], self.options["doubling"]
        clients = [asyncio.ensure_future(Client(self, number).run()) for number in range(3)]
        chaos = asyncio.ensure_future(self._chaos())
        moves = asyncio.ensure_future(self._move())
        await asyncio.gather(*clients, chaos)
        self._mend()
        self._wake()
        await moves
        await self._heal()
        await self._check_all("after the faults")
        for host in self.hosts.values():
            host.cache.evict(EVERYTHING)
        await self._check_dropped()
        await self._check_all("after evicting everything")

    async def _chaos(self) -> None:
        chance, options, network = self.chance, self.options, self.network
        end = self.loop.time() + CHAOS_SECONDS
        while self.loop.time() < end:
            await asyncio.sleep(chance.expovariate(1 / 0.3))
            names = list(self.hosts)
            one, other = chance.choice(names), chance.choice(names)
            if chance.random() < options["partition"] and one != other:
                self.tell(f"{one} and {other} do not hear each other")
                network.cut[frozenset((one, other))] = None
            elif network.cut and chance.random() < 0.5:
                self._mend()
            if chance.random() < options["pause"]:
                self.tell(f"{one} is paused")
                network.paused[one] = None
            elif network.paused and chance.random() < 0.5:
                self._wake()
            if chance.random() < options["breaking"] and network.links:
                link = chance.choice(list(network.links))
                self.tell(f"the link of {link.caller.name} to {link.host.name} breaks")
                link.break_()
            if chance.random() < options["crash"]:
                await self._crash(one)
            if chance.random() < options["evict"]:
                keys = chance.choice(RANGES)
                self.tell(f"{one} evicts {keys}")
                self.hosts[one].cache.evict(keys)

    def _mend(self) -> None:
        self.tell("all hear each other")
        self.network.cut.clear()
        self.network.release()

    def _wake(self) -> None:
        self.tell("nobody is paused")
        self.network.paused.clear()
        self.network.release()

    async def _move(self) -> None:
        """Give the cluster other maps, as `pequod cluster apply` does."""
        for _ in range(self.options["moves"]):
            await asyncio.sleep(self.chance.uniform(0.2, 1.2))
            text = self._random_map(self.chance.choice([1, 2, 3]))
            following = ClusterMap.parse(text)
            if following.version == self.map.version:
                continue
            self.tell(f"another map: {following.lines()}")
            fails_after = self.chance.choice([None, None, "freeze", "pull", "leave"])
            try:
                for step in ("freeze", "pull", "leave"):
                    await self._step(step, text)
                    if step == fails_after:
                        raise Unavailable(f"somebody dies after {step}")
            except (SourceDown, Unavailable) as error:
                self.tell(f"it is taken back: {error}")
                await self._step("thaw", text)
                self.reach("thawed")
                continue
            base = self.base_at(self.now())
            self.kept.update(position.epoch for position in self.now().values())
            for name in self.chance.sample(list(self.hosts), len(self.hosts)):
                await self._ask(name, "switch", text)
                home = self.hosts[name].node.home
                if home is not None:
                    rows = {key: base[key] for key in base if following.is_home(key, name)}
                    self.record(home, rows)
            self.map = following
            self.reach("moved")

    async def _step(self, step: str, text: str) -> None:
        for name in list(self.hosts):
            await self._ask(name, step, text)

    async def _ask(self, name: str, step: str, text: str) -> None:
        arrived = self.loop.create_future()
        self.network.carry(name, name, lambda: arrived.set_result(None))
        await arrived
        self.tell(f"{step} at {name}")
        await self.hosts[name].call("move", step, text)

    async def _crash(self, name: str) -> None:
        self.tell(f"{name} crashes")
        host = self.hosts[name]
        host.kill()
        self._dead.append(host)
        self.network.drop_links(host, noticed=self.chance.random() < 0.6)
        await asyncio.sleep(self.chance.choice([0.0, 0.1, 0.5, 1.5]))
        self.network.paused.pop(name, None)
        self.hosts[name] = Host(self, name)
        self.reach("crash")

    async def _heal(self) -> None:
        self.network.loss = self.network.doubling = 0.0
        self.network.delay = 0.005
        await asyncio.sleep(HEAL_SECONDS)
        for host in self.hosts.values():
            for one in host.node.subscriptions.values():
                for name in ("resumed", "restarted", "gaps"):
                    self.reached[name] = self.reached.get(name, 0) + getattr(one, name)

    async def _check_all(self, when: str) -> None:
        cut = self.now()
        rows = expected_rows(self.joins, self.base_at(cut))
        for name, host in self.hosts.items():
            host.cache._check()
            try:
                found = [tuple(row) for row in await host.call("scan", *EVERYTHING)]
            except PequodError as error:
                raise Violation(f"{when}, {name} cannot be read: {error}") from error
            if found != rows:
                raise Violation(f"{when}, {name} has\n{found}\nand not\n{rows}")

    async def _check_dropped(self) -> None:
        """Homes and their subscribers agree on what is subscribed to."""
        await asyncio.sleep(2 * TIMING.beat + 0.3)
        for name, host in self.hosts.items():
            host.node.home and host.node.home._check()
            for other in self.hosts.values():
                if host.node.home is None:
                    continue
                theirs = [
                    list(o.ranges) for o in host.node.home.subscribers if o.node == other.name
                ]
                ours = list(other.node.subscriptions[name].ranges)
                if ours or theirs != [ours]:
                    raise Violation(f"{other.name} wants {ours} of {name}, which knows {theirs}")


def simulate(seed: int, tell: Callable[[str], object] = id) -> Simulation:
    """Run a seed; raises `Violation` if something is wrong."""
    simulation = Simulation(seed, tell)
    simulation.run()
    return simulation


def check(seed: int) -> Simulation:
    """The same, and a failure tells how to see it again."""
    story: list[str] = []
    try:
        return simulate(seed, story.append)
    except Exception as error:
        told = "\n".join(story[-200:])
        raise Violation(
            f"seed {seed}: {error!r}\n{told}\n"
            f"again: python -m tests.cluster.simulation --first {seed} --seeds 1 --story"
        ) from error


def main() -> None:
    parser = argparse.ArgumentParser(description="Simulate clusters until one of them errs.")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, help="how many; without it, until interrupted")
    parser.add_argument("--story", action="store_true", help="tell all that happens")
    options = parser.parse_args()
    began, reads, refused = time.monotonic(), 0, 0
    reached: dict[str, int] = {}
    seeds = range(options.first, options.first + options.seeds) if options.seeds else None
    for done, seed in enumerate(seeds or count(options.first), 1):
        simulation = simulate(seed, print) if options.story else check(seed)
        reads, refused = reads + simulation.reads, refused + simulation.refused
        for name, number in simulation.reached.items():
            reached[name] = reached.get(name, 0) + number
        if done % 500 == 0 or (seeds and seed == seeds[-1]):
            seconds = time.monotonic() - began
            print(
                f"{done} seeds in {seconds:.0f} s: {reads} answers true, "
                f"{refused} refused, {reached}",
                file=sys.stderr,
                flush=True,
            )


if __name__ == "__main__":
    main()
