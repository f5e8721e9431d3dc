"""The benchmarks of the server keep their contract; their limits are not judged here."""

import json
import math
import shutil

import pytest

from tests.loadgen.test_engine_benchmark import loadgen


def report_of(benchmark: str, folder) -> dict:
    file = folder / f"{benchmark}.json"
    process = loadgen(benchmark, "--quick", "--json", str(file))
    assert process.returncode == 0, process.stderr
    report = json.loads(file.read_text("utf-8"))
    assert list(report)[:4] == ["benchmark", "machine", "results", "ratios"]
    assert report["benchmark"] == benchmark
    assert all(0 < value < math.inf for value in report["ratios"].values())
    return report


def test_rpc(tmp_path):
    report = report_of("rpc", tmp_path)
    expected = {"http_vs_bare_aiohttp"}
    if shutil.which("redis-server"):
        pytest.importorskip("redis")
        expected |= {
            "cpu_vs_redis_1",
            "cpu_vs_redis_16",
            "async100_vs_redis_py",
            "sync1_vs_redis_py",
        }
    assert report["ratios"].keys() == expected
    latencies = [result for result in report["results"] if "p99_microseconds" in result]
    assert latencies
    assert all(one["p50_microseconds"] <= one["p99_microseconds"] for one in latencies)


def test_without_redis_it_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    process = loadgen("rpc", "--quick")
    assert process.returncode == 0, process.stderr
    assert "apt-get install redis-server" in process.stderr
    assert "http_vs_bare_aiohttp" in process.stdout


def test_pauses(tmp_path):
    report = report_of("pauses", tmp_path)
    assert report["ratios"].keys() == {"gc_pause"}
    assert report["results"][0]["rows"] > 10_000
