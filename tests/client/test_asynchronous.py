"""The asyncio client: one write for a turn of the loop, cancelled calls, lost servers."""

import asyncio
import socket
from collections.abc import Coroutine
from typing import Any

import pytest

from pequod import (
    AsyncClient,
    BadRequest,
    OversizedKey,
    ProtocolError,
    TimedOut,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from pequod.config import ServerConfig
from pequod.server import Server
from tests.client import rogue
from tests.live import SECONDS, LiveServer

TOKEN = "a token of enough characters"


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, SECONDS))


def test_calls_of_one_turn_leave_in_one_write():
    async def work():
        async with Server(ServerConfig(port=0)) as server, AsyncClient(server.url) as pq:
            await pq.put("k|0", "0")
            writes = []
            transport = pq._connection._transport
            original = transport.write

            class Counting:
                def __getattr__(self, name):
                    return getattr(transport, name)

                def write(self, data):
                    writes.append(data)
                    original(data)

            pq._connection._transport = Counting()
            await asyncio.gather(*(pq.put(f"k|{number}", "v") for number in range(100)))
            assert len(writes) == 1
            assert (
                await asyncio.gather(*(pq.get(f"k|{number}") for number in range(100)))
                == ["v"] * 100
            )
            assert len(writes) == 2
            pq._connection._transport = transport

    run(work())


def test_cancelled_calls_leave_nothing_behind():
    async def work():
        async with Server(ServerConfig(port=0)) as server, AsyncClient(server.url) as pq:
            await pq.put("k|1", "one")
            tasks = [asyncio.create_task(pq.get("k|1")) for _ in range(100)]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert [isinstance(one, asyncio.CancelledError) for one in results[:2]] == [True, False]
            assert await pq.get("k|1") == "one"
            assert pq._connection._waiting == {}

    run(work())


def test_iterate_goes_through_pages():
    async def work():
        config = ServerConfig(port=0, max_rows=100, max_reply=4096)
        async with Server(config) as server, AsyncClient(server.url) as pq:
            rows = [(f"k|{number:03}", "v" * 100) for number in range(300)]
            await asyncio.gather(*(pq.put(*row) for row in rows))
            with pytest.raises(TooLarge, match="iterate"):
                await pq.scan("k|", "k}")
            assert [row async for row in pq.iterate("k|", "k}")] == rows
            assert [row async for row in pq.iterate("k|", "k}", reverse=True)] == rows[::-1]

    run(work())


def test_no_server():
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]

    async def work():
        async with AsyncClient(f"pequod://127.0.0.1:{port}") as pq:
            for call in (pq.get("k|1"), pq.put("k|1", "one")):
                with pytest.raises(Unavailable, match="is the server running"):
                    await call

    run(work())


def test_a_server_that_comes_back():
    with LiveServer() as live:

        async def work():
            async with AsyncClient(live.url) as pq:
                await pq.put("k|1", "one")
                await asyncio.to_thread(live.stop)
                reads = [asyncio.create_task(pq.get("k|1")) for _ in range(10)]
                await asyncio.sleep(0.05)
                await asyncio.to_thread(live.start)
                assert await asyncio.gather(*reads) == [None] * 10  # that cache is empty
                await pq.put("k|1", "two")
                assert await pq.get("k|1") == "two"

        run(work())


def test_a_write_on_its_way_is_not_made_again():
    with rogue.RogueServer(rogue.closing) as server:

        async def work():
            async with AsyncClient(server.url, timeout=0.5) as pq:
                with pytest.raises(Unavailable, match="lost"):
                    await pq.put("k|1", "one")
                assert server.accepted == 1
                with pytest.raises(Unavailable):
                    await pq.get("k|1")
                assert server.accepted < 20, "it does not try without a pause"

        run(work())


def test_no_answer_in_time():
    with rogue.RogueServer(rogue.silent) as server:

        async def work():
            async with AsyncClient(server.url, timeout=0.1) as pq:
                calls = [pq.get("k|1"), pq.put("k|1", "one"), pq.scan("k|", "k}")]
                for error in await asyncio.gather(*calls, return_exceptions=True):
                    assert isinstance(error, TimedOut)
                    assert "no answer in 0.1 seconds" in str(error)

        run(work())


@pytest.mark.parametrize("behave", [rogue.speaks_http, rogue.babbling])
def test_a_server_that_is_no_pequod(behave):
    with rogue.RogueServer(behave) as server:

        async def work():
            async with AsyncClient(server.url) as pq:
                with pytest.raises(ProtocolError):
                    await pq.get("k|1")

        run(work())


def test_what_cannot_be_sent():
    async def work():
        async with Server(ServerConfig(port=0)) as server, AsyncClient(server.url) as pq:
            for value in (object(), 1 << 70, "\ud800"):
                with pytest.raises(BadRequest, match="cannot be sent"):
                    await pq.put("k|1", value)
            assert await pq.get("k|1") is None

    run(work())


def test_tokens():
    async def work():
        async with Server(ServerConfig(port=0, token=TOKEN)) as server:
            async with AsyncClient(server.url) as pq:
                with pytest.raises(Unauthorized):
                    await pq.get("k|1")
            async with AsyncClient(server.url, token="wrong") as pq:
                with pytest.raises(Unauthorized):
                    await pq.get("k|1")
            async with AsyncClient(server.url, token=TOKEN) as pq:
                assert await pq.get("k|1") is None

    run(work())


def test_a_closed_client():
    async def work():
        async with Server(ServerConfig(port=0)) as server:
            pq = AsyncClient(server.url)
            await pq.put("k|1", "one")
            call = asyncio.create_task(pq.get("k|1"))
            await asyncio.sleep(0)
            await pq.close()
            with pytest.raises(Unavailable, match="closed"):
                await call
            with pytest.raises(Unavailable, match="closed"):
                await pq.get("k|1")

    run(work())


def test_closing_while_connecting():
    with rogue.RogueServer(rogue.silent) as server:

        async def work():
            pq = AsyncClient(server.url, token=TOKEN)
            call = asyncio.create_task(pq.get("k|1"))
            while not server.accepted:
                await asyncio.sleep(0.001)
            await pq.close()
            with pytest.raises(Unavailable, match="closed"):
                await call

        run(work())


def test_large_requests_and_answers():
    async def work():
        async with Server(ServerConfig(port=0)) as server, AsyncClient(server.url) as pq:
            rows = [(f"k|{number:04}", "v" * 100_000) for number in range(100)]
            await asyncio.gather(*(pq.put(*row) for row in rows))
            scans = await asyncio.gather(*(pq.scan("k|", "k}") for _ in range(3)))
            assert scans == [rows] * 3

    run(work())


def test_a_call_after_a_key_that_only_the_server_finds_too_long():
    async def work():
        with LiveServer(max_key=100) as live:
            async with AsyncClient(live.url) as pq:
                for _ in range(5):
                    with pytest.raises(OversizedKey):
                        await pq.put("k|" + "x" * 100, "v")
                    await pq.put("k|1", "v")

    run(work())


def test_a_watch_outlives_a_server_that_is_long_away():
    async def work():
        with LiveServer() as live:
            async with AsyncClient(live.url, timeout=0.2) as pq:
                await pq.put("k|1", "before")
                events = pq.watch("k|", "k}")
                assert (await anext(events)).rows == [("k|1", "before")]
                next_event = asyncio.ensure_future(anext(events))
                await asyncio.to_thread(live.stop)
                with pytest.raises(Unavailable):
                    await pq.get("k|1")  # the time-out has passed
                await asyncio.to_thread(live.start)
                assert (await asyncio.wait_for(next_event, 20)).rows == []
                await events.aclose()

    run(work())
