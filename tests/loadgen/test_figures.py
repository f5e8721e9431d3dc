"""A tiny version of each of the paper's experiments, by the command line, and its report."""

import doctest
import json
import math
import shutil

import pytest

from loadgen import compare, document, newp, options, progress, twip_world
from loadgen.replay import clients
from tests.loadgen.test_engine_benchmark import loadgen


def run(folder, *arguments: str) -> dict:
    """Run a benchmark with a plot; its file as it was written."""
    file, plot = folder / f"{arguments[0]}.json", folder / f"{arguments[0]}.png"
    process = loadgen(*arguments, "--quick", "--json", str(file), "--plot", str(plot))
    assert process.returncode == 0, process.stderr
    assert plot.read_bytes().startswith(b"\x89PNG")
    report = json.loads(file.read_text("utf-8"))
    assert list(report)[:4] == ["benchmark", "machine", "results", "ratios"]
    assert report["benchmark"] == arguments[0]
    assert report["command"].startswith(f"python -m loadgen {arguments[0]}")
    assert all(0 <= value < math.inf for value in report["ratios"].values())
    assert report["limits"].keys() == report["ratios"].keys()
    return report


def test_twip(tmp_path):
    report = run(
        tmp_path, "twip", "--users", "150", "--checks", "4", "--systems", "client-pequod,redis"
    )
    expected = {"client_pequod"}
    if shutil.which("redis-server"):
        expected |= {"redis", "server_cpu_vs_redis", "server_memory_vs_redis"}
    assert report["ratios"].keys() == expected
    assert report["facts"]["timelines_compared"] == 150
    for result in report["results"]:
        assert result["p50_milliseconds"] <= result["p99_milliseconds"]
        assert result["server_cpu_microseconds"] > 0
        assert result["server_memory_bytes"] > 1_000_000
    document = tmp_path / "benchmarks.md"
    process = loadgen("report", "--files", str(tmp_path), "--output", str(document))
    assert process.returncode == 0, process.stderr
    text = document.read_text("utf-8")
    assert "| client-pequod |" in text
    assert report["command"] in text
    assert "twip.png" in text
    same = loadgen("compare", str(tmp_path / "twip.json"), str(tmp_path / "twip.json"))
    assert "+0.0%" in same.stdout
    assert "same" in same.stdout


def test_materialization(tmp_path):
    report = run(tmp_path, "materialization", "--users", "60", "--active", "10,50")
    assert {result["strategy"] for result in report["results"]} == {"none", "dynamic", "full"}
    posts = {
        result["operations"] - result["active_percent"] * 60 // 100 * 55
        for result in report["results"]
    }
    assert posts == {33}  # the same everywhere


def test_newp(tmp_path):
    report = run(tmp_path, "newp", "--articles", "200", "--sessions", "60")
    assert report["ratios"].keys() == {"interleaved_gain_at_1", "crossover_vote_rate"}
    ways = {"interleaved", "separate"} | ({"redis"} if shutil.which("redis-server") else set())
    assert {result["way"] for result in report["results"]} == ways


def test_ablations(tmp_path):
    report = run(tmp_path, "ablations", "--users", "300", "--rounds", "1")
    without = [result["without"] for result in report["results"]]
    assert without == ["nothing", "subtables", "output hints", "value sharing"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("twip", "--systems", "oracle"), "there is no system 'oracle'"),
        (("twip", "--world", "somewhere"), "--world and --trace go together"),
        (("twip", "--world", "/nowhere", "--trace", "/nowhere"), "/nowhere does not exist"),
        (("twip", "--parts", "0"), "--parts: a whole number above 0 is wanted, not '0'"),
        (("twip", "--rate", "fast"), "--rate: a number above 0 is wanted, not 'fast'"),
        (("twip", "--plot", "/nowhere/twip.png"), "cannot write /nowhere/twip.png"),
        (("materialization", "--active", "50,1"), "percents from 1 to 100 are wanted, rising"),
        (("compare", "no.json", "no.json"), "is no benchmark file"),
        (("report", "--files", "/nowhere"), "run `python -m loadgen all` first"),
    ],
)
def test_mistakes_are_explained(arguments, told):
    process = loadgen(*arguments)
    assert process.returncode != 0
    assert told in process.stderr


@pytest.mark.parametrize(
    "module", [clients, compare, document, newp, options, progress, twip_world]
)
def test_examples_in_the_modules(module):
    assert doctest.testmod(module).failed == 0
