"""The report every benchmark hands in: its JSON and its table."""

import doctest
import json

from loadgen import report
from loadgen.report import Findings, Ratio, table, write_json

FINDINGS = Findings([{"job": "scan"}], [Ratio("fine", 1.0, 1.5, ""), Ratio("slow", 2.0, 1.5, "")])


def test_examples_in_the_module():
    assert doctest.testmod(report).failed == 0


def test_table_tells_which_limits_are_exceeded():
    _, fine, slow = table(FINDINGS.ratios).splitlines()
    assert fine.split() == ["fine", "1.00", "1.5", "ok"]
    assert slow.split() == ["slow", "2.00", "1.5", "over"]


def test_json_goes_to_standard_output_or_to_a_file(tmp_path, capsys):
    file = tmp_path / "report.json"
    write_json("some", FINDINGS, str(file))
    write_json("some", FINDINGS, "-")
    for text in (file.read_text("utf-8"), capsys.readouterr().out):
        written = json.loads(text)
        assert written["benchmark"] == "some"
        assert written["results"] == [{"job": "scan"}]
        assert written["ratios"] == {"fine": 1.0, "slow": 2.0}
