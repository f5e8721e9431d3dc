"""Making room: who goes first, who never goes, and that no answer changes because of it."""

import gc
import random
import sys
import tracemalloc
from collections.abc import Callable

import pytest

from pequod import Cache, KeyRange, prefix
from pequod.engine.eviction import Eviction
from pequod.keys import EVERYTHING
from tests.engine.database import Database
from tests.oracle import expected_pairs

TIMELINE = "t|<user>|<time>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
COUNT = "n|<user> = count t|<user>|<time>|<poster>"
USERS = [f"user{number:02d}" for number in range(20)]
FOLLOWS, POSTS = prefix("s|"), prefix("p|")


def timeline(user: str) -> KeyRange:
    return prefix(f"t|{user}|")


def twip(memory_limit: int | None = None) -> Cache:
    """Twenty users who follow a poster each; all timelines weigh the same."""
    cache = Cache(memory_limit=memory_limit)
    cache.add_join(TIMELINE)
    for user in USERS:
        cache.put(f"s|{user}|{user}", "1")
        for number in range(10):
            cache.put(f"p|{user}|{number:03d}", "hello")
    return cache


def limit_for(timelines: float) -> int:
    """A limit under which so many timelines fit beside the base data."""
    cache = twip()
    base = cache.stats()["bytes"]
    for user in USERS:
        cache.scan(*timeline(user))
    each = (cache.stats()["bytes"] - base) / len(USERS)
    return int(base + timelines * each)


def computed(cache: Cache) -> list[str]:
    """The users whose timelines are in memory."""
    return [
        user
        for user in USERS
        if any(
            part["state"] == "fresh"
            for join in cache.explain(*timeline(user))["joins"]
            for part in join["ranges"]
        )
    ]


def test_nothing_goes_without_a_limit() -> None:
    cache = twip()
    for user in USERS:
        cache.scan(*timeline(user))
    assert computed(cache) == USERS


def test_the_least_recently_used_goes_first() -> None:
    cache = twip(limit_for(10.5))
    for user in USERS:
        cache.scan(*timeline(user))
    kept = computed(cache)
    assert kept == USERS[-len(kept) :]
    assert 8 <= len(kept) <= 10
    assert cache.stats()["joins"]["t#1"]["evictions"] == 20 - len(kept)
    assert cache.stats()["tables"]["t"]["evictions"] == 20 - len(kept)


@pytest.mark.parametrize("read", ["scan", "get", "count", "part"])
def test_every_kind_of_read_counts_as_use(read: str) -> None:
    cache = twip(limit_for(10.5))
    hot = USERS[0]
    for user in USERS * 3:
        cache.scan(*timeline(user))
        match read:
            case "scan":
                cache.scan(*timeline(hot))
            case "get":
                assert cache.get(f"t|{hot}|003|{hot}") == "hello"
            case "count":
                assert cache.count(*timeline(hot)) == 10
            case "part":
                assert len(cache.scan(f"t|{hot}|003", f"t|{hot}|005", limit=1)) == 1
    stats = cache.stats()["joins"]["t#1"]
    assert hot in computed(cache)
    # 60 scans, of which three found the hot one: each of the others was computed every time.
    assert stats["computes"] <= 1 + 3 * 19, "the hot timeline was computed once"


def test_the_account_returns_under_the_limit() -> None:
    limit = limit_for(5)
    cache = twip(limit)
    for number, user in enumerate(USERS * 3):
        cache.scan(*timeline(user))
        assert cache.stats()["bytes"] <= limit
        cache.put(f"p|{user}|{number % 10:03d}", f"new {number}")
        assert cache.stats()["bytes"] <= limit
        cache._check()


@pytest.mark.parametrize("seed", range(4))
def test_those_that_stay_are_the_most_recently_used(seed: int) -> None:
    rng = random.Random(seed)
    cache = twip(limit_for(rng.uniform(3, 15)))
    used: list[str] = []
    for _ in range(300):
        user = rng.choice(USERS[: rng.choice((4, 20))])
        used = [*(one for one in used if one != user), user]
        cache.scan(*timeline(user))
        kept = computed(cache)
        assert kept == sorted(used[-len(kept) :])


def test_candidates_are_lined_up_once_for_many_that_go(monkeypatch: pytest.MonkeyPatch) -> None:
    line_up, lined_up = Eviction._line_up, list[int]()

    def counted(self: Eviction, now: int) -> None:
        lined_up.append(now)
        line_up(self, now)

    monkeypatch.setattr(Eviction, "_line_up", counted)
    cache = twip(limit_for(10.5))
    for user in USERS * 10:
        cache.scan(*timeline(user))
    evictions = cache.stats()["joins"]["t#1"]["evictions"]
    assert evictions > 150
    assert len(lined_up) < evictions / 8


def calls_of(call: Callable[[], object]) -> int:
    """How many functions a call calls."""
    number = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal number
        number += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return number


@pytest.mark.parametrize("memory_limit", [1, 100_000_000])
def test_a_put_under_a_limit_does_not_look_at_every_join(memory_limit: int) -> None:
    found = []
    for joins in (1, 100):
        cache = Cache(memory_limit=memory_limit)
        for number in range(joins):
            cache.add_join(f"o{number}|<a> = copy x{number}|<a>")
            cache.get(f"o{number}|1")
        cache.put("p|bob|1", "1")
        found.append(calls_of(lambda cache=cache: cache.put("p|bob|2", "1")))
    assert found[0] == found[1]


def test_a_fan_out_makes_room_too() -> None:
    cache = Cache(memory_limit=600_000)
    cache.add_join(TIMELINE)
    for number in range(200):
        cache.put(f"s|fan{number:03d}|star", "1")
        cache.scan(*timeline(f"fan{number:03d}"))
    for number in range(100):
        cache.put(f"p|star|{number:03d}", "hello, all of you")
        assert cache.stats()["bytes"] <= 600_000
    cache._check()
    assert cache.stats()["tables"]["t"]["evictions"] > 0
    assert cache.count(*timeline("fan007")) == 100


def test_what_exists_only_here_is_never_evicted() -> None:
    cache = Cache(memory_limit=1)
    cache.add_join(TIMELINE)
    base = {f"p|u{number}|{number}": str(number) for number in range(100)}
    base |= {f"s|ann|u{number}": "1" for number in range(100)}
    base |= {"lone": "key", "t|other": "base data in a computed table"}
    cache.put_many(base)
    for _ in range(3):
        assert cache.scan(*EVERYTHING) == expected_pairs([TIMELINE], base)
        cache.evict(EVERYTHING)
        assert {key: cache.get(key) for key in base} == base
    cache._check()


def test_evict_takes_remote_copies_and_leaves_local_rows() -> None:
    database = Database(Cache(), [POSTS], [TIMELINE])
    database.store("p|bob|1", value="remote")
    database.put("s|ann|bob", "local")
    everything = database.scan(EVERYTHING)
    assert len(everything) == 3
    database.cache.evict(EVERYTHING)
    assert database.cache.stats()["keys"] == 1
    assert database.cache.freshen(timeline("ann")) == [prefix("p|bob|")]
    assert database.scan(EVERYTHING) == everything


def remote_twip(memory_limit: int | None) -> Database:
    """Everything in the database: each user follows the next five."""
    database = Database(Cache(memory_limit=memory_limit), [FOLLOWS, POSTS], [TIMELINE, COUNT])
    for number, user in enumerate(USERS):
        for step in range(1, 6):
            database.store(f"s|{user}|{USERS[(number + step) % len(USERS)]}")
        for post in range(4):
            database.store(f"p|{user}|{post:03d}", value=f"post {post} of {user}")
    return database


@pytest.mark.parametrize("memory_limit", [1, 20_000, 60_000, 200_000])
@pytest.mark.parametrize("seed", range(4))
def test_answers_do_not_change_because_of_a_limit(memory_limit: int, seed: int) -> None:
    rng = random.Random(seed)
    database = remote_twip(memory_limit)
    for step in range(80):
        user, other = rng.sample(USERS, 2)
        match rng.choice(("scan", "scan", "count", "post", "follow", "unfollow", "unpost")):
            case "scan":
                database.scan(timeline(user))
            case "count":
                database.scan(prefix(f"n|{user}"))
            case "post":
                database.put(f"p|{user}|{step:03d}", f"step {step}")
            case "unpost":
                database.remove(f"p|{user}|{rng.randrange(4):03d}")
            case "follow":
                database.put(f"s|{user}|{other}")
            case "unfollow":
                database.remove(f"s|{user}|{other}")
    assert all(len(round_) <= 30 for round_ in database.loads)


def test_eviction_does_not_starve_readers_that_load_at_the_same_time() -> None:
    """Four readers take turns under a limit that holds none of them; each gets its answer."""
    database = remote_twip(1)
    for start in range(0, 20, 4):
        waiting = dict.fromkeys(USERS[start : start + 4], 0)
        while waiting:
            for user in list(waiting):
                missing = database.cache.freshen(timeline(user))
                if missing:
                    waiting[user] += 1
                    assert waiting[user] <= 4, f"{user} is starved"
                    database.load(missing)
                else:
                    answer = expected_pairs(database.joins, database.rows, *timeline(user))
                    assert database.cache.scan(*timeline(user)) == answer
                    del waiting[user]


def test_hot_timelines_keep_the_base_ranges_they_were_made_of() -> None:
    """Nobody reads those ranges any more, but taking them would take the timeline along."""
    unlimited = remote_twip(None)
    unlimited.scan(timeline(USERS[0]))
    database = remote_twip(2 * unlimited.cache.stats()["bytes"])
    database.scan(timeline(USERS[0]))
    for user in USERS[6:14] * 4:
        database.scan(timeline(user))
        assert database.cache.freshen(timeline(USERS[0])) == []
        database.scan(timeline(USERS[0]))
    assert database.cache.stats()["tables"]["p"]["evictions"] > 0, "others had to go"
    mine = [keys for round_ in database.loads for keys in round_ if keys.first < "p|user06|"]
    assert len(mine) == len(set(mine)) == 5, "each of its ranges was loaded once"


def test_evicting_and_recomputing_for_long_does_not_grow_memory() -> None:
    cache = twip(limit_for(4))
    everything = [cache.scan(*timeline(user)) for user in USERS]

    def live_bytes() -> int:
        for user in USERS * 10:
            cache.scan(*timeline(user))
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        live_bytes()
        first = live_bytes()
        for _ in range(8):
            last = live_bytes()
    finally:
        tracemalloc.stop()
    assert last - first < 20_000, f"{last - first:,} bytes more after 1,600 evictions"
    assert cache.stats()["joins"]["t#1"]["evictions"] > 1_600
    assert [cache.scan(*timeline(user)) for user in USERS] == everything
