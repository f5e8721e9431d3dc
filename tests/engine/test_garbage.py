"""What the engine drops is free at once: it leaves no reference cycles to a garbage collection.

A server turns full collections off, which would stall a big cache, and so a cycle would stay.
"""

import gc
import random
from collections import Counter

import pytest

from pequod import Cache, MissingData, PequodError, prefix
from pequod.engine import rows, updating
from pequod.keys import KeyRange

TWIP = """
    t|<u>|<n:3>|<p> = check s|<u>|<p> copy p|<p>|<n>;
    n|<u> = count t|<u>|<n>|<p>;
    latest|<u> = max t|<u>|<n>|<p>;
    lazy|<u>|<n:3>|<p> = check s|<u>|<p> lazy copy p|<p>|<n>;
    hot|<p> = snapshot 5 count p|<p>|<n>;
    either|<u> = snapshot 3 copy hot|<u>;
    either|<u> = copy n|<u>;
    ff|<a>|<b>|<c> = check s|<a>|<b> check s|<b>|<c> copy n|<c>;
    all|<u>|<n:3>|<p> = pull copy p|<p>|<n> check s|<u>|<p>;
    mid|<a>-<b> = check s|<a>|<b> copy far|<b>-<a>;
"""


class World:
    """A cache that everything happens to."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.cache = Cache(clock=lambda: self.now, memory_limit=250_000)
        self.cache.declare_remote(prefix("far|"))
        self.cache.add_join(TWIP)

    def step(self) -> None:
        rng, cache = self.rng, self.cache
        user, other, number = rng.randrange(12), rng.randrange(12), f"{rng.randrange(40):03d}"
        self.now += 0.1
        match rng.randrange(14):
            case 0 | 1 | 2:
                cache.put(f"p|{user}|{number}", str(rng.random()))
            case 3:
                cache.remove(f"p|{user}|{number}")
            case 4:
                cache.put(f"s|{user}|{other}", "1")
            case 5:
                cache.remove(f"s|{user}|{other}")
            case 6:
                cache.evict(rng.choice((prefix(f"t|{user}|"), prefix("n|"), prefix("far|"))))
            case 7:
                cache.remove_range(*prefix(rng.choice((f"p|{user}|", f"s|{user}|"))))
            case 8 if rng.random() < 0.2:
                cache.add_join("more: t|<u>|<n:3>|ad = copy ad|<u>|<n>; tt|<u> = max t|<u>|<n>|ad")
                cache.scan(*prefix("tt|"))
                cache.drop_join("more")
                cache.drop_join("tt#1")
            case 9:
                for bad in ("x|<a> = copy x|<a>", "x|<a> = cpoy y|<a>", "x|<a> = copy y|<b>"):
                    with pytest.raises(PequodError):
                        cache.add_join(bad)
            case _:
                table = rng.choice(
                    ("t", "n", "latest", "lazy", "hot", "either", "ff", "all", "mid")
                )
                self.read(prefix(rng.choice((f"{table}|", f"{table}|{user}|", f"{table}|{user}"))))

    def read(self, keys: KeyRange) -> None:
        limit = self.rng.choice((None, None, 3))
        for _ in range(9):
            try:
                self.cache.scan(*keys, limit=limit)
                self.cache.explain(*keys)
                return
            except MissingData as error:
                missing = error.missing
            for gap in missing:
                with self.cache.loading(gap) as loading:
                    key = gap.first + "1"
                    loading.pairs = [(key, "1")] if key in gap else []


def garbage_of(seed: int, steps: int) -> Counter[str]:
    """The kinds of objects that only a collection can free after so many steps."""
    world = World(seed)
    for _ in range(steps):  # what is made once and kept, by us or by libraries, is made now
        world.step()
    gc.collect()
    gc.disable()
    try:
        for _ in range(steps):
            world.step()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found = Counter(type(one).__name__ for one in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    world.cache._check()
    assert world.cache.stats()["tables"]["t"]["evictions"] > 10
    return found


def test_a_dropped_range_that_somebody_holds_holds_nothing() -> None:
    cache = Cache()
    cache.add_join("n|<a> = count x|<a>|<b>; m|<a> = snapshot 9 copy n|<a>; o|<a> = copy m|<a>")
    cache.put("x|1|1", "1")
    cache.scan(*prefix("o|"))
    held = [one for name in "nmo" for one in cache._catalogue.views[name][0].statuses]
    cache.evict(prefix(""))
    assert len(held) == 3
    for status in held:
        assert not any([status.contexts, status.folds, status.hints, status.pending])
        assert not any([status.waits_on, status.expiring])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("crowded", [3, 8192])
def test_what_is_dropped_leaves_no_cycles(
    seed: int, crowded: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "CROWDED", crowded)
    monkeypatch.setattr(updating, "LOG_LIMIT", 20)
    assert garbage_of(seed, 400) == {}
