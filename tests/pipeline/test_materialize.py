"""Materialized views: the oracle's rows, versions that switch at once, jobs that go on."""

import json

import pytest

from pequod.errors import BadData
from pequod.joins.parser import parse
from pequod.keys import prefix
from pequod.pipeline.files import Manifest, read_pairs, table_of, write_rows
from pequod.pipeline.jobs import PlainEngine
from pequod.pipeline.materialize import materialize
from pequod.pipeline.twip import TIMELINE, TwipSpec, write_world
from tests.oracle import expected_pairs

FANS = "f|<poster>|<user> = copy s|<user>|<poster>;"


def rows_of(folder):
    return [row for some in read_pairs(folder) for row in some]


def folder_of(folder, rows):
    facts = write_rows(folder, "a.parquet", "", [table_of(sorted(rows.items()))])
    Manifest("rows", {}, (facts,)).save(folder)
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    write_world(TwipSpec(users=200, edges=3000, posts=300, post_bytes=5), folder, PlainEngine(), 2)
    return folder / "kv"


def test_versions_and_resuming(spark, base, tmp_path):
    out = tmp_path / "views"
    told = []
    manifest = materialize(
        spark, parse(TIMELINE), base, out, partitions=4, told=lambda *n: told.append(n)
    )
    expected = expected_pairs([TIMELINE], dict(rows_of(base)), "t|", "t}")
    assert rows_of(out) == expected
    assert 2 <= len(manifest.files) <= 4
    assert manifest.rows == len(expected)
    assert told[-1] == (4, 4)

    # What is done is not done again: no Spark is needed to see it.
    assert materialize(None, parse(TIMELINE), base, out, prefix("t|"), partitions=4) == manifest

    # What has gone, or was not written when a job broke off, is written again; no more than that.
    kept, lost = (out / file.name for file in manifest.files[:2])
    lost.unlink()
    written = kept.stat().st_mtime_ns
    assert materialize(spark, parse(TIMELINE), base, out, partitions=4) == manifest
    assert kept.stat().st_mtime_ns == written
    assert rows_of(out) == expected

    # Other joins are another version; the old one is there until the new one is whole.
    [old] = out.glob("v-*")
    fans = materialize(spark, parse(FANS), base, out, partitions=2)
    assert rows_of(out) == expected_pairs([FANS], dict(rows_of(base)), "f|", "f}")
    assert fans.spec["joins"] != manifest.spec["joins"]
    assert not old.exists()


def test_a_refused_job_leaves_the_old_version(spark, base, tmp_path):
    out = tmp_path / "views"
    before = materialize(spark, parse(FANS), base, out, partitions=1)
    wrong = folder_of(tmp_path / "wrong", {"f|x|y": "", "s|a|b": "1"})
    with pytest.raises(BadData, match="which f"):
        materialize(spark, parse(FANS), wrong, out)
    assert Manifest.load(out) == before
    assert rows_of(out)


def test_nothing_to_join_is_told(spark, base, tmp_path):
    manifest = materialize(spark, parse("a|<x> = copy b|<x>"), base, tmp_path)
    assert manifest.files == ()
    assert manifest.facts["warnings"] == ["no key of the base data matches copy b|<x>"]


def test_broken_base_folders_are_told(tmp_path):
    with pytest.raises(BadData, match="does not exist"):
        materialize(None, parse(FANS), tmp_path / "nowhere", tmp_path / "out")
    half = folder_of(tmp_path / "half", {"s|a|b": "1"})
    (half / "a.parquet").unlink()
    with pytest.raises(BadData, match=r"a\.parquet is missing"):
        materialize(None, parse(FANS), half, tmp_path / "out")
    (half / "manifest.json").write_text(json.dumps({"kind": "rows"}))
    with pytest.raises(BadData, match="no manifest"):
        materialize(None, parse(FANS), half, tmp_path / "out")
