"""The binary protocol by raw sockets: what is answered, and what ends the connection."""

import asyncio
import logging
import random
from collections import Counter

import msgpack

from pequod.keys import END
from pequod.server.binary import RENEWAL, STRANGERS_FRAME, BinaryConnection
from pequod.server.service import ROLE_FOR
from tests.server.helpers import TOKEN, Wire, lines_of, packed, plant, serving


def test_many_requests_in_one_write(run):
    async def work():
        async with serving() as server, await Wire.open(server) as wire:
            wire.send(*((n, "put", f"k|{n:05}", str(n)) for n in range(1, 5001)))
            assert await wire.replies(5000) == [(n, None, None) for n in range(1, 5001)]
            wire.send(*((n, "get", f"k|{n:05}") for n in range(5000, 0, -1)))
            assert await wire.replies(5000) == [(n, None, str(n)) for n in range(5000, 0, -1)]

    run(work())


def test_a_request_cut_at_any_byte(run):
    data = packed((1, "put", "k|é", b"\x00\xff"), (70000, "get", "k|é"), (2**63, "scan", "a", "z"))

    async def work():
        async with serving() as server:
            for cut in range(1, len(data)):
                async with await Wire.open(server) as wire:
                    wire.writer.write(data[:cut])
                    await asyncio.sleep(0)
                    wire.writer.write(data[cut:])
                    replies = await wire.replies(3)
                    assert [reply[0] for reply in replies] == [1, 70000, 2**63]
                    assert replies[1][2] == b"\x00\xff"
            async with await Wire.open(server) as wire:
                await wire.dribble(data)
                assert len(await wire.replies(3)) == 3

    run(work())


BAD_REQUESTS = [
    (("no_such",), "unknown_method"),
    (("__class__",), "unknown_method"),
    ((b"get", "k"), "unknown_method"),
    ((None,), "unknown_method"),
    (((),), "unknown_method"),
    ((7, 8), "unknown_method"),
    (("get",), "bad_request"),
    (("get", "a", "b"), "bad_request"),
    (("put", "a"), "bad_request"),
    (("stats", 1), "bad_request"),
    (("scan", "a", "b", 1, True, 2), "bad_request"),
    (("get", 1), "bad_key"),
    (("get", None), "bad_key"),
    (("get", ""), "bad_key"),
    (("get", b"k"), "bad_key"),
    (("get", END), "bad_key"),
    (("put", "k", 5), "bad_value"),
    (("put", "k", None), "bad_value"),
    (("put", "k", 1.5), "bad_value"),
    (("put", "k", ("v",)), "bad_value"),
    (("put", None, "v"), "bad_key"),
    (("put", 5, 5), "bad_key"),
    (("put_many", 5), "bad_request"),
    (("put_many", "text"), "bad_request"),
    (("put_many", (("a", "b", "c"),)), "bad_request"),
    (("put_many", (("a", 1),)), "bad_value"),
    (("put_many", ("ab", "cd")), "bad_request"),
    (("scan", 1, 2), "bad_key"),
    (("scan", "a", "b", -1), "bad_request"),
    (("scan", "a", "b", "many"), "bad_request"),
    (("scan", "a", "b", 2.5), "bad_request"),
    (("scan", "a", "b", True), "bad_request"),
    (("count", None, "b"), "bad_key"),
    (("explain", 1, "b"), "bad_key"),
    (("remove", 1), "bad_key"),
    (("remove_range", "a", None), "bad_key"),
    (("add_join", 5), "bad_request"),
    (("add_join", b"x"), "bad_request"),
    (("add_join", "nonsense"), "join_syntax"),
    (("drop_join", 5), "unknown_join"),
    (("drop_join", ()), "unknown_join"),
]


def test_a_bad_request_is_answered_and_the_connection_lives(run, caplog):
    async def work():
        async with serving() as server, await Wire.open(server) as wire:
            for call, code in BAD_REQUESTS:
                assert await wire.call(*call) == code, call
                assert await wire.call("count", "", END) == 0, f"{call} changed something"
            assert server.service.errors == Counter(code for _, code in BAD_REQUESTS)

    run(work())
    assert lines_of(caplog) == []


BROKEN_FRAMES = [
    (packed(()), "a request is [id"),
    (packed((1,)), "a request is [id"),
    (packed(("get", "k")), "a request is [id"),
    (packed((None, "get", "k")), "a request is [id"),
    (packed((0, "get", "k")), "a request is [id"),
    (packed((-5, "get", "k")), "a request is [id"),
    (packed((True, "get", "k")), "a request is [id"),
    (packed((1.0, "get", "k")), "a request is [id"),
    (packed(((), "get", "k")), "a request is [id"),
    (packed((1, "joins"), 5), "a request is [id"),
    (packed((1, "joins"), "text"), "a request is [id"),
    (packed((1, "joins"), b"\x01\x02"), "a request is [id"),
    (packed((1, "joins"), None), "a request is [id"),
    (b"\x92\x01\xc1", "FormatError"),
    (b"\x92\x01\xa2\xff\xff", "can't decode byte 0xff"),
    (packed((1, "put_many", {"k": "v"})), "max_map_len"),
    (packed((1, "put_many", {})), "no maps"),
    (packed((1, "get", msgpack.ExtType(5, b"x"))), "max_ext_len"),
    (packed((1, "get", msgpack.ExtType(5, b""))), "no extension types"),
    (packed((1, "get", msgpack.Timestamp(1))), "max_ext_len"),
    (b"\x91" * 5000, "StackError"),
    (b"\x93\x01\xa3get" + b"\x91" * 5000, "StackError"),
    (b"\xdd\xff\xff\xff\xff", "max_array_len"),
]


def test_a_broken_frame_closes_its_connection_with_one_line(run, caplog):
    async def work():
        async with serving() as server, await Wire.open(server) as other:
            assert await other.call("put", "k", "v") is None
            for data, reason in BROKEN_FRAMES:
                caplog.clear()
                async with await Wire.open(server) as wire:
                    wire.writer.write(packed((9, "get", "k")) + data)
                    assert (await wire.last_replies())[:1] == [(9, None, "v")]
                assert await other.call("get", "k") == "v"
                [line] = lines_of(caplog)
                assert line.startswith("closed 127.0.0.1:")
                assert reason in line
                assert "\n" not in line

    run(work())


TOO_LONG = [
    packed((1, "put", "k", "v" * 2000)),
    packed((1, "put_many", tuple((f"k{n}", "v" * 100) for n in range(50)))),
    packed((1, "get", *range(1500))),
    # Never complete: an array that goes on and on, each of its parts within the limit.
    b"\xdc\x04\x00\x01\xa3get" + 1000 * (b"\xda\x01\x00" + b"x" * 256),
    b"\x93\x01\xa3get\xdb\xff\xff\xff\xff" + b"x" * 2000,
    b"\x93\x01\xa3get\xc6\xff\xff\xff\xff" + b"x" * 2000,
    b"\x94\x01\xa3put\xda\x01\xf4" + b"x" * 500 + b"\xdc\x04\x00" + b"\x01" * 600,
]


def test_a_request_over_the_limit(run, caplog):
    async def work():
        async with serving(max_frame=1024) as server:
            for data in TOO_LONG:
                for size in (len(data), 100):
                    async with await Wire.open(server) as wire:
                        await wire.dribble(data, size)
                        assert await wire.rest() == b"", data[:20]

    run(work())
    assert len(lines_of(caplog)) == 2 * len(TOO_LONG)
    assert all("max_" in line for line in lines_of(caplog))


def test_requests_of_just_the_limit_in_any_pieces(run):
    message = packed((1, "put", "k", "v" * 1013))
    assert len(message) == 1024

    async def work():
        async with serving(max_frame=1024) as server, await Wire.open(server) as wire:
            data = message * 200
            pieces = random.Random(1)
            while data:
                size = pieces.randrange(1, 3000)
                wire.writer.write(data[:size])
                await asyncio.sleep(0)
                data = data[size:]
            assert await wire.replies(200) == [(1, None, None)] * 200

    run(work())


def test_an_oversized_key_is_answered_and_closes(run, caplog):
    async def work():
        async with serving() as server:
            for call in (("get", "k" * 5000), ("put", "k" * 5000, "v"), ("remove", "k" * 5000)):
                async with await Wire.open(server) as wire:
                    wire.send((1, "count", "", "b"), (2, *call), (3, "count", "", "b"))
                    first, second = await wire.last_replies()
                    assert first == (1, None, 0)
                    assert second[0] == 2
                    assert second[1]["code"] == "oversized_key"
            assert server.cache.count("", END) == 0

    run(work())
    assert len(lines_of(caplog)) == 3
    assert all("characters" in line for line in lines_of(caplog))


def test_a_limit_of_keys_and_values(run):
    async def work():
        limits = {"max_key": 10, "max_value": 20, "max_join": 40}
        async with serving(**limits) as server, await Wire.open(server) as wire:
            assert await wire.call("put", "k" * 10, "v" * 20) is None
            assert await wire.call("put", "k", "v" * 21) == "bad_value"
            assert await wire.call("put_many", (("a", "b"), ("k", b"v" * 21))) == "bad_value"
            assert await wire.call("get", "a") is None, "all or nothing"
            assert await wire.call("add_join", "a|<b> = copy c|<b>;" + " " * 40) == "too_large"
            assert await wire.call("put_many", (("k" * 11, "v"),)) == "oversized_key"

    run(work())


def test_answers_over_a_limit_name_the_cure(run):
    async def work():
        limits = {"max_rows": 10, "max_reply": 2000}
        async with serving(**limits) as server, await Wire.open(server) as wire:
            for n in range(11):
                server.cache.put(f"k|{n:02}", "v")
            wire.send((1, "scan", "k|", "k}"), (2, "scan", "k|", "k}", 11))
            for _, error, _ in await wire.replies(2):
                assert error["code"] == "too_large"
                assert "iterate" in error["message"]
                assert "max_rows" in error["message"]
            assert len(await wire.call("scan", "k|", "k}", 10)) == 10
            server.cache.remove("k|10")
            assert len(await wire.call("scan", "k|", "k}")) == 10

    run(work())


def test_a_reply_over_the_limit_though_its_characters_are_not(run):
    async def work():
        async with serving(max_reply=1024) as server, await Wire.open(server) as wire:
            server.cache.put("k", "é" * 600)
            wire.send((1, "get", "k"))
            [(_, error, _)] = await wire.replies(1)
            assert error["code"] == "too_large"
            assert "iterate" in error["message"]

    run(work())


def test_a_fault_of_ours_is_answered_logged_and_survived(run, caplog):
    async def work():
        async with serving() as server:
            plant(server, "count", lambda first, last: 1 / 0)
            async with await Wire.open(server) as wire:
                wire.send((1, "count", "a", "b"), (2, "get", "k"))
                (_, error, _), second = await wire.replies(2)
                assert error["code"] == "server_fault"
                assert "log" in error["message"]
                assert second == (2, None, None)
            assert server.service.errors == {"server_fault": 1}

    run(work())
    [record] = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert "count failed" in record.getMessage()
    assert record.exc_info
    assert record.exc_info[0] is ZeroDivisionError


def test_all_methods(run):
    async def work():
        async with serving() as server, await Wire.open(server) as wire:
            joins = "k|<a> = count v|<a>|<n>;"
            assert (await wire.call("add_join", joins))[0]["name"] == "k#1"
            assert await wire.call("put_many", (("v|x|1", "1"), ("v|x|2", b"2"))) is None
            assert await wire.call("scan", "k|", "k}") == (("k|x", "2"),)
            assert await wire.call("put", "k|x", "9") == "computed_key"
            assert await wire.call("count", "v|", "v}") == 2
            assert (await wire.call("digest", "v|", "v}"))[0] == 2
            assert (await wire.call("explain", "k|", "k}"))["joins"][0]["name"] == "k#1"
            assert (await wire.call("joins"))[0]["name"] == "k#1"
            assert await wire.call("remove", "v|x|1") is True
            assert await wire.call("scan", "v|", "v}", None, True) == (("v|x|2", b"2"),)
            assert await wire.call("remove_range", "v|", "v}") == 1
            assert await wire.call("drop_join", "k#1") is None
            stats = await wire.call("stats")
            assert stats["server"]["calls"] == {
                name: stats["server"]["calls"][name]
                for name in ROLE_FOR
                if name not in ("get", "put", "stats")
            }
            assert stats["server"]["connections"] == 1

    run(work())


def test_a_stranger_says_little_and_not_for_long(run, caplog):
    async def work():
        async with serving(token=TOKEN, request_seconds=0.2) as server:
            async with await Wire.open(server) as wire:
                wire.writer.write(packed((1, "auth", "x" * STRANGERS_FRAME * 2))[:-1])
                assert await wire.rest() == b""
            async with await Wire.open(server) as wire:
                wire.writer.write(b"\xdc\x40\x00\x01\xa4auth" + b"\xa1x" * STRANGERS_FRAME)
                assert await wire.rest() == b""
            async with await Wire.open(server) as wire:
                assert await wire.call("joins") == "unauthorized"
                assert await wire.rest() == b""
            async with await Wire.open(server) as wire:
                assert await wire.call("auth", TOKEN) == "admin"
                await asyncio.sleep(0.4)
                assert await wire.call("joins") == ()

    run(work())
    lines = lines_of(caplog)
    assert len(lines) == 3
    assert "without a token" in lines[0]
    assert "without a token" in lines[1]
    assert "no token came" in lines[2]


def test_a_large_request_leaves_no_large_buffer(run):
    async def work():
        async with serving(max_value=4 << 20) as server, await Wire.open(server) as wire:
            assert await wire.call("put", "k", "v") is None
            [session] = server._port.open
            assert isinstance(session, BinaryConnection)
            before = session._unpacker
            assert await wire.call("put", "k", "v" * (RENEWAL + 1)) is None
            assert session._unpacker is not before
            assert await wire.call("get", "k") == "v" * (RENEWAL + 1)

    run(work())
