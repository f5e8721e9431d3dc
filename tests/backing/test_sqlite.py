"""SQLite: other processes, pruning, servers that fall behind, the command line."""

import asyncio
import sqlite3
import subprocess
import sys
import time

import pytest

from loadgen.servers import start_pequod
from pequod import AsyncClient, SourceDown, prefix
from pequod.backing import sqlite as backing
from pequod.cli.main import main
from tests.backing.worlds import SCHEMA, TIMELINE, posts_of, serving, twip
from tests.server.helpers import until


def test_another_process_is_noticed_soon(lite, run):
    mapping = twip(lite)
    script = (
        "import sqlite3, sys, time\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "for number in range(10):\n"
        "    sys.stdin.readline()\n"
        "    connection.execute('INSERT INTO posts VALUES (?, ?, ?)', ('bob', number, 'x'))\n"
        "    print(time.time(), flush=True)\n"
    )

    async def scenario():
        async with serving(lite, mapping) as server, AsyncClient(server.url) as pq:
            assert await pq.scan(*prefix("p|bob|")) == []
            process = subprocess.Popen(
                [sys.executable, "-c", script, str(lite.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            late = []
            for number in range(10):
                process.stdin.write("\n")
                process.stdin.flush()
                committed = float(process.stdout.readline())
                key = f"p|bob|{number:010}"
                await until(lambda key=key: server.cache.get(key) == "x")
                late.append(time.time() - committed)
            process.stdin.close()
            process.wait()
            process.stdout.close()
            assert sorted(late)[len(late) // 2] < 0.05

    run(scenario())


def test_changes_are_pruned(lite, run, monkeypatch):
    monkeypatch.setattr(backing, "KEPT_CHANGES", 20)
    monkeypatch.setattr(backing, "PRUNE_CHANGES", 10)
    mapping = twip(lite)

    def kept():
        return lite.execute("SELECT count(*) FROM pequod_changes")[0][0]

    async def scenario():
        async with serving(lite, mapping) as server, AsyncClient(server.url) as pq:
            for number in range(200):
                lite.execute("INSERT INTO posts VALUES ('bob', %s, 'x')", number)
                await pq.count(*prefix("p|"), after=lite.token())
            await until(lambda: kept() < 40)
            assert await pq.scan(*prefix("p|")) == posts_of(lite)

    run(scenario())


def test_a_server_that_missed_changes_loads_anew(lite, run):
    mapping = twip(lite)

    async def scenario():
        async with serving(lite, mapping) as server, AsyncClient(server.url) as pq:
            await pq.scan(*prefix("p|"))
            # At once, as if another server had pruned what this one did not see.
            lite.execute("BEGIN")
            for number in range(5):
                lite.execute("INSERT INTO posts VALUES ('bob', %s, 'x')", number)
            lite.execute("DELETE FROM pequod_changes")
            lite.execute("COMMIT")
            await pq.count(*prefix("p|"), after=lite.token())
            assert await pq.scan(*prefix("p|")) == posts_of(lite)

    run(scenario())


async def timeline(pq):
    """Ann's tweets, or None if they cannot be read."""
    try:
        return [value for _, value in await pq.scan(*prefix("t|ann|"))]
    except SourceDown:
        return None


async def becomes(pq, expected):
    async with asyncio.timeout(10):
        while await timeline(pq) != expected:
            await asyncio.sleep(0.005)


def test_altered_tables(lite, run, caplog):
    mapping = twip(lite)
    lite.execute("INSERT INTO subs VALUES ('ann', 'bob')")
    lite.execute("INSERT INTO posts VALUES ('bob', 1, 'one')")

    async def scenario():
        async with serving(lite, mapping) as server, AsyncClient(server.url) as pq:
            assert await timeline(pq) == ["one"]
            lite.execute("ALTER TABLE posts RENAME COLUMN tweet TO text")
            lite.execute("INSERT INTO posts VALUES ('bob', 2, 'two')")
            await becomes(pq, None)  # not the text "tweet", as SQLite has it of unknown names
            with pytest.raises(SourceDown, match="no column tweet; it has poster, time, text"):
                await pq.get("p|bob|0000000001")
            assert await pq.scan(*prefix("s|liz|")) == []  # the other table is served
            lite.execute("ALTER TABLE posts RENAME COLUMN text TO tweet")
            await becomes(pq, ["one", "two"])
            lite.execute("DROP TABLE posts")
            await becomes(pq, None)
            lite.execute(SCHEMA[0])
            lite.execute("INSERT INTO posts VALUES ('bob', 3, 'three')")
            await becomes(pq, ["three"])  # its triggers are made anew
            lite.execute("INSERT INTO posts VALUES ('bob', 4, 'four')")
            await becomes(pq, ["three", "four"])
            lite.execute("ALTER TABLE posts RENAME TO old")
            await becomes(pq, None)
            assert "posts was altered" in caplog.text

    run(scenario())


def test_another_file_of_that_name(lite, run):
    """Gone, and then a backup in its place."""
    mapping = twip(lite)
    lite.execute("INSERT INTO subs VALUES ('ann', 'bob')")
    lite.execute("INSERT INTO posts VALUES ('bob', 1, 'old')")

    async def scenario():
        async with serving(lite, mapping) as server, AsyncClient(server.url) as pq:
            backup = sqlite3.connect(lite.path.with_name("backup.db"))
            lite.connection.backup(backup)
            lite.execute("UPDATE posts SET tweet = 'new'")
            backup.close()
            await becomes(pq, ["new"])
            lite.close()
            for name in ("twip.db", "twip.db-wal", "twip.db-shm"):
                lite.path.with_name(name).unlink(missing_ok=True)
            progress = server._database.progress
            await until(lambda: progress.down_since is not None)
            assert await timeline(pq) == ["new"]
            with pytest.raises(SourceDown, match="No such file"):
                await pq.scan(*prefix("s|liz|"))
            lite.path.with_name("backup.db").rename(lite.path)
            await becomes(pq, ["old"])
            assert progress.down_since is None

    run(scenario())


def test_the_command_line(lite, tmp_path, capsys):
    path = tmp_path / "twip.toml"
    path.write_text(twip(lite))
    assert main(["db", "init", "--db", lite.url, "--tables", str(path)]) == 0
    assert "posts: followed" in capsys.readouterr().out
    lite.execute("INSERT INTO posts VALUES ('bob', 1, 'x')")
    assert lite.execute("PRAGMA journal_mode") == [("wal",)]
    assert main(["db", "status", "--db", lite.url, "--json"]) == 0
    assert '"kept_changes": 1' in capsys.readouterr().out
    assert main(["db", "drop", "--db", lite.url]) == 0
    assert lite.execute("SELECT name FROM sqlite_master WHERE name GLOB 'pequod*'") == []
    assert main(["db", "status", "--db", "sqlite:///nowhere.db"]) == 3


def test_a_server_process_and_the_command_line(lite, tmp_path, capsys):
    """`pequod serve --db`, as in the documentation, and a scan that waits for its token."""
    tables, joins = tmp_path / "twip.toml", tmp_path / "twip.pq"
    tables.write_text(twip(lite))
    joins.write_text(TIMELINE)
    options = ("--db", lite.url, "--tables", str(tables), "--joins", str(joins), "--memory", "2GB")
    with start_pequod(*options) as server:
        url = ["--url", f"pequod://127.0.0.1:{server.port}"]
        lite.execute("INSERT INTO subs VALUES ('ann', 'bob')")
        lite.execute("INSERT INTO posts VALUES ('bob', 100, 'Hi')")
        asked = ["--prefix", "t|ann|", "--after", lite.token()]
        assert main(["scan", *url, *asked]) == 0
        assert capsys.readouterr().out == "t|ann|0000000100|bob\tHi\n"
        assert main(["count", *url, *asked]) == 0
        assert capsys.readouterr().out == "1\n"
        assert main(["put", *url, "p|bob|0000000101", "x"]) == 2
        assert "written around the cache" in capsys.readouterr().err
