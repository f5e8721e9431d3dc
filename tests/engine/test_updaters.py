"""Updaters: merged where they watch one range, found by key, and gone with their status range."""

import random
import time

import pytest

from pequod import Cache, prefix
from pequod.engine.plan import Plan, Step
from pequod.engine.status import StatusRange, View
from pequod.engine.store import Store, Table
from pequod.engine.updaters import Context, Updater, UpdaterIndex
from pequod.joins.parser import parse
from pequod.keys import EVERYTHING, KeyRange, point

TIMELINE = "t|<user>|<time>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
RANGES = [
    prefix("p|bob|"),
    prefix("p|eve|"),
    prefix("p|"),
    prefix("p|bo"),
    point("p|bob|1"),
    point("p|bob"),
    KeyRange("p|bob|1", "p|eve|1"),
    KeyRange("p|bob|1", "p|bob|3"),
]
KEYS = ["p|", "p|b", "p|bo", "p|bob", "p|bob|", "p|bob|1", "p|bob|10", "p|bob|3", "p|eve|0"]
KEYS += ["p|eve|1", "p|eve|2", "p|zoe|1"]


class Bench:
    """An index over table `p`, and contexts to link into it."""

    def __init__(self) -> None:
        store = Store()
        [join] = parse(TIMELINE)
        self.plan = Plan(join, 1, store.account)
        self.view = View(store.table("t"), [self.plan])
        self.table: Table = store.table("p")
        self.index: UpdaterIndex = self.table.updaters
        self.step: Step = self.plan.steps({})[1]

    def context(self, user: str = "ann") -> Context:
        status = StatusRange(self.view, prefix(f"t|{user}|"), (), 0)
        return Context(self.step, (user,), status)

    def watching(self, key: str) -> set[KeyRange]:
        """The ranges of all updaters that a change of `key` would find."""
        return {
            updater.keys
            for watchers in self.index.watching(key)
            for by_tested in watchers.values()
            for updater in by_tested.values()
        }


@pytest.mark.parametrize("keys", RANGES, ids=str)
def test_4000_contexts_on_one_range_are_one_updater(keys: KeyRange) -> None:
    bench = Bench()
    contexts = [bench.context(f"user{number}") for number in range(4_000)]
    started = time.process_time()
    for context in contexts:
        assert bench.index.link(keys, (), context)
    seconds = time.process_time() - started
    assert seconds < 0.5, f"{seconds:.2f} s: one interval for each context takes 3.5 s"
    assert bench.index.updaters == 1
    [updater] = bench.index
    assert list(updater.contexts) == contexts
    bench.index._check()
    started = time.process_time()
    for context in contexts:
        bench.index.unlink(updater, context)
    assert time.process_time() - started < 0.5
    assert not bench.index
    assert list(bench.index) == []


def test_a_context_is_linked_once() -> None:
    bench = Bench()
    context = bench.context()
    assert bench.index.link(RANGES[0], (), context)
    assert not bench.index.link(RANGES[0], (), context)
    assert len(context.links) == 1


def test_tested_slots_part_the_updaters_of_a_range() -> None:
    bench = Bench()
    bench.index.link(RANGES[0], ("1",), bench.context())
    bench.index.link(RANGES[0], ("2",), bench.context())
    assert bench.index.updaters == 2
    found = bench.index.find(RANGES[0], bench.step, ("2",))
    assert found is not None
    assert found.tested == ("2",)
    assert bench.index.find(RANGES[0], bench.step, ("3",)) is None
    assert bench.index.find(RANGES[1], bench.step, ("2",)) is None


@pytest.mark.parametrize("seed", range(20))
def test_found_as_a_list_would_find_them(seed: int) -> None:
    rng = random.Random(seed)
    bench = Bench()
    linked: list[tuple[KeyRange, Context]] = []
    for _ in range(60):
        if linked and rng.random() < 0.4:
            keys, context = linked.pop(rng.randrange(len(linked)))
            updater: Updater | None = bench.index.find(keys, bench.step, ())
            assert updater is not None, keys
            context.links.remove(updater)
            bench.index.unlink(updater, context)
        else:
            keys, context = rng.choice(RANGES), bench.context(rng.choice("abc"))
            bench.index.link(keys, (), context)
            linked.append((keys, context))
        bench.index._check()
        assert bench.index.updaters == len({keys for keys, _ in linked})
        for key in KEYS:
            assert bench.watching(key) == {keys for keys, _ in linked if key in keys}, key
        asked = KeyRange(*sorted(rng.sample(KEYS, 2)))
        touched = {id(context.status) for keys, context in linked if keys.overlaps(asked)}
        assert {id(status) for status in bench.index.statuses(asked)} == touched, asked
    for _, context in linked:
        [updater] = context.links
        bench.index.unlink(updater, context)
    assert not bench.index.statuses(EVERYTHING)
    assert list(bench.table) == [bench.table.main], "watched subtables without rows are forgotten"


def counts(cache: Cache) -> dict[str, int]:
    """How much bookkeeping there is of each kind."""
    tables = cache._store.tables.values()
    views = [view for views in cache._catalogue.views.values() for view in views]
    return {
        "updaters": sum(table.updaters.updaters for table in tables),
        "subtables": len(cache._store.jump),
        "statuses": sum(len(view.statuses) for view in views),
        "contexts": sum(view.contexts for view in views),
        "links": sum(view.links for view in views),
        # Plans keep the steps that they were run with.
        "bytes": cache.stats()["bytes"] - sum(p.bytes for p in cache._catalogue.plans.values()),
    }


def test_evicting_and_recomputing_leaves_nothing_behind() -> None:
    cache = Cache()
    cache.add_join(TIMELINE + "; n|<user> = count t|<user>|<time>|<poster>")
    cache.add_join("o|<a>|<b> = check x|<a>|<b> copy y|<c>|<b>")
    for user in range(12):
        for step in range(4):
            cache.put(f"s|u{user}|u{(user * 5 + step) % 12}", "1")
        cache.put(f"p|u{user}|{user}", "hi")
        cache.put(f"x|{user}|{user % 3}", "1")
        cache.put(f"y|{user}|{user % 3}", "1")
    before = counts(cache)
    assert before["updaters"] == before["statuses"] == 0
    everything = cache.scan(*EVERYTHING)
    for user in range(12):
        cache.scan(*prefix(f"t|u{user}|"))
    computed = counts(cache)
    for _ in range(20):
        cache.evict(EVERYTHING)
        assert counts(cache) == before
        cache._check()
        assert cache.scan(*EVERYTHING) == everything
        for user in range(12):
            cache.scan(*prefix(f"t|u{user}|"))
        assert counts(cache) == computed
        cache._check()


def test_following_and_unfollowing_leaves_nothing_behind() -> None:
    cache = Cache()
    cache.add_join(TIMELINE)
    for poster in ("bob", "eve"):
        cache.put(f"p|{poster}|1", "hi")
    cache.put("s|ann|bob", "1")
    cache.scan(*prefix("t|ann|"))
    before = counts(cache)
    for _ in range(20):
        cache.put("s|ann|eve", "1")
        assert len(cache.scan(*prefix("t|ann|"))) == 2
        assert counts(cache)["updaters"] == before["updaters"] + 1
        cache.remove("s|ann|eve")
        assert len(cache.scan(*prefix("t|ann|"))) == 1
        assert counts(cache) == before
        cache._check()


def test_dropping_a_status_range_looks_at_no_others() -> None:
    """The time to evict one timeline does not grow with the number of followers."""

    def seconds(followers: int) -> float:
        cache = Cache()
        cache.add_join(TIMELINE)
        for number in range(followers):
            cache.put(f"s|fan{number:05d}|star", "1")
            cache.scan(*prefix(f"t|fan{number:05d}|"))
        assert cache._store.table("p").updaters.updaters == 1
        started = time.process_time()
        for number in range(0, followers, followers // 200):
            cache.evict(prefix(f"t|fan{number:05d}|"))
        return time.process_time() - started

    few, many = seconds(400), seconds(8_000)
    assert many < 5 * few + 0.02, f"200 evictions take {few:.4f} s, then {many:.4f} s"
