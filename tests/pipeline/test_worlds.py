"""Worlds on disk: any number of parts gives the same rows, and a broken job goes on."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from pequod.errors import BadData, BadRequest
from pequod.pipeline.files import Manifest, read_pairs
from pequod.pipeline.jobs import PlainEngine
from pequod.pipeline.newp import NewpSpec, write_newp
from pequod.pipeline.trace import operations, read_client, trace_spec, write_trace
from pequod.pipeline.twip import TwipSpec, read_edges, read_followers, write_world

SPEC = TwipSpec(users=5000, edges=40_000, seed=1, posts=3000, post_bytes=20)
NEWP = NewpSpec(articles=300, users=100, comments=900, votes=2000, text_bytes=9)


def rows_of(folder):
    return [row for some in read_pairs(folder / "kv") for row in some]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    write_world(SPEC, folder, PlainEngine(), 3)
    return folder


def test_a_world_holds_its_follows_and_posts(world):
    rows = rows_of(world)
    assert rows == sorted(rows)
    assert len(dict(rows)) == len(rows) == 43_000
    posts = [(key, value) for key, value in rows if key.startswith("p|")]
    assert len(posts) == 3000
    assert all(len(key) == 21 and len(value) == 20 for key, value in posts)
    users, posters = (
        np.concatenate([table.column(name).to_numpy() for table in read_edges(world)])
        for name in ("user", "poster")
    )
    follows = [f"s|u{user:07}|u{poster:07}" for user, poster in zip(users, posters)]
    assert [key for key, _ in rows if key.startswith("s|")] == follows
    assert np.bincount(posters, minlength=5000).tolist() == read_followers(world).tolist()


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_parts_do_not_matter(world, tmp_path, parts):
    manifest = write_world(SPEC, tmp_path, PlainEngine(), parts)
    assert manifest.facts == Manifest.load(world).facts
    assert rows_of(tmp_path) == rows_of(world)


@pytest.mark.parametrize(
    "lost", ["edges/00001.parquet", "followers.parquet", "kv/manifest.json", "kv/p-00000.parquet"]
)
@pytest.mark.parametrize("how", ["gone", "half"])
def test_what_has_gone_is_written_again(tmp_path, lost, how):
    spec = replace(SPEC, users=500, edges=4000, posts=300)
    manifest = write_world(spec, tmp_path, PlainEngine(), 2)
    before = (tmp_path / lost).read_bytes()
    kept = (tmp_path / "edges" / "00000.parquet").stat().st_mtime_ns
    if how == "gone":
        (tmp_path / lost).unlink()
    elif lost.endswith(".parquet"):
        (tmp_path / lost).write_bytes(before[: len(before) // 2])
    assert write_world(spec, tmp_path, PlainEngine(), 2) == manifest
    assert (tmp_path / lost).read_bytes() == before
    assert (tmp_path / "edges" / "00000.parquet").stat().st_mtime_ns == kept


class Interrupted(Exception):
    pass


class BrokenEngine(PlainEngine):
    """Fails at its n-th part, as a machine does."""

    def __init__(self, parts):
        self.left = parts

    def run(self, part, parts, told=lambda done, parts: None):
        def counted(number):
            self.left -= 1
            if self.left < 0:
                raise Interrupted
            return part(number)

        return super().run(counted, parts, told)


def test_a_broken_job_goes_on(world, tmp_path):
    for parts in range(8):
        with pytest.raises(Interrupted):
            write_world(SPEC, tmp_path, BrokenEngine(parts), 4)
        with pytest.raises(BadData, match=r"not finished|does not exist"):
            Manifest.load(tmp_path)
    first = tmp_path / "edges" / "00000.parquet"
    written = first.stat().st_mtime_ns
    write_world(SPEC, tmp_path, PlainEngine(), 4)
    assert first.stat().st_mtime_ns == written
    assert rows_of(tmp_path) == rows_of(world)


def test_what_a_broken_job_of_another_seed_left_is_replaced(world, tmp_path):
    with pytest.raises(Interrupted):
        write_world(replace(SPEC, seed=2), tmp_path, BrokenEngine(4), 4)
    write_world(SPEC, tmp_path, PlainEngine(), 4)
    assert rows_of(tmp_path) == rows_of(world)


def test_another_world_is_not_overwritten(world):
    with pytest.raises(BadData, match="its seed is 1, not 2"):
        write_world(replace(SPEC, seed=2), world, PlainEngine(), 3)


def test_a_trace_on_disk(world, tmp_path):
    spec = trace_spec(world, checks_per_user=9, clients=3)
    manifest = write_trace(spec, world, tmp_path, PlainEngine())
    assert manifest.facts["operations"] == dict(
        zip(("login", "subscribe", "check", "post"), spec.counts)
    )
    for client in range(3):
        expected = operations(spec, read_followers(world), client)
        batches = list(read_client(tmp_path, client))
        for name, column in expected.items():
            found = np.concatenate([batch.column(name).to_numpy() for batch in batches])
            assert found.tolist() == column.tolist()
    assert write_trace(spec, world, tmp_path, BrokenEngine(0)) == manifest
    with pytest.raises(BadData, match="checks_per_user"):
        write_trace(replace(spec, checks_per_user=8), world, tmp_path, PlainEngine())


def test_a_newp_world(tmp_path):
    write_newp(NEWP, tmp_path / "one", PlainEngine(), 1)
    write_newp(NEWP, tmp_path / "four", PlainEngine(), 4)
    rows = rows_of(tmp_path / "one")
    assert rows == rows_of(tmp_path / "four") == sorted(rows)
    tables = {}
    for key, _ in rows:
        table, *slots = key.split("|")
        tables.setdefault(table, []).append(tuple(slots))
    assert {name: len(set(some)) for name, some in tables.items()} == {
        "article": 300,
        "comment": 900,
        "vote": 2000,
    }
    articles = set(tables["article"])
    assert all(slots[:2] in articles for slots in tables["comment"] + tables["vote"])


def test_an_impossible_newp_world_is_refused():
    with pytest.raises(BadRequest, match="too few"):
        NewpSpec(articles=1, users=10, votes=11)
    with pytest.raises(BadRequest):
        NewpSpec(articles=0)


def test_files_are_plain_parquet(world):
    schema = pq.read_schema(world / "kv" / "s-00000.parquet")
    assert schema.names == ["key", "value", "bytes"]
