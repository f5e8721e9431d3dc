"""Real processes on this machine: killed, paused and started again under a Twip workload."""

import asyncio
import signal

from pequod import AsyncClient
from tests.cluster.live import JOINS, with_database, write_map
from tests.cluster.processes import Processes, User, check_everything

NAMES = ("ann", "bob", "kim", "zoe")


async def workload(processes, misfortunes):
    """Users go on while things happen; gives what they have to say afterwards."""
    async with AsyncClient(str(processes.path), timeout=4.0) as client:
        await processes.ready(client)
        end = asyncio.Event()
        users = [User(client, name, NAMES, seed) for seed, name in enumerate(NAMES)]
        going = [asyncio.ensure_future(user.go_on(end)) for user in users]
        try:
            for misfortune, name in misfortunes:
                await asyncio.sleep(0.4)
                await misfortune(processes, name)
            await asyncio.sleep(0.4)
        finally:
            end.set()
        await asyncio.gather(*going)
        await processes.ready(client)
        return client, users


async def killed(processes, name):
    processes.kill(name)
    await asyncio.sleep(0.3)
    processes.start(name)


async def paused(processes, name):
    processes.send(name, signal.SIGSTOP)
    await asyncio.sleep(1.5)
    processes.send(name, signal.SIGCONT)


def test_killed_and_paused(tmp_path):
    path = write_map(tmp_path / "cluster.toml", homes="ab", computes="x")
    (tmp_path / "joins.pq").write_text(JOINS)
    misfortunes = [(paused, "x"), (killed, "b"), (paused, "a"), (killed, "x"), (paused, "b")]

    async def scenario(processes):
        _, users = await workload(processes, misfortunes)
        async with AsyncClient(str(path), timeout=10.0) as client:
            await check_everything(client, JOINS, users, durable=False)
        assert sum(user.writes for user in users) > 20
        assert sum(user.reads for user in users) > 20

    with Processes(path, ["--joins", str(tmp_path / "joins.pq")]) as processes:
        asyncio.run(scenario(processes))


def test_a_home_comes_back_from_its_database(tmp_path):
    path = write_map(tmp_path / "cluster.toml", homes="ab", computes="x")
    (tmp_path / "joins.pq").write_text(JOINS)
    of_homes = [f"--{name}={value}" for name, value in with_database(tmp_path).items()]

    async def scenario(processes):
        _, users = await workload(processes, [(killed, "b"), (killed, "a"), (paused, "b")])
        async with AsyncClient(str(path), timeout=10.0) as client:
            await check_everything(client, JOINS, users, durable=True)
        assert sum(user.writes for user in users) > 10
        assert sum(user.lost for user in users) == 0

    joins = ["--joins", str(tmp_path / "joins.pq")]
    with Processes(path, joins, a=of_homes, b=of_homes) as processes:
        asyncio.run(scenario(processes))
