"""A Twip world: a social graph, what everybody has posted so far, and both as rows of a cache.

    s|u0000001|u0000007        = 1          u0000001 follows u0000007
    p|u0000007|0000012345      = a text     u0000007 posted it at that time

Times before a trace begins are below `NOW`. Who has more followers posts more: the number of posts
is proportional to the logarithm of the followers, as in the paper's section 5.1.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pequod.errors import BadData, BadRequest
from pequod.pipeline.chance import Integers, below, shares, stream, words
from pequod.pipeline.files import (
    Manifest,
    finished,
    job_name,
    rows_are_whole,
    text_rows,
    write_rows,
    write_table,
)
from pequod.pipeline.graph import BLOCK, GraphSpec, edge_digest, user_width
from pequod.pipeline.jobs import Engine, Facts, Told, cut, files_of, quiet, wrote
from pequod.pipeline.texts import digits, joined, letters

TIMELINE = "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;"
NOW = 1_000_000_000  # the time at which a trace begins, in ticks
TIME_DIGITS = 10
FOLLOWERS = "followers.parquet"
EDGES_SCHEMA = pa.schema([("user", pa.int32()), ("poster", pa.int32())])

_POSTS, _TIMES, _TEXTS = 11, 12, 13  # names of streams
_SHARE = 16 * BLOCK  # users whose rows are made together


@dataclass(frozen=True)
class TwipSpec:
    """A Twip world: users, follows and posts; equal specs are equal worlds."""

    users: int
    edges: int
    seed: int = 1
    posts: int = 0
    post_bytes: int = 100

    def __post_init__(self) -> None:
        _ = self.graph
        if self.posts < 0 or self.post_bytes < 1:
            raise BadRequest("posts must be 0 or more, and each has a text of a letter or more")

    @cached_property  # what is solved for in it travels to the tasks, too
    def graph(self) -> GraphSpec:
        return GraphSpec(self.users, self.edges, self.seed)


def write_world(
    spec: TwipSpec, out: Path, engine: Engine, parts: int, told: Told = quiet
) -> Manifest:
    """Write the world into the folder `out`, unless it is there; answers with its manifest."""
    done = Manifest.done(out, "twip", asdict(spec))
    counted_before = finished(out / FOLLOWERS, job_name("twip", asdict(spec)))
    if done is not None and counted_before is not None and rows_are_whole(out / "kv"):
        return done
    _ = spec.graph.laws  # refuses, or solves, before any task starts
    total = 2 * parts + 1
    found = engine.run(
        partial(_write_follows, spec, out, parts), parts, lambda n, _: told(n, total)
    )
    edges = files_of(found, "edges")
    names = [file.name for file in edges]
    [counted] = engine.run(partial(_write_followers, spec, out, names), 1)
    told(parts + 1, total)
    posted = engine.run(
        partial(_write_posts, spec, out, parts), parts, lambda n, _: told(parts + 1 + n, total)
    )
    rows = files_of(posted, "posts") + files_of(found, "follows")
    Manifest("rows", asdict(spec), rows).save(out / "kv")
    digest = sum(int(file.digest, 16) for file in edges) % (1 << 64)
    facts = {"digest": f"{digest:016x}", **counted["counts"]}
    manifest = Manifest("twip", asdict(spec), edges, facts)
    manifest.save(out)
    return manifest


def spec_of(manifest: Manifest) -> TwipSpec:
    """The spec that a world was made from."""
    return TwipSpec(**manifest.spec)


def read_followers(world: Path) -> Integers:
    """How many followers each user has."""
    path = world / FOLLOWERS
    if not path.exists():
        raise BadData(f"{path} does not exist; `pequod pipeline graph` writes it")
    followers: Integers = pq.read_table(path).column(0).to_numpy().astype(np.int64)
    return followers


def read_edges(world: Path) -> Iterator[pa.Table]:
    """The follows of a world, user and poster, in order, file by file."""
    for file in Manifest.load(world, "twip").files:
        yield pq.read_table(world / file.name)


def posts_of_each(total: int, followers: Integers, seed: int) -> Integers:
    """How many of `total` posts each user writes, proportional to the log of its followers.

    The weights are integers, so that no sum depends on an order; the sum is exactly `total`.
    """
    # No 1000 * ln(1 + f) is so near to a half that a last bit of the logarithm could matter.
    weights = np.rint(1000 * np.log1p(followers)).astype(np.int64)
    if not weights.any():
        weights += 1
    cumulated = np.concatenate([[0], np.cumsum(weights)])
    whole = int(cumulated[-1])
    return shares(total, cumulated, whole, int(below(words(stream(seed, _POSTS), [0]), whole)[0]))


def spread(first: int, last: int, owners: Integers, counts: Integers, start: Any) -> Integers:
    """Times for the events of each owner, all different and in order: one in each equal stretch."""
    ends = np.cumsum(counts)
    ordinals = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts, counts)
    each = np.repeat(counts, counts)
    streams = words(start, np.repeat(owners, counts))
    span = last - first
    low, high = ordinals * span // each, (ordinals + 1) * span // each
    times: Integers = (
        first
        + low
        + ((words(streams, ordinals) >> np.uint64(33)).astype(np.int64) % np.maximum(high - low, 1))
    )
    return times


def _write_follows(spec: TwipSpec, out: Path, parts: int, part: int) -> Facts:
    first, last = cut(spec.users, part, parts, BLOCK)
    job = job_name("twip", asdict(spec)) + f" {first}"
    names = f"edges/{part:05}.parquet", f"kv/s-{part:05}.parquet"
    edges, follows = (finished(out / name, job) for name in names)
    if edges is not None and follows is not None:
        return wrote(edges=edges, follows=follows)
    tables = []
    for at in range(first, last, _SHARE):
        users, posters = spec.graph.followees(at, min(at + _SHARE, last))
        columns = [pa.array(users.astype(np.int32)), pa.array(posters.astype(np.int32))]
        tables.append(pa.table(columns, schema=EDGES_SCHEMA))

    def digest(taken: Any) -> str:
        sums = [edge_digest(*(c.to_numpy().astype(np.int64) for c in t.columns)) for t in taken]
        return f"{sum(sums) % (1 << 64):016x}"

    edges = write_table(out, names[0], job, tables, EDGES_SCHEMA, digest)
    rows = (_follow_rows(spec, *(c.to_numpy() for c in table.columns)) for table in tables)
    follows = write_rows(out / "kv", f"s-{part:05}.parquet", job, rows)
    return wrote(edges=edges, follows=follows)


def _write_followers(spec: TwipSpec, out: Path, names: list[str], _: int) -> Facts:
    followers = np.zeros(spec.users, np.int64)
    largest_out = 0
    for name in names:
        table = pq.read_table(out / name)
        followers += np.bincount(table.column("poster").to_numpy(), minlength=spec.users)
        largest_out = max(largest_out, int(np.bincount(table.column("user").to_numpy()).max()))
    schema = pa.schema([("followers", pa.int32())])
    table = pa.table([pa.array(followers.astype(np.int32))], schema=schema)
    job = job_name("twip", asdict(spec))
    write_table(out, FOLLOWERS, job, [table], schema)
    return {"counts": {"most_followers": int(followers.max()), "most_followees": largest_out}}


def _write_posts(spec: TwipSpec, out: Path, parts: int, part: int) -> Facts:
    job = job_name("twip posts", asdict(spec)) + f" {part}/{parts}"
    first, last = cut(spec.users, part, parts)
    counts = posts_of_each(spec.posts, read_followers(out), spec.seed)[first:last]
    rows = _post_rows(spec, np.arange(first, last), counts)
    return wrote(posts=write_rows(out / "kv", f"p-{part:05}.parquet", job, rows))


def _follow_rows(spec: TwipSpec, users: Any, posters: Any) -> pa.Table:
    width = user_width(spec.users)
    keys = joined(len(users), b"s|u", digits(users, width), b"|u", digits(posters, width))
    return text_rows(keys, joined(len(users), b"1"))


def _post_rows(spec: TwipSpec, posters: Integers, counts: Integers) -> Iterator[pa.Table]:
    for at in range(0, len(posters), _SHARE):
        some, each = posters[at : at + _SHARE], counts[at : at + _SHARE]
        times = spread(0, NOW, some, each, stream(spec.seed, _TIMES))
        owners = np.repeat(some, each)
        name = digits(owners, user_width(spec.users))
        keys = joined(len(times), b"p|u", name, b"|", digits(times, TIME_DIGITS))
        texts = letters(words(stream(spec.seed, _TEXTS), owners), times, spec.post_bytes)
        yield text_rows(keys, texts)
