"""Folders of Parquet files with a `manifest.json`: what the pipeline writes and reads.

    world/manifest.json            kind, the spec, `digest` of all edges, and the list of files
    world/edges/00000.parquet      user, poster: 32-bit numbers, sorted
    world/followers.parquet        followers of each user, in the order of numbers
    world/kv/manifest.json         the rows of a cache, in key order over all files
    world/kv/s-00000.parquet       key, value, bytes: text, text or null, bytes or null
    trace/manifest.json            the spec and the counts of operations
    trace/00000.parquet            one file per client: ts, uid, seq, op, arg, sorted

A file is written under another name and renamed when it is whole; its own footer tells what it
holds and for which job, so that a job that was broken off goes on where it stopped. The manifest
comes last: a folder without one is not finished. Reading needs no Spark.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pequod.digests import BYTES_FLAG, ROWS, lengths_bytes, new_digest
from pequod.errors import BadData
from pequod.keys import Pair

FORMAT = 1
MANIFEST = "manifest.json"
ROWS_SCHEMA = pa.schema([("key", pa.string()), ("value", pa.string()), ("bytes", pa.binary())])

GROUP = 4 * ROWS  # rows of a row group; a multiple, so that a digest sees whole chunks
_FACTS = b"pequod"


@dataclass(frozen=True)
class FileFacts:
    """What one file holds: its first and last key or number, and a digest of its rows."""

    name: str
    rows: int
    first: str
    last: str
    digest: str


class Group(NamedTuple):
    """A row group of a file of rows: small enough to compare key by key."""

    first: str
    last: str
    rows: int
    digest: str


@dataclass(frozen=True)
class Manifest:
    """What a folder holds: its kind, the spec it was made from, and its files in order."""

    kind: str
    spec: dict[str, Any]
    files: tuple[FileFacts, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)  # `digest` among them

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def is_whole(self, folder: Path) -> bool:
        """True if all files are there, as far as their footers tell."""
        return all(_facts(folder / file.name) == file for file in self.files)

    def save(self, folder: Path) -> None:
        """Write `manifest.json`, all at once."""
        sent = {
            "format": FORMAT,
            "kind": self.kind,
            "spec": self.spec,
            **self.facts,
            "rows": self.rows,
            "files": [asdict(file) for file in self.files],
        }
        atomically(folder / MANIFEST, lambda path: path.write_text(json.dumps(sent, indent=1)))

    @classmethod
    def load(cls, folder: Path, *kinds: str) -> "Manifest":
        """The manifest of a folder, which must be of one of these kinds, if any are given."""
        path = folder / MANIFEST
        if not path.exists():
            where = "is not finished" if folder.is_dir() else "does not exist"
            raise BadData(f"{folder} {where}: it has no {MANIFEST}; run the job that writes it")
        try:
            sent = json.loads(path.read_text("utf-8"))
            found = sent.pop("format")
            del sent["rows"]
            files = tuple(FileFacts(**file) for file in sent.pop("files"))
            manifest = cls(sent.pop("kind"), sent.pop("spec"), files, sent)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadData(f"{path} is no manifest of Pequod's pipeline: {error!r}") from error
        if found != FORMAT:
            raise BadData(f"{path} has format {found}; this version of Pequod reads {FORMAT}")
        if kinds and manifest.kind not in kinds:
            raise BadData(f"{folder} holds {manifest.kind}, and {' or '.join(kinds)} is needed")
        return manifest

    @classmethod
    def done(cls, folder: Path, kind: str, spec: dict[str, Any]) -> "Manifest | None":
        """The manifest, if this very job has been done; of another job, an error that says so.

        If files have gone since, None: the job is to be done again, and writes those that lack.
        """
        if not (folder / MANIFEST).exists():
            return None
        manifest = cls.load(folder)
        if (manifest.kind, manifest.spec) == (kind, spec):
            return manifest if manifest.is_whole(folder) else None
        differing = {
            name: f"{manifest.spec.get(name)!r}, not {value!r}"
            for name, value in spec.items()
            if manifest.spec.get(name) != value
        }
        raise BadData(
            f"{folder} holds the {manifest.kind} of another job"
            + "".join(f"; its {name} is {told}" for name, told in differing.items())
            + ": choose another folder, or remove this one"
        )


def atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Call `write` with another name in the same folder, and then give the file its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_table(
    folder: Path,
    name: str,
    job: str,
    tables: Iterable[pa.Table],
    schema: pa.Schema,
    digest: Callable[[Sequence[pa.Table]], str] | None = None,
) -> FileFacts:
    """Write one file of sorted numbers, and answer with its facts; the first column bounds it."""
    path = folder / name
    if (facts := finished(path, job)) is not None:
        return facts
    taken = list(tables)
    table = pa.concat_tables(taken) if taken else schema.empty_table()
    column = table.column(0)
    ends = (str(column[0].as_py()), str(column[-1].as_py())) if len(column) else ("", "")
    told = digest(taken) if digest else columns_digest(table)
    facts = FileFacts(name, len(table), *ends, told)
    with_facts = table.replace_schema_metadata(_metadata(job, facts))
    atomically(
        path,
        lambda part: pq.write_table(
            with_facts, part, compression="zstd", use_dictionary=False, row_group_size=1 << 20
        ),
    )
    return facts


def columns_digest(table: pa.Table) -> str:
    """The digest of a table of fixed-width columns, column by column."""
    state = new_digest()
    for column in table.columns:
        for chunk in column.chunks:
            state.update(np.ascontiguousarray(chunk.to_numpy(zero_copy_only=False)))
    digest: str = state.hexdigest()
    return digest


def write_rows(folder: Path, name: str, job: str, tables: Iterable[pa.Table]) -> FileFacts:
    """Write one file of rows, which come in key order, and answer with its facts."""
    path = folder / name
    if (facts := finished(path, job)) is not None:
        return facts
    writer = _RowsWriter(name)
    atomically(path, lambda part: writer.write(part, job, tables))
    return writer.facts()


class _RowsWriter:
    """Cuts tables of rows into row groups, and takes their digest on the way."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._hash = new_digest()
        self._rows = 0
        self._first = self._last = ""
        self._groups: list[Group] = []

    def facts(self) -> FileFacts:
        return FileFacts(self._name, self._rows, self._first, self._last, self._hash.hexdigest())

    def write(self, path: Path, job: str, tables: Iterable[pa.Table]) -> None:
        with pq.ParquetWriter(
            path,
            ROWS_SCHEMA,
            compression="zstd",
            use_dictionary=False,
            column_encoding={"key": "DELTA_BYTE_ARRAY"},  # neighbours begin alike
        ) as writer:
            for group in _regrouped(tables, GROUP):
                self._take(group)
                writer.write_table(group, row_group_size=GROUP)
            writer.add_key_value_metadata(_metadata(job, self.facts(), self._groups))

    def _take(self, group: pa.Table) -> None:
        keys = group.column("key")
        first, last = keys[0].as_py(), keys[-1].as_py()
        later = pc.less_equal(keys.slice(1), keys.slice(0, len(keys) - 1))
        if (self._rows and first <= self._last) or pc.any(later).as_py():
            raise BadData(f"{self._name}: the keys near {first!r} are not in strict key order")
        if not self._rows:
            self._first = first
        self._last = last
        self._rows += len(group)
        add_to_digest(self._hash, group)
        self._groups.append(Group(first, last, len(group), rows_digest([group])))


def _regrouped(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """The same rows in tables of exactly `rows` rows; the last one may be shorter."""
    waiting: list[pa.Table] = []
    count = 0
    for table in tables:
        while len(table):
            piece = table.slice(0, rows - count)
            table = table.slice(len(piece))
            waiting.append(piece)
            count += len(piece)
            if count == rows:
                yield pa.concat_tables(waiting).combine_chunks()
                waiting, count = [], 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def add_to_digest(state: Any, table: pa.Table) -> None:
    """Let rows into a digest of `pequod.digests`; only the last table may have odd rows."""
    for at in range(0, len(table), ROWS):
        chunk = table.slice(at, ROWS)
        _add_column(state, chunk.column("key"))
        if chunk.column("value").null_count == 0:
            _add_column(state, chunk.column("value"))
            continue
        values = [(value, 0) for _, value in pairs_of(chunk)]
        packed = [(v, BYTES_FLAG) if isinstance(v, bytes) else (v.encode(), 0) for v, _ in values]
        state.update(lengths_bytes([len(value) | flag for value, flag in packed]))
        state.update(b"".join(value for value, _ in packed))


def _add_column(state: Any, column: pa.ChunkedArray) -> None:
    text = pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
    _, offsets, data = text.buffers()
    ends = np.frombuffer(offsets, np.int32, len(text) + 1, text.offset * 4)
    state.update(np.diff(ends).astype("<u4"))
    if data is not None:
        state.update(memoryview(data)[ends[0] : ends[-1]])


def rows_digest(tables: Iterable[pa.Table]) -> str:
    """The digest of rows in key order, in tables of any size."""
    state = new_digest()
    for group in _regrouped(tables, GROUP):
        add_to_digest(state, group)
    digest: str = state.hexdigest()
    return digest


def read_groups(folder: Path, file: FileFacts) -> list[Group]:
    """What the row groups of a file hold, without reading them."""
    path = folder / file.name
    try:
        told = _told(path)
        if told["facts"] != asdict(file):
            raise BadData(f"{path} is not the file of the manifest; run the job again")
        return [Group(*group) for group in told["groups"]]
    except (OSError, pa.ArrowInvalid, ValueError, KeyError) as error:
        raise BadData(f"{path} cannot be read: {error}; run the job again to write it") from error


def _told(path: Path) -> dict[str, Any]:
    metadata = pq.read_metadata(path).metadata or {}
    told: dict[str, Any] = json.loads(metadata.get(_FACTS, b"{}"))
    return told


def finished(path: Path, job: str) -> FileFacts | None:
    """The facts of a file that this very job has written before, else None."""
    facts = _facts(path)
    return facts if facts is not None and _told(path).get("job") == job else None


def _facts(path: Path) -> FileFacts | None:
    """What a file says that it holds; None if it is not there or not whole."""
    try:
        return FileFacts(**_told(path)["facts"])
    except (OSError, pa.ArrowInvalid, ValueError, KeyError, TypeError):
        return None


def rows_are_whole(folder: Path) -> bool:
    """True if a folder of rows is there with all its files."""
    return (folder / MANIFEST).exists() and Manifest.load(folder, "rows").is_whole(folder)


def _metadata(job: str, facts: FileFacts, groups: Sequence[Group] = ()) -> dict[str, str]:
    told = {"job": job, "facts": asdict(facts), "groups": groups}
    return {_FACTS.decode(): json.dumps(told)}


def job_name(kind: str, spec: Mapping[str, Any]) -> str:
    """What tells the files of one job from those of another."""
    return json.dumps([FORMAT, kind, spec], sort_keys=True)


def text_rows(keys: pa.Array, values: pa.Array) -> pa.Table:
    """A table of rows whose values are all text."""
    return pa.table([keys, values, pa.nulls(len(keys), pa.binary())], schema=ROWS_SCHEMA)


def table_of(pairs: Sequence[Pair]) -> pa.Table:
    """A table of rows, from pairs of any values."""
    values = [value if isinstance(value, str) else None for _, value in pairs]
    data = [value if isinstance(value, bytes) else None for _, value in pairs]
    return pa.table(
        [pa.array([key for key, _ in pairs], pa.string()), values, data], schema=ROWS_SCHEMA
    )


def pairs_of(table: pa.Table) -> list[Pair]:
    """The rows of a table as pairs."""
    keys, values = table.column("key").to_pylist(), table.column("value").to_pylist()
    if table.column("value").null_count:
        data = table.column("bytes").to_pylist()
        values = [other if value is None else value for value, other in zip(values, data)]
    return list(zip(keys, values))


def read_rows(folder: Path, file: FileFacts) -> Iterator[pa.Table]:
    """The rows of one file, a row group at a time."""
    with open_rows(folder, file) as source:
        for group in range(source.num_row_groups):
            yield source.read_row_group(group)


@contextmanager
def open_rows(folder: Path, file: FileFacts) -> Iterator[pq.ParquetFile]:
    """A file of rows, open to read row groups of it."""
    path = folder / file.name
    try:
        with pq.ParquetFile(path) as source:
            yield source
    except (OSError, pa.ArrowInvalid) as error:
        raise BadData(f"{path} cannot be read: {error}; run the job again to write it") from error


def read_pairs(folder: Path) -> Iterator[list[Pair]]:
    """All rows of a folder in key order, in lists of some ten thousands."""
    manifest = Manifest.load(folder, "rows")
    return chain.from_iterable(
        (pairs_of(table) for table in read_rows(folder, file)) for file in manifest.files
    )
