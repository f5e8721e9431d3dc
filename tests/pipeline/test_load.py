"""Loading: exactly the rows of the manifests, again and again, and if a server dies."""

import asyncio

import pytest

from pequod import AsyncClient, Client, prefix
from pequod.errors import BadData, BadRequest, Unavailable
from pequod.joins.parser import parse
from pequod.keys import EVERYTHING
from pequod.pipeline.files import GROUP, Manifest, read_pairs, table_of, write_rows
from pequod.pipeline.load import load
from pequod.pipeline.materialize import views_spec
from pequod.pipeline.twip import TIMELINE as ONE
from tests.cluster.live import running, write_map
from tests.live import LiveServer
from tests.oracle import expected_pairs

TIMELINE = f"timeline: {ONE} fans: f|<poster>|<user> = copy s|<user>|<poster>;"
BASE = {
    **{
        f"s|u{user:03}|u{(user * 7 + step) % 90:03}": "1" for user in range(90) for step in range(9)
    },
    **{
        f"p|u{user:03}|{user * 3 + time:010}": f"post {user}"
        for user in range(90)
        for time in (1, 2)
    },
    "p|odd|0000000001": b"\xff",
}


def folder_of(folder, rows, spec=None):
    rows = sorted(rows)
    cuts = [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
    files = [
        write_rows(folder, f"{n}.parquet", "", [table_of(some)]) for n, some in enumerate(cuts)
    ]
    Manifest("rows", spec or {}, tuple(files)).save(folder)
    return folder


@pytest.fixture
def base(tmp_path):
    return folder_of(tmp_path / "base", BASE.items())


@pytest.fixture
def views(tmp_path, base):
    rows = [(key, value) for key, value in expected_pairs([TIMELINE], BASE) if key[0] in "ft"]
    spec = views_spec(parse(TIMELINE), base, EVERYTHING)
    return folder_of(tmp_path / "views", rows, spec)


def test_base_and_views(base, views):
    with LiveServer() as live, Client(live.url) as client:
        told = []
        total = Manifest.load(base).rows + Manifest.load(views).rows
        assert load([views, base], live.url, lambda *numbers: told.append(numbers)) == total
        assert told[-1] == (total, total)
        assert client.scan(*prefix("")) == expected_pairs([TIMELINE], BASE)
        ranges = client.explain(*prefix("t|"))["joins"][0]["ranges"]
        assert {one["state"] for one in ranges if one["first"].count("|") == 2} == {"fresh"}
        client.put("p|u007|0000009999", "news")  # the updaters are there
        expected = expected_pairs([TIMELINE], {**BASE, "p|u007|0000009999": "news"})
        assert client.scan(*prefix("")) == expected
        client.remove("p|u007|0000009999")

        puts = client.stats()["server"]["calls"]["put_many"]
        assert load([base, views], live.url) == total
        assert client.stats()["server"]["calls"]["put_many"] == puts  # all of it was there


def test_what_is_missing_or_wrong_is_put(base):
    with LiveServer() as live, Client(live.url) as client:
        load([base], live.url)
        client.put("p|u007|0000000022", "changed")
        client.remove("s|u000|u000")
        load([base], live.url)
        assert client.scan(*prefix("")) == sorted(BASE.items())


@pytest.mark.parametrize("extra", ["p|", "p|u007|extra", "s|u00", "s|zed|ann", "s|~"])
def test_rows_that_are_in_no_manifest_are_told(base, extra):
    with LiveServer() as live, Client(live.url) as client:
        client.put("o|1", "of another table")
        client.put("t|1", "of another table")
        client.put(extra, "?")
        with pytest.raises(BadData, match="other rows than those of the manifest"):
            load([base], live.url)
        client.remove(extra)
        load([base], live.url)


def test_views_over_other_base_rows_are_told(base, views):
    with LiveServer() as live, Client(live.url) as client:
        load([base], live.url)
        client.put("p|u007|0000005555", "new")
        with pytest.raises(BadData, match="has it the same base rows"):
            load([views], live.url)


def test_a_server_that_dies(tmp_path):
    rows = [(f"k|{number:07}", "v") for number in range(3 * GROUP)]
    folder = folder_of(tmp_path / "many", rows)
    with LiveServer() as live, Client(live.url) as client:

        def told(done, total):
            if done == GROUP:
                live.stop()

        with pytest.raises(Unavailable, match=r"of 49,152 rows were loaded: give the same command"):
            load([folder], live.url, told, timeout=0.5)
        live.start()
        client.put_many(rows[: GROUP + 5])  # as if it had kept some
        load([folder], live.url)
        assert client.count(*prefix("k|")) == len(rows)


async def put_manys(client):
    return (await client.stats())["server"]["calls"]["put_many"]


def test_a_cluster(base, views, tmp_path):
    path = write_map(tmp_path / "cluster.toml", homes="ab", computes="xy")

    async def scenario():
        total = Manifest.load(base).rows + Manifest.load(views).rows

        def loaded(*folders):
            return asyncio.to_thread(load, folders, str(path))

        async with running(path, "abxy") as servers, AsyncClient(str(path)) as client:
            assert await loaded(views, base) == total
            # Each timeline is warm at the one server that clients read it from.
            timelines = {key for key, _ in expected_pairs([TIMELINE], BASE) if key[0] == "t"}
            warm = [server.cache.stats()["tables"].get("t") for server in servers.values()]
            assert sum(table["keys"] for table in warm if table) == len(timelines)
            for user in range(0, 90, 10):
                keys = prefix(f"t|u{user:03}|")
                assert await client.scan(*keys) == expected_pairs([TIMELINE], BASE, *keys)
            puts = [await put_manys(client.at(name)) for name in "ab"]
            assert await loaded(base, views) == total
            assert puts == [await put_manys(client.at(name)) for name in "ab"]

            await client.put("p|u007|0000009999", "news")
            await client.remove("s|u000|u000")
            with pytest.raises(BadData, match=r"from 'p\|u007\|' to 'p\|u007}'"):
                await loaded(base)
            await client.remove("p|u007|0000009999")
            assert await loaded(base, views) == total
            await servers["b"].stop()
            with pytest.raises(Unavailable, match="give the same command again"):
                await loaded(base)

    asyncio.run(scenario())


def test_bad_requests(base, tmp_path):
    with pytest.raises(BadRequest, match="no address"):
        load([base], "http://a")
    with pytest.raises(BadData, match="does not exist"):
        load([tmp_path / "nowhere"], "pequod://127.0.0.1:1")
    (base / "1.parquet").write_bytes(b"half")
    with LiveServer() as live, pytest.raises(BadData, match="cannot be read"):
        load([base], live.url)


def test_the_folders_are_as_they_were_made(base):
    assert dict(row for some in read_pairs(base) for row in some) == BASE
