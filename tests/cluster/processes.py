"""Clusters of real processes, which tests kill, pause and start again, and users who go on."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pequod import AsyncClient, DataLost, SourceDown, Unavailable, prefix
from pequod.client.tokens import cut_of
from pequod.cluster.partition import ClusterMap
from tests.oracle import expected_pairs

SECONDS = 60.0  # that anything here may take, on a machine that is busy


class Processes:
    """The servers of a map, each in a process of its own."""

    def __init__(self, path: Path, options: Sequence[str] = (), **more: Sequence[str]) -> None:
        """`options` are for all of them, `more` for one, by name."""
        self.path = path
        self.map = ClusterMap.read(str(path))
        self._options, self._more = options, more
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        for name in self.map.nodes:
            self.start(name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._running.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
        for process in self._running.values():
            process.wait()

    def start(self, name: str) -> None:
        command = [sys.executable, "-m", "pequod", "serve", "--cluster", str(self.path)]
        command += ["--node", name, "--log-level", "error", *self._options]
        command += self._more.get(name, ())
        self._running[name] = subprocess.Popen(command, cwd=Path(__file__).parent.parent.parent)

    def send(self, name: str, number: int) -> None:
        os.kill(self._running[name].pid, number)

    def kill(self, name: str) -> None:
        """As the kernel does it, at any moment."""
        self._running[name].kill()
        self._running[name].wait()

    async def ready(self, client: Any) -> None:
        """Wait until all hear all."""
        end = time.monotonic() + SECONDS
        for name in self.map.nodes:
            while True:
                try:
                    status = await client.at(name).cluster()
                    if all(one["live"] for one in status["homes"].values()):
                        break
                except Unavailable:
                    pass
                assert time.monotonic() < end, f"{name} is not ready"
                await asyncio.sleep(0.05)


class User:
    """Posts, follows, and looks at whatever server, with a session that must not go backwards."""

    def __init__(self, client: Any, name: str, friends: Sequence[str], seed: int) -> None:
        self._client = client
        self._chance = random.Random(seed)
        self.name, self._friends = name, friends
        self._session = client.session()
        self._posts: dict[str, tuple[str, str]] = {}  # acknowledged: text, and epoch of the home
        self.unsure: set[str] = set()  # keys of writes that may have happened
        self.acknowledged: dict[str, tuple[str | None, str]] = {}
        self._number = 0
        self.writes = self.reads = self.refused = self.lost = 0

    async def go_on(self, end: asyncio.Event) -> None:
        while not end.is_set():
            try:
                if self._chance.random() < 0.5:
                    await self._write()
                else:
                    await self._read()
            except DataLost:
                self.lost += 1
            except (SourceDown, Unavailable):
                self.refused += 1
                await asyncio.sleep(0.02)

    async def _write(self) -> None:
        self._number += 1
        if self._chance.random() < 0.6:
            key, value = f"p|{self.name}|{self._number:010}", f"{self.name} {self._number}"
        else:
            key = f"s|{self.name}|{self._chance.choice(self._friends)}"
            value = None if self._chance.random() < 0.3 else str(self._number)
        self.unsure.add(key)
        node = self._chance.choice(list(self._client.map.nodes))
        token, _ = await self._client.at(node).write([(key, value)])
        self._session._learn(token)
        [position] = cut_of(token).values()
        self.unsure.discard(key)
        self.acknowledged[key] = (value, position.epoch)
        self.writes += 1

    async def _read(self) -> None:
        node = self._chance.choice(list(self._client.map.nodes))
        session = self._client.at(node).session(self._session.token)
        mine = prefix(f"p|{self.name}|")
        try:
            answer = await session.read(*mine)
        except DataLost:
            self._session._cut = {}
            raise
        [position] = cut_of(answer.cut).values()
        rows = dict(answer.rows)
        for key, (value, epoch) in self.acknowledged.items():
            if key in mine and epoch == position.epoch:
                assert rows.get(key) == value, f"{node} has forgotten {key}"
        self._session._learn(answer.cut)
        await session.scan(*prefix(f"t|{self.name}|"))
        self.reads += 1


async def check_everything(
    client: Any, joins: str, users: Sequence[User], *, durable: bool
) -> None:
    """After quiet, all servers say the same, and what the oracle says; nothing kept is lost."""
    nodes = list(client.map.nodes)
    base: dict[str, Any] = {}
    for table in ("p|", "s|"):
        found = [await patient(client.at(node), table) for node in nodes]
        assert all(rows == found[0] for rows in found), "servers differ"
        base.update(found[0])
    epochs = {
        node: status["home"]["epoch"]
        for node in client.map.homes
        for status in [await client.at(node).cluster()]
    }
    for user in users:
        for key, (value, epoch) in user.acknowledged.items():
            kept = durable or epochs[client.map.home_of(key)] == epoch
            if kept and key not in user.unsure:
                assert base.get(key) == value, f"{key} was acknowledged"
    for table in ("t|", "followers|"):
        expected = expected_pairs([joins], base, *prefix(table))
        for node in nodes:
            assert await patient(client.at(node), table) == expected, f"{table} at {node}"


async def patient(client: AsyncClient, table: str) -> list[Any]:
    """A scan, as soon as it can be answered."""
    end = time.monotonic() + SECONDS
    while True:
        try:
            return (await client.read(*prefix(table))).rows
        except (SourceDown, Unavailable):
            assert time.monotonic() < end, f"{table} cannot be read"
            await asyncio.sleep(0.05)
