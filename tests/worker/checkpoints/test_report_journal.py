"""Reports that outlive whoever listened to them."""

import logging
from pathlib import Path

from worker.checkpoints.report_journal import ReportJournal
from worker.report import Report, Series


def report(step: int, **fields) -> Report:
    return Report(step=step, num_steps=30, status="running", metrics={"loss": 1 / step}, **fields)


def test_reports_come_back_as_they_were(tmp_path: Path):
    series = {"effective_lr": Series(start=0, every=1, values=[0.1, 0.2])}
    written = [report(10, series=series), report(20, provenance={"host": "a"})]
    for item in written:
        ReportJournal(tmp_path / "new").append(item)

    assert list(ReportJournal(tmp_path / "new").replay()) == written


def test_without_a_file_there_is_nothing_to_report(tmp_path: Path):
    assert list(ReportJournal(tmp_path).replay()) == []


def test_a_step_that_was_reported_twice_comes_back_once(tmp_path: Path):
    journal = ReportJournal(tmp_path)
    for step in (10, 20, 20, 30):
        journal.append(report(step))

    assert [item.step for item in journal.replay()] == [10, 20, 30]


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path):
    journal = ReportJournal(tmp_path)
    journal.append(report(10))
    with (tmp_path / "reports.jsonl").open("a") as file:
        file.write('{"step": 20, "num_st')
    before = [item.step for item in journal.replay()]
    for step in (20, 30):
        ReportJournal(tmp_path).append(report(step))

    assert before == [10]
    assert [item.step for item in journal.replay()] == [10, 20, 30]


def test_a_disk_that_takes_nothing_stops_no_training(tmp_path: Path, caplog):
    (tmp_path / "full").write_text("a file where the folder should be")

    with caplog.at_level(logging.WARNING):
        ReportJournal(tmp_path / "full").append(report(10))

    assert "the report of step 10 was not written" in caplog.text


def test_a_line_cut_off_inside_a_letter_is_left_out(tmp_path: Path):
    (tmp_path / "reports.jsonl").write_bytes('{"host": "é'.encode()[:-1])
    ReportJournal(tmp_path).append(report(20))

    assert [item.step for item in ReportJournal(tmp_path).replay()] == [20]
