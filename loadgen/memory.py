"""What a row costs in memory, and whether eviction gives back what it takes.

The truth is what the operating system says of a fresh process. Rows come from generators and
nothing here keeps them: what the process has gained in the end is the cache with all its
bookkeeping, and the texts of the posts, whose size is known.
"""

import random
import sys
from dataclasses import asdict, dataclass

from loadgen.bare import BareTwip
from loadgen.process import in_fresh_process, resident_bytes
from loadgen.report import Findings, Ratio, Result, progress
from loadgen.timing import Call
from loadgen.world import (
    FOLLOWEES,
    FOLLOWS,
    World,
    account_bytes,
    fill_cache,
    follow_key,
    new_cache,
    post_key,
    timeline_range,
    user_name,
)
from pequod import prefix

BYTES_LIMIT = 200
CHURN_LIMIT = 1.1
SNAPSHOTS = 5
LATER = 1_000_000  # than all posts of the world


@dataclass(frozen=True)
class Footprint:
    """The memory of one side's world; `account_bytes` is what the cache itself believes."""

    side: str
    rows: int
    resident_bytes: int
    text_bytes: int
    account_bytes: int | None = None

    @property
    def bytes_per_row(self) -> float:
        return (self.resident_bytes - self.text_bytes) / self.rows

    def result(self) -> Result:
        return {"job": "memory"} | asdict(self) | {"bytes_per_row": self.bytes_per_row}


@dataclass(frozen=True)
class Snapshot:
    """The memory of a cache after some rounds of eviction."""

    rounds: int
    rows: int
    resident_bytes: int
    account_bytes: int | None

    def result(self) -> Result:
        return {"job": "churn", "side": "pequod"} | asdict(self)


def measure_memory(users: int, seed: int) -> Findings:
    """Bytes per stored row of a world in which each user follows 40 and sees 40 posts."""
    progress(f"storing {users:,} users with {users * FOLLOWEES:,} follows")
    pequod = in_fresh_process(cache_footprint, users, seed)
    progress("storing the same by hand")
    bare = in_fresh_process(bare_footprint, users, seed)
    basis = f"bytes in {pequod.rows:,} rows, texts not counted; by hand {bare.bytes_per_row:.0f}"
    if pequod.account_bytes is not None:
        basis += f"; its own account says {pequod.account_bytes / pequod.rows:.0f} with texts"
    ratio = Ratio("bytes_per_row", pequod.bytes_per_row, BYTES_LIMIT, basis)
    return Findings([pequod.result(), bare.result()], [ratio])


def cache_footprint(users: int, seed: int) -> Footprint:
    cache = new_cache()
    before = resident_bytes()
    rows, text = store_world(cache.put, cache.scan, cache.put, users, seed)
    return Footprint("pequod", rows, resident_bytes() - before, text, account_bytes(cache))


def bare_footprint(users: int, seed: int) -> Footprint:
    bare = BareTwip()
    before = resident_bytes()
    rows, text = store_world(bare.load, bare.first_scan, bare.put_post, users, seed)
    return Footprint("bare", rows, resident_bytes() - before, text)


def store_world(
    load: Call, first_scan: Call, put_post: Call, users: int, seed: int
) -> tuple[int, int]:
    """Follow, post, read, post again; gives the number of rows stored and the size of the texts.

    Everybody posts once: half of them before the timelines are read and half after, as a
    timeline that has grown post by post has other slack than one computed in one go.
    """
    chance = random.Random(seed)
    everybody = range(users)
    for user in everybody:
        for poster in chance.sample(everybody, FOLLOWEES):
            load(follow_key(user_name(user), user_name(poster)), FOLLOWS)
    text_bytes = 0
    for put, posters in ((load, everybody[::2]), (put_post, everybody[1::2])):
        for poster in posters:
            text = f"a fine day at sea, a good wind and no whale anywhere near, says {poster}"
            text_bytes += sys.getsizeof(text)
            put(post_key(user_name(poster), poster), text)
        if put is load:
            for user in everybody:
                first_scan(*timeline_range(user_name(user)))
    return users * (2 * FOLLOWEES + 1), text_bytes


def measure_churn(rows: int, rounds: int, seed: int) -> Findings:
    """Evict and recompute for a long time: the memory at the end to the memory after a fifth."""
    progress(f"evicting and recomputing in {rows:,} rows, {rounds} rounds")
    snapshots = in_fresh_process(churn, rows, rounds, seed)
    first, last = snapshots[0].resident_bytes, snapshots[-1].resident_bytes
    early = snapshots[0].rounds
    basis = f"{first / 1e6:.1f} MB after {early} rounds, {last / 1e6:.1f} after {rounds}"
    ratio = Ratio("churn_growth", last / first, CHURN_LIMIT, basis)
    return Findings([snapshot.result() for snapshot in snapshots], [ratio])


def churn(rows: int, rounds: int, seed: int) -> list[Snapshot]:
    """Each round evicts every timeline and reads it again, in a new order, among new posts."""
    chance = random.Random(seed)
    world = World.of_rows(rows, seed)
    users = world.users()
    before = resident_bytes()
    cache = new_cache()
    fill_cache(cache, world.base_pairs(), users)
    snapshots = []
    for number in range(1, rounds + 1):
        chance.shuffle(users)
        for user in users:
            keys, post = prefix(f"t|{user}|"), post_key(user, LATER)
            cache.evict(keys)
            cache.put(post, "here for a moment")
            cache.scan(*keys)
            cache.remove(post)
        if number % (rounds // SNAPSHOTS) == 0:
            resident = resident_bytes() - before
            snapshots.append(Snapshot(number, world.rows, resident, account_bytes(cache)))
    return snapshots
