"""Folders that a training function writes: whole or absent, the older one kept."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from worker.checkpoints.report_journal import ReportJournal
from worker.checkpoints.saved_folders import SavedFolders
from worker.errors import CheckpointError
from worker.training.handle import Run


def text(content: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "state").write_text(content)


def saved(root: Path, key: str = "k") -> str | None:
    found = SavedFolders(root, key).newest()
    return None if found is None else (found / "state").read_text()


def test_the_newest_of_two_folders_comes_back(tmp_path: Path) -> None:
    folders = SavedFolders(tmp_path, "k")
    for step in range(1, 13):
        folders.save(step, text(str(step)))

    assert saved(tmp_path) == "12"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["saved-000011", "saved-000012"]


def test_without_a_folder_the_run_begins(tmp_path: Path) -> None:
    assert saved(tmp_path / "new") is None


def test_a_folder_whose_files_changed_is_skipped_and_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folders = SavedFolders(tmp_path, "k")
    folders.save(1, text("one"))
    (folders.save(2, text("two")) / "state").write_text("tw")

    with caplog.at_level(logging.WARNING):
        assert saved(tmp_path) == "one"
    assert "its files are not those that were written" in caplog.text
    assert (tmp_path / "saved-000002.damaged").exists()


def test_no_whole_folder_is_an_error(tmp_path: Path) -> None:
    (SavedFolders(tmp_path, "k").save(1, text("one")) / "state").unlink()

    with pytest.raises(CheckpointError, match=r"none of the 1 checkpoints .* is whole"):
        saved(tmp_path)


def test_a_folder_of_another_config_is_an_error(tmp_path: Path) -> None:
    SavedFolders(tmp_path, "k").save(1, text("one"))

    with pytest.raises(CheckpointError, match="belongs to another config"):
        saved(tmp_path, "other")


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".saving-123").mkdir()

    assert saved(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


# --- Through the handle -----------------------------------------------------------------------


def handle(folder: Path, seconds: float, stop: Callable[[], bool] = lambda: False) -> Run:
    return Run(
        seed=0,
        device="cpu",
        folder=folder,
        config_key="k",
        journal=ReportJournal(folder),
        stop=stop,
        send=lambda report: None,
        checkpoint_seconds=seconds,
    )


def test_a_checkpoint_is_written_when_it_is_due(tmp_path: Path) -> None:
    assert not handle(tmp_path, seconds=30).checkpoint(text("a"))
    assert handle(tmp_path, seconds=0).checkpoint(text("a"))
    assert handle(tmp_path, seconds=30, stop=lambda: True).checkpoint(text("b"))
    assert (handle(tmp_path, seconds=0).restore() or tmp_path).name == "saved-000002"


def test_a_checkpoint_that_fails_halfway_leaves_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(folder: Path) -> None:
        (folder / "state").write_text("half")
        raise RuntimeError("no space in my format")

    run = handle(tmp_path, seconds=0)
    run.checkpoint(text("whole"))
    with caplog.at_level(logging.WARNING):
        assert [run.checkpoint(fails) for _ in range(3)] == [False] * 3

    assert caplog.text.count("no checkpoint was written (RuntimeError: no space in my format)") == 1
    assert saved(tmp_path, "k seed 0") == "whole"
    assert len(list(tmp_path.iterdir())) == 1
