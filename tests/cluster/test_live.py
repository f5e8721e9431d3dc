"""Real servers of a cluster in one event loop, over real sockets."""

import asyncio
import time
from urllib.request import urlopen

import pytest

from pequod import (
    AsyncClient,
    BadRequest,
    ComputedKey,
    DataLost,
    JoinError,
    SourceDown,
    TimedOut,
    Unavailable,
    prefix,
)
from pequod.cluster.client import ClusterClient
from pequod.cluster.subscriptions import Timing
from tests.cluster.live import JOINS, running, started, until, with_database, write_map


def test_any_server_answers_and_takes_writes(tmp_path):
    path = write_map(tmp_path / "cluster.toml", computes="x")

    async def scenario():
        async with running(path, "abcx") as servers:
            for name, server in servers.items():
                async with AsyncClient(server.url) as pq:
                    if name == "a":
                        await pq.add_join(JOINS)
                    await pq.put(f"s|ann|{name}", "1")
                    await pq.put(f"p|{name}|0000000100", f"from {name}")
            for server in servers.values():
                await until(lambda server=server: len(server.cache.joins()) == 2)
                async with AsyncClient(server.url) as pq:
                    rows = await pq.scan(*prefix("t|ann|"))
                    assert rows == [(f"t|ann|0000000100|{name}", f"from {name}") for name in "abcx"]
                    assert await pq.remove("s|ann|none") is False
            async with AsyncClient(servers["x"].url) as pq:
                assert await pq.remove("s|ann|b") is True
                assert await pq.count(*prefix("t|ann|")) == 3
                with pytest.raises(ComputedKey):
                    await pq.put("t|ann|0000000100|b", "forged")
                with pytest.raises(BadRequest, match="no partition"):
                    await pq.put("nowhere|1", "x")

    asyncio.run(scenario())


def test_a_session_sees_its_writes_at_every_server(tmp_path):
    path = write_map(tmp_path / "cluster.toml", homes="ab", computes="xy")

    async def scenario():
        async with running(path, "abxy") as servers, AsyncClient(str(path)) as pq:
            assert isinstance(pq, ClusterClient)
            await pq.add_join(JOINS)
            session = pq.session()
            for number in range(40):
                await session.put(f"p|bob|{number:010}", f"post {number}")
                await session.put("s|ann|bob", str(number))
                for name in servers:
                    other = pq.at(name).session(session.token)
                    assert len(await other.scan(*prefix("t|ann|"))) == number + 1
            assert len(session.token) < 200
            answer = await session.read(*prefix("t|ann|"), limit=2)
            assert len(answer.rows) == 2
            assert answer.age < 1.0

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", ["memory", "database"])
def test_a_write_is_not_held_up_until_the_next_probe(tmp_path, kind):
    path = write_map(tmp_path / "cluster.toml", homes="ab", computes="x")
    durable = with_database(tmp_path) if kind == "database" else {}

    async def scenario():
        async with running(path, "x") as servers, AsyncClient(servers["x"].url) as pq:
            for name in "ab":
                servers[name] = await started(path, name, **durable)
            await pq.put_many({"p|bob|0000000000": "0", "s|zoe|ann": "0"})
            began = time.monotonic()
            for number in range(5):
                await pq.put(f"p|bob|{number:010}", "1")
                await pq.put(f"s|zoe|{number}", "1")
            assert time.monotonic() - began < 10 * Timing().beat / 2

    asyncio.run(scenario())


def test_joins_reach_all_and_conflicts_are_refused(tmp_path):
    path = write_map(tmp_path / "cluster.toml", homes="ab", computes="x")

    async def scenario():
        async with running(path, "ab") as servers:
            async with AsyncClient(servers["b"].url) as pq:
                [one] = await pq.add_join("k|<poster> = count p|<poster>|<time:10>;")
                await pq.add_join("timeline: a|<b> = count p|<b>|<time:10>;")
                with pytest.raises(JoinError, match="another join is named"):
                    await pq.add_join("timeline: z|<b> = max p|<b>|<time:10>;")
                await pq.put("p|ann|0000000001", "x")
                with pytest.raises(JoinError):
                    await pq.add_join("p|<poster>|<user> = copy s|<user>|<poster>;")
            late = servers["x"] = await started(path, "x")
            await until(
                lambda: {j["name"] for j in late.cache.joins()} == {one["name"], "timeline"}
            )
            await servers["a"].stop()
            servers["a"] = await started(path, "a")
            await until(lambda: len(servers["a"].cache.joins()) == 2)
            async with AsyncClient(late.url) as pq:
                await pq.drop_join("timeline")
            await until(lambda: all(len(one.cache.joins()) == 1 for one in servers.values()))

    asyncio.run(scenario())


@pytest.mark.parametrize("late", ["a", "x"])
def test_a_late_joiner_does_not_change_joins(tmp_path, caplog, late):
    path = write_map(tmp_path / "cluster.toml", homes="ab", computes="x")
    (tmp_path / "joins.pq").write_text(JOINS)
    (tmp_path / "others.pq").write_text(
        JOINS.replace("count s", "max s") + "posts: posts|<poster> = count p|<poster>|<time>;"
    )

    async def scenario():
        async with running(path, "abx", joins=(str(tmp_path / "joins.pq"),)) as servers:
            await servers[late].stop()
            await asyncio.sleep(0.01)
            servers[late] = await started(path, late, joins=(str(tmp_path / "others.pq"),))
            await until(lambda: {len(one.cache.joins()) for one in servers.values()} == {3})
            await until(
                lambda: len({one.node.joins.agreement.digest for one in servers.values()}) == 1
            )
            for server in servers.values():
                texts = {join["name"]: join["text"] for join in server.cache.joins()}
                assert texts["followers"] == "followers|<poster> = count s|<user>|<poster>;"
        assert "join followers is another one in the cluster" in caplog.text

    asyncio.run(scenario())


def test_a_home_that_is_gone_is_missed(tmp_path):
    path = write_map(tmp_path / "cluster.toml", homes="ab", computes="x")

    async def scenario():
        async with running(path, "abx") as servers, AsyncClient(servers["x"].url) as pq:
            await pq.add_join(JOINS)
            home = {
                h: f"p|{n}|0000000001"
                for n in "klmnopq"
                for h in "ab"
                if servers["x"].node.map.home_of(f"p|{n}|0000000001") == h
            }
            token = [await pq.put(home[h], f"at {h}") for h in "ab"][1]
            assert await pq.get(home["a"]) == "at a"
            assert await pq.get(home["b"]) == "at b"
            await servers["b"].stop()
            servers["x"].node._read_seconds = 0.2
            servers["x"].node.subscriptions["b"]._patience = 0.2
            await until(lambda: servers["x"].node.clock() > servers["x"].node.fresh_until)
            with pytest.raises(SourceDown, match="home b has not been heard of"):
                await pq.get(home["b"])
            with pytest.raises(SourceDown, match="home b could not be reached"):
                await pq.put(home["b"], "lost")
            assert await pq.get(home["a"]) == "at a"
            answer = await pq.read(home["b"], home["b"] + "\0", stale=60)
            assert answer.rows == [(home["b"], "at b")]
            assert answer.age > 0.9
            servers["x"].node._read_seconds = 5.0
            servers["x"].node.subscriptions["b"]._patience = 5.0
            servers["b"] = await started(path, "b")
            assert await pq.get(home["b"]) is None  # it has no database
            with pytest.raises(DataLost, match="home b has lost"):
                await pq.get(home["b"], after=token)
            assert (await pq.cluster())["homes"]["b"]["live"]

    asyncio.run(scenario())


def test_what_a_server_tells_of_the_cluster(tmp_path):
    path = write_map(tmp_path / "cluster.toml", homes="ab", computes="x")

    async def scenario():
        async with running(path, "abx") as servers, AsyncClient(servers["x"].url) as pq:
            await pq.add_join(JOINS)
            await pq.put("s|ann|bob", "1")
            await pq.scan(*prefix("t|ann|"))
            home = servers["a"].node.status()
            assert home["home"]["number"] == 1
            assert {one["node"] for one in home["home"]["subscribers"]} == {"a", "b", "x"}
            seen = (await pq.stats())["server"]["cluster"]["homes"]["a"]
            assert (seen["live"], seen["number"]) == (True, 1)
            assert seen["ranges"] >= 1
            page = await asyncio.to_thread(fetched, servers["x"].url, "/metrics")
            assert 'pequod_cluster_live{home="a"} 1.0' in page
            assert "pequod_home_number" not in page
            assert "pequod_home_number 1" in await asyncio.to_thread(
                fetched, servers["a"].url, "/metrics"
            )
            # Evicting unsubscribes.
            servers["x"].cache.evict(prefix(""))
            await until(
                lambda: (
                    not any(
                        len(one.ranges)
                        for one in servers["a"].node.home.subscribers
                        if one.node == "x"
                    )
                )
            )

    asyncio.run(scenario())


def fetched(url: str, path: str) -> str:
    with urlopen(url.replace("pequod://", "http://") + path) as answer:
        return answer.read().decode()


def test_servers_with_another_map_do_not_talk(tmp_path):
    path = write_map(tmp_path / "cluster.toml", homes="ab")
    ports = {
        name: int(path.read_text().split(f"{name} = ")[1].split('"')[1].rpartition(":")[2])
        for name in "ab"
    }
    other = write_map(tmp_path / "other.toml", homes="ab", ports=ports)
    other.write_text(other.read_text().replace("s|h", "s|m"))

    async def scenario():
        async with running(path, "a") as servers:
            servers["b"] = await started(other, "b")
            servers["b"].node._read_seconds = 0.3
            async with AsyncClient(servers["b"].url) as pq:
                with pytest.raises((SourceDown, TimedOut)):
                    await asyncio.wait_for(pq.add_join(JOINS), 5.0)
            assert not servers["a"].node.subscriptions["b"].is_live

    asyncio.run(scenario())


def test_hot_prefixes_are_read_at_several_servers(tmp_path):
    path = write_map(tmp_path / "cluster.toml", homes="a", computes="xy")
    spread = 'compute = ["x", "y"]\nspread = [{prefix = "t|ann|", nodes = 2}]\n'
    path.write_text(spread + path.read_text())

    async def scenario():
        async with running(path, "axy") as servers, AsyncClient(str(path)) as pq:
            await pq.add_join(JOINS)
            await pq.put("s|ann|bob", "1")
            for number in range(30):
                await pq.put("p|bob|0000000001", str(number))
                assert len(await pq.scan(*prefix("t|ann|"))) == 1
            assert all(servers[name].service.calls["scan"] > 3 for name in "xy")
            await servers["x"].stop()  # the other one takes over
            for _ in range(5):
                assert len(await pq.scan(*prefix("t|ann|"))) == 1

    asyncio.run(scenario())


def test_a_token_outlives_a_home_with_a_database(tmp_path):
    path = write_map(tmp_path / "cluster.toml", homes="a", computes="x")
    durable = with_database(tmp_path)

    async def scenario():
        async with running(path, "x") as servers, AsyncClient(servers["x"].url) as pq:
            servers["a"] = await started(path, "a", **durable)
            await pq.add_join(JOINS)
            session = pq.session()
            await session.put_many({"s|ann|bob": "1", "p|bob|0000000001": "hello"})
            epoch = servers["a"].node.home.epoch
            await servers["a"].stop()
            servers["a"] = await started(path, "a", **durable)
            assert servers["a"].node.home.epoch != epoch
            assert epoch in session.token
            rows = await session.scan(*prefix("t|ann|"))
            assert rows == [("t|ann|0000000001|bob", "hello")]
            await session.remove("s|ann|bob")
            assert await session.scan(*prefix("t|ann|")) == []

    asyncio.run(scenario())


def test_a_watch_goes_on_at_another_server(tmp_path):
    path = write_map(tmp_path / "cluster.toml", homes="a", computes="xy")
    path.write_text('compute = ["x", "y"]\n' + path.read_text())

    async def scenario():
        async with running(path, "axy") as servers, AsyncClient(str(path)) as pq:
            await pq.add_join(JOINS)
            await pq.put_many({"s|ann|bob": "1", "p|bob|0000000001": "one"})
            events = pq.watch(*prefix("t|ann|"))
            assert (await anext(events)).rows == [("t|ann|0000000001|bob", "one")]
            for number, node in enumerate(pq.map.readers("t|ann|"), 2):
                await pq.put(f"p|bob|{number:010}", "more")
                assert (await anext(events)).key == f"t|ann|{number:010}|bob"
                await servers[node].stop()
                if number == 2:
                    assert len((await anext(events)).rows) == 2
            servers[node] = await started(path, node)
            assert len((await anext(events)).rows) == 3
            await pq.close()
            with pytest.raises(Unavailable):
                await anext(events)

    asyncio.run(asyncio.wait_for(scenario(), 20.0))


def test_a_watch_of_nobody(tmp_path):
    path = write_map(tmp_path / "cluster.toml", homes="ab")

    async def scenario():
        async with AsyncClient(str(path)) as pq:
            with pytest.raises(Unavailable, match="cannot reach"):
                await anext(pq.watch(*prefix("t|ann|")))

    asyncio.run(asyncio.wait_for(scenario(), 20.0))
