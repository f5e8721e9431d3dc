"""How long a large cache stands still for Python's garbage collector.

A server is filled with timelines and then kept busy with reads, posts and follows. It times each
of its collections itself; this asks it for the longest, and notes the longest time that a caller
had to wait for an answer.
"""

import os
import random
from time import perf_counter

from loadgen.report import Findings, Ratio, progress
from loadgen.servers import CLIENT_CORE, ServerProcess, pin, start_pequod
from loadgen.world import (
    FOLLOWEES,
    FOLLOWS,
    TIMELINE,
    follow_key,
    post_key,
    timeline_range,
    user_name,
)
from pequod import Client

LIMIT_MILLISECONDS = 50
ROWS_PER_USER = FOLLOWEES + 1 + FOLLOWEES  # follows, a post, timeline rows
USERS_AT_ONCE = 250
LATER = 1_000_000


def measure_pauses(rows: int, calls: int, seed: int) -> Findings:
    """Fill a server with so many rows, make so many calls, and ask for its longest pause."""
    pin(os.getpid(), CLIENT_CORE)
    users = rows // ROWS_PER_USER
    chance = random.Random(seed)
    with start_pequod() as server, Client(f"pequod://127.0.0.1:{server.port}", timeout=60) as pq:
        progress(f"filling a server with {rows:,} rows")
        fill(pq, users)
        filled = pq.stats()
        progress(f"{filled['keys']:,} rows; {calls:,} reads, posts and follows")
        latencies = sorted(drive(pq, users, calls, chance))
        return findings(server, filled, pq.stats(), latencies)


def fill(pq: Client, users: int) -> None:
    """Each user follows 40 others, has posted once, and has read the timeline."""
    pq.add_join(TIMELINE)
    names = [user_name(number) for number in range(users)]
    for start in range(0, users, USERS_AT_ONCE):
        some = names[start : start + USERS_AT_ONCE]
        pq.put_many([(post_key(user, time), "a post") for time, user in enumerate(some, start)])
        pq.put_many(
            [
                (follow_key(user, names[(number + step * 7919 + 1) % users]), FOLLOWS)
                for number, user in enumerate(some, start)
                for step in range(FOLLOWEES)
            ]
        )
    for start in range(0, users, USERS_AT_ONCE):
        with pq.pipeline() as pipe:
            for user in names[start : start + USERS_AT_ONCE]:
                pipe.scan(*timeline_range(user), limit=1)
            pipe.execute()
        if start // USERS_AT_ONCE % 100 == 99:
            progress(f"{start + USERS_AT_ONCE:,} of {users:,} timelines")


def drive(pq: Client, users: int, calls: int, chance: random.Random) -> list[float]:
    """Reads, with a post in ten calls and a follow in a hundred; the seconds of each call."""
    latencies = []
    for number in range(calls):
        user = user_name(chance.randrange(users))
        begun = perf_counter()
        if number % 100 == 0:
            pq.put(follow_key(user, user_name(chance.randrange(users))), FOLLOWS)
        elif number % 10 == 0:
            pq.put(post_key(user, LATER + number), "a new post")
        else:
            pq.scan(*timeline_range(user))
        latencies.append(perf_counter() - begun)
    return latencies


def findings(server: ServerProcess, filled: dict, after: dict, latencies: list[float]) -> Findings:
    pause = after["server"]["gc_pause_seconds_max"] * 1e3
    result = {
        "job": "pauses",
        "side": "pequod",
        "rows": after["keys"],
        "resident_bytes": server.memory_bytes(),
        "collections": after["server"]["gc_collections_total"],
        "pause_milliseconds": pause,
        "pause_while_filling_milliseconds": filled["server"]["gc_pause_seconds_max"] * 1e3,
        "p50_milliseconds": latencies[len(latencies) // 2] * 1e3,
        "p99_milliseconds": latencies[len(latencies) * 99 // 100] * 1e3,
        "longest_milliseconds": latencies[-1] * 1e3,
    }
    basis = (
        f"ms at most in {result['collections']:,} collections, {after['keys']:,} rows; "
        f"callers waited {result['p99_milliseconds']:.2f} ms (p99), "
        f"{result['longest_milliseconds']:.1f} at most"
    )
    return Findings([result], [Ratio("gc_pause", pause, LIMIT_MILLISECONDS, basis)])
