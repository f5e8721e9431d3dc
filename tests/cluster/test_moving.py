"""Another map for a cluster that runs: nothing is lost, and nothing stale is served."""

import asyncio
import shutil
import sqlite3

import pytest

from loadgen.servers import free_port
from pequod import AsyncClient, BadRequest, Unavailable, prefix
from pequod.cli import cluster
from pequod.cli.cluster import _apply
from pequod.cluster.partition import ClusterMap
from tests.cluster.live import JOINS, running, started, until, with_database, write_map
from tests.oracle import expected_pairs

NAMES = [f"user{number}" for number in range(12)]


def changed(path, *replacements):
    """The text of a map with some of it replaced."""
    text = path.read_text()
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return text


async def apply(text, timeout=10.0):
    await _apply(ClusterMap.parse(text), text, timeout)


class Writer:
    """Writes rows one after the other, at whatever node, and reads what it wrote."""

    def __init__(self, client, name):
        self._client, self.name = client, name
        self.rows = {}
        self._number = 0

    async def go_on(self, end):
        session = self._client.session()
        nodes = list(self._client.map.nodes)
        while not end.is_set():
            self._number += 1
            key = f"p|{self.name}|{self._number % 50:010}"
            self.rows[key] = f"{self._number}"
            await session.put(key, self.rows[key])
            follow = f"s|{self.name}|{NAMES[self._number % len(NAMES)]}"
            self.rows[follow] = f"{self._number}"
            await session.put(follow, self.rows[follow])
            node = nodes[self._number % len(nodes)]
            other = self._client.at(node).session(session.token)
            assert await other.get(key) == self.rows[key], f"{node} has not {key}"
            assert await other.get(follow) == self.rows[follow], f"{node} has not {follow}"


def test_rows_move_under_load(tmp_path):
    path = write_map(tmp_path / "cluster.toml", homes="abc", computes="x")
    maps = [
        changed(path, ('homes = ["a", "b", "c"]', 'homes = ["a", "b", "c", "x"]')),
        changed(
            path, ('homes = ["a", "b", "c"]', 'homes = ["x"]'), ('"s|h", "a"', '"s|userb", "b"')
        ),
        changed(
            path, ('homes = ["a", "b", "c"]', 'homes = ["b", "a"]'), ('"s}", "c"', '"s}", "x"')
        ),
        path.read_text(),
    ]

    async def scenario():
        async with running(path, "abcx") as servers, AsyncClient(str(path)) as pq:
            await pq.add_join(JOINS)
            writers = [Writer(pq, name) for name in NAMES[:4]]
            end = asyncio.Event()
            going = [asyncio.ensure_future(writer.go_on(end)) for writer in writers]
            base = {f"p|{name}|9999999999": "kept" for name in NAMES}
            await pq.put_many(base)
            for text in maps:
                before = [writer._number for writer in writers]
                await until(
                    lambda before=before: (
                        any(one.done() for one in going)
                        or all(
                            writer._number > number + 5 for writer, number in zip(writers, before)
                        )
                    )
                )
                for one in going:
                    assert not one.done() or one.result() is None
                await apply(text)
                assert {one.node.map.version for one in servers.values()} == {
                    ClusterMap.parse(text).version
                }
                assert path.read_text() == text
            end.set()
            await asyncio.gather(*going)
            for writer in writers:
                base.update(writer.rows)
            for name, server in servers.items():
                async with AsyncClient(server.url) as client:
                    for table in ("p|", "s|", "t|", "followers|"):
                        found = await client.scan(*prefix(table))
                        assert found == expected_pairs([JOINS], base, *prefix(table)), (name, table)
            rows = sum(one.node.base.stats()["keys"] for one in servers.values())
            assert rows == len(base), "rows are in one place each"

    asyncio.run(scenario())


def test_a_move_that_cannot_be_is_taken_back(tmp_path):
    path = write_map(tmp_path / "cluster.toml", homes="ab")

    async def scenario():
        async with running(path, "ab") as servers, AsyncClient(str(path)) as pq:
            await pq.put("s|ann|bob", "1")
            lacking = changed(
                path,
                ('range = ["s|", "s}"]', 'range = ["s|", "s|k"]'),
                (', ["s}", "b"]]', ', ["s|k", "b"]]'),
            )
            with pytest.raises(BadRequest, match="its rows would be lost"):
                await apply(lacking)
            await pq.put("s|ann|kim", "1")  # nothing is frozen
            assert await pq.count(*prefix("s|")) == 2
            assert all(one.node.home.next is None for one in servers.values())
            assert path.read_text() != lacking

    asyncio.run(scenario())


POSTS = {f"p|{name}|0000000001": name for name in NAMES}
FOLLOWS = {f"s|ann|{name}": "1" for name in NAMES}


async def check_timeline(servers, posts=POSTS):
    for name, server in servers.items():
        async with AsyncClient(server.url) as client:
            rows = await client.scan(*prefix("t|ann|"))
            assert rows == expected_pairs([JOINS], posts | FOLLOWS, *prefix("t|ann|")), name


def test_a_node_that_the_others_did_not_know_becomes_a_home(tmp_path):
    path = write_map(tmp_path / "cluster.toml", homes="ab")
    larger = tmp_path / "larger.toml"
    larger.write_text(
        changed(path, ("[nodes]", f'[nodes]\nx = "pequod://127.0.0.1:{free_port()}"'))
    )

    async def scenario():
        async with running(path, "ab") as servers, AsyncClient(str(path)) as pq:
            await pq.add_join(JOINS)
            await pq.put_many(POSTS | FOLLOWS)
            servers["x"] = await started(larger, "x")
            await check_timeline(servers)
            await apply(changed(larger, ('homes = ["a", "b"]', 'homes = ["x", "b"]')))
            assert servers["x"].node.base.stats()["keys"] > 0
            await check_timeline(servers)

    asyncio.run(scenario())


def test_a_home_made_by_a_map_follows_its_database(tmp_path):
    path = write_map(tmp_path / "cluster.toml", homes="ab", computes="x")
    durable = with_database(tmp_path)
    database = sqlite3.connect(tmp_path / "twip.db")

    async def scenario():
        async with running(path, "abx", **durable) as servers, AsyncClient(str(path)) as pq:
            await pq.add_join(JOINS)
            await pq.put_many(POSTS | FOLLOWS)
            await check_timeline(servers)
            await apply(changed(path, ('homes = ["a", "b"]', 'homes = ["x"]')))
            await check_timeline(servers)
            session = pq.session()
            for number in range(2, 5):
                await session.put(f"p|user1|{number:010}", "new")
                assert len(await session.scan(*prefix("t|ann|"))) == len(NAMES) + number - 1
            with database:
                database.execute("INSERT INTO posts VALUES ('user2', 2, 'by SQL')")
            async with AsyncClient(servers["a"].url) as client:
                while len(await client.scan(*prefix("t|ann|"))) < len(NAMES) + 4:
                    await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(scenario(), 20.0))
    database.close()


def test_rows_do_not_move_into_or_out_of_a_database(tmp_path):
    path = write_map(tmp_path / "cluster.toml", homes="ab", computes="x")
    durable = with_database(tmp_path)

    async def scenario():
        async with running(path, "ab") as servers, AsyncClient(str(path)) as pq:
            servers["x"] = await started(path, "x", **durable)
            await pq.add_join(JOINS)
            await pq.put_many(POSTS | FOLLOWS)
            with pytest.raises(BadRequest, match="one of them has a database"):
                await apply(changed(path, ('homes = ["a", "b"]', 'homes = ["x"]')))
            await pq.put_many(POSTS)
            await check_timeline(servers)

    asyncio.run(scenario())


@pytest.mark.parametrize("dies_before", ["pull", "leave", "switch"])
def test_a_node_dies_while_the_map_changes(tmp_path, monkeypatch, dies_before):
    path = write_map(tmp_path / "cluster.toml", homes="ab", computes="xy")
    own = {name: shutil.copy(path, tmp_path / f"{name}.toml") for name in "abxy"}
    text = changed(path, ('homes = ["a", "b"]', 'homes = ["b", "y"]'), ('"s|h", "a"', '"s|h", "y"'))
    take_step = cluster._step

    async def scenario():
        servers = {name: await started(own[name], name) for name in own}

        async def step(clients, name, text):
            if name == dies_before and servers["x"] in alive:
                alive.remove(servers["x"])
                await servers["x"].stop()
            await take_step(clients, name, text)

        alive = list(servers.values())
        monkeypatch.setattr(cluster, "_step", step)
        try:
            async with AsyncClient(str(path)) as pq:
                await pq.add_join(JOINS)
                await pq.put_many(POSTS | FOLLOWS)
                with pytest.raises(Unavailable, match=f"node x, step {dies_before}"):
                    await apply(text, 1.0)
                await check_timeline({name: servers[name] for name in "aby"})
                await pq.put_many(POSTS)  # nobody waits for the node that is gone
                servers["x"] = await started(own["x"], "x")
                await apply(text)
                await check_timeline(servers)
                assert {one.node.map.version for one in servers.values()} == {
                    ClusterMap.parse(text).version
                }
        finally:
            for server in servers.values():
                await server.stop()

    asyncio.run(scenario())
