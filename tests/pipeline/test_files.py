"""Folders with manifests: rows come back, digests agree, and what is broken is told."""

import json
import random
from dataclasses import replace

import pytest

from pequod.digests import ROWS, RowsDigest
from pequod.errors import BadData
from pequod.pipeline.files import (
    FileFacts,
    Manifest,
    finished,
    read_pairs,
    read_rows,
    rows_digest,
    table_of,
    write_rows,
)


def random_rows(seed, count, texts_only=False):
    chance = random.Random(seed)
    letters = "ab|0é€\U0001f40b"
    keys = {"".join(chance.choices(letters, k=chance.randint(1, 12))) for _ in range(count * 2)}
    values = [lambda: "".join(chance.choices(letters, k=chance.randint(0, 9)))]
    if not texts_only:
        values.append(lambda: chance.randbytes(chance.randint(0, 9)))
    return [(key, chance.choice(values)()) for key in sorted(keys)[:count]]


@pytest.mark.parametrize("count", [0, 1, 2, ROWS - 1, ROWS, ROWS + 1, 3 * ROWS + 5])
@pytest.mark.parametrize("texts_only", [True, False])
def test_rows_come_back_and_digests_agree(tmp_path, count, texts_only):
    rows = random_rows(count, count, texts_only)
    chance = random.Random(count)
    tables, lists, at = [], RowsDigest(), 0
    while at < len(rows):
        step = chance.randint(1, 3000)
        tables.append(table_of(rows[at : at + step]))
        lists.add(rows[at : at + step])
        at += step
    facts = write_rows(tmp_path, "a.parquet", "job", tables)
    assert facts.digest == lists.hexdigest() == rows_digest(tables)
    assert facts.rows == len(rows)
    if rows:
        assert (facts.first, facts.last) == (rows[0][0], rows[-1][0])
    Manifest("rows", {}, (facts,)).save(tmp_path)
    assert [row for some in read_pairs(tmp_path) for row in some] == rows


def test_every_difference_changes_the_digest():
    rows = [("a", "1"), ("b", "2"), ("c", b"3"), ("d", "")]
    others = [
        rows[:3],
        [("a", "1"), ("b", "2"), ("c", "3"), ("d", "")],
        [("a", "12"), ("b", ""), ("c", b"3"), ("d", "")],
        [("ab", "1"), ("b", "2"), ("c", b"3"), ("d", "")],
        [("a", "1"), ("b", "2"), ("c", b"3"), ("d", b"")],
    ]
    assert len({rows_digest([table_of(some)]) for some in [rows, *others]}) == 6


def test_keys_out_of_order_are_refused(tmp_path):
    for rows in ([("b", ""), ("a", "")], [("a", ""), ("a", "")]):
        with pytest.raises(BadData, match="strict key order"):
            write_rows(tmp_path, "a.parquet", "job", [table_of(rows)])
        with pytest.raises(BadData, match="strict key order"):
            write_rows(tmp_path, "a.parquet", "job", [table_of([row]) for row in rows])
    assert list(tmp_path.iterdir()) == []  # nothing half written stays


def test_a_finished_file_is_not_written_again(tmp_path):
    facts = write_rows(tmp_path, "a.parquet", "job", [table_of([("a", "1")])])

    def untouched():
        raise AssertionError("the rows were asked for again")
        yield

    assert write_rows(tmp_path, "a.parquet", "job", untouched()) == facts
    assert finished(tmp_path / "a.parquet", "another job") is None
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and then the disk was full")
    assert finished(tmp_path / "a.parquet", "job") is None


def test_manifests_tell_what_is_wrong(tmp_path):
    with pytest.raises(BadData, match="does not exist"):
        Manifest.load(tmp_path / "nowhere")
    with pytest.raises(BadData, match="is not finished"):
        Manifest.load(tmp_path)
    manifest = Manifest("rows", {"seed": 1}, (write_rows(tmp_path, "a.parquet", "", []),))
    manifest.save(tmp_path)
    assert Manifest.load(tmp_path) == manifest
    assert Manifest.done(tmp_path, "rows", {"seed": 1}) == manifest
    (tmp_path / "a.parquet").unlink()
    assert Manifest.done(tmp_path, "rows", {"seed": 1}) is None  # to be written again
    assert Manifest.done(tmp_path / "b", "rows", {"seed": 1}) is None
    with pytest.raises(BadData, match="its seed is 1, not 2"):
        Manifest.done(tmp_path, "rows", {"seed": 2})
    with pytest.raises(BadData, match="holds rows, and trace or twip is needed"):
        Manifest.load(tmp_path, "trace", "twip")
    with pytest.raises(BadData, match=r"a\.parquet cannot be read"):
        list(read_rows(tmp_path, manifest.files[0]))
    sent = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps({**sent, "format": 9}))
    with pytest.raises(BadData, match="has format 9"):
        Manifest.load(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(BadData, match="is no manifest"):
        Manifest.load(tmp_path)
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(BadData, match="is no manifest"):
        Manifest.load(tmp_path)


def test_rows_are_the_sum_of_the_files():
    file = FileFacts("a", 3, "a", "b", "0")
    assert Manifest("rows", {}, (file, replace(file, rows=4))).rows == 7
