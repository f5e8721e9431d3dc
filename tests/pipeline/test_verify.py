"""Verification: every kind of difference is found, down to one key of very many."""

import random

import pytest

from pequod import Client, prefix
from pequod.errors import BadData
from pequod.pipeline.files import Manifest, table_of, write_rows
from pequod.pipeline.verify import FolderHolder, ServerHolder, dump, verify
from tests.live import LiveServer

ROWS = [(f"t|{number:07}", f"value {number}") for number in range(50_000)]


def folder_of(folder, rows, files=3):
    size = max(1, -(-len(rows) // files))
    cuts = [rows[at : at + size] for at in range(0, len(rows), size)]
    facts = [
        write_rows(folder, f"{n}.parquet", "", [table_of(some)]) for n, some in enumerate(cuts)
    ]
    Manifest("rows", {}, tuple(facts)).save(folder)
    return folder


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return folder_of(tmp_path_factory.mktemp("expected"), ROWS)


def test_one_wrong_key_is_found(expected):
    chance = random.Random(1)
    with LiveServer() as live, Client(live.url) as client:
        client.put_many(ROWS)
        holder = ServerHolder(client)
        assert verify(expected, holder, prefix("t|")).good
        for _ in range(3):
            key, value = chance.choice(ROWS)
            client.put(key, value + "!")
            found = verify(expected, holder, prefix("t|"))
            assert (found.counts, found.keys) == (
                {"missing": 0, "extra": 0, "wrong": 1},
                {"wrong": [key]},
            )
            assert found.differing_ranges == 1
            client.put(key, value.encode())  # the same letters, but bytes
            assert verify(expected, holder, prefix("t|")).keys == {"wrong": [key]}
            client.put(key, value)


def test_missing_and_extra_keys_are_found_at_all_ends(expected):
    with LiveServer() as live, Client(live.url) as client:
        client.put_many(ROWS)
        extra = ["t|", "t|0000000x", "t|00300005", "t|~"]
        for key in extra:
            client.put(key, "")
        for key in (ROWS[0][0], ROWS[-1][0], ROWS[16_384][0]):
            client.remove(key)
        client.put("tt|1", "outside")
        found = verify(expected, ServerHolder(client), prefix("t|"))
        assert sorted(found.keys["extra"]) == sorted(extra)
        assert sorted(found.keys["missing"]) == [ROWS[0][0], ROWS[16_384][0], ROWS[-1][0]]
        assert not found.good


def test_an_empty_server_and_no_expected_rows(tmp_path, expected):
    nothing = folder_of(tmp_path / "nothing", [])
    with LiveServer() as live, Client(live.url) as client:
        found = verify(expected, ServerHolder(client), prefix("t|"))
        assert found.counts["missing"] == len(ROWS)
        assert len(found.keys["missing"]) == 20
        assert verify(nothing, ServerHolder(client), prefix("t|")).good
        client.put("t|1", "")
        assert verify(nothing, ServerHolder(client), prefix("t|")).keys == {"extra": ["t|1"]}


def test_far_too_many_rows(tmp_path):
    few = folder_of(tmp_path / "few", ROWS[:10])
    with LiveServer(max_rows=1000) as live, Client(live.url) as client:
        for at in range(0, 5000, 1000):
            client.put_many(ROWS[at : at + 1000])
        found = verify(few, ServerHolder(client), prefix("t|"))
        assert found.counts == {"missing": 0, "extra": 4990, "wrong": 0}


def test_a_dump_is_as_good_as_its_server(tmp_path, expected):
    rows = dict(ROWS)
    del rows["t|0000100"]
    rows["t|0020000"] = b"other"
    with LiveServer() as live, Client(live.url) as client:
        client.put_many(rows)
        dump(client, tmp_path / "dump", prefix("t|"), lambda rows: None)
        with pytest.raises(BadData, match="is there already"):
            dump(client, tmp_path / "dump", prefix("t|"), lambda rows: None)
    found = verify(expected, FolderHolder(tmp_path / "dump"), prefix("t|"))
    assert found.keys == {"missing": ["t|0000100"], "wrong": ["t|0020000"]}
    assert found.differing_ranges == 2
