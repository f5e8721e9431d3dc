"""The port: fairness, clients that do not read, deadlines, and very many connections."""

import asyncio
import gc
import os
import resource
import socket
import time

import pytest
import uvloop

from pequod.server.binary import SLICE_BYTES
from tests.server.helpers import (
    SECONDS,
    TOKEN,
    Web,
    Wire,
    address_of,
    lines_of,
    packed,
    plant,
    serving,
    until,
)

SCAN = ("scan", "k|", "k}")
SHORT = 0.2  # seconds of a deadline
ROW = 1000


def fill(server, rows):
    """Rows whose scan is an answer of `rows` kilobytes."""
    server.cache.put_many([(f"k|{n:05}", "v" * ROW) for n in range(rows)])
    return rows * ROW


def objects():
    """How many the garbage collector knows of, those that the server has frozen too."""
    gc.collect()
    return len(gc.get_objects()) + gc.get_freeze_count()


def files():
    return len(os.listdir("/proc/self/fd"))


# Fairness.


def test_a_client_with_much_to_do_does_not_starve_another(run):
    async def work():
        async with serving() as server, await Wire.open(server) as busy:
            fill(server, 500)
            async with await Wire.open(server) as other:
                await other.call("get", "k")
                busy.send(*((n, *SCAN) for n in range(1, 1001)))
                await busy.reply()
                received = asyncio.ensure_future(busy.replies(999))
                for _ in range(5):
                    assert await other.call("get", "k|00001") == "v" * ROW
                assert server.service.calls["scan"] < 500, "the other waited for half of them"
                assert len(await received) == 999

    run(work())


def test_a_batch_over_http_does_not_starve_another(run):
    async def work():
        async with serving() as server, await Web.open(server) as busy:
            fill(server, 50)
            async with await Wire.open(server) as other:
                await other.call("get", "k")
                answered = asyncio.ensure_future(busy.rpc([SCAN] * 1000))
                await until(lambda: server.service.calls["scan"])
                for _ in range(3):
                    await other.call("get", "k")
                assert server.service.calls["scan"] < 500
                assert len((await answered).json) == 1000

    run(work())


# Clients that do not read.


@pytest.mark.parametrize("at_once", [True, False])
def test_a_client_that_does_not_read_is_paused_and_then_gets_everything(run, caplog, at_once):
    async def work():
        async with serving() as server, await Wire.open(server) as lazy:
            size = fill(server, 200)
            await lazy.call("get", "k")
            [session] = server._port.open
            most = 0
            for n in range(1, 301):
                lazy.send((n, *SCAN))
                if not at_once:
                    await asyncio.sleep(0)
                    most = max(most, session._transport.get_write_buffer_size())
            await until(lambda: session._stalled)
            served = server.service.calls["scan"]
            assert served < 300
            for _ in range(50):
                await asyncio.sleep(0)
                most = max(most, session._transport.get_write_buffer_size())
            assert server.service.calls["scan"] == served, "it is served though it does not read"
            assert most <= SLICE_BYTES + 2 * size
            replies = await lazy.replies(300)
            assert [reply[0] for reply in replies] == list(range(1, 301))
            assert {len(reply[2]) for reply in replies} == {200}
            assert await lazy.call("get", "k") is None

    run(work())
    assert lines_of(caplog) == []


@pytest.mark.parametrize("speaks", [Wire, Web])
def test_a_client_that_never_reads_is_dropped(run, caplog, speaks):
    async def work():
        async with serving(stall_seconds=SHORT) as server, await speaks.open(server) as lazy:
            fill(server, 20_000)
            if speaks is Wire:
                lazy.send((1, *SCAN))
            else:
                lazy.ask("GET", "/v1/scan?prefix=k|")
            await until(lambda: server.service.calls["scan"])
            await until(lambda: not server._port.open)

    run(work())
    [line] = lines_of(caplog)
    assert "does not read its answers (stall_seconds)" in line


def test_a_last_answer_that_is_not_read_is_dropped_too(run, caplog, monkeypatch):
    monkeypatch.setattr("pequod.server.binary.SLICE_SECONDS", 10.0)  # both requests in one slice

    async def work():
        async with serving(stall_seconds=SHORT) as server, await Wire.open(server) as lazy:
            fill(server, 200)
            await lazy.call("get", "k")
            [session] = server._port.open
            for wire in (session._transport, lazy.writer):
                for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                    wire.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, buffer, 4096)
            lazy.send((1, *SCAN), (0, "no request"))
            await until(lambda: not server._port.open)

    run(work())
    [line] = lines_of(caplog)
    assert "a request is [id" in line


@pytest.mark.parametrize("speaks", [Wire, Web])
def test_a_client_that_reads_slowly_is_not_dropped(run, caplog, speaks):
    async def work():
        async with serving(stall_seconds=SHORT) as server, await speaks.open(server) as slow:
            size = fill(server, 30_000)
            if speaks is Wire:
                slow.send((1, *SCAN))
            else:
                slow.ask("GET", "/v1/scan?prefix=k|", Connection="close")
            received = 0
            while received < size // 2:
                received += len(await slow.reader.read(1 << 20))
                await asyncio.sleep(0.01)
            while received < size:
                received += len(await slow.reader.read(1 << 20))

    run(work())
    assert lines_of(caplog) == []


# All clients together.


def test_those_who_hold_most_are_dropped_if_all_together_hold_too_much(run, caplog):
    starts = {
        "answers": packed((1, *SCAN)),
        "answer": b"GET /v1/scan?prefix=k| HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "request": packed((1, "put", "k", "v" * 6_000_000))[:-1],
        "body": b"POST /rpc HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 7000000\r\n\r\n" + b"[" * 6_000_000,
    }

    async def work(data):
        async with (
            serving(max_pending=8_000_000, max_value=4_000_000) as server,
            await Wire.open(server) as other,
        ):
            fill(server, 10_000)
            assert await other.call("get", "k") is None
            async with await Wire.open(server) as little, await Wire.open(server) as much:
                little.writer.write(packed((1, "put", "k", "v" * 3_000_000))[:-1])
                await until(lambda: any(one.held() > 2_000_000 for one in server._port.open))
                much.writer.transport.pause_reading()
                much.writer.write(data)
                await until(lambda: len(server._port.open) == 2)
                little.writer.write(b"v")
                assert await little.reply() == (1, None, None)
            assert await other.call("get", "k") == "v" * 3_000_000

    for data in starts.values():
        run(work(data))
    assert ["(max_pending)" in line for line in lines_of(caplog)] == [True] * len(starts)


# Deadlines.


def test_requests_that_never_become_complete(run, caplog):
    starts = [
        b"",
        b"\x93",  # ends where a part ends
        b"\x93\x01\xa3get",
        b"\x93\x01\xa3ge",
        packed((1, "get", "k")) + b"\x93\x02",
        b"G",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n",
        b"POST /rpc HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b'Content-Length: 100\r\n\r\n["get"',
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nx",
        b"POST /rpc HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n5\r\n12",
    ]

    async def work():
        async with serving(request_seconds=SHORT) as server, await Wire.open(server) as other:
            await other.call("get", "k")
            loop = asyncio.get_running_loop()
            started = loop.time()

            async def hang(data):
                async with await Wire.open(server) as wire:
                    wire.writer.write(data)
                    await wire.rest()

            await asyncio.gather(*map(hang, starts))
            assert loop.time() - started >= SHORT
            assert len(server._port.open) == 1
            assert await other.call("get", "k") is None, "an idle client may stay"

    run(work())
    assert len(lines_of(caplog)) <= len(starts)


def test_bytes_that_drip_put_no_deadline_off(run):
    heads = [
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 1000,
        b"\x93\x01\xa3get\xda\x03\xff" + b"k" * 1000,
        b"\xdc\x03\xff\x01\xa3get" + b"\x01" * 1000,
        b"POST /rpc HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 5000\r\n\r\n" + b"[" * 1000,
    ]

    async def work():
        async with serving(request_seconds=SHORT) as server:

            async def drip(data):
                async with await Wire.open(server) as wire:
                    wire.writer.write(data[:-950])
                    for byte in data[-950:]:
                        if wire.writer.transport.is_closing() or wire.reader.at_eof():
                            return
                        wire.writer.write(bytes([byte]))
                        await asyncio.sleep(0.02)
                    raise AssertionError("it is still open")

            await asyncio.gather(*map(drip, heads))

    run(work())


def test_a_second_http_request_has_a_deadline_too(run, caplog):
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

    async def work():
        async with serving(request_seconds=SHORT) as server, await Web.open(server) as web:
            web.writer.write(request)
            assert (await web.answer()).status == 200
            await asyncio.sleep(2 * SHORT)
            web.writer.write(request)
            assert (await web.answer()).status == 200, "an idle connection was closed"
            web.writer.write(request[:20])
            assert await web.rest() == b""

    run(work())
    [line] = lines_of(caplog)
    assert "does not go on (request_seconds)" in line


def test_a_client_whose_requests_never_end_together_with_a_read(run, caplog):
    """Each piece ends one request and begins the next, and none is late."""
    request = packed((1, "put", "k", "v" * 100))

    async def work():
        async with serving(request_seconds=SHORT) as server, await Wire.open(server) as wire:
            wire.writer.write(request[:50])
            for _ in range(8):
                await asyncio.sleep(0.06)
                wire.writer.write(request[50:] + request[:50])
                assert await wire.reply() == (1, None, None)
            await wire.rest()

    run(work())
    [line] = lines_of(caplog)
    assert "does not go on" in line


def test_time_waiting_for_our_turn_is_not_the_clients(run, caplog):
    """A request cut in two, whose second half comes with work for longer than the deadline."""

    async def work():
        async with serving(request_seconds=SHORT) as server:
            plant(server, "count", lambda first, last: time.sleep(0.005))
            async with await Wire.open(server) as wire:
                data = packed(*((n, "count", "a", "b") for n in range(1, 81)))
                wire.writer.write(data[:3])
                await until(lambda: server._port._deadlines)
                wire.writer.write(data[3:])
                assert len(await wire.replies(80)) == 80

    run(work())
    assert lines_of(caplog) == []


def test_half_open_sockets(run):
    async def work():
        async with serving() as server:
            for data, answers in ((b"", 0), (packed((1, "get", "k")), 1), (b"\x93", 0)):
                async with await Wire.open(server) as wire:
                    wire.writer.write(data)
                    wire.writer.write_eof()
                    assert len(await wire.last_replies()) == answers
            async with await Wire.open(server) as wire:
                wire.send(*((n, "count", "a", "b") for n in range(1, 20_001)))
                wire.writer.write_eof()
                assert len(await wire.last_replies()) == 20_000
            await until(lambda: not server._port.open)

    run(work())


def test_the_system_looks_for_clients_that_are_gone(run):
    async def work():
        async with serving() as server, await Wire.open(server) as wire:
            await wire.call("get", "k")
            [session] = server._port.open
            connection = session._transport.get_extra_info("socket")
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    run(work())


# Very many.


def test_connections_over_the_limit_are_refused(run, caplog):
    async def work():
        async with serving(max_connections=3) as server:
            wires = [await Wire.open(server) for _ in range(3)]
            for wire in wires:
                assert await wire.call("get", "k") is None
            for _ in range(5):
                async with await Wire.open(server) as wire:
                    wire.send((1, "get", "k"))
                    assert await wire.rest() == b""
            assert await wires[0].call("get", "k") is None
            wires.pop().writer.close()
            await until(lambda: len(server._port.open) == 2)
            async with await Wire.open(server) as wire:
                assert await wire.call("get", "k") is None
            for wire in wires:
                wire.writer.transport.abort()

    run(work())
    [line] = lines_of(caplog)
    assert "max_connections" in line


def test_ten_thousand_idle_connections():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    number = min(10_000, (limits[1] - 500) // 2)  # both ends are in this process

    async def work():
        async with serving(request_seconds=60) as server, await Wire.open(server) as other:
            await other.call("get", "k")
            await round_of(server, other, 50)  # whatever is made but once
            files_before, objects_before = files(), objects()
            await round_of(server, other, number)
            await until(lambda: files() == files_before)
            await until(lambda: objects() < objects_before + number / 10)
            assert server._port._deadlines == {}

    async def round_of(server, other, number):
        hellos = [b"", packed((1, "get", "k")), b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"]
        sockets = []
        try:
            for n in range(number):
                sockets.append(socket.create_connection(address_of(server)))
                sockets[-1].sendall(hellos[n % 3])
                if n % 250 == 0:  # fewer than may wait to be accepted
                    await until(lambda: len(server._port.open) == len(sockets) + 1)
            await until(lambda: len(server._port.open) == len(sockets) + 1)
            loop = asyncio.get_running_loop()
            started = loop.time()
            for _ in range(200):
                await other.call("get", "k")
            assert loop.time() - started < 2
        finally:
            for one in sockets:
                one.close()
        await until(lambda: len(server._port.open) == 1)

    try:  # asyncio's own transports are cycles, so only uvloop leaves nothing behind
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(asyncio.wait_for(work(), SECONDS))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_strangers_are_served_no_rows(run):
    async def work():
        async with serving(token=TOKEN) as server, await Wire.open(server) as wire:
            fill(server, 10)
            wire.send(*((n, *SCAN) for n in range(1, 1001)))
            assert {reply[1]["code"] for reply in await wire.replies(1000)} == {"unauthorized"}
            assert not any(server.service.calls.values())

    run(work())
