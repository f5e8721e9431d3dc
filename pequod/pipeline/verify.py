"""Verify: whether a server, or a dump of one, holds the rows that it should.

The ranges of the row groups cover the whole range asked for, without gaps. Where the two digests
of a range differ, its rows are compared key by key: missing, extra, or with a wrong value.
"""

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from pequod.client import Client
from pequod.errors import BadData, TooLarge
from pequod.keys import EVERYTHING, KeyRange, Pair
from pequod.pipeline.files import (
    FileFacts,
    Group,
    Manifest,
    open_rows,
    pairs_of,
    read_groups,
    rows_digest,
    table_of,
    write_rows,
)
from pequod.pipeline.jobs import Told, quiet

SHOWN = 20  # keys of each kind
_PAGE = 4096


class Holder(Protocol):
    """What is compared with the expected rows: it can tell digests and rows of ranges."""

    def digest(self, keys: KeyRange) -> tuple[int, str] | None:
        """Rows and digest of a range; None if only the rows themselves can tell."""

    def rows(self, keys: KeyRange) -> Iterator[Pair]: ...


class ServerHolder:
    """A running server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def digest(self, keys: KeyRange) -> tuple[int, str] | None:
        try:
            rows, digest = self._client.digest(*keys)
        except TooLarge:  # there are far more rows than expected
            return None
        return rows, digest

    def rows(self, keys: KeyRange) -> Iterator[Pair]:
        return iter(self._client.iterate(*keys, page=_PAGE))


class FolderHolder:
    """A folder of rows, such as a dump."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        files = Manifest.load(folder, "rows").files
        self._groups = [
            (file, number, group)
            for file in files
            for number, group in enumerate(read_groups(folder, file))
        ]
        self._firsts = [group.first for _, _, group in self._groups]

    def digest(self, keys: KeyRange) -> tuple[int, str] | None:
        tables = list(self._tables(keys))
        return sum(map(len, tables)), rows_digest(tables)

    def rows(self, keys: KeyRange) -> Iterator[Pair]:
        return chain.from_iterable(map(pairs_of, self._tables(keys)))

    def _tables(self, keys: KeyRange) -> Iterator[pa.Table]:
        start = max(0, bisect_right(self._firsts, keys.first) - 1)
        end = bisect_left(self._firsts, keys.last, start)
        for file, number, _ in self._groups[start:end]:
            with open_rows(self._folder, file) as source:
                table = source.read_row_group(number)
            key = table.column("key")
            inside = pc.and_(pc.greater_equal(key, keys.first), pc.less(key, keys.last))
            yield table.filter(inside)


@dataclass
class Findings:
    """What was compared, and the first keys that differ, of each kind."""

    rows: int = 0
    ranges: int = 0
    differing_ranges: int = 0
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("missing", "extra", "wrong"), 0)
    )
    keys: dict[str, list[str]] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        return not any(self.counts.values())

    def note(self, kind: str, key: str) -> None:
        self.counts[kind] += 1
        shown = self.keys.setdefault(kind, [])
        if len(shown) < SHOWN:
            shown.append(key)


def verify(
    expected: Path, holder: Holder, keys: KeyRange = EVERYTHING, told: Told = quiet
) -> Findings:
    """Compare the rows of a folder with those that the holder has in a range."""
    manifest = Manifest.load(expected, "rows")
    places = [
        (file, number, group)
        for file in manifest.files
        for number, group in enumerate(read_groups(expected, file))
    ]
    firsts = [keys.first, *(group.first for _, _, group in places[1:])]
    lasts = [*firsts[1:], keys.last]
    findings = Findings()
    for place, first, last in zip(places, firsts, lasts):
        _compare(expected, place, holder, KeyRange(first, last), findings)
        told(findings.rows, manifest.rows)
    if not places:
        for key, _ in holder.rows(keys):
            findings.note("extra", key)
    return findings


def _compare(
    folder: Path,
    place: tuple[FileFacts, int, Group],
    holder: Holder,
    keys: KeyRange,
    findings: Findings,
) -> None:
    file, number, group = place
    findings.ranges += 1
    findings.rows += group.rows
    if holder.digest(keys) == (group.rows, group.digest):
        return
    findings.differing_ranges += 1
    with open_rows(folder, file) as source:
        expected = dict(pairs_of(source.read_row_group(number)))
    for key, value in holder.rows(keys):
        if key not in expected:
            findings.note("extra", key)
        elif expected.pop(key) != value:
            findings.note("wrong", key)
    for key in expected:
        findings.note("missing", key)


def dump(client: Client, out: Path, keys: KeyRange, told: Callable[[int], None]) -> Manifest:
    """Write the rows that a server has in a range into the folder `out`."""

    def tables() -> Iterator[pa.Table]:
        rows: list[Pair] = []
        done = 0
        for row in client.iterate(*keys, page=_PAGE):
            rows.append(row)
            if len(rows) == _PAGE:
                yield table_of(rows)
                done += len(rows)
                told(done)
                rows = []
        if rows:
            yield table_of(rows)

    if (out / "manifest.json").exists():
        raise BadData(f"{out} is there already; choose another folder, or remove this one")
    facts = write_rows(out, "00000.parquet", f"dump {time.time_ns()}", tables())
    manifest = Manifest("rows", {"first": keys.first, "last": keys.last}, _if_any(facts))
    manifest.save(out)
    return manifest


def _if_any(facts: FileFacts) -> tuple[FileFacts, ...]:
    return (facts,) if facts.rows else ()
