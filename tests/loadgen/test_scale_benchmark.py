"""The benchmark of clusters keeps its contract; its limits are not judged here."""

from tests.loadgen.test_rpc_benchmark import report_of


def test_scale(tmp_path):
    report = report_of("scale", tmp_path)
    assert report["ratios"].keys() == {
        "cpu_per_check_2",
        "cpu_per_check_4",
        "subscription_bytes_share_4",
        "memory_duplication_4",
    }
    assert [one["system"] for one in report["results"]] == ["single", "2 computes", "4 computes"]
