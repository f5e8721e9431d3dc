"""Pequod over the network beside Redis: server CPU per request, throughput, latency.

The request is Twip's most frequent: the two newest rows of a fresh timeline of 40. Redis has the
same rows in a sorted set for each timeline and is asked by ZRANGEBYSCORE. Both servers are loaded
by the same loop over raw sockets where their CPU is measured, and by their own clients, in this
process, where throughput is. Rivals take turns, and the median of the turns counts.
"""

import asyncio
import json
import os
import select
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import cycle, islice
from statistics import median
from time import perf_counter
from typing import Any

from loadgen.report import Findings, Ratio, progress
from loadgen.servers import (
    CLIENT_CORE,
    ServerProcess,
    pin,
    start_pequod,
    start_python,
    start_redis,
)
from loadgen.world import TIMELINE, follow_key, post_key, user_name
from pequod import AsyncClient, Client

ROWS = 40
NEWEST = 2
TEXT = "a post of some forty characters, as usual"
CALLERS = 100
PIPELINED = 16
HTTP_CONNECTIONS = 16
INSTALL_REDIS = "redis-server is not on PATH: apt-get install redis-server, or brew install redis"
INSTALL_REDIS_PY = "redis-py is not installed: pip install 'redis[hiredis]'"


@dataclass(frozen=True)
class Load:
    """How much is measured."""

    users: int = 1000
    rounds: int = 9
    calls: int = 8_000


QUICK_LOAD = Load(users=50, rounds=3, calls=400)


def measure_rpc(load: Load) -> Findings:
    """Everything that the benchmark file `rpc` holds."""
    pin(os.getpid(), CLIENT_CORE)
    findings = Findings()
    progress("starting servers")
    with start_pequod() as pequod:
        fill_pequod(pequod, load.users)
        findings.add(measure_http(pequod, load))
        redis = start_redis()
        if redis is None or not has_redis_py():
            progress(INSTALL_REDIS if redis is None else INSTALL_REDIS_PY)
            return findings
        with redis:
            fill_redis(redis, load.users)
            findings.add(measure_cpu(pequod, redis, load))
            findings.add(measure_clients(pequod, redis, load))
    return findings


def has_redis_py() -> bool:
    return find_spec("redis") is not None


# The world: every user follows 40 posters, each of whom has posted once.


def fill_pequod(server: ServerProcess, users: int) -> None:
    with Client(f"pequod://127.0.0.1:{server.port}") as client:
        client.add_join(TIMELINE)
        posters = [user_name(users + number) for number in range(ROWS)]
        client.put_many([(post_key(poster, time), TEXT) for time, poster in enumerate(posters)])
        for number in range(users):
            user = user_name(number)
            client.put_many([(follow_key(user, poster), "1") for poster in posters])
            assert len(client.scan(f"t|{user}|", f"t|{user}}}")) == ROWS


def scans(users: int) -> list[tuple[str, str]]:
    """The range of the newest rows of each timeline."""
    first = ROWS - NEWEST
    return [(f"t|{user}|{first:010}", f"t|{user}}}") for user in map(user_name, range(users))]


def fill_redis(server: ServerProcess, users: int) -> None:
    import redis

    with redis.Redis(port=server.port) as client:
        posters = [user_name(users + number) for number in range(ROWS)]
        members = {f"{time:010}|{poster}|{TEXT}": time for time, poster in enumerate(posters)}
        with client.pipeline(transaction=False) as pipe:
            for number in range(users):
                pipe.zadd(f"t|{user_name(number)}", members)
            pipe.execute()


# Server CPU, by raw sockets.


def measure_cpu(pequod: ServerProcess, redis: ServerProcess, load: Load) -> Findings:
    """CPU per request with 1 and with 16 requests outstanding."""
    findings = Findings()
    requests = {
        "pequod": [pequod_request(first, last) for first, last in scans(load.users)],
        "redis": [redis_request(number) for number in range(load.users)],
    }
    servers = {"pequod": pequod, "redis": redis}
    for outstanding, limit in ((1, 1.5), (PIPELINED, 1.8)):
        progress(f"CPU of the server, {outstanding} outstanding, {load.rounds} rounds")
        calls = load.calls * (4 if outstanding > 1 else 1)
        cpu: dict[str, list[float]] = {"pequod": [], "redis": []}
        for _ in range(load.rounds):
            for side, server in servers.items():
                cpu[side].append(cpu_per_call(server, requests[side], calls, outstanding))
        times = {side: median(seconds) * 1e6 for side, seconds in cpu.items()}
        for side, microseconds in times.items():
            findings.results.append(
                {
                    "job": "server_cpu",
                    "side": side,
                    "outstanding": outstanding,
                    "microseconds": microseconds,
                }
            )
        basis = f"{times['pequod']:.2f} us of CPU a request, Redis {times['redis']:.2f}"
        value = times["pequod"] / times["redis"]
        findings.ratios.append(Ratio(f"cpu_vs_redis_{outstanding}", value, limit, basis))
    return findings


def pequod_request(first: str, last: str) -> bytes:
    """A scan as msgpack, with number 1."""
    texts = b"".join(b"\xd9" + bytes([len(text)]) + text.encode() for text in ("scan", first, last))
    return b"\x94\x01" + texts


def redis_request(number: int) -> bytes:
    words = ["ZRANGEBYSCORE", f"t|{user_name(number)}", str(ROWS - NEWEST), "+inf"]
    return b"*4\r\n" + b"".join(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words)


def cpu_per_call(
    server: ServerProcess, requests: Sequence[bytes], calls: int, outstanding: int
) -> float:
    """The server's CPU seconds for one of `calls` requests, `outstanding` at a time."""
    with server.connect() as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.sendall(requests[0])
        size = len(one.recv(1 << 16))  # all answers have this size
        batches = _batches(requests, calls, outstanding)
        for batch in batches[: len(batches) // 10]:
            _exchange(one, batch, size * outstanding)
        before = server.cpu_seconds()
        for batch in batches:
            _exchange(one, batch, size * outstanding)
        return (server.cpu_seconds() - before) / (len(batches) * outstanding)


def _batches(requests: Sequence[bytes], calls: int, outstanding: int) -> list[bytes]:
    endless = cycle(requests)
    return [b"".join(islice(endless, outstanding)) for _ in range(calls // outstanding)]


def _exchange(one: socket.socket, batch: bytes, size: int) -> None:
    one.sendall(batch)
    while size > 0:
        data = one.recv(1 << 16)
        if not data:
            raise SystemExit("a server closed the connection")
        size -= len(data)
    assert size == 0, "an answer of another size"


# Throughput and latency, by each one's own client.


def measure_clients(pequod: ServerProcess, redis: ServerProcess, load: Load) -> Findings:
    import redis as redis_py

    ranges = scans(load.users)
    names = [f"t|{user_name(number)}" for number in range(load.users)]
    oldest = ROWS - NEWEST
    findings = Findings()
    progress(f"blocking clients, one call at a time, {load.rounds} rounds")
    with (
        Client(f"pequod://127.0.0.1:{pequod.port}") as ours,
        redis_py.Redis(port=redis.port) as theirs,
    ):
        jobs: dict[str, Callable[[int], Any]] = {
            "pequod": lambda number: ours.scan(*ranges[number]),
            "redis-py": lambda number: theirs.zrangebyscore(names[number], oldest, "+inf"),
        }
        assert len(jobs["pequod"](0)) == len(jobs["redis-py"](0)) == NEWEST
        rounds = [
            {side: _one_by_one(call, load.calls // 4, load.users) for side, call in jobs.items()}
            for _ in range(load.rounds)
        ]
    findings.add(_compared("sync1_vs_redis_py", rounds, 1.0))
    progress(f"asyncio clients, {CALLERS} callers, {load.rounds} rounds")
    rounds = _run(_concurrently(pequod.port, redis.port, ranges, names, load))
    findings.add(_compared("async100_vs_redis_py", rounds, 5.0))
    return findings


Latencies = tuple[float, list[float]]  # calls per second, and the seconds of each call


def _one_by_one(call: Callable[[int], Any], calls: int, users: int) -> Latencies:
    latencies = []
    start = before = perf_counter()
    for number in range(calls):
        call(number % users)
        now = perf_counter()
        latencies.append(now - before)
        before = now
    return calls / (before - start), latencies


async def _concurrently(
    pequod_port: int, redis_port: int, ranges: list[tuple[str, str]], names: list[str], load: Load
) -> list[dict[str, Latencies]]:
    import redis.asyncio

    theirs = redis.asyncio.Redis(port=redis_port, max_connections=CALLERS)
    oldest = ROWS - NEWEST
    try:
        async with AsyncClient(f"pequod://127.0.0.1:{pequod_port}") as ours:
            jobs: dict[str, Callable[[int], Any]] = {
                "pequod": lambda number: ours.scan(*ranges[number]),
                "redis-py": lambda number: theirs.zrangebyscore(names[number], oldest, "+inf"),
            }
            for call in jobs.values():
                await _all_callers(call, 5 * CALLERS, load.users)
            return [
                {
                    side: await _all_callers(
                        call, load.calls * (4 if side == "pequod" else 1), load.users
                    )
                    for side, call in jobs.items()
                }
                for _ in range(load.rounds)
            ]
    finally:
        await theirs.aclose()


async def _all_callers(call: Callable[[int], Any], calls: int, users: int) -> Latencies:
    latencies: list[float] = []

    async def caller(start: int) -> None:
        for number in range(start, calls, CALLERS):
            before = perf_counter()
            await call(number % users)
            latencies.append(perf_counter() - before)

    start = perf_counter()
    await asyncio.gather(*(caller(start) for start in range(CALLERS)))
    return len(latencies) / (perf_counter() - start), latencies


def _run(work: Any) -> Any:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def _compared(name: str, rounds: list[dict[str, Latencies]], least: float) -> Findings:
    """The throughput of the first side as a multiple of the second's."""
    findings = Findings()
    speed = {}
    for side in rounds[0]:
        speed[side] = median(one[side][0] for one in rounds)
        latencies = sorted(seconds for one in rounds for seconds in one[side][1])
        findings.results.append(
            {
                "job": name.partition("_vs_")[0],
                "side": side,
                "calls_per_second": speed[side],
                "p50_microseconds": latencies[len(latencies) // 2] * 1e6,
                "p99_microseconds": latencies[len(latencies) * 99 // 100] * 1e6,
            }
        )
    (_, ours_speed), (theirs, theirs_speed) = speed.items()
    p50, p99 = (
        [f"{result[f'p{part}_microseconds']:,.0f}" for result in findings.results]
        for part in (50, 99)
    )
    basis = (
        f"{ours_speed:,.0f} calls/s, {theirs} {theirs_speed:,.0f}; "
        f"p50 {p50[0]} us, {p50[1]}; p99 {p99[0]} us, {p99[1]}"
    )
    findings.ratios.append(Ratio(name, ours_speed / theirs_speed, least, basis, at_least=True))
    return findings


# HTTP, by raw sockets.


def measure_http(pequod: ServerProcess, load: Load) -> Findings:
    """The same scan by HTTP against a bare handler that returns the same bytes."""
    ranges = scans(load.users)
    requests = [
        f"GET /v1/scan?first={first}&last={last} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        for first, last in ranges
    ]
    with Client(f"pequod://127.0.0.1:{pequod.port}") as client:
        body = json.dumps([list(row) for row in client.scan(*ranges[0])])
    progress(f"HTTP, {HTTP_CONNECTIONS} connections, {load.rounds} rounds")
    with start_python("loadgen.bare_http", body) as bare:
        rounds = [
            {
                side: _http_calls(server, requests, load.calls // 4)
                for side, server in (("pequod", pequod), ("bare aiohttp", bare))
            }
            for _ in range(load.rounds)
        ]
    return _compared("http_vs_bare_aiohttp", rounds, 0.7)


def _http_calls(server: ServerProcess, requests: Sequence[bytes], calls: int) -> Latencies:
    """Keep each of some connections busy with one request at a time."""
    latencies = []
    open_sockets = {
        one.fileno(): one for one in (server.connect() for _ in range(HTTP_CONNECTIONS))
    }
    waiting = select.poll()
    begun = {}
    endless = cycle(requests)
    start = perf_counter()
    for number, one in open_sockets.items():
        waiting.register(number, select.POLLIN)
        begun[number] = perf_counter()
        one.sendall(next(endless))
    while len(latencies) < calls:
        for number, _ in waiting.poll(10_000):
            answer = open_sockets[number].recv(1 << 16)
            if not answer.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"HTTP went wrong: {answer[:200]!r}")
            now = perf_counter()
            latencies.append(now - begun[number])
            begun[number] = now
            open_sockets[number].sendall(next(endless))
    speed = len(latencies) / (perf_counter() - start)
    for one in open_sockets.values():
        one.close()
    return speed, latencies
