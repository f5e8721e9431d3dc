"""The engine benchmark keeps its contract; whether its limits are met is not judged here."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RATIOS = {
    "scan_fresh",
    "put_fanout",
    "first_scan",
    "bytes_per_row",
    "growth_scan",
    "growth_put",
    "growth_first",
    "celebrity_per_follower",
    "install_growth",
    "churn_growth",
}


def loadgen(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "loadgen", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A quick run: what it printed, and the report it wrote."""
    file = tmp_path_factory.mktemp("benchmark") / "engine.json"
    process = loadgen("engine", "--quick", "--json", str(file))
    assert process.returncode == 0, process.stderr
    return process, json.loads(file.read_text("utf-8"))


def test_report_has_the_four_parts(run):
    _, report = run
    assert list(report)[:4] == ["benchmark", "machine", "results", "ratios"]
    assert report["benchmark"] == "engine"
    assert {"python", "processor", "cores", "memory_bytes"} <= report["machine"].keys()


def test_ratios_are_complete_and_sane(run):
    _, report = run
    assert report["ratios"].keys() == RATIOS
    assert all(0 < value < math.inf for value in report["ratios"].values())


def test_results_are_flat_and_positive(run):
    _, report = run
    assert {result["side"] for result in report["results"]} == {"pequod", "bare"}
    for result in report["results"]:
        sizes = [result[name] for name in ("microseconds", "resident_bytes") if name in result]
        assert sizes, result
        assert min(sizes) > 0, result


def test_each_job_is_timed_at_three_sizes_on_both_sides(run):
    _, report = run
    for job in ("scan", "scan_anywhere", "put", "first"):
        for side in ("pequod", "bare"):
            for collector in ("off", "on"):
                line = {"job": job, "side": side, "collector": collector}
                found = [result for result in report["results"] if line.items() <= result.items()]
                assert len({result["rows"] for result in found}) == 3, line


def test_table_and_progress_are_printed(run):
    process, _ = run
    names = {line.split()[0] for line in process.stdout.splitlines()[1:]}
    assert names == RATIOS
    assert "building a world of" in process.stderr


def test_help_shows_examples():
    for arguments in (["--help"], ["engine", "--help"]):
        assert "python -m loadgen engine --quick" in loadgen(*arguments).stdout


def test_a_file_that_cannot_be_written_is_refused_at_once(tmp_path):
    process = loadgen("engine", "--json", str(tmp_path / "nowhere" / "engine.json"))
    assert process.returncode == 2
    assert "cannot write" in process.stderr
