"""The benchmark of databases runs, and its file has what was agreed."""

import json

from loadgen.__main__ import main


def test_the_file_has_all_ratios(tmp_path, capsys):
    path = tmp_path / "backing.json"
    main(["backing", "--quick", "--json", str(path)])
    report = json.loads(path.read_text())
    assert report["benchmark"] == "backing"
    assert set(report["ratios"]) == {
        "follow_rows_vs_notify",
        "follow_rows_per_second",
        "commit_to_visible_p99_ms",
        "cold_vs_sql",
        "warm_vs_sql",
    }
    assert all(value > 0 for value in report["ratios"].values())
    assert "cold_vs_sql" in capsys.readouterr().out
