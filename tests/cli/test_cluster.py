"""`pequod cluster`: a map is checked, a cluster runs, its status is shown, and its map changes."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import time

import pytest

from pequod import AsyncClient, prefix
from pequod.cli import main
from tests.cluster.live import JOINS, write_map

SECONDS = 60.0


def test_check(tmp_path, capsys):
    path = write_map(tmp_path / "cluster.toml")
    assert main(["cluster", "check", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "p|<poster>|<time:10> by hash of <poster>: a, b, c" in shown
    assert "[s|, s|h): a" in shown
    for arguments in (["cluster", "check", "--json"], ["--json", "cluster", "check"]):
        assert main([*arguments, str(path)]) == 0
        assert json.loads(capsys.readouterr().out)["homes"] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('["s}", "c"]', '["s|z", "c"]', "a gap"),
        ('"a", "b", "c"]', '"a", "b", "z"]', "no node"),
        ("[nodes]", "[nodes", "not TOML"),
        ("pequod://", "gopher://", "no address"),
    ],
)
def test_check_says_what_is_wrong(tmp_path, capsys, old, new, said):
    path = write_map(tmp_path / "cluster.toml")
    path.write_text(path.read_text().replace(old, new))
    assert main(["cluster", "check", str(path)]) == 2
    assert said in capsys.readouterr().err


def test_status_of_nobody(tmp_path, capsys):
    path = write_map(tmp_path / "cluster.toml", homes="ab")
    assert main(["cluster", "status", str(path), "--timeout", "1"]) == 3
    assert "cannot reach" in capsys.readouterr().out


def test_up_status_and_apply(tmp_path, capsys):
    (tmp_path / "joins.pq").write_text(JOINS)
    command = [sys.executable, "-m", "pequod", "cluster", "up", "-n", "2", "--port", "0"]
    command += ["--joins", str(tmp_path / "joins.pq"), "--directory", str(tmp_path / "cluster")]
    path = tmp_path / "cluster" / "cluster.toml"
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if "Ctrl-C" in line:
                    break
            asyncio.run(use(path))
            end = time.monotonic() + SECONDS
            while "lost" in (shown := status(path, capsys)) or "live" not in shown:
                assert time.monotonic() < end, shown
            assert re.search(r"^a +home ", shown, re.MULTILINE)
            moved = tmp_path / "new.toml"
            moved.write_text(path.read_text().replace('["a", "b"]', '["b"]'))
            assert main(["cluster", "apply", str(moved), "--json"]) == 0
            assert path.read_text() == moved.read_text()
            asyncio.run(use(path))
            assert re.search(r"^a +computes ", status(path, capsys), re.MULTILINE)
        finally:
            process.send_signal(signal.SIGINT)
    assert process.returncode == 0


def status(path, capsys) -> str:
    capsys.readouterr()
    main(["cluster", "status", str(path)])
    return capsys.readouterr().out


async def use(path) -> None:
    async with AsyncClient(str(path), timeout=SECONDS) as pq:
        session = pq.session()
        await session.put_many({"s|ann|bob": "1", "p|bob|0000000001": "hello"})
        assert await session.scan(*prefix("t|ann|")) == [("t|ann|0000000001|bob", "hello")]
