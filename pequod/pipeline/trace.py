"""Traces: what the users of a Twip world do, as operations in the order of time.

The columns of a trace are

    ts    when, in ticks from `NOW` on; it is also the time of a post
    uid   the user who does it
    seq   a number among the operations of that user; (ts, uid, seq) is the order of a trace
    op    0 login, 1 subscribe, 2 check, 3 post
    arg   check: read the timeline from this time on, that of the user's last reading
          login: 0, from the beginning
          subscribe: the poster; always a new one, never the user
          post: its number among the posts of that user in this trace

As in the paper's section 5.1, a share of the users is active and reads its timeline so many times;
logins, new follows and posts have an exact share in all operations; everybody may post, in
proportion to the logarithm of the followers. A user's operations belong to one client,
`uid % clients`, and are a pure function of the spec and the user, so clients can be made in any
order and on any machine.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pequod.errors import BadRequest
from pequod.pipeline.chance import Integers, permuted, stream
from pequod.pipeline.files import Manifest, job_name, write_table
from pequod.pipeline.graph import GraphSpec
from pequod.pipeline.jobs import Engine, Facts, Told, files_of, quiet, wrote
from pequod.pipeline.twip import NOW, posts_of_each, read_followers, spec_of, spread

LOGIN, SUBSCRIBE, CHECK, POST = range(4)
OPERATIONS = ("login", "subscribe", "check", "post")
SPAN = 1_000_000_000  # ticks that a trace lasts
SCHEMA = pa.schema(
    [("ts", pa.int32()), ("uid", pa.int32()), ("seq", pa.int32()), ("op", pa.int8())]
    + [("arg", pa.int32())]
)

_ACTIVE, _CHECKS, _SUBSCRIBES, _POSTS = 21, 22, 23, 24  # names of streams
_INDEX_BITS = 32


class Mix(NamedTuple):
    """The shares of the operations, in any unit."""

    login: int = 5
    subscribe: int = 9
    check: int = 85
    post: int = 1


DEFAULT_MIX = Mix()


@dataclass(frozen=True)
class TraceSpec:
    """A trace over a graph; equal specs are equal traces.

    >>> spec = TraceSpec(GraphSpec(1000, 8000), checks_per_user=9, active_percent=70)
    >>> spec.counts
    (350, 630, 5950, 70)
    """

    graph: GraphSpec
    checks_per_user: int = 50  # readings of the timeline, logins among them, per active user
    active_percent: int = 70
    clients: int = 8
    mix: Mix = DEFAULT_MIX
    seed: int = 1

    def __post_init__(self) -> None:
        mix = self.mix
        if min(mix) < 0 or mix.login + mix.check == 0:
            raise BadRequest(f"a mix has no negative shares, and some readings: {mix}")
        if not 0 < self.active_percent <= 100:
            raise BadRequest(f"1 to 100 percent of the users are active, not {self.active_percent}")
        if self.checks_per_user < 1 or self.clients < 1:
            raise BadRequest("a trace has at least one client, and one check per active user")
        if self.clients > self.graph.users:
            raise BadRequest(f"{self.clients} clients are more than {self.graph.users} users")

    @property
    def active(self) -> int:
        """The number of users who read their timelines."""
        return max(1, self.graph.users * self.active_percent // 100)

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """The number of logins, subscribes, checks and posts in the whole trace, exactly."""
        readings = self.active * self.checks_per_user
        mix = self.mix
        both = mix.login + mix.check
        logins = readings * mix.login // both
        rest = [readings * share // both for share in (mix.subscribe, mix.post)]
        return logins, rest[0], readings - logins, rest[1]

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "mix": list(self.mix)}


def operations(spec: TraceSpec, followers: Integers, client: int) -> dict[str, Integers]:
    """All operations of one client, in order, by column; `followers` are those of the world."""
    logins, subscribes, _, posts = spec.counts
    users = np.arange(client, spec.graph.users, spec.clients)
    ranks = permuted(users, spec.graph.users, stream(spec.seed, _ACTIVE))
    is_active = ranks < spec.active
    checks_each = np.where(is_active, spec.checks_per_user, 0)
    logins_each = np.where(is_active, _even(logins, ranks, spec.active), 0)
    subscribes_each = np.where(is_active, _even(subscribes, ranks, spec.active), 0)
    posts_each = posts_of_each(posts, followers, spec.seed + 1)[users]

    starts = np.cumsum(checks_each + subscribes_each + posts_each)
    rows = int(starts[-1])
    starts -= checks_each + subscribes_each + posts_each
    ts, op, arg = (np.empty(rows, np.int32) for _ in range(3))

    def places(counts: Integers, after: Integers) -> tuple[Integers, Integers, Integers]:
        """Where the rows of one kind go; the owner's place, and the ordinal of each."""
        owners = np.repeat(np.arange(len(users)), counts)
        ordinals = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        return (starts + after)[owners] + ordinals, owners, ordinals

    def times(counts: Integers, name: int) -> Integers:
        return spread(NOW, NOW + SPAN, users, counts, stream(spec.seed, name))

    at, owners, ordinals = places(checks_each, np.zeros_like(starts))
    ts[at] = when = times(checks_each, _CHECKS)
    # The first reading is a login, and then they are as far apart as can be.
    each, all_checks = logins_each[owners], max(spec.checks_per_user, 1)
    is_login = (ordinals * each + all_checks - 1) // all_checks < (
        (ordinals + 1) * each + all_checks - 1
    ) // all_checks
    op[at] = np.where(is_login, LOGIN, CHECK)
    before = np.concatenate([[0], when[:-1]])
    arg[at] = np.where(is_login | (ordinals == 0), 0, before)

    at, owners, _ = places(subscribes_each, checks_each)
    ts[at] = times(subscribes_each, _SUBSCRIBES)
    op[at] = SUBSCRIBE
    some = subscribes_each > 0
    _, arg[at] = spec.graph.futures(users[some], subscribes_each[some])

    at, owners, ordinals = places(posts_each, checks_each + subscribes_each)
    ts[at] = times(posts_each, _POSTS)
    op[at] = POST
    arg[at] = ordinals

    # Rows stand in the order of (uid, seq), so sorting by (ts, place) sorts by (ts, uid, seq).
    packed = ts.astype(np.int64) << _INDEX_BITS
    packed |= np.arange(rows)
    packed.sort()
    order = packed & ((1 << _INDEX_BITS) - 1)
    owner_of = np.repeat(np.arange(len(users)), checks_each + subscribes_each + posts_each)
    owners = owner_of[order]
    return {
        "ts": (packed >> _INDEX_BITS),
        "uid": users[owners],
        "seq": order - starts[owners],
        "op": op[order],
        "arg": arg[order],
    }


def _even(total: int, ranks: Integers, among: int) -> Integers:
    """An even share of `total` for each rank below `among`; together they are exactly that."""
    return (ranks + 1) * total // among - ranks * total // among


def write_trace(
    spec: TraceSpec, world: Path, out: Path, engine: Engine, told: Told = quiet
) -> Manifest:
    """Write the trace of a world into the folder `out`, unless it is there."""
    if (done := Manifest.done(out, "trace", spec.as_json())) is not None:
        return done
    _ = spec.graph.laws
    found = engine.run(partial(_write_client, spec, world, out), spec.clients, told)
    counts = np.sum([facts["counts"] for facts in found], axis=0)
    facts = {"operations": dict(zip(OPERATIONS, counts.tolist()))}
    manifest = Manifest("trace", spec.as_json(), files_of(found), facts)
    manifest.save(out)
    return manifest


def trace_spec(world: Path, **options: Any) -> TraceSpec:
    """The spec of a trace of a world that was written before."""
    return TraceSpec(spec_of(Manifest.load(world, "twip")).graph, **options)


def _write_client(spec: TraceSpec, world: Path, out: Path, client: int) -> Facts:
    columns = operations(spec, read_followers(world), client)
    counts = np.bincount(columns["op"], minlength=len(OPERATIONS)).tolist()
    arrays = [pa.array(columns[f.name].astype(f.type.to_pandas_dtype())) for f in SCHEMA]
    table = pa.table(arrays, schema=SCHEMA)
    job = job_name("trace", spec.as_json())
    return {
        **wrote(file=write_table(out, f"{client:05}.parquet", job, [table], SCHEMA)),
        "counts": counts,
    }


def read_client(trace: Path, client: int) -> Iterator[pa.RecordBatch]:
    """The operations of one client in order, a batch of some ten thousands at a time."""
    file = Manifest.load(trace, "trace").files[client]
    with pq.ParquetFile(trace / file.name) as source:
        yield from source.iter_batches()
