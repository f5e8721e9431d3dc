"""Hostile bytes against a live server: `python -m tests.server.fuzz --help`.

A seed makes a visit: a connection that sends random bytes, frames cut, mutated or too long, calls
with arguments of any type, or broken HTTP. After each, a client on another connection must still be
served, the log must have at most one line for it, and nothing may have failed inside the server.
"""

import argparse
import asyncio
import json
import logging
import random
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgpack
import uvloop

from pequod.server import Server
from pequod.server.service import ROLE_FOR
from tests.server.helpers import Wire, packed, serving

LIMITS = {"max_frame": 20_000, "max_reply": 50_000, "max_rows": 50, "max_value": 5_000}
DEADLINES = {"request_seconds": 0.05, "stall_seconds": 0.2}
PATIENCE_SECONDS = 10.0
BATCH = 500  # visits between two lines of progress

_HTTP_WORDS = [
    b"GET", b"POST", b"HEAD", b"PUT", b"OPTIONS", b" ", b"/", b"/rpc", b"/v1/scan?prefix=",
    b"/v1/get", b"?key=", b"&", b"%", b"%ff", b"%00", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2", b"\r\n",
    b"\r\n\r\n", b"\n", b":", b"Host: localhost", b"Content-Length: ",
    b"Transfer-Encoding: chunked", b"5", b"99999999999999999999", b"-1", b"0",
    b"Content-Type: application/json", b"Connection: close", b"Content-Type: application/msgpack",
    b"Expect: 100-continue", b"Upgrade: websocket", b"Connection: Upgrade",
    b"Content-Encoding: gzip", b"Origin: http://[", b"Authorization: Bearer x", b'["get", "k"]',
    b"[[", b"]", b"{", b'"', b"\xff", b"\x00",
]  # fmt: skip


class Failure(Exception):
    """What the server may not do."""


class Lines(logging.Handler):
    """The log of the server since the last visit."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def value(chance: random.Random, depth: int = 0) -> Any:
    """Anything that msgpack can say."""
    kind = chance.randrange(16 if depth < 4 else 10)
    if kind < 4:
        return text(chance)
    if kind < 10:
        return chance.choice(
            [None, True, 0, 1, -1, 2**63, -(2**63), 1.5, float("nan"), b"", b"\xff" * 9, "", 10**9]
        )
    if kind < 15:
        return [value(chance, depth + 1) for _ in range(chance.randrange(5))]
    return chance.choice(
        [{}, {"k": "v"}, msgpack.ExtType(1, b"x"), msgpack.Timestamp(5), {"base64": "x"}]
    )


def text(chance: random.Random) -> str:
    """A key, a join, or something like it."""
    return chance.choice(
        [
            "k|a|1",
            "c|a",
            "k|",
            "k}",
            "\U0010ffff",
            "é|\x00|",
            "k" * 5000,
            "no",
            "|",
            "||",
            "c|<a> = count k|<a>|<n>;",
            "x: t|<a>|<b> = check k|<a>|<b> copy p|<b>|<n>;",
            "c#1",
            "<",
            "a = copy a;",
            "t|<a:3> = pull sum k|<a>|<n>",
            "v" * chance.randrange(6000),
        ]
    )


def call(chance: random.Random) -> list[Any]:
    """A request that is nearly right."""
    method: Any = chance.choice(list(ROLE_FOR))
    if method == "drop_join" and chance.random() < 0.5:
        return [1, method, "c#1"]
    if chance.random() < 0.1:
        method = value(chance)
    number: Any = chance.randrange(1, 100) if chance.random() < 0.95 else value(chance)
    return [number, method, *(value(chance) for _ in range(chance.choice([0, 1, 2, 2, 2, 3, 4])))]


def mutated(chance: random.Random, data: bytes) -> bytes:
    """The same with some bytes changed, cut out, doubled or cut off."""
    found = bytearray(data)
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(found) + 1)
        how = chance.randrange(4)
        if how == 0:
            found[at : at + 1] = bytes([chance.randrange(256)])
        elif how == 1:
            del found[at : at + chance.randrange(1, 20)]
        elif how == 2:
            found[at:at] = found[at : at + chance.randrange(1, 50)]
        else:
            del found[at:]
    return bytes(found)


def frames(chance: random.Random) -> bytes:
    return packed(*(call(chance) for _ in range(chance.randrange(1, 20))))


def noise(chance: random.Random) -> bytes:
    first = chance.choice([b"", b"\x93", b"\xdc\x00\x03", b"\xdd\x00\x00\xff\xff", b"GET "])
    return first + chance.randbytes(chance.choice([1, 10, 100, 3000]))


def too_much(chance: random.Random) -> bytes:
    part = chance.choice(
        [b"\x91", b"\x81", b"\xc0", b"\x92\x01", b"\xa1x", b"\xdb\xff\xff\xff\xff"]
    )
    head = chance.choice([b"\xdd\x00\x00\x50\x00\x01\xa3get", b"\x93\x01\xa3get", b"\x91"])
    return head + part * chance.choice([1, 600, 30_000])


def http_noise(chance: random.Random) -> bytes:
    return b"".join(chance.choice(_HTTP_WORDS) for _ in range(chance.randrange(1, 40)))


def http_calls(chance: random.Random) -> bytes:
    said = b""
    for _ in range(chance.randrange(1, 6)):
        calls: Any = [call(chance)[1:] for _ in range(chance.randrange(1, 4))]
        calls = chance.choice([calls, calls[0], value(chance)])
        if chance.random() < 0.5:
            body, kind = msgpack.packb(calls), "application/msgpack"
        else:
            body, kind = json.dumps(calls, default=str).encode(), "application/json"
        if chance.random() < 0.3:
            body = mutated(chance, body)
        head = f"POST /rpc HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
        said += f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    return said if chance.random() < 0.6 else mutated(chance, said)


MAKERS: list[Callable[[random.Random], bytes]] = [
    noise, frames, frames, lambda chance: mutated(chance, frames(chance)), too_much, http_noise,
    http_calls,
]  # fmt: skip


async def visit(server: Server, seed: int) -> None:
    """A hostile connection."""
    chance = random.Random(seed)
    data = chance.choice(MAKERS)(chance)
    size = chance.choice([len(data) or 1, 1 + len(data) // 3, 1 + len(data) // 40])
    ending = chance.randrange(4)
    async with await Wire.open(server) as wire:
        await wire.dribble(data, size)
        if ending == 0:
            return  # aborted at once
        if ending == 1 and not wire.writer.transport.is_closing():
            with suppress(OSError):  # closed by the server already
                wire.writer.write_eof()
        if ending < 3:  # until the server closes it, or for a while
            with suppress(TimeoutError, OSError):
                async with asyncio.timeout(chance.choice([0.001, 0.01, 0.1])):
                    await wire.rest()


async def checked_visit(server: Server, probe: Wire, lines: Lines, seed: int) -> None:
    """A visit, and what must be so after it."""
    lines.records.clear()
    await visit(server, seed)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            found = await probe.call("get", "probe")
            while len(server._port.open) > 1:  # type: ignore[union-attr]
                await asyncio.sleep(0.001)
    except TimeoutError:
        raise Failure(f"seed {seed}: the server is stuck, or keeps the connection") from None
    if found is not None:
        raise Failure(f"seed {seed}: the probe was answered with {found!r}")
    said = [record.getMessage() for record in lines.records]
    if len(said) > 1 or any(record.exc_info for record in lines.records):
        raise Failure(f"seed {seed}: the log has {said}")


async def visits(seeds: Sequence[int], seconds: float, progress: bool = False) -> int:
    """Pay visits until the seeds or the seconds are over; gives how many there were."""
    lines = Lines()
    logging.getLogger("pequod.server").addHandler(lines)
    logging.getLogger("asyncio").addHandler(lines)
    end, done = time.monotonic() + seconds, 0
    try:
        async with serving(**LIMITS, **DEADLINES) as server, await Wire.open(server) as probe:
            for seed in seeds:
                if time.monotonic() > end:
                    break
                await checked_visit(server, probe, lines, seed)
                server.cache.remove_range("", "\U0010ffff")  # or it grows with the hours
                done += 1
                if progress and done % BATCH == 0:
                    print(f"{done} visits, no failure", file=sys.stderr, flush=True)
            server.cache._check()
    finally:
        logging.getLogger("pequod.server").removeHandler(lines)
        logging.getLogger("asyncio").removeHandler(lines)
    return done


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.server.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="how long")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first visit")
    options = parser.parse_args(arguments)
    logging.getLogger("pequod.server").propagate = False
    seeds = range(options.first, sys.maxsize)
    with suppress(KeyboardInterrupt):
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                done = runner.run(visits(seeds, options.seconds, progress=True))
        except Failure as failure:
            print(failure)
            return 1
        print(f"{done} visits, no failure")
    return 0


if __name__ == "__main__":
    sys.exit(main())
