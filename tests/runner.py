"""Runs a scenario: the oracle judges every answer of a cache, after every step.

A scenario is plain data, so a failure replays exactly, and its text can be pasted into a test.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from operator import itemgetter
from typing import Any, TypeVar
from unittest.mock import patch

from pequod import Cache
from pequod.engine import maintenance, reading, rows, updating
from pequod.errors import ComputedKey, JoinError, MissingData, PequodError, UnknownJoin
from pequod.keys import KeyRange, Pair, Value, table_of
from tests.generator import Scenario, Step
from tests.oracle import between, expected_rows, is_computed, parse, staleness_seconds

Answer = TypeVar("Answer")
MakeCache = Callable[..., Any]

MAX_ROUNDS = 12  # of loading before a read must be answered
SMALL_LIMITS = (
    (reading, "MAX_FRAGMENTS", 2),
    (maintenance, "MAX_FRAGMENTS", 2),
    (rows, "CROWDED", 3),
    (updating, "LOG_LIMIT", 1),
)


def run(scenario: Scenario, make_cache: MakeCache = Cache) -> int:
    """Let a cache live through a scenario; gives the number of joins that it refused.

    The first wrong answer, or any error that nobody asked for, is an AssertionError with a
    text that replays it.
    """
    runner = Runner(scenario, make_cache)
    steps: list[Step] = [("add_join", text) for text in scenario.joins]
    with ExitStack() as stack:
        for module, name, limit in SMALL_LIMITS if scenario.small_limits else ():
            stack.enter_context(patch.object(module, name, limit))
        for number, step in enumerate(steps + list(scenario.steps), start=-len(steps)):
            try:
                runner.apply(step)
                runner.listen()
            except Exception as error:
                so_far = replace(scenario, steps=scenario.steps[: max(0, number + 1)])
                raise AssertionError(
                    f"seed {scenario.seed}, step {number}: {step}\n"
                    f"{type(error).__name__}: {error}\n{text_of(so_far)}"
                ) from error
    return runner.refusals


@dataclass(frozen=True)
class World:
    """The joins by name and the base rows at one moment, and what the oracle makes of them."""

    joins: Mapping[str, str]
    base: Mapping[str, Value]

    @cached_property
    def rows(self) -> list[Pair]:
        return expected_rows(tuple(self.joins.values()), self.base)

    @cached_property
    def row(self) -> dict[str, Value]:
        return dict(self.rows)


class Runner:
    """A cache and the world it should show; each kind of step is a method."""

    def __init__(self, scenario: Scenario, make_cache: MakeCache) -> None:
        self.refusals = 0
        self._now = 1_000.0
        self._past: list[tuple[float, World]] = []  # each with the time when it ended
        self._installed: dict[str, int] = {}  # join -> how many worlds were past by then
        self._remote = [KeyRange(*keys) for keys in scenario.remote]
        stored = {key: value for key, value in scenario.stored if self._is_remote(key)}
        self._world = World({}, stored)
        self._meanwhile: Sequence[Step] = ()
        self._may_evict = scenario.memory_limit is not None
        self._watches: list[tuple[Any, dict[str, Value]]] = []  # each with what it told, replayed
        self._cache = make_cache(
            clock=lambda: self._now,
            memory_limit=scenario.memory_limit,
            subtables=dict(scenario.subtables),
        )
        for keys in self._remote:
            self._cache.declare_remote(keys)

    def apply(self, step: Step) -> None:
        kind, *arguments = step
        getattr(self, kind)(*arguments)
        self._cache._check()

    # Writes.

    def put(self, key: str, value: Value) -> None:
        if self._computed(key):
            _must_raise(ComputedKey, lambda: self._cache.put(key, value))
            return
        self._cache.put(key, value)
        self._become(base={**self._world.base, key: value})

    def put_many(self, pairs: Sequence[Pair]) -> None:
        if any(self._computed(key) for key, _ in pairs):
            _must_raise(ComputedKey, lambda: self._cache.put_many(pairs))
            return
        self._cache.put_many(pairs)
        self._become(base={**self._world.base, **dict(pairs)})

    def remove(self, key: str) -> None:
        if self._computed(key):
            _must_raise(ComputedKey, lambda: self._cache.remove(key))
            return
        removed, existed = self._cache.remove(key), key in self._world.base
        # What is not in memory may be removed all the same, but the cache cannot know.
        assert removed is existed or (self._is_remote(key) and not removed), f"removed: {removed}"
        self._become(base={k: v for k, v in self._world.base.items() if k != key})

    def remove_range(self, first: str, last: str) -> None:
        gone = [key for key in self._world.base if first <= key < last]
        here = sum(not self._is_remote(key) for key in gone)
        removed = self._cache.remove_range(first, last)
        assert here <= removed <= len(gone), f"{removed} removed, not {here} to {len(gone)}"
        self._become(base={k: v for k, v in self._world.base.items() if k not in gone})

    # Reads.

    def get(self, key: str) -> None:
        value = self._read(lambda: self._cache.get(key))
        possible = self._possible(key)
        assert value in possible, f"got {value!r}, not {_any_of(possible)}"

    def scan(self, first: str, last: str, limit: int | None, reverse: bool) -> None:
        pairs = self._read(lambda: self._cache.scan(first, last, limit=limit, reverse=reverse))
        if reverse:
            pairs.reverse()
        if limit is not None:
            assert len(pairs) <= limit, f"{len(pairs)} rows are more than {limit}: {pairs}"
            if limit == 0:
                return
            if len(pairs) == limit:
                # Nothing is said of the rows beyond the last one given.
                assert all(first <= key < last for key, _ in pairs), f"out of range: {pairs}"
                first, last = (pairs[0][0], last) if reverse else (first, pairs[-1][0] + "\0")
        self._judge(first, last, pairs)

    def count(self, first: str, last: str) -> None:
        number = self._read(lambda: self._cache.count(first, last))
        if number == len(between(self._world.rows, first, last)):
            return
        worlds = [self._world, *(world for _, world in self._past)]
        keys = {key for world in worlds for key, _ in between(world.rows, first, last)}
        possible = [self._possible(key) for key in keys]
        least = sum(None not in each for each in possible)
        most = sum(each != {None} for each in possible)
        assert least <= number <= most, f"counted {number}, not {least} to {most}"

    def freshen(self, first: str, last: str) -> None:
        for _ in range(MAX_ROUNDS + 1):
            missing = self._cache.freshen(KeyRange(first, last))
            if not missing:
                break
            self._load(missing)
        else:
            raise AssertionError(f"not fresh after {MAX_ROUNDS} rounds")
        if not self._may_evict:
            self._judge(first, last, self._cache.scan(first, last))

    def explain(self, first: str, last: str) -> None:
        self._cache.explain(first, last)
        self._cache.stats()

    def _read(self, ask: Callable[[], Answer]) -> Answer:
        """What the cache answers once it has all that it needs."""
        for _ in range(MAX_ROUNDS + 1):
            try:
                return ask()
            except MissingData as error:
                missing = error.missing
            self._load(missing)
        raise AssertionError(f"no answer after {MAX_ROUNDS} rounds")

    def _judge(self, first: str, last: str, pairs: list[Pair]) -> None:
        expected = between(self._world.rows, first, last)
        if pairs == expected:
            return
        keys = [key for key, _ in pairs]
        assert keys == sorted(set(keys)), f"keys out of order, or twice: {keys}"
        assert all(first <= key < last for key in keys), f"keys out of range: {keys}"
        answer = dict(pairs)
        wrong = [
            f"{key!r} is {answer.get(key)!r}, not {_any_of(self._possible(key))}"
            for key in sorted({*answer, *dict(expected)})
            if answer.get(key) not in self._possible(key)
        ]
        assert not wrong, "\n".join(wrong)

    def _possible(self, key: str) -> set[Value | None]:
        """The values that a read of `key` may give; None is no row.

        A row of a snapshot join may be as it was when the join was last computed. That was after
        the join was installed, and less than its seconds ago.
        """
        values = {self._world.row.get(key)}
        for name, text in self._world.joins.items():
            seconds = staleness_seconds([text], key)
            if seconds:
                past = self._past[self._installed[name] :]
                values |= {w.row.get(key) for end, w in past if self._now - end < seconds}
        return values

    # Watching.

    def watch(self, first: str, last: str) -> None:
        watch = self._read(lambda: self._cache.watch(first, last))
        self._watches.append((watch, dict(watch.rows)))

    def unwatch(self) -> None:
        if self._watches:
            self._watches.pop(0)[0].close()

    def listen(self) -> None:
        """Whoever was not woken knows all there is to know; the others are told."""
        for watch, told in self._watches:
            if watch.awake or (watch.expires is not None and self._now >= watch.expires):
                for key, old, new in self._read(watch.changes):
                    assert told.get(key) == old != new, f"watched: {key!r} was {old!r}"
                    if new is None:
                        del told[key]
                    else:
                        told[key] = new
            assert told == watch.rows, f"watched: {told} told, {watch.rows} kept"
            self._judge(*watch.keys, sorted(told.items(), key=itemgetter(0)))

    # Joins and time.

    def add_join(self, text: str) -> None:
        """Install one join, or several: all or none."""
        texts = {one.partition(":")[0]: one for one in text.split("; ")}
        joins = {**self._world.joins, **texts}
        if any(is_computed([text], key) for key in self._world.base):
            _must_raise(JoinError, lambda: self._cache.add_join(text))
        else:
            try:
                answers = self._cache.add_join(text)
            except JoinError:
                if not _reads_its_own_table(joins.values()):
                    raise
                self.refusals += 1
            else:
                names = [answer["name"] for answer in answers]
                assert names == list(texts), f"installed as {names}"
                new = joins.keys() - self._world.joins.keys()
                self._become(joins=joins)
                self._installed |= dict.fromkeys(new, len(self._past))
        self._check_joins()

    def drop_join(self, name: str) -> None:
        if name not in self._world.joins:
            _must_raise(UnknownJoin, lambda: self._cache.drop_join(name))
            return
        self._cache.drop_join(name)
        self._become(joins={n: text for n, text in self._world.joins.items() if n != name})
        self._check_joins()

    def sleep(self, seconds: float) -> None:
        self._now += seconds

    def _check_joins(self) -> None:
        names = [join["name"] for join in self._cache.joins()]
        assert names == list(self._world.joins), f"{names}, not {list(self._world.joins)}"

    # The database.

    def evict(self, first: str, last: str) -> None:
        self._cache.evict(KeyRange(first, last))

    def meanwhile(self, changes: Sequence[Step]) -> None:
        """These changes happen while the next read waits for its data."""
        self._meanwhile = changes

    def load(self, first: str, last: str, changes: Sequence[Step]) -> None:
        with self._cache.loading(KeyRange(first, last)) as loading:
            loading.pairs = self._stored(first, last)
            for change in changes:
                self.apply(change)

    def fail(self, first: str, last: str, changes: Sequence[Step]) -> None:
        with suppress(ConnectionError), self._cache.loading(KeyRange(first, last)) as loading:
            loading.pairs = self._stored(first, last)[:1]
            for change in changes:
                self.apply(change)
            raise ConnectionError("the database went away")

    def _load(self, missing: Sequence[tuple[str, str]]) -> None:
        assert missing, "data is missing, but none is named"
        with ExitStack() as stack:
            for first, last in missing:
                keys = KeyRange(first, last)
                assert keys, f"an empty range is missing: {keys}"
                assert any(keys.clip(each) == keys for each in self._remote), f"not remote: {keys}"
                loading = stack.enter_context(self._cache.loading(keys))
                loading.pairs = self._stored(first, last)
            changes, self._meanwhile = self._meanwhile, ()
            for change in changes:
                self.apply(change)

    def _stored(self, first: str, last: str) -> list[Pair]:
        """The rows of the database."""
        rows = between(sorted(self._world.base.items(), key=itemgetter(0)), first, last)
        return [(key, value) for key, value in rows if self._is_remote(key)]

    def _is_remote(self, key: str) -> bool:
        return any(key in keys for keys in self._remote)

    # The world.

    def _computed(self, key: str) -> bool:
        return is_computed(tuple(self._world.joins.values()), key)

    def _become(
        self, base: Mapping[str, Value] | None = None, joins: Mapping[str, str] | None = None
    ) -> None:
        world = self._world
        self._past.append((self._now, world))
        self._world = World(
            world.joins if joins is None else joins, world.base if base is None else base
        )


def _must_raise(error: type[PequodError], call: Callable[[], object]) -> None:
    try:
        call()
    except error:
        return
    raise AssertionError(f"not refused with {error.__name__}")


def _any_of(values: set[Value | None]) -> str:
    return " or ".join(sorted(map(repr, values)))


def _reads_its_own_table(texts: Iterable[str]) -> bool:
    """True if joins read the tables they write, maybe through others: some of these recur."""
    sources: dict[str, set[str]] = {}
    for join in (join for text in texts for join in parse(text)):
        tables = {table_of(source.prefix) for source in join.sources}
        sources.setdefault(table_of(join.output.prefix), set()).update(tables)
    try:
        TopologicalSorter(sources).prepare()
    except CycleError:
        return True
    return False


def text_of(scenario: Scenario) -> str:
    """Python that makes this scenario, a line for each step."""
    lines = ["run(Scenario("]
    for field in fields(scenario):
        value = getattr(scenario, field.name)
        if isinstance(value, tuple) and value:
            lines += [f"    {field.name}=(", *(f"        {each!r}," for each in value), "    ),"]
        elif value is not None:
            lines.append(f"    {field.name}={value!r},")
    return "\n".join([*lines, "))"])


def smallest(scenario: Scenario, make_cache: MakeCache = Cache) -> Scenario:
    """A failing scenario, with all taken out that the failure does not need."""

    def fails(candidate: Scenario) -> bool:
        try:
            run(candidate, make_cache)
        except AssertionError:
            return True
        return False

    for plainer in (
        replace(scenario, memory_limit=None, small_limits=False),
        replace(scenario, memory_limit=None),
        replace(scenario, small_limits=False),
    ):
        if fails(plainer):
            scenario = plainer
            break
    before = None
    while scenario != before:
        before = scenario
        for name in ("steps", "joins", "stored", "remote", "subtables"):
            size = max(1, len(getattr(scenario, name)) // 2)
            while size:
                place = 0
                while place < len(items := getattr(scenario, name)):
                    shorter = replace(scenario, **{name: items[:place] + items[place + size :]})
                    if fails(shorter):
                        scenario = shorter
                    else:
                        place += size
                size //= 2
    return scenario
