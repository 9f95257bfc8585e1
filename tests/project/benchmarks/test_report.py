"""The benchmark of a report counts every report that it times."""

from pathlib import Path

from benchmarks.sweep.report import measure


def test_every_report_comes_back_from_the_journal(tmp_path: Path) -> None:
    found = measure(tmp_path, num_reports=300, num_metrics=2)

    assert 0 < found["median"] <= found["p99"] <= found["longest"]
    assert 1 <= found["batches"] <= 301
