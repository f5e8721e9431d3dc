"""Hypothesis looks for the shortest list of steps that makes a cache disagree with the oracle,
and for caches that disagree with themselves."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pequod import Cache, KeyRange
from pequod.keys import Pair, Value
from tests.generator import Scenario, Step
from tests.oracle import expected_pairs, is_computed
from tests.runner import run

QUICK = settings(max_examples=60, deadline=None, derandomize=True)

# A schema is its joins and the shapes of its keys; a star stands for any text.
SCHEMAS = {
    "timeline": (
        ("j: t|<u>|<n:2>|<p> = check s|<u>|<p> copy p|<p>|<n>",),
        ("s|*|*", "p|*|10", "p|*|11", "p|*|1", "t|*|10|*"),
    ),
    "ambiguous timeline": (
        ("j: t|<u>|<n> = check s|<u>|<p> copy p|<p>|<n>",),
        ("s|*|*", "p|*|*", "t|*|*"),
    ),
    "celebrities": (
        (
            "a: ct|<n>|<p> = copy cp|<p>|<n>",
            "b: t|<u>|<n>|<p> = check s|<u>|<p> copy p|<p>|<n>",
            "c: t|<u>|<n>|<p> = pull copy ct|<n>|<p> check s|<u>|<p>",
        ),
        ("s|*|*", "p|*|*", "cp|*|*", "t|*|*|*"),
    ),
    "pages": (
        (
            "karma: karma|<w> = count vote|<w>|<i>|<v>",
            "a: page|<w>|<i>|a = copy article|<w>|<i>",
            "r: page|<w>|<i>|r = sum vote|<w>|<i>|<v>",
            "k: page|<w>|<i>|k|<c> = check comment|<w>|<i>|<c> copy karma|<c>",
        ),
        ("vote|*|1|*", "article|*|1", "comment|*|1|*", "page|*|1|k|*", "karma|*"),
    ),
    "friends of friends": (
        ("ff: ff|<a>|<c> = check s|<a>|<b> max s|<b>|<c>", "top: top|<c> = avg ff|<a>|<c>"),
        ("s|*|*", "ff|*|*", "top|*"),
    ),
    "snapshot": (
        ("j: hit|<day> = snapshot 2 count view|<day>|<n>",),
        ("view|*|*", "hit|*"),
    ),
}
TEXTS = st.sampled_from(("1", "10", "a", "~"))
VALUES: st.SearchStrategy[Value] = st.sampled_from(("1", "9", "10", "0.50", "x", b"1"))


def keys_of(shapes: tuple[str, ...]) -> st.SearchStrategy[str]:
    """Keys of these shapes, and now and then one that is a little too long."""

    def filled(shape: str) -> st.SearchStrategy[str]:
        literals = shape.split("*")
        texts = st.tuples(*(TEXTS for _ in literals[1:]))
        return texts.map(
            lambda some: literals[0] + "".join(t + more for t, more in zip(some, literals[1:]))
        )

    key = st.sampled_from(shapes).flatmap(filled)
    return key | key.map(lambda text: text + "|")


def ranges_of(keys: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, str]]:
    """The range of a key, of a table, of what starts alike, or between two keys."""
    starts = st.builds(lambda key, length: key[: length + 1], keys, st.integers(0, 9))
    return st.one_of(
        keys.map(lambda key: (key, key + "\0")),
        starts.map(lambda start: (start, start + "\U0010fffe")),
        st.tuples(keys, keys).map(sorted).map(tuple),
    )


def steps_of(joins: tuple[str, ...], shapes: tuple[str, ...]) -> st.SearchStrategy[list[Step]]:
    """Lists of steps, as the runner takes them."""
    keys, names = keys_of(shapes), [join.partition(":")[0] for join in joins]
    ranges = ranges_of(keys)
    scan = st.builds(
        lambda keys, limit, reverse: ("scan", *keys, limit, reverse),
        ranges,
        st.none() | st.integers(0, 2),
        st.booleans(),
    )
    step = st.one_of(
        st.tuples(st.just("put"), keys, VALUES),
        st.tuples(st.just("put"), keys, VALUES),
        st.tuples(st.just("remove"), keys),
        scan,
        scan,
        st.tuples(st.just("get"), keys),
        st.tuples(st.sampled_from(("count", "remove_range", "evict")), ranges).map(
            lambda pair: (pair[0], *pair[1])
        ),
        st.tuples(st.just("sleep"), st.sampled_from((0.5, 1, 2))),
        st.tuples(st.just("add_join"), st.sampled_from(joins)),
        st.tuples(st.just("drop_join"), st.sampled_from(names)),
    )
    return st.lists(step, max_size=40)


def prepared(joins: tuple[str, ...], base: dict[str, Value]) -> Cache:
    cache = Cache()
    for text in joins:
        cache.add_join(text)
    cache.put_many(base)
    return cache


def bases_of(
    joins: tuple[str, ...], shapes: tuple[str, ...]
) -> st.SearchStrategy[dict[str, Value]]:
    keys = keys_of(shapes).filter(lambda key: not is_computed(joins, key))
    return st.dictionaries(keys, VALUES, max_size=15)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_steps_agree_with_the_oracle(schema: str) -> None:
    joins, shapes = SCHEMAS[schema]
    installed = st.sampled_from((joins, joins[:1], ()))

    @QUICK
    @given(installed, steps_of(joins, shapes), st.sampled_from((None, 1, 1000)), st.booleans())
    def check(
        some: tuple[str, ...], steps: list[Step], memory_limit: int | None, small_limits: bool
    ) -> None:
        everything: Step = ("scan", "", "~~", None, False)
        scenario = Scenario(0, some, (*steps, everything))
        run(replace(scenario, memory_limit=memory_limit, small_limits=small_limits))

    check()


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_remote_table_agrees_with_the_oracle(schema: str) -> None:
    joins, shapes = SCHEMAS[schema]
    table = shapes[0].partition("|")[0]
    remote = ((f"{table}|", f"{table}}}"),)

    @QUICK
    @given(bases_of(joins, shapes), steps_of(joins, shapes), steps_of(joins, shapes))
    def check(base: dict[str, Value], meanwhile: list[Step], steps: list[Step]) -> None:
        first: Step = ("meanwhile", tuple(meanwhile[:5]))
        run(Scenario(0, joins, (first, *steps), remote, tuple(base.items())))

    check()


@pytest.mark.parametrize("schema", SCHEMAS)
def test_two_halves_make_a_whole(schema: str) -> None:
    joins, shapes = SCHEMAS[schema]
    keys = keys_of(shapes)

    @QUICK
    @given(bases_of(joins, shapes), st.tuples(keys, keys, keys).map(sorted))
    def check(base: dict[str, Value], cuts: list[str]) -> None:
        first, middle, last = cuts
        halves, whole = prepared(joins, base), prepared(joins, base)
        parts = halves.scan(first, middle) + halves.scan(middle, last)
        assert parts == whole.scan(first, last) == halves.scan(first, last)

    check()


def joins_last(joins: tuple[str, ...], base: dict[str, Value]) -> Cache:
    cache = prepared((), base)
    cache.add_join("; ".join(joins))
    return cache


def read_row_by_row(joins: tuple[str, ...], base: dict[str, Value]) -> Cache:
    cache = prepared(joins, {})
    for key, value in base.items():
        cache.put(key, value)
        cache.scan("", "~~")
    return cache


def gone_and_back(joins: tuple[str, ...], base: dict[str, Value]) -> Cache:
    cache = read_row_by_row(joins, base)
    for key, value in base.items():
        cache.remove(key)
        cache.put(key, value)
    return cache


def evicted(joins: tuple[str, ...], base: dict[str, Value]) -> Cache:
    cache = read_row_by_row(joins, base)
    cache.evict(KeyRange("", "~~"))
    return cache


def dropped_and_back(joins: tuple[str, ...], base: dict[str, Value]) -> Cache:
    cache = read_row_by_row(joins, base)
    for text in joins:
        cache.drop_join(text.partition(":")[0])
    assert cache.scan("", "~~") == sorted(base.items())
    for text in joins:
        cache.add_join(text)
    return cache


WAYS = (joins_last, read_row_by_row, gone_and_back, evicted, dropped_and_back)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("schema", [name for name in SCHEMAS if name != "snapshot"])
def test_all_ways_lead_to_one_answer(
    schema: str, way: Callable[[tuple[str, ...], dict[str, Value]], Cache]
) -> None:
    joins, shapes = SCHEMAS[schema]

    @QUICK
    @given(bases_of(joins, shapes))
    def check(base: dict[str, Value]) -> None:
        expected: list[Pair] = expected_pairs(joins, base)
        assert way(joins, base).scan("", "~~") == expected

    check()
