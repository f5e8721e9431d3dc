"""Twip worlds for replaying: follows, posts and operations, read from the files of the pipeline.

`pequod.pipeline` says what a world and a trace are. Small ones are written here, by its plain
engine; large ones come from its Spark jobs. What replays them sees files alone.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pequod.pipeline.files import Manifest, read_pairs
from pequod.pipeline.jobs import PlainEngine
from pequod.pipeline.trace import (
    DEFAULT_MIX,
    OPERATIONS,
    POST,
    SUBSCRIBE,
    Mix,
    read_client,
    trace_spec,
    write_trace,
)
from pequod.pipeline.twip import TwipSpec, read_edges, spec_of, write_world

TEXT_LENGTH = 100
MAX_USERS = 10_000_000  # names of seven digits, and of one width

Post = tuple[int, int, str]  # poster, time, text
TimelineRow = tuple[int, int, str]  # time, poster, text
Operation = tuple[int, int, int, Any]  # kind, user, time, and its argument: of a post, the text


@dataclass(frozen=True)
class Load:
    """A world and what happens in it, in the paper's proportions unless told otherwise."""

    users: int = 20_000
    followees: int = 40
    posts_per_user: float = 1.0  # before the trace begins
    checks_per_user: int = 50
    active_percent: int = 70
    mix: Mix = DEFAULT_MIX
    clients: int = 2
    seed: int = 1


@dataclass(frozen=True)
class TwipWorld:
    """The folders of a world and of a trace over it."""

    world: Path
    trace: Path

    @classmethod
    def written(cls, world: Path, trace: Path) -> "TwipWorld":
        """The folders of a world and of a trace over it, if that is what they are."""
        of_world = spec_of(Manifest.load(world, "twip")).graph
        of_trace = Manifest.load(trace, "trace").spec["graph"]
        if of_trace != asdict(of_world):
            raise SystemExit(f"the trace {trace} is of another world than {world}")
        read_pairs(world / "kv")  # refuses a world without rows
        return cls(world, trace)

    @classmethod
    def write(cls, load: Load, folder: Path) -> "TwipWorld":
        """Make a world and its trace in a folder, unless they are there."""
        if not 2 <= load.users <= MAX_USERS:
            raise SystemExit(f"2 to {MAX_USERS:,} users can be replayed, not {load.users:,}")
        # In a tiny world there must be somebody left to follow.
        edges = min(load.users * load.followees, load.users * (load.users - 1) // 8)
        spec = TwipSpec(
            users=load.users,
            edges=edges,
            seed=load.seed,
            posts=int(load.users * load.posts_per_user),
            post_bytes=TEXT_LENGTH,
        )
        write_world(spec, folder / "world", PlainEngine(), parts=1)
        operations = trace_spec(
            folder / "world",
            checks_per_user=load.checks_per_user,
            active_percent=load.active_percent,
            clients=load.clients,
            mix=load.mix,
            seed=load.seed,
        )
        write_trace(operations, folder / "world", folder / "trace", PlainEngine())
        return cls(folder / "world", folder / "trace")

    @property
    def users(self) -> int:
        users: int = Manifest.load(self.world, "twip").spec["users"]
        return users

    @property
    def clients(self) -> int:
        clients: int = Manifest.load(self.trace, "trace").spec["clients"]
        return clients

    @property
    def counts(self) -> dict[str, int]:
        """How many operations of each kind there are."""
        counts: dict[str, int] = Manifest.load(self.trace, "trace").facts["operations"]
        return counts

    # What was before.

    def pairs(self) -> Iterator[list[tuple[str, Any]]]:
        """Follows and posts as rows of a cache."""
        yield from read_pairs(self.world / "kv")

    def follows(self) -> tuple[Any, Any]:
        """All follows, as two arrays: users and posters, in that order."""
        tables = pa.concat_tables(list(read_edges(self.world)))
        return tables.column("user").to_numpy(), tables.column("poster").to_numpy()

    def followers(self) -> Iterator[tuple[int, list[int]]]:
        """Each user with its followers."""
        users, posters = self.follows()
        order = np.argsort(posters, kind="stable")
        ends = np.cumsum(np.bincount(posters, minlength=self.users)).tolist()
        sorted_users = users[order].tolist()
        start = 0
        for poster, end in enumerate(ends):
            yield poster, sorted_users[start:end]
            start = end

    def posts(self) -> Iterator[Post]:
        for file in sorted((self.world / "kv").glob("p-*.parquet")):
            table = pq.read_table(file, columns=["key", "value"])
            keys, values = (table.column(name).to_pylist() for name in ("key", "value"))
            for key, text in zip(keys, values, strict=True):
                yield int(key[3:10]), int(key[11:]), text

    def posts_by_poster(self) -> dict[int, list[TimelineRow]]:
        found: dict[int, list[TimelineRow]] = defaultdict(list)
        for poster, time, text in self.posts():
            found[poster].append((time, poster, text))
        return found

    def timelines(self) -> Iterator[tuple[int, list[TimelineRow]]]:
        """Each user with its timeline as it is before the trace."""
        posts = self.posts_by_poster()
        users, posters = self.follows()
        ends = np.cumsum(np.bincount(users, minlength=self.users)).tolist()
        followees = posters.tolist()
        start = 0
        for user, end in enumerate(ends):
            yield user, sorted(row for poster in followees[start:end] for row in posts[poster])
            start = end

    # What happens.

    def operations(self, client: int) -> list[Operation]:
        """All that a client does, in order."""
        found: list[Operation] = []
        for batch in read_client(self.trace, client):
            columns = (batch.column(name).to_pylist() for name in ("op", "uid", "ts", "arg"))
            found += [
                (op, uid, ts, post_text(uid, arg) if op == POST else arg)
                for op, uid, ts, arg in zip(*columns, strict=True)
            ]
        return found

    def expected_timelines(self, sample: list[int]) -> dict[int, list[TimelineRow]]:
        """What the timelines of some users must be when all operations have happened."""
        wanted = set(sample)
        users, posters = self.follows()
        followees: dict[int, set[int]] = {user: set() for user in sample}
        for user, poster in zip(users.tolist(), posters.tolist()):
            if user in wanted:
                followees[user].add(poster)
        posts = self.posts_by_poster()
        for client in range(self.clients):
            for kind, user, time, argument in self.operations(client):
                if kind == POST:
                    posts[user].append((time, user, argument))
                elif kind == SUBSCRIBE and user in wanted:
                    followees[user].add(argument)
        return {
            user: sorted(row for poster in followees[user] for row in posts[poster])
            for user in sample
        }


def post_text(poster: int, ordinal: int) -> str:
    """The text of a post of a trace, 100 characters.

    >>> post_text(7, 0)[:40], len(post_text(7, 0))
    ('post 0 of user 7 .......................', 100)
    """
    return f"post {ordinal} of user {poster} ".ljust(TEXT_LENGTH, ".")


KINDS = OPERATIONS
