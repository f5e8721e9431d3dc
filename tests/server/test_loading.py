"""Calls that wait for data from elsewhere: a server over a source that keeps its rows in memory."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

import pytest

from pequod import AsyncClient, Cache, MissingData, SourceDown, prefix
from pequod.config import ServerConfig
from pequod.keys import KeyRange, Pair, Value
from pequod.server import Server
from pequod.server.binary import MAX_AWAITED
from pequod.server.loading import MAX_ROUNDS, Loader
from tests.server.helpers import Web, Wire, until

TIMELINE = "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;"
TABLES = [prefix("s|"), prefix("p|")]


class Memory:
    """Rows that live elsewhere; loads may be held, and fail."""

    def __init__(self, **rows: str) -> None:
        self.rows: dict[str, Value] = {key.replace("_", "|"): value for key, value in rows.items()}
        self.cache: Cache | None = None
        self.loads: list[list[KeyRange]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: Exception | None = None
        self.number = 0  # of the last write
        self.seen = 0  # of the last write that the cache has
        self.told = asyncio.Event()

    async def load(self, keys: Sequence[KeyRange]) -> Sequence[Iterable[Pair]]:
        self.loads.append(list(keys))
        found = [sorted(row for row in self.rows.items() if row[0] in one) for one in keys]
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return found

    def takes(self, keys: KeyRange) -> bool:
        return any(keys.overlaps(table) for table in TABLES)

    async def write(self, changes: Sequence[tuple[str, Value | None]]) -> tuple[str, int]:
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        removed = 0
        assert self.cache is not None
        for key, value in changes:
            if value is None:
                removed += self.rows.pop(key, None) is not None
                self.cache.remove(key)
            else:
                self.rows[key] = value
                self.cache.put(key, value)
        self.number = self.seen = self.number + 1
        return str(self.number), removed

    def has(self, token: str) -> bool:
        return self.seen >= int(token)

    async def reach(self, token: str) -> None:
        while not self.has(token):
            self.told.clear()
            await self.told.wait()


def world(posters: int = 3) -> Memory:
    """Ann follows so many, each with a post."""
    memory = Memory()
    for number in range(posters):
        memory.rows[f"s|ann|{number:03}"] = "1"
        memory.rows[f"p|{number:03}|{number:010}"] = f"post {number}"
    return memory


@asynccontextmanager
async def over(memory: Memory, **settings) -> AsyncIterator[Server]:
    server = Server(ServerConfig(port=0, **settings), source=memory)
    memory.cache = server.cache
    for keys in TABLES:
        server.cache.declare_remote(keys)
    server.cache.add_join(TIMELINE)
    async with server:
        yield server


def test_a_timeline_takes_two_rounds_of_fetches(run):
    async def scenario():
        memory = world(200)
        async with over(memory) as server, AsyncClient(server.url) as pq:
            rows = await pq.scan(*prefix("t|ann|"))
            assert [value for _, value in rows] == [f"post {number}" for number in range(200)]
            assert len(memory.loads) == 2
            assert len(memory.loads[1]) == 200
            assert await pq.scan(*prefix("t|ann|")) == rows
            assert await pq.count(*prefix("t|ann|")) == 200
            assert await pq.get("p|000|0000000000") == "post 0"
            assert (await pq.timed("get", "p|000|0000000000"))[0] == "post 0"
            assert len(memory.loads) == 2

    run(scenario())


def test_callers_of_one_range_share_a_fetch(run):
    async def scenario():
        memory = world()
        memory.gate.clear()
        async with (
            over(memory) as server,
            AsyncClient(server.url) as pq,
            AsyncClient(server.url) as other,
        ):
            calls = [
                asyncio.create_task(client.scan(*prefix("t|ann|"))) for client in (pq, other) * 5
            ]
            part = asyncio.create_task(pq.scan("s|ann|001", "s|ann|002"))
            await until(lambda: server._port.loader.calls == 11)
            memory.gate.set()
            answers = await asyncio.gather(*calls)
            assert answers == [answers[0]] * 10
            assert await part == [("s|ann|001", "1")]
            assert [len(load) for load in memory.loads] == [1, 3]

    run(scenario())


def test_a_call_that_waits_holds_up_no_other(run):
    async def scenario():
        memory = world()
        memory.gate.clear()
        async with over(memory) as server, await Wire.open(server) as wire:
            wire.send((1, "scan", *prefix("t|ann|")), (2, "put", "k|1", "v"), (3, "get", "k|1"))
            assert await wire.replies(2) == [(2, None, None), (3, None, "v")]
            memory.gate.set()
            number, error, rows = await wire.reply()
            assert (number, error, len(rows)) == (1, None, 3)

    run(scenario())


def test_a_change_that_arrives_meanwhile_outranks_the_load(run):
    async def scenario():
        memory = world()
        memory.gate.clear()
        async with over(memory) as server, AsyncClient(server.url) as pq:
            reading = asyncio.create_task(pq.scan(*prefix("p|")))
            await until(lambda: memory.loads)
            memory.rows["p|000|0000000000"] = "new"
            server.cache.put("p|000|0000000000", "new")
            server.cache.remove("p|001|0000000001")
            memory.gate.set()
            assert await reading == [("p|000|0000000000", "new"), ("p|002|0000000002", "post 2")]

    run(scenario())


def test_what_is_invalidated_on_its_way_is_fetched_again(run):
    async def scenario():
        memory = world()
        memory.gate.clear()
        async with over(memory) as server, AsyncClient(server.url) as pq:
            reading = asyncio.create_task(pq.get("p|000|0000000000"))
            await until(lambda: memory.loads)
            memory.rows["p|000|0000000000"] = "new"
            server.cache.invalidate(prefix("p|"))
            memory.gate.set()
            assert await reading == "new"
            assert len(memory.loads) == 2

    run(scenario())


def test_a_failure_is_told_and_the_next_call_tries_again(run):
    async def scenario():
        memory = world()
        memory.failure = SourceDown("the database is down")
        async with over(memory) as server, AsyncClient(server.url) as pq:
            with pytest.raises(SourceDown, match="the database is down"):
                await pq.count(*prefix("p|"))
            memory.failure = None
            assert await pq.count(*prefix("p|")) == 3
            memory.failure = ZeroDivisionError("a mistake")
            with pytest.raises(Exception, match="server's log"):
                await pq.count(*prefix("s|"))

    run(scenario())


def test_a_call_has_a_deadline_and_leaves_the_fetch_to_others(run):
    async def scenario():
        memory = world()
        memory.gate.clear()
        cache = Cache()
        cache.declare_remote(prefix("p|"))
        loader = Loader(cache, memory, seconds=0.02)
        with pytest.raises(SourceDown, match=r"did not come in 0\.02 seconds"):
            await loader.finish(lambda: cache.count(*prefix("p|")), MissingData([prefix("p|")]))
        await loader.stop()

    run(scenario())


def test_data_that_never_stays_is_an_error(run):
    async def scenario():
        memory = world()
        cache = Cache()
        cache.declare_remote(prefix("p|"))
        loader = Loader(cache, memory)

        def thwarted() -> int:
            cache.evict(prefix("p|"))
            return cache.count(*prefix("p|"))

        with pytest.raises(SourceDown, match="faster than it came"):
            await loader.finish(thwarted, MissingData([prefix("p|")]))
        assert len(memory.loads) == MAX_ROUNDS
        await loader.stop()

    run(scenario())


def test_overlapping_ranges_are_fetched_once(run):
    async def scenario():
        memory = world()
        cache = Cache()
        cache.declare_remote(prefix("p|"))
        loader = Loader(cache, memory)
        await loader.fetch([KeyRange("p|1", "p|4"), KeyRange("p|", "p|2"), KeyRange("p|5", "p|6")])
        assert memory.loads == [[KeyRange("p|", "p|4"), KeyRange("p|5", "p|6")]]

    run(scenario())


def test_writes_go_elsewhere_first(run):
    async def scenario():
        memory = world()
        async with over(memory) as server, AsyncClient(server.url) as pq:
            assert len(await pq.scan(*prefix("t|ann|"))) == 3
            assert await pq.put("p|000|0000000009", "more") == "1"
            assert await pq.put_many({"p|000|0000000010": "x", "k|1": "here"}) == "2"
            assert memory.rows["p|000|0000000009"] == "more"
            assert "k|1" not in memory.rows
            assert await pq.get("k|1") == "here"
            assert len(await pq.scan(*prefix("t|ann|"))) == 5
            assert await pq.remove("p|000|0000000009") is True
            assert await pq.remove("p|000|0000000009") is False
            assert await pq.remove("k|1") is True
            assert await pq.remove_range(*prefix("p|")) == 4
            assert await pq.scan(*prefix("t|ann|")) == []
            assert (await pq.timed("put", "p|000|0000000011", "y"))[0] is not None

    run(scenario())


def test_a_write_that_fails_elsewhere_changes_nothing_here(run):
    async def scenario():
        memory = world()
        async with over(memory) as server, AsyncClient(server.url) as pq:
            before = await pq.scan(*prefix("p|"))
            memory.failure = SourceDown("the database is down")
            with pytest.raises(SourceDown, match="is down"):
                await pq.put_many({"p|000|0000000009": "more", "k|1": "here"})
            with pytest.raises(Exception, match="computed by join"):
                await pq.put("t|ann|0000000000|bob", "x")
            assert await pq.scan(*prefix("p|")) == before
            assert await pq.get("k|1") is None

    run(scenario())


def test_a_read_waits_for_its_token(run):
    async def scenario():
        memory = world()
        async with over(memory) as server, AsyncClient(server.url) as pq:
            memory.number = 1
            reading = asyncio.create_task(pq.scan(*prefix("p|"), after="1"))
            await pq.scan(*prefix("p|"))  # does not wait
            assert not reading.done()
            server.cache.put("p|009|0000000009", "mine")
            memory.seen = 1
            memory.told.set()
            assert ("p|009|0000000009", "mine") in await reading
            assert await pq.count(*prefix("p|"), after="1") == 4
            assert await pq.get("p|009|0000000009", after="1") == "mine"

    run(scenario())


def test_http_waits_as_well(run):
    async def scenario():
        memory = world()
        async with over(memory) as server, await Web.open(server) as web:
            assert len((await web.get("/v1/scan?prefix=t|ann|&limit=2")).json) == 2
            assert (await web.get("/v1/get?key=p|002|0000000002&after=0")).json == "post 2"
            server.cache.evict(prefix("p|"))
            assert (await web.rpc(["count", *prefix("t|ann|")])).json == {"result": 3}
            server.cache.evict(prefix("p|"))
            said = [["count", *prefix("t|ann|")], ["put", "p|002|0000000003", "more"]]
            assert (await web.rpc(said)).json == [{"result": 3}, {"result": "1"}]
            memory.failure = SourceDown("the database is down")
            server.cache.evict(prefix("p|"))
            answer = await web.get("/v1/scan?prefix=t|ann|")
            assert (answer.status, answer.code) == (503, "source_down")

    run(scenario())


def test_a_watched_range_is_fetched_and_comes_back(run):
    async def scenario():
        memory = world()
        async with over(memory) as server, AsyncClient(server.url) as pq:
            events = pq.watch(*prefix("t|ann|"))
            assert len((await anext(events)).rows) == 3
            memory.rows["p|001|0000000007"] = "more"
            server.cache.invalidate(prefix("p|"))
            event = await anext(events)
            assert (event.key, event.value) == ("t|ann|0000000007|001", "more")
            await events.aclose()

    run(scenario())


def test_calls_that_wait_are_bounded_for_a_connection(run):
    async def scenario():
        memory = world()
        memory.gate.clear()
        async with over(memory) as server, await Wire.open(server) as wire:
            number = MAX_AWAITED + 50
            wire.send(*[(one, "count", *prefix("p|")) for one in range(1, number + 1)])
            await until(lambda: server._port.loader.calls == MAX_AWAITED)
            memory.gate.set()
            replies = await wire.replies(number)
            assert {reply[0] for reply in replies} == set(range(1, number + 1))
            assert {reply[1:] for reply in replies} == {(None, 3)}

    run(scenario())


def test_a_server_that_stops_answers_what_waits(run):
    async def scenario():
        memory = world()
        memory.gate.clear()
        async with over(memory) as server, await Wire.open(server) as wire:
            wire.send((1, "count", *prefix("p|")))
            await until(lambda: memory.loads)
            stopping = asyncio.create_task(server.stop())
            await asyncio.sleep(0)
            memory.gate.set()
            assert await wire.last_replies() == [(1, None, 3)]
            await stopping

    run(scenario())


def test_tokens_are_refused_where_nothing_is_elsewhere(run):
    async def scenario():
        async with Server(ServerConfig(port=0)) as server, AsyncClient(server.url) as pq:
            with pytest.raises(Exception, match="no token of this server"):
                await pq.scan("a", "b", after="1")

    run(scenario())
