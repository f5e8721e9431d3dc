"""Random scenarios: what happens to one cache, as plain data that follows from a seed.

`tests/scenarios.py` runs them against the oracle.
"""

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pequod.keys import END, KeyRange, Pair, Value, prefix, table_of
from tests.oracle import parse

Step = tuple[Any, ...]  # the name of a method of Runner in scenarios.py, and its arguments

# Few and alike: keys collide, are prefixes of each other, and sort on both sides of the bar.
TEXTS = ("1", "10", "100", "a", "ab", "é", "\U0001f40b", "{", "}", "~", END)
FIXED_WIDTH_CHARACTERS = "11aé|~"
VALUES: tuple[Value, ...] = (
    "1",
    "2",
    "10",
    "-1.50",
    "0.1",
    "+.5",
    "1.",
    "-0",
    "007",
    "9" * 100,
    "9" * 101,
)
VALUES += ("", "x", "é", "1e3", "1_0", " 1", "1\n", "١", "NaN", b"", b"1", b"\xff")
SLOT_SETS = 7  # that the keys of a join are made of
AGGREGATES = ("count", "sum", "min", "max", "avg")

# Writers stand before readers. VALUE is any operator but check; `dressed` varies the rest.
SCHEMAS = (
    # Twip; the second is ambiguous; the third keeps celebrities apart.
    ("t|<u>|<n>|<p> = check s|<u>|<p> copy p|<p>|<n>",),
    ("t|<u>|<n> = check s|<u>|<p> VALUE p|<p>|<n>",),
    (
        "ct|<n>|<p> = copy cp|<p>|<n>",
        "t|<u>|<n>|<p> = check s|<u>|<p> copy p|<p>|<n>",
        "t|<u>|<n>|<p> = pull copy ct|<n>|<p> check s|<u>|<p>",
    ),
    # One table joined with itself.
    (
        "ff|<a>|<b>|<c> = check s|<a>|<b> VALUE s|<b>|<c>",
        "mutual|<a>|<b> = check s|<a>|<b> copy s|<b>|<a>",
    ),
    ("ff|<a>|<c> = check s|<a>|<b> VALUE s|<b>|<c>",),
    # Three sources.
    ("o|<a>|<b>|<c> = check x|<a>|<b> check y|<b>|<c> VALUE z|<c>|<a>",),
    ("k|<a> = check b|<a>|<b> check c|<b>|<c> VALUE v|<c>|<d>", "kk|<a> = copy k|<a>"),
    # Newp: pages made of articles, ranks, comments and the karma of those who comment.
    (
        "karma|<a> = count vote|<a>|<i>|<v>",
        "rank|<a>|<i> = VALUE vote|<a>|<i>|<v>",
        "page|<a>|<i>|a = copy article|<a>|<i>",
        "page|<a>|<i>|r = copy rank|<a>|<i>",
        "page|<a>|<i>|c|<c>|<w> = copy comment|<a>|<i>|<c>|<w>",
        "page|<a>|<i>|k|<c>|<w> = check comment|<a>|<i>|<c>|<w> copy karma|<w>",
    ),
    # Joins over joins.
    (
        "n|<a> = VALUE x|<a>|<b>",
        "best|<g> = check y|<g>|<a> VALUE n|<a>",
        "top|<v> = check v|<v> VALUE best|<g>",
    ),
    (
        "c|<a>|<n>|<b> = check a|<a>|<b> copy b|<b>|<n>",
        "e|<d>|<n>|<b> = check d|<d>|<a> copy c|<a>|<n>|<b>",
        "g|<d> = VALUE e|<d>|<n>|<b>",
    ),
    (
        "m|<a>|a = copy x|<a>",
        "m|<a>|r = VALUE v|<a>|<b>",
        "m|<a>|k|<b> = check w|<a>|<b> copy x|<b>",
        "front|<a> = check m|<a>|a copy m|<a>|r",
    ),
    # Several joins that contest one key.
    (
        "o|<a>|<b> = copy x|<a>|<b>",
        "o|<a>|<b> = VALUE y|<b>|<a>|<c>",
        "o|<a>|<b> = check w|<a>|<b> copy x|<b>|<c>",
    ),
    (
        "o|<a> = VALUE x|<a>|<b>",
        "o|<a> = VALUE x|<b>|<a>",
        "o|<a> = VALUE y|<a>",
        "top|<a> = copy o|<a>",
    ),
    ("z|<a> = VALUE x|<a>|<b>", "o|<a> = copy z|<a>", "o|<a> = copy y|<a>"),
    # A table that feeds itself, though no join reads what it writes.
    (
        "m|<a>|c|<b> = copy x|<a>|<b>",
        "m|<a>|n = VALUE m|<a>|c|<b>",
        "o|<b> = VALUE m|<a>|n check y|<b>",
    ),
    # Slots that are late in the source key, repeated, or next to each other.
    ("o|<a>|<b>|<c> = check x|<a>|<b> copy r|<c>|<b>", "tag|<c> = VALUE r|<a>|<c>"),
    ("o|<a> = VALUE s|<a>|<a>", "d|<a>|<a>|<b> = copy s|<a>|<b>"),
    (
        "k|<a:1> = VALUE v|<a:1><b:2>|<c>",
        "o|<b:2><a:1> = check v|<a:1><b:2>|<c> copy w|<c>",
    ),
    # Literals that are not bars, sources that share no slot, tables that begin like others.
    ("o|<a>-<b> = check x|<b>~<a> VALUE y|<a>.<c>",),
    ("o|<a> = check cfg|on|<c> copy x|<a>", "tot|all|<a> = VALUE x|<a>"),
    ("o|<a>|<b> = check x|<a> VALUE y|<b>",),
    ("t|<u>|<n> = check s|<u>|<p> copy pp|<p>|<n>", "tt|<u>|<n> = check ss|<u>|<p> copy p|<p>|<n>"),
)
TAILS = ("|<>", "|<>|<>", "|<>|<>", "|<>|<>|<>", "|<>-<>", "|<>~<>|<>", "|k|<>", "|<>|k")

# How often each step is taken, before a scenario bends these numbers its own way.
WEIGHTS = {"put": 36, "remove": 10, "scan": 24, "get": 6, "count": 4, "put_many": 3}
WEIGHTS |= {"watch": 2, "unwatch": 1}
WEIGHTS |= {"remove_range": 1, "put_computed": 2, "add_join": 5, "drop_join": 2, "evict": 3}
WEIGHTS |= {"sleep": 3, "freshen": 2, "load": 4, "fail": 1, "meanwhile": 5, "explain": 1}


@dataclass(frozen=True)
class Scenario:
    """What happens to one cache; `remote` are ranges of a database that holds `stored`."""

    seed: int
    joins: tuple[str, ...]
    steps: tuple[Step, ...]
    remote: tuple[tuple[str, str], ...] = ()
    stored: tuple[Pair, ...] = ()
    memory_limit: int | None = None
    subtables: tuple[tuple[str, int], ...] = ()  # table -> bars up to which keys share one
    small_limits: bool = False  # as if the cache were full of data, for all that depends on it


def random_scenario(seed: int, steps: int = 60) -> Scenario:
    """The scenario of that seed, always the same one."""
    rng = random.Random(seed)
    shapes = rng.choice(SCHEMAS) if rng.random() < 0.7 else random_shapes(rng)
    author = _Author(rng, dressed(rng, shapes))
    return Scenario(
        seed,
        tuple(join for join in author.joins if rng.random() < 0.8),
        tuple(author.steps(steps)),
        tuple((first, last) for first, last in author.remote),
        tuple((key, author.value()) for key in author.remote_keys if rng.random() < 0.5),
        rng.choice((1, 10_000, 20_000, 40_000)) if rng.random() < 0.15 else None,
        tuple((table, rng.randint(1, 3)) for table in author.tables if rng.random() < 0.1),
        rng.random() < 0.25,
    )


def random_shapes(rng: random.Random) -> list[str]:
    """Joins that no schema thought of: any sources, any slots, one to three levels."""
    readable = [table + rng.choice(TAILS) for table in ("x", "y", "xx")]
    shapes: list[str] = []
    for table in ("m", "o", "oo")[: rng.randint(1, 3)]:
        written, before = table + rng.choice(TAILS), set()
        for _ in range(rng.choice((1, 1, 2))):
            names = "abcd"[: rng.randint(2, 4)]
            patterns = rng.choices(readable, k=rng.choice((1, 1, 2, 2, 3)))
            sources = [_named(rng, pattern, names) for pattern in patterns]
            if frozenset(sources) in before:
                continue  # one join under two names is none
            before.add(frozenset(sources))
            output = _named(rng, written, re.findall(r"<(\w)>", "".join(sources)))
            rest = "".join(f" check {source}" for source in sources[1:])
            shapes.append(f"{output} = VALUE {sources[0]}{rest}")
        readable.append(written)
    return shapes


def _named(rng: random.Random, pattern: str, names: Sequence[str]) -> str:
    return re.sub("<>", lambda _: f"<{rng.choice(names)}>", pattern)


def dressed(rng: random.Random, shapes: Sequence[str]) -> list[str]:
    """The shapes as joins: named, with widths, operators, maintenance and an order of sources."""
    widths = dict(re.findall(r"<(\w+):(\d)>", " ".join(shapes)))
    fixed_share = rng.choice((0, 0, 0.4, 1))
    for name in sorted(set(re.findall(r"<(\w+)>", " ".join(shapes)))):
        if rng.random() < fixed_share:
            widths.setdefault(name, str(rng.randint(1, 3)))
    written = [table_of(shape) for shape in shapes]
    sources = [re.findall(r"(\w+) (\S+\|\S+)", shape.split(" = ")[1]) for shape in shapes]
    read = {table_of(pattern) for each in sources for _, pattern in each}
    pulled = {table_of(shape) for shape in shapes if " pull " in shape}
    snapped: set[str] = set()
    joins = []
    for place, (shape, table) in enumerate(zip(shapes, written)):
        # A push join may not read a pull join. Nobody here reads a snapshot, and no pull join
        # contests one: then the age of a row would depend on more than the joins that store it.
        ages = table not in read and table not in pulled
        maintenance = rng.choices(
            ("", "push ", "pull ", "snapshot"),
            (6, 1, table not in snapped, 2 if ages else 0),
        )[0]
        if " pull " in shape or any(table_of(pattern) in pulled for _, pattern in sources[place]):
            maintenance = "snapshot" if table in snapped else "pull "
        if maintenance == "snapshot":
            maintenance = f"snapshot {rng.randint(1, 4)} "
            snapped.add(table)
        if maintenance == "pull ":
            pulled.add(table)
        if rng.random() < 0.5:
            rng.shuffle(sources[place])
        rest = ""
        for operator, pattern in sources[place]:
            operator = rng.choice(("copy",) * 3 + AGGREGATES) if operator == "VALUE" else operator
            rest += f" {rng.choice(('', '', '', 'lazy ', 'eager '))}{operator} {pattern}"
        text = re.sub(r":\d>", ">", f"{shape.split(' = ')[0]} = {maintenance}{rest.strip()}")
        for name, width in widths.items():
            # Once is enough, wherever it stands.
            bare, wide = f"<{name}>", f"<{name}:{width}>"
            head, found, tail = text.rpartition(bare)
            everywhere = text.replace(bare, wide)
            text = rng.choice(
                (everywhere, text.replace(bare, wide, 1), head + wide * bool(found) + tail)
            )
        joins.append(f"j{place}: {text}")
    return joins


class _Author:
    """Writes the steps of one scenario, over a small pool of keys that suits its joins."""

    def __init__(self, rng: random.Random, joins: list[str]) -> None:
        self._rng = rng
        self.joins = joins
        self._values = rng.sample(VALUES, 5)
        self._texts = {"": rng.sample(TEXTS, rng.randint(2, 4))}
        for width in (1, 2, 3):
            characters = (rng.choices(FIXED_WIDTH_CHARACTERS, k=width) for _ in range(3))
            self._texts[str(width)] = ["".join(some) for some in characters]

        written = {table_of(join.output.prefix) for text in joins for join in parse(text)}
        base_keys, output_keys = [], []
        for join, slots in (
            (parse(text)[0], slots) for text in joins for slots in self._slots(text)
        ):
            # The sources of one slot set go together, so most scenarios have something to join.
            output_keys.append(join.output.fill(slots))
            sources = [s for s in join.sources if table_of(s.prefix) not in written]
            base_keys += [source.fill(slots) for source in sources]
        tables = list(dict.fromkeys(table_of(key) for key in base_keys))
        self._output_keys = list(dict.fromkeys(output_keys))
        # Foreign keys lie in the same ranges and match nothing, or another join than expected.
        alike = rng.choices(base_keys + output_keys, k=len(base_keys) // 4)
        foreign = [rng.choice((key[:-1], key + "|1", key + "1", key + "|")) for key in alike]
        self._base_keys = list(dict.fromkeys(base_keys + foreign))

        self.tables = sorted({table_of(key) for key in self._base_keys + self._output_keys})

        self.remote: list[KeyRange] = []
        if rng.random() < 0.3:
            for table in rng.sample(tables, min(len(tables), rng.randint(1, 2))):
                keys = prefix(f"{table}|")
                cut = rng.choice([key for key in self._base_keys if key in keys])
                self.remote.append(
                    KeyRange(keys.first, rng.choice((keys.last, keys.last, cut + "1")))
                )
        self.remote_keys = [key for key in self._base_keys if any(key in r for r in self.remote)]

    def _slots(self, text: str) -> Iterable[dict[str, str]]:
        widths = dict(re.findall(r"<(\w+):(\d)>", text))
        names = sorted(set(re.findall(r"<(\w+)", text)))
        for _ in range(SLOT_SETS):
            yield {name: self._rng.choice(self._texts[widths.get(name, "")]) for name in names}

    def steps(self, number: int) -> Iterable[Step]:
        """So many steps; the last one reads everything."""
        rng = self._rng
        weights = {kind: weight * rng.choice((0.3, 1, 1, 3)) for kind, weight in WEIGHTS.items()}
        for rare in ("evict", "drop_join", "sleep", "freshen", "watch"):
            weights[rare] *= rng.choice((0, 1))
        if not self.remote_keys:
            weights |= {"load": 0, "fail": 0, "meanwhile": 0}
        crowd = min(
            rng.choice((0, 10, 20)), number - 1
        )  # a cache that is full before the first question
        yield from (("put", rng.choice(self._base_keys), self.value()) for _ in range(crowd))
        kinds = rng.choices(list(weights), list(weights.values()), k=number - crowd - 1)
        yield from (self._step(kind) for kind in kinds)
        yield "scan", "", END, None, False

    def value(self) -> Value:
        return self._rng.choice(self._values)

    def _step(self, kind: str) -> Step:
        rng = self._rng
        base_key, output_key = rng.choice(self._base_keys), rng.choice(self._output_keys)
        any_key = rng.choice((base_key, output_key))
        match kind:
            case "put":
                return kind, base_key, self.value()
            case "put_computed":
                return "put", output_key, self.value()
            case "put_many":
                keys = rng.choices(self._base_keys, k=4) + [output_key] * (rng.random() < 0.1)
                return kind, tuple((key, self.value()) for key in keys)
            case "remove":
                return kind, base_key if rng.random() < 0.9 else output_key
            case "remove_range":
                return kind, *self._range()
            case "get":
                return kind, any_key
            case "scan":
                limit = rng.choice((None, None, None, None, 0, 1, 3))
                return kind, *self._range(), limit, rng.random() < 0.15
            case "count" | "explain" | "watch":
                return kind, *self._range()
            case "unwatch":
                return (kind,)
            case "add_join":
                return kind, "; ".join(
                    rng.sample(self.joins, min(len(self.joins), rng.choice((1, 1, 1, 2))))
                )
            case "drop_join":
                return kind, rng.choice(self.joins).partition(":")[0]
            case "sleep":
                return kind, rng.choice((0.5, 1, 1, 2, 3))
            case "meanwhile":
                return kind, tuple(self._changes())
            case "load" | "fail":
                return kind, *self._proper_range(), tuple(self._changes())
        return kind, *self._proper_range()

    def _changes(self) -> Iterable[Step]:
        """What happens while a load is open, mostly to the database that it loads from."""
        rng = self._rng
        for _ in range(rng.randint(0, 4)):
            kind = rng.choice(("put", "put", "put", "remove", "remove", "evict", "scan", "get"))
            if kind in ("put", "remove"):
                key = rng.choice(self.remote_keys)
                yield (kind, key, self.value()) if kind == "put" else (kind, key)
            else:
                yield self._step(kind if rng.random() < 0.9 else "remove_range")

    def _range(self) -> tuple[str, str]:
        rng = self._rng
        pool = rng.choice((self._output_keys, self._output_keys, self._base_keys))
        one, other = rng.choice(pool), rng.choice(pool)
        match rng.randrange(10):
            case 0:
                return "", END
            case 1:
                return one, one + "\0"
            case 2:
                return one, rng.choice((one, other))  # maybe empty, maybe reversed
            case 3:
                other = rng.choice(self._base_keys + self._output_keys)
                return min(one, other), max(one, other)
            case 4:
                return min(one, other), max(one, other) + rng.choice(("", "\0", "|", "}"))
            case 5 | 6:
                cuts = (key[: rng.randint(1, len(key))] for key in (one, other))
                first, last = sorted(cut + rng.choice(("", "", "|", "}", "1")) for cut in cuts)
                return first, last
            case 7:
                return prefix(table_of(one) + "|")
        bars = [place + 1 for place, character in enumerate(one) if character == "|"]
        return prefix(one[: rng.choice(bars or [1])])

    def _proper_range(self) -> KeyRange:
        return KeyRange(*self._range()) or prefix("")
