"""Materialize: all rows that cache joins compute, sorted, in files that part the key space.

    views/manifest.json             the joins, what they were computed from, and the files
    views/v-1f0c.../bounds.json     the keys at which the files part
    views/v-1f0c.../00000.parquet   rows in key order

The name of a version follows from joins and base data. A new one is written beside the old one,
which is in use until the new manifest replaces the old; a job that was broken off goes on with
the files it has.
"""

import json
import shutil
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pequod.errors import BadData
from pequod.joins.join import CacheJoin
from pequod.keys import EVERYTHING, KeyRange, prefix
from pequod.pipeline.compiler import BaseRows, Compiler, within
from pequod.pipeline.files import (
    MANIFEST,
    ROWS_SCHEMA,
    FileFacts,
    Manifest,
    atomically,
    finished,
    job_name,
    write_rows,
)
from pequod.pipeline.jobs import Told, quiet

SCHEMA = "key string, value string, bytes binary"
SAMPLED = 100  # one key of so many is looked at for the bounds

_POLL_SECONDS = 0.5


def materialize(
    spark: SparkSession,
    joins: Sequence[CacheJoin],
    base: Path,
    out: Path,
    keys: KeyRange = EVERYTHING,
    partitions: int = 16,
    told: Told = quiet,
) -> Manifest:
    """Write all rows that the joins compute in a range into the folder `out`."""
    if (done := materialized(joins, base, out, keys)) is not None:
        return done
    spec = views_spec(joins, base, keys)
    compiler = Compiler(joins, base_rows(spark, base))
    files = Manifest.load(base, "rows").files
    compiler.check_base(lambda keys: bool(_overlapping(files, keys)))
    rows = compiler.rows(keys)
    job = job_name("views", spec)
    version = out / f"v-{blake2b(job.encode(), digest_size=8).hexdigest()}"
    bounds = _bounds(rows, version, partitions)
    names = [f"{version.name}/{number:05}.parquet" for number in range(len(bounds) + 1)]
    missing = [number for number, name in enumerate(names) if finished(out / name, job) is None]
    told(len(names) - len(missing), len(names))
    if missing:
        wanted = _only(rows, bounds, missing) if len(missing) < len(names) else rows
        with _watched(out, names, told):
            _write(wanted, compiler.head(), bounds, out, names, job)
    written = tuple(facts for name in names if (facts := finished(out / name, job)) is not None)
    unmatched = [] if written else list(compiler.unmatched())
    manifest = Manifest("rows", spec, written, {"warnings": unmatched})
    manifest.save(out)
    for old in out.glob("v-*"):
        if old != version:
            shutil.rmtree(old, ignore_errors=True)
    told(len(names), len(names))
    return manifest


def materialized(
    joins: Sequence[CacheJoin], base: Path, out: Path, keys: KeyRange
) -> Manifest | None:
    """The manifest of `out`, if these very rows are there."""
    spec = views_spec(joins, base, keys)
    if not (out / MANIFEST).exists():
        return None
    manifest = Manifest.load(out, "rows")
    return manifest if manifest.spec == spec and manifest.is_whole(out) else None


def views_spec(joins: Sequence[CacheJoin], base: Path, keys: KeyRange) -> dict[str, Any]:
    """What a version of views is made from: the joins, the base data, and the range."""
    if all(
        prefix(j.output.literal_head).clip(keys) == prefix(j.output.literal_head) for j in joins
    ):
        keys = EVERYTHING  # the same rows have the same name
    texts = [f"{join.name}: {join.text}" if join.name else join.text for join in joins]
    digests = "".join(file.digest for file in Manifest.load(base, "rows").files)
    source = blake2b(digests.encode(), digest_size=16).hexdigest()
    return {"joins": texts, "base": source, "first": keys.first, "last": keys.last}


def base_rows(spark: SparkSession, base: Path) -> BaseRows:
    """The base rows of a folder on Spark; of its files only those that a range needs."""
    manifest = Manifest.load(base, "rows")
    for file in manifest.files:
        if not (base / file.name).exists():
            raise BadData(f"{base / file.name} is missing; run the job that wrote {base} again")

    def read(keys: KeyRange) -> DataFrame:
        files = _overlapping(manifest.files, keys)
        if not files:
            return spark.createDataFrame([], SCHEMA)
        paths = [(base / file.name).resolve().as_uri() for file in files]
        return within(spark.read.schema(SCHEMA).parquet(*paths), keys)

    return read


def _overlapping(files: Sequence[FileFacts], keys: KeyRange) -> list[FileFacts]:
    return [file for file in files if file.last >= keys.first and file.first < keys.last]


def _bounds(rows: DataFrame, version: Path, partitions: int) -> list[str]:
    """The keys at which the files part, so that they are about equal; kept, to go on later."""
    path = version / "bounds.json"
    if path.exists():
        bounds: list[str] = json.loads(path.read_text("utf-8"))
        return bounds
    # A sample by hash is the same each time, whatever the partitions are.
    chosen = rows.select("key").where(F.pmod(F.xxhash64("key"), F.lit(SAMPLED)) == 0)
    sample = sorted(row["key"] for row in chosen.collect())
    steps = (len(sample) * number // partitions for number in range(1, partitions))
    bounds = sorted({sample[step] for step in steps}) if sample else []
    atomically(path, lambda part: part.write_text(json.dumps(bounds), "utf-8"))
    return bounds


def _only(rows: DataFrame, bounds: Sequence[str], numbers: Sequence[int]) -> DataFrame:
    """The rows of some of the files."""
    edges = ["", *bounds, EVERYTHING.last]
    condition = F.lit(False)
    for number in numbers:
        condition |= (F.col("key") >= edges[number]) & (F.col("key") < edges[number + 1])
    return rows.where(condition)


def _write(
    rows: DataFrame, head: str, bounds: Sequence[str], out: Path, names: Sequence[str], job: str
) -> None:
    """Sort the rows into their files; each task writes one of them."""
    number = _number(bounds, 0, len(bounds)).alias("number")
    # Spark compares the first eight bytes of what it sorts by before all else, and those of the
    # keys are nearly all alike; the ones after their common head are not.
    telling = F.substring("key", len(head) + 1, 8).alias("telling")
    placed = rows.select("key", "value", "bytes", number, telling)
    sorted_rows = placed.repartitionById(len(bounds) + 1, F.col("number"))
    sorted_rows = sorted_rows.sortWithinPartitions("telling", "key").select("key", "value", "bytes")
    written = sorted_rows.mapInArrow(partial(_write_part, bounds, out, names, job), "rows long")
    written.agg(F.sum("rows")).collect()


def _number(bounds: Sequence[str], first: int, last: int) -> Column:
    """The number of the file that a key belongs to: a search by halves, as one expression."""
    if first == last:
        return F.lit(first)
    middle = (first + last) // 2
    below = F.col("key") < bounds[middle]
    return F.when(below, _number(bounds, first, middle)).otherwise(
        _number(bounds, middle + 1, last)
    )


def _write_part(
    bounds: Sequence[str],
    out: Path,
    names: Sequence[str],
    job: str,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Runs in a task: all rows of one file, in key order."""
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return
    number = bisect_right(bounds, first.column(0)[0].as_py())
    tables = (pa.table(batch.columns, schema=ROWS_SCHEMA) for batch in chain([first], batches))
    facts = write_rows(out, names[number], job, tables)
    yield pa.RecordBatch.from_pydict({"rows": [facts.rows]})


@contextmanager
def _watched(out: Path, names: Sequence[str], told: Told) -> Iterator[None]:
    """Tell, while it is entered, how many files are done."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_POLL_SECONDS):
            told(sum((out / name).exists() for name in names), len(names))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
