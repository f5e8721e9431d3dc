"""`pequod pipeline`: the jobs from end to end, as a user gives them."""

import json
import os
import sys

import pytest

from pequod import Client, prefix
from pequod.cli.main import main
from pequod.pipeline.files import Manifest
from pequod.pipeline.twip import TIMELINE
from tests.live import LiveServer


@pytest.fixture
def run(capsys):
    def run(*arguments):
        code = main(["pipeline", *map(str, arguments)])
        found = capsys.readouterr()
        return code, found.out, found.err

    return run


def graph(run, out, *more):
    return run(
        *("graph", "--users", 300, "--edges", 3000, "--posts", 200, "--post-bytes", 9),
        *("--out", out, "--json", *more),
    )


def test_graph_and_trace(run, tmp_path):
    code, said, _ = graph(run, tmp_path / "world", "--partitions", 2)
    assert code == 0
    answer = json.loads(said)
    manifest = json.loads((tmp_path / "world" / "manifest.json").read_text())
    assert answer["edges"] == 3000
    assert answer["digest"] == manifest["digest"]
    graph(run, tmp_path / "other", "--partitions", 5)
    other = json.loads((tmp_path / "other" / "manifest.json").read_text())
    assert other["digest"] == manifest["digest"]
    trace = ("trace", "--world", tmp_path / "world", "--out", tmp_path / "trace")
    code, said, _ = run(*trace, "--checks-per-user", 18, "--json")
    assert json.loads(said)["check"] == 3570
    code, said, _ = run("graph", "--users", 100, "--out", tmp_path / "small", "--plot")
    assert code == 0
    assert "followers as published" in said


def test_newp(run, tmp_path):
    sizes = ("--articles", 30, "--users", 20, "--comments", 50, "--votes", 60)
    code, said, _ = run("newp", *sizes, "--out", tmp_path / "news")
    assert (code, said.split()[-1]) == (0, "140")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("graph", "--users", 1, "--out", "x"), "2 to"),
        (("graph", "--partitions", 0, "--out", "x"), "--partitions is 1 or more"),
        (("graph", "--remote", "http://a", "--out", "x"), "write sc://host:port"),
        (("graph", "--master", "spark://a:b", "--out", "x"), "'b' is no port"),
        (("trace", "--world", "nowhere", "--out", "x"), "nowhere does not exist"),
        (("load", "--from", "nowhere", "--to", "pequod://127.0.0.1:1"), "nowhere does not exist"),
        (("materialize", "--joins", "no.pq", "--base", "x", "--out", "y"), "cannot read no.pq"),
    ],
)
def test_mistakes_are_told(run, tmp_path, monkeypatch, arguments, told):
    monkeypatch.chdir(tmp_path)
    code, _, errors = run(*arguments)
    assert code == 2
    assert told in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["--remote=sc://127.0.0.1:1", "--master=spark://127.0.0.1:1"])
def test_nobody_is_there(run, tmp_path, where):
    code, _, errors = graph(run, tmp_path, where)
    assert code == 3
    told = f"cannot reach Spark at {where.partition('=')[2]}: Connection refused"
    assert json.loads(errors)["error"]["message"] == told


def test_numbers_that_there_are_not(run, tmp_path):
    _, said, _ = graph(run, tmp_path / "world")
    assert json.loads(said)["follower_exponent"] is None  # nobody has a hundred followers
    mix = ("--mix", "5,9,85")
    code, _, errors = run("trace", "--world", tmp_path / "world", "--out", tmp_path / "t", *mix)
    assert code == 2
    assert "--mix is four numbers" in errors


def test_another_seed_is_told(run, tmp_path):
    graph(run, tmp_path)
    before = (tmp_path / "manifest.json").read_bytes()
    code, _, errors = graph(run, tmp_path, "--seed", 2)
    assert code == 2
    assert "its seed is 1, not 2" in errors
    assert (tmp_path / "manifest.json").read_bytes() == before


def test_a_missing_library_is_told(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pequod.pipeline.twip", None)
    monkeypatch.delitem(sys.modules, "pequod.pipeline.twip")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "pequod.pipeline.files", raising=False)
    code, _, errors = graph(run, tmp_path)
    assert code == 2
    assert "pip install 'pequod[spark]'" in errors


def test_materialize_load_and_verify(run, tmp_path, monkeypatch):
    """With the Java of the wheel, as on a machine that has none."""
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    joins, kv, views = tmp_path / "twip.pq", tmp_path / "world" / "kv", tmp_path / "views"
    joins.write_text(TIMELINE)
    graph(run, tmp_path / "world")
    base = ("--joins", joins, "--base", kv)
    small = ("--master", "local[2]", "--memory", "700m", "--partitions", 2)
    code, said, errors = run("materialize", *base, "--out", views, *small, "--json")
    assert code == 0, errors
    rows = Manifest.load(views).rows
    assert json.loads(said)["rows"] == rows > 0
    with LiveServer() as live, Client(live.url) as client:
        code, _, errors = run("load", "--from", kv, "--from", views, "--to", live.url)
        assert code == 0, errors
        check = ("verify", *base, "--views", views, "--prefix", "t|", "--against")
        code, said, errors = run(*check, live.url, *small, "--json")
        assert (code, json.loads(said)["rows"]) == (0, rows), errors
        code, _, errors = run("dump", "--from", live.url, "--prefix", "t|", "--out", tmp_path / "d")
        assert code == 0, errors
        key, _ = client.scan(*prefix("p|"), limit=1)[0]  # nobody posts who has no followers
        client.remove(key)
        code, _, errors = run(*check, live.url, *small)
        assert code == 1
        assert "missing: t|" in errors
        code, _, errors = run(*check, tmp_path / "d", *small)
        assert code == 0, errors
