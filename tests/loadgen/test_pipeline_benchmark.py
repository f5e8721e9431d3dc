"""The benchmark of the pipeline keeps its contract; its limits are not judged here."""

from tests.loadgen.test_rpc_benchmark import report_of


def test_pipeline(tmp_path):
    report = report_of("pipeline", tmp_path)
    assert report["ratios"].keys() == {
        "load_rows_per_second",
        "materialize_seconds_12m",
        "verify_seconds_12m",
    }
    jobs = ["graph", "trace", "materialize", "load", "load", "verify"]
    assert [result["job"] for result in report["results"]] == jobs
    assert all(result["peak_memory_bytes"] > 0 for result in report["results"])
