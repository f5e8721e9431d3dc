"""Another map for a cluster that runs: nothing is lost, and nothing stale is served."""

import asyncio

import pytest

from pequod import AsyncClient, BadRequest, prefix
from pequod.cli.cluster import _apply
from pequod.cluster.partition import ClusterMap
from tests.cluster.live import JOINS, running, until, write_map
from tests.oracle import expected_pairs

NAMES = [f"user{number}" for number in range(12)]


def changed(path, *replacements):
    """The text of a map with some of it replaced."""
    text = path.read_text()
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return text


async def apply(text):
    await _apply(ClusterMap.parse(text), text, 10.0)


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
