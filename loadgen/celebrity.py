"""A poster with 100,000 followers: installing their timelines, and posting to all of them.

Every follower also follows one of many small posters with 40 followers each. A post by each
small poster (put_forties) touches the same timelines, in the same order, as one post by the
celebrity: the two times per follower differ by the engine's doing, and not by what the
processor happens to have in its cache. For comparison, put_forties_cached has two of the small
posters post again and again: how much that is faster is the processor's doing.
"""

from collections.abc import Callable, Iterator, Sequence
from statistics import median

from loadgen.bare import BareTwip, Pair
from loadgen.report import Findings, Ratio, progress
from loadgen.timing import Trial, freeze, seconds_per_call, take_turns
from loadgen.world import (
    FOLLOWS,
    fill_bare,
    follow_key,
    new_cache,
    post_key,
    timeline_range,
    user_name,
)
from pequod import Cache

SMALL_FOLLOWERS = 40
POSTS = 4
NOW = 1_000_000  # later than all posts
PARTS = 10  # the first and the last tenth of the installs are compared
BATCHES_PER_PART = 20  # the median of these stands for the part
LIMIT = 1.5


def measure_celebrity(followers: int, rounds: int) -> Findings:
    """Time the installs and the posts; `followers` is a multiple of 40."""
    celebrity = user_name(followers)
    posters = [user_name(followers + 1 + n) for n in range(followers // SMALL_FOLLOWERS)]
    progress(f"building a celebrity with {followers:,} followers")
    cache, bare = new_cache(), BareTwip()
    for key, value in base_pairs(celebrity, posters):
        cache.put(key, value)
    freeze()
    progress(f"installing {followers:,} timelines")
    findings = install(cache, followers)
    fill_bare(bare, base_pairs(celebrity, posters), map(user_name, range(followers)))
    freeze()
    progress(f"posting to {followers:,} followers at once, and by forties, {rounds} rounds")
    findings.add(post(cache, bare, celebrity, posters, rounds))
    return findings


def base_pairs(celebrity: str, posters: Sequence[str]) -> Iterator[Pair]:
    """Everybody follows the celebrity and one small poster, who have posted in turns."""
    for number in range(len(posters) * SMALL_FOLLOWERS):
        user = user_name(number)
        yield follow_key(user, celebrity), FOLLOWS
        yield follow_key(user, posters[number // SMALL_FOLLOWERS]), FOLLOWS
    for time in range(POSTS):
        for poster in (celebrity, *posters):
            yield post_key(poster, time), "an old post"


def install(cache: Cache, followers: int) -> Findings:
    """Scan each timeline for the first time: is the last tenth as fast as the first?"""
    size = followers // (PARTS * BATCHES_PER_PART)
    parts = []
    for part in range(PARTS):
        seconds = []
        for batch in range(BATCHES_PER_PART):
            start = (part * BATCHES_PER_PART + batch) * size
            users = map(user_name, range(start, start + size))
            seconds.append(seconds_per_call(cache.scan, [timeline_range(user) for user in users]))
        parts.append(median(seconds) * 1e6)
    results = [
        {"job": "install", "side": "pequod", "part": part + 1, "microseconds": microseconds}
        for part, microseconds in enumerate(parts)
    ]
    basis = f"{parts[0]:.1f} us for each of the first tenth of timelines, {parts[-1]:.1f} the last"
    return Findings(results, [Ratio("install_growth", parts[-1] / parts[0], LIMIT, basis)])


def post(cache: Cache, bare: BareTwip, celebrity: str, posters: list[str], rounds: int) -> Findings:
    """One post to all followers against one post by every small poster, on both sides."""
    followers = len(posters) * SMALL_FOLLOWERS
    trials = [
        Trial(job, side, followers * (2 + 2 * POSTS), new_posts(names), call, undo)
        for job, names in (
            ("put_celebrity", [celebrity]),
            ("put_forties", posters),
            ("put_forties_cached", posters[:2]),
        )
        for side, call, undo in (
            ("pequod", cache.put, cache.remove),
            ("bare", bare.put_post, bare.remove_post),
        )
    ]
    findings = Findings()
    times = {}
    for timing in take_turns(trials, rounds):
        job, side = timing.trial.job, timing.trial.side
        reach = followers if job == "put_celebrity" else SMALL_FOLLOWERS
        times[job, side] = timing.microseconds / reach
        findings.results.append(timing.result() | {"microseconds_per_follower": times[job, side]})

    def versus(job: str, side: str) -> float:
        return times["put_celebrity", side] / times[job, side]

    basis = (
        f"{times['put_celebrity', 'pequod']:.2f} us a follower, by forties"
        f" {times['put_forties', 'pequod']:.2f}; by hand {versus('put_forties', 'bare'):.2f} times;"
        f" to cached forties {versus('put_forties_cached', 'pequod'):.2f} times,"
        f" by hand {versus('put_forties_cached', 'bare'):.2f}"
    )
    value = versus("put_forties", "pequod")
    findings.ratios.append(Ratio("celebrity_per_follower", value, LIMIT, basis))
    return findings


def new_posts(posters: Sequence[str]) -> Callable[[], list[Pair]]:
    return lambda: [(post_key(poster, NOW), "a new post") for poster in posters]
