"""The settings of the garbage collector, and that connections leave nothing for it to do."""

import asyncio
import gc

import pytest
import uvloop

from pequod.server.garbage import NEVER, OLDER, YOUNG, Collector
from tests.server.helpers import SECONDS, Web, Wire, serving, until

CONNECTIONS = 10


def test_settings_are_set_and_restored(run):
    before = gc.get_threshold(), gc.get_freeze_count(), list(gc.callbacks)

    async def work():
        async with serving():
            assert gc.get_threshold() == (YOUNG, OLDER, NEVER)
            assert gc.get_freeze_count() > 10_000
            assert len(gc.callbacks) == len(before[2]) + 1

    run(work())
    assert (gc.get_threshold(), gc.get_freeze_count(), list(gc.callbacks)) == before


def test_the_last_of_several_servers_restores_them(run):
    before = gc.get_threshold()

    async def work():
        first, second = Collector(), Collector()
        first.start()
        second.start()
        first.stop()
        assert gc.get_threshold() == (YOUNG, OLDER, NEVER)
        second.stop()
        assert gc.get_threshold() == before

    run(work())


def test_what_lives_on_is_frozen_and_pauses_are_measured(run, monkeypatch):
    monkeypatch.setattr("pequod.server.garbage.TICK_SECONDS", 0.01)

    async def work():
        collector = Collector()
        collector.start()
        try:
            frozen = gc.get_freeze_count()
            rows = [[number] for number in range(YOUNG * OLDER * 3)]
            await until(lambda: gc.get_freeze_count() >= frozen + len(rows))
            assert collector.stats()["gc_collections_total"] > 0
            assert 0 < collector.stats()["gc_pause_seconds_max"] < 5
        finally:
            collector.stop()

    run(work())


async def silent(server):
    async with await Wire.open(server):
        await until(lambda: server._port.open)


async def binary(server):
    async with await Wire.open(server) as wire:
        await wire.call("put", "k", "v")
        await wire.call("get", 5)
        await wire.call("no_such")
        await wire.call("get")


async def broken_binary(server):
    async with await Wire.open(server) as wire:
        wire.send((1, "get", "k" * 5000))
        await wire.rest()
    async with await Wire.open(server) as wire:
        wire.send(None)
        await wire.rest()


async def http(server):
    async with await Web.open(server) as web:
        await web.get("/v1/scan?prefix=k")
        await web.get("/nowhere")
        await web.rpc(["get"])
        await web.rpc([["get", "k"], ["no_such"]])


async def broken_http(server):
    for data in (b"\xff\xfe\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /\r\nbad\r\n\r\n"):
        async with await Web.open(server) as web:
            web.writer.write(data)
            await web.rest()


async def broken_body(server):
    async with await Web.open(server) as web:
        web.ask("POST", "/rpc", b"[", Content_Length="99", Content_Type="application/json")
        await until(lambda: any(getattr(one, "_body", None) for one in server._port.open))


@pytest.mark.parametrize("visit", [silent, binary, broken_binary, http, broken_http, broken_body])
def test_connections_leave_no_cycles(visit):
    """Only young objects are collected in a server, so a cycle of old ones would stay forever."""

    async def work():
        async with serving() as server:
            await visits(server, 2)  # whatever is made but once
            gc.collect()
            gc.disable()
            gc.set_debug(gc.DEBUG_SAVEALL)
            try:
                await visits(server, CONNECTIONS)
                gc.collect()
                found = [type(one).__qualname__ for one in gc.garbage]
            finally:
                gc.set_debug(0)
                gc.enable()
                gc.garbage.clear()
            assert len(found) < CONNECTIONS, found

    async def visits(server, number):
        for _ in range(number):
            await visit(server)
        await until(lambda: not server._port.open)
        await asyncio.sleep(0.01)

    # uvloop's, since asyncio's own transports are cycles.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(work(), SECONDS))
