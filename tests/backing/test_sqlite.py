"""SQLite: other processes, pruning, servers that fall behind, the command line."""

import subprocess
import sys
import time

from loadgen.servers import start_pequod
from pequod import AsyncClient, prefix
from pequod.backing import sqlite
from pequod.cli.main import main
from tests.backing.worlds import TIMELINE, posts_of, serving, twip
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
    monkeypatch.setattr(sqlite, "KEPT_CHANGES", 20)
    monkeypatch.setattr(sqlite, "PRUNE_CHANGES", 10)
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
