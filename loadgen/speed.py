"""The three hot jobs, at three sizes, against the same by hand.

scan    the 2 newest rows of a fresh timeline of 40, as a client asks that knows its last visit
put     a post with 40 followers whose timelines are live
first   a timeline that is not there yet: 40 followees with 50 posts each, 2,000 rows

Growth is to show the algorithms and not the processor's caches. So the same number of users
(two communities, which is all of the smallest world) is asked at every size, over and over.
The job scan_anywhere asks users all over the world instead: its growth is for the most
part cache misses, which the bare loop has as well.
"""

import random
from collections.abc import Callable, Sequence
from itertools import cycle

from loadgen.bare import BareTwip, Pair
from loadgen.report import Findings, Ratio, progress
from loadgen.timing import Timing, Trial, freeze, nothing, take_turns
from loadgen.world import (
    FOLLOWERS,
    World,
    account_bytes,
    fill_bare,
    fill_cache,
    new_cache,
    post_key,
    timeline_range,
)
from pequod import Cache, prefix

COMMUNITIES_ASKED = 2
SCANS_PER_USER = 30
POSTERS_PER_COMMUNITY = 8
NOW = 1_000_000  # later than every post of the world

LIMITS = {"scan": ("scan_fresh", 2.5), "put": ("put_fanout", 3.0), "first": ("first_scan", 4.0)}
GROWTH_LIMIT = 1.5


def measure_speed(sizes: Sequence[int], rounds: int, seed: int) -> Findings:
    """Time all jobs at all sizes in turns; the ratios to the bare loops are the smallest size's.

    There the rows lie in the processor's cache, and the engine's own work shows most.
    """
    trials = []
    for rows in sizes:
        progress(f"building a world of {rows:,} rows, in Pequod and by hand")
        trials += trials_of(World.of_rows(rows, seed), seed)
    freeze()
    trials.sort(key=lambda trial: (trial.collector, trial.job))  # rivals stand side by side
    progress(f"timing scan, put and first scan at {len(sizes)} sizes, {rounds} rounds")
    timings = take_turns(trials, rounds)
    findings = Findings([timing.result() for timing in timings])
    for job in LIMITS:
        findings.ratios.append(ratio_to_bare(job, timings))
    for job in LIMITS:
        findings.ratios.append(growth(job, timings))
    return findings


def trials_of(world: World, seed: int) -> list[Trial]:
    """Every job on both sides in `world`, with the garbage collector off and on."""
    cache, bare = new_cache(), BareTwip()
    fill_cache(cache, world.base_pairs(), world.users())
    fill_bare(bare, world.base_pairs(), world.users())
    check_agreement(cache, bare, world)

    def evict(first: str) -> None:
        cache.evict(prefix(first))

    return [
        Trial(job, side, world.rows, pairs, call, undo, collector)
        for collector in (False, True)
        for job, side, pairs, call, undo in (
            ("scan", "pequod", scans(world), cache.scan, nothing),
            ("scan", "bare", scans(world), bare.scan, nothing),
            ("scan_anywhere", "pequod", scans_anywhere(world, seed), cache.scan, nothing),
            ("scan_anywhere", "bare", scans_anywhere(world, seed), bare.scan, nothing),
            ("put", "pequod", posts(world), cache.put, cache.remove),
            ("put", "bare", posts(world), bare.put_post, bare.remove_post),
            ("first", "pequod", first_scans(world), cache.scan, evict),
            ("first", "bare", first_scans(world), bare.first_scan, bare.forget),
        )
    ]


def scans(world: World) -> Callable[[], list[Pair]]:
    return lambda: [
        pair for _ in range(SCANS_PER_USER) for pair in world.newest_two(COMMUNITIES_ASKED)
    ]


def scans_anywhere(world: World, seed: int) -> Callable[[], list[Pair]]:
    chance = random.Random(seed)
    number = len(scans(world)())
    return lambda: chance.choices(list(world.newest_two(len(world.communities))), k=number)


def posts(world: World) -> Callable[[], list[Pair]]:
    """A few members of each community asked post once, in time order."""
    return lambda: [
        (post_key(poster, NOW + time), "just setting up my cache")
        for members in world.communities[:COMMUNITIES_ASKED]
        for time, poster in enumerate(members[:POSTERS_PER_COMMUNITY])
    ]


def first_scans(world: World) -> Callable[[], list[Pair]]:
    """One reader at a time: none of the authors' updaters is left from another reader."""
    readers = cycle(world.readers)
    return lambda: [timeline_range(next(readers))]


def check_agreement(cache: Cache, bare: BareTwip, world: World) -> None:
    """Both sides do the same job: the same rows before a post, after it, and on a first scan."""
    ranges = list(world.newest_two(COMMUNITIES_ASKED))
    assert all(cache.scan(*keys) == bare.scan(*keys) for keys in ranges), "fresh scans differ"
    assert all(len(bare.scan(*keys)) == 2 for keys in ranges), "not the two newest rows"
    batch = posts(world)()
    for key, text in batch:
        cache.put(key, text)
        bare.put_post(key, text)
    assert all(cache.scan(*keys) == bare.scan(*keys) for keys in ranges), "posts differ"
    for key, _ in batch:
        cache.remove(key)
        bare.remove_post(key)
    assert all(cache.scan(*keys) == bare.scan(*keys) for keys in ranges), "removals differ"
    [keys] = first_scans(world)()
    assert cache.scan(*keys) == bare.first_scan(*keys), "first scans differ"
    full = account_bytes(cache)
    cache.evict(prefix(keys[0]))
    bare.forget(keys[0])
    left = account_bytes(cache)
    assert full is None or left is None or left < full, "evicting a timeline has freed nothing"


def ratio_to_bare(job: str, timings: Sequence[Timing]) -> Ratio:
    name, limit = LIMITS[job]
    pequod, bare = select(timings, job, "pequod")[0], select(timings, job, "bare")[0]
    share = FOLLOWERS if job == "put" else 1
    unit = "us a follower" if job == "put" else "us"
    basis = f"{pequod / share:.2f} {unit}, by hand {bare / share:.2f}"
    return Ratio(name, pequod / bare, limit, basis)


def growth(job: str, timings: Sequence[Timing]) -> Ratio:
    pequod, bare = select(timings, job, "pequod"), select(timings, job, "bare")
    basis = " -> ".join(f"{time:.2f}" for time in pequod) + " us a call; "
    basis += f"by hand it grows {bare[-1] / bare[0]:.2f} times"
    return Ratio(f"growth_{job}", pequod[-1] / pequod[0], GROWTH_LIMIT, basis)


def select(timings: Sequence[Timing], job: str, side: str) -> list[float]:
    """Microseconds of a job with the collector off, from the smallest world to the largest."""
    return [
        timing.microseconds
        for timing in sorted(timings, key=lambda timing: timing.trial.rows)
        if (timing.trial.job, timing.trial.side) == (job, side) and not timing.trial.collector
    ]
