"""The partition map: which node is home for which base keys, and where a client sends what.

Base keys are spread by the hash of a slot, by ranges, or by table. What no partition covers has no
home, so nobody may write it. Hashing is by the highest of one number for each home, so that a
home that is added takes its share from all, and nothing else moves.
"""

import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pequod.errors import BadRequest
from pequod.keys import BAR, KeyRange, point, prefix, successor

_NAME = re.compile(r"[\w-]{1,64}", re.ASCII)
_SLOT = re.compile(r"<(\w+)(?::(\d+))?>")


class Partition(Protocol):
    """A range of keys with their homes."""

    keys: KeyRange
    homes: tuple[str, ...]

    def home_of(self, key: str) -> str:
        """The home of one of its keys."""
        ...

    def pieces(self, keys: KeyRange) -> list[tuple[KeyRange, tuple[str, ...]]]:
        """Parts of a range within it, each with the homes that may have some of its keys."""
        ...

    def span(self, key: str) -> KeyRange:
        """A range around one of its keys, as wide as can be, of which all keys have one home."""
        ...

    def lines(self) -> list[str]:
        """What it says, for people."""
        ...


class HashPartition:
    """Keys spread by the hash of a slot."""

    def __init__(self, pattern: str, slot: str, homes: Iterable[str]) -> None:
        self.pattern, self.slot, self.homes = pattern, slot, tuple(homes)
        pieces = _SLOT.split(pattern)
        literal, names = pieces[0], pieces[1::3]
        if slot not in names:
            raise BadRequest(f"partition {pattern!r}: it has no slot <{slot}> to hash")
        if not literal:
            raise BadRequest(f"partition {pattern!r}: it starts with a slot; begin with a table")
        self.keys = prefix(literal)
        expression = re.escape(literal)
        for name, width, after in zip(names, pieces[2::3], pieces[3::3]):
            part = f".{{{width}}}" if width else f"[^|{re.escape(after[:1])}]+"
            if name == slot:  # what follows ends the slot: it is needed to know all of it
                expression += f"({part}){re.escape(after[:1])}"
                self._is_closed = bool(width or after)
                break
            expression += part + re.escape(after)
        self._head = re.compile(expression, re.DOTALL)

    def home_of(self, key: str) -> str:
        found = self._head.match(key)
        return highest(found[1] if found else key, self.homes)

    def pieces(self, keys: KeyRange) -> list[tuple[KeyRange, tuple[str, ...]]]:
        found = self._head.match(keys.first) if self._is_closed else None
        if keys.last <= (successor(found[0]) if found else point(keys.first).last):
            return [(keys, (self.home_of(keys.first),))]
        return [(keys, self.homes)]

    def span(self, key: str) -> KeyRange:
        found = self._head.match(key) if self._is_closed else None
        return prefix(found[0]) if found else point(key)

    def lines(self) -> list[str]:
        return [f"{self.pattern} by hash of <{self.slot}>: {', '.join(self.homes)}"]


class RangePartition:
    """Keys split into ranges."""

    def __init__(self, keys: KeyRange, split: Iterable[tuple[str, str]]) -> None:
        self.keys = keys
        self.split = list(split)  # up to this key: that home
        self._ends = [end for end, _ in self.split]
        self.homes = tuple(dict.fromkeys(home for _, home in self.split))
        first = keys.first
        for end in self._ends:
            if end <= first:
                raise BadRequest(f"partition {_shown(keys)}: the split at {end!r} is out of order")
            first = end
        if first != keys.last:
            kind = "a gap" if first < keys.last else "keys beyond it"
            raise BadRequest(
                f"partition {_shown(keys)}: {kind} between {first!r} and {keys.last!r}; "
                f"end the split with [{keys.last!r}, home]"
            )

    def home_of(self, key: str) -> str:
        return self.split[bisect_right(self._ends, key)][1]

    def pieces(self, keys: KeyRange) -> list[tuple[KeyRange, tuple[str, ...]]]:
        found: list[tuple[KeyRange, tuple[str, ...]]] = []
        first = self.keys.first
        for end, home in self.split:
            piece = keys.clip(KeyRange(first, end))
            if piece:
                found.append((piece, (home,)))
            first = end
        return found

    def span(self, key: str) -> KeyRange:
        place = bisect_right(self._ends, key)
        return KeyRange(self._ends[place - 1] if place else self.keys.first, self._ends[place])

    def lines(self) -> list[str]:
        found, first = [], self.keys.first
        for end, home in self.split:
            found.append(f"{_shown(KeyRange(first, end))}: {home}")
            first = end
        return found


class Spread(NamedTuple):
    """Reads of keys with this prefix go to any of so many nodes: replicas of what is hot."""

    prefix: str
    nodes: int


class ClusterMap:
    """All of a cluster: its nodes, the partitions, and how clients find their way."""

    def __init__(
        self,
        nodes: Mapping[str, str],
        partitions: Iterable[Partition],
        compute: Iterable[str] = (),
        spread: Iterable[Spread] = (),
    ) -> None:
        self.nodes = dict(nodes)
        self.partitions = sorted(partitions, key=lambda one: one.keys)
        self.compute = tuple(compute) or tuple(self.nodes)
        self.spread = tuple(spread)
        self._firsts = [one.keys.first for one in self.partitions]
        self._check_names()
        for before, after in zip(self.partitions, self.partitions[1:]):
            if after.keys.first < before.keys.last:
                raise BadRequest(
                    f"partitions overlap: {_shown(before.keys)} and {_shown(after.keys)}; "
                    "a key has one home"
                )
        self.homes = tuple(
            name for name in self.nodes if any(name in one.homes for one in self.partitions)
        )
        text = "\n".join(line for one in self.partitions for line in one.lines())
        # Servers that hold another map refuse each other; who only computes is not part of it.
        self.version = blake2b(text.encode(), digest_size=6).hexdigest()

    def _check_names(self) -> None:
        if not self.nodes or not self.partitions:
            raise BadRequest("a cluster has [nodes] and at least one [[partition]]")
        for name, url in self.nodes.items():
            if not _NAME.fullmatch(name) or not isinstance(url, str):
                raise BadRequest(f'nodes: write {name!r} = "pequod://host:port"')
        used = [home for one in self.partitions for home in one.homes] + list(self.compute)
        for name in used:
            if name not in self.nodes:
                raise BadRequest(
                    f"{name!r} is a home or computes, but no node; there are "
                    f"{', '.join(self.nodes)}"
                )

    # Where base keys live.

    def home_of(self, key: str) -> str:
        """The home of a base key; raises if it has none."""
        return self._partition_of(key).home_of(key)

    def span(self, key: str) -> KeyRange:
        """A range around a base key, as wide as can be, of which all keys have one home."""
        return self._partition_of(key).span(key)

    def _partition_of(self, key: str) -> Partition:
        place = bisect_right(self._firsts, key) - 1
        if place < 0 or key not in self.partitions[place].keys:
            raise BadRequest(
                f"{key!r:.100} is in no partition, so it has no home; add one to the cluster's map"
            )
        return self.partitions[place]

    def is_home(self, key: str, home: str) -> bool:
        """True if a key lives at that home."""
        place = bisect_right(self._firsts, key) - 1
        if place < 0 or key not in self.partitions[place].keys:
            return False
        return self.partitions[place].home_of(key) == home

    def pieces(self, keys: KeyRange) -> list[tuple[KeyRange, tuple[str, ...]]]:
        """The parts of a range that have a home, each with all homes that it may have."""
        return [
            piece
            for one in self.partitions
            if one.keys.overlaps(keys)
            for piece in one.pieces(keys.clip(one.keys))
        ]

    def by_home(self, ranges: Iterable[KeyRange]) -> dict[str, list[KeyRange]]:
        """What to ask each home for, to have all rows of some ranges."""
        found: dict[str, list[KeyRange]] = {}
        for keys in ranges:
            for piece, homes in self.pieces(keys):
                for home in homes:
                    found.setdefault(home, []).append(piece)
        return found

    def is_whole(self, keys: KeyRange, home: str) -> bool:
        """True if all keys of a range live at one home."""
        return all(homes == (home,) for _, homes in self.pieces(keys))

    # Where clients read.

    def readers(self, first: str) -> list[str]:
        """The compute nodes for a range that starts here, the one to ask first in front.

        All that is read of `t|ann|` goes to one node, so that its base data is there once.
        """
        table, _, rest = first.partition(BAR)
        ranked = ranking(rest.partition(BAR)[0] or table, self.compute)
        return list(ranked)

    def replicas(self, first: str) -> int:
        """Among how many of its readers the reads of a range may be spread."""
        found = [one.nodes for one in self.spread if first.startswith(one.prefix)]
        return min(max(found, default=1), len(self.compute))

    def lines(self) -> list[str]:
        """The map for people."""
        return [
            *(f"node {name}: {url}" for name, url in self.nodes.items()),
            *(line for one in self.partitions for line in one.lines()),
            f"reads: {', '.join(self.compute)}",
            *(f"reads of {one.prefix} on {one.nodes} nodes" for one in self.spread),
            f"version {self.version}",
        ]

    @classmethod
    def read(cls, path: str) -> "ClusterMap":
        """The map in a file."""
        try:
            return cls.of(tomllib.loads(Path(path).read_text("utf-8")))
        except OSError as error:
            raise BadRequest(f"cluster: cannot read {path}: {error.strerror}") from error
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise BadRequest(f"cluster: {path} is not TOML: {error}") from error
        except BadRequest as error:
            raise BadRequest(f"cluster: {path}: {error}") from error

    @classmethod
    def parse(cls, text: str) -> "ClusterMap":
        """The map of a text in TOML."""
        try:
            return cls.of(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise BadRequest(f"the cluster's map is not TOML: {error}") from error

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> "ClusterMap":
        """The map that is written so in TOML; raises `BadRequest` with what is wrong in it."""
        unknown = written.keys() - {"nodes", "partition", "compute", "spread"}
        if unknown:
            raise BadRequest(f"{min(unknown)!r} is no part of a cluster's map")
        nodes, partitions = written.get("nodes"), written.get("partition", [])
        if not isinstance(nodes, Mapping) or not isinstance(partitions, list):
            raise BadRequest('a cluster has [nodes] with lines like a = "pequod://host:7709"')
        try:
            spread = [
                Spread(str(one["prefix"]), int(one["nodes"])) for one in written.get("spread", ())
            ]
            found = [_partition(one) for one in partitions]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadRequest(f"the cluster's map lacks something: {error}") from error
        return cls(nodes, found, written.get("compute", ()), spread)


def _partition(written: Mapping[str, Any]) -> Partition:
    names = written.keys()
    if names == {"key", "hash", "homes"}:
        return HashPartition(written["key"], written["hash"], written["homes"])
    if names == {"range", "split"}:
        first, last = written["range"]
        return RangePartition(
            KeyRange(first, last), [(end, home) for end, home in written["split"]]
        )
    if names == {"table", "home"}:
        keys = prefix(f"{written['table']}{BAR}")
        return RangePartition(keys, [(keys.last, written["home"])])
    raise BadRequest(
        "a [[partition]] has key, hash and homes, or range and split, or table and home; "
        f"not {', '.join(names) or 'nothing'}"
    )


@lru_cache(maxsize=1 << 16)
def ranking(value: str, nodes: tuple[str, ...]) -> tuple[str, ...]:
    """The nodes in an order that depends on the value alone, and spreads values evenly."""
    return tuple(sorted(nodes, key=lambda node: _score(node, value), reverse=True))


@lru_cache(maxsize=1 << 16)
def highest(value: str, nodes: tuple[str, ...]) -> str:
    """The first of the ranking."""
    return max(nodes, key=lambda node: _score(node, value))


def _score(node: str, value: str) -> bytes:
    return blake2b(f"{node}{BAR}{value}".encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _shown(keys: KeyRange) -> str:
    return f"[{keys.first}, {keys.last})"
