"""Checkpoints written beside the steps of a run, as on a card; here on a CPU."""

import pickle
import sys
import threading

import pytest
import torch

from tests.worker.training.test_resume import strip, variant
from worker import train
from worker.checkpoints import checkpoint
from worker.checkpoints.background_writer import CheckpointWriter
from worker.training.run import Run


@pytest.fixture
def slow_disk(monkeypatch):
    """Writes wait until the disk is let go, at the latest when the test has ended."""
    let_go = threading.Event()
    write = checkpoint._write

    def slow(*args):
        let_go.wait()
        write(*args)

    monkeypatch.setattr(checkpoint, "_write", slow)
    yield let_go
    let_go.set()


def state(step):
    return {"config_key": "k", "step": step, "parts": [torch.full((3,), float(step))], "on": {1: 2}}


def test_what_is_written_is_the_state_of_the_call(tmp_path, slow_disk):
    writer, now = CheckpointWriter(), state(1)

    writer.begin(tmp_path, 1, now)
    now["parts"][0].zero_()
    now["parts"].append("later")
    now["on"][1] = 3
    assert checkpoint.load_newest(tmp_path, "k") is None, "begin must not wait for the disk"
    slow_disk.set()
    writer.close()

    found = checkpoint.load_newest(tmp_path, "k")
    assert found["parts"][0].tolist() == [1.0, 1.0, 1.0]
    assert (len(found["parts"]), found["on"]) == (1, {1: 2})


def test_they_are_written_one_after_the_other(tmp_path, slow_disk):
    writer = CheckpointWriter()
    writer.begin(tmp_path, 1, state(1))
    second = threading.Thread(target=writer.begin, args=(tmp_path, 2, state(2)))
    second.start()
    second.join(0.2)
    assert second.is_alive(), "the second must wait for the first"

    slow_disk.set()
    second.join()
    assert (tmp_path / "step-0000000001.ckpt").exists()
    writer.close()

    assert checkpoint.load_newest(tmp_path, "k")["step"] == 2


def test_what_goes_wrong_is_raised_and_a_full_disk_is_not(tmp_path, monkeypatch, caplog):
    writer = CheckpointWriter()
    (tmp_path / "file").touch()
    writer.begin(tmp_path / "file" / "below", 1, state(1))
    writer.finish()
    assert "training continues without it" in caplog.text

    writer.begin(tmp_path, 1, state(1) | {"parts": lambda: None})
    with pytest.raises((AttributeError, pickle.PicklingError)):
        writer.close()
    writer.close()


@pytest.fixture
def _saves_aside(monkeypatch):
    class Aside(Run):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self._saves_aside = True

    monkeypatch.setattr(sys.modules["worker.training.train"], "Run", Aside)


@pytest.mark.usefixtures("_saves_aside")
@pytest.mark.parametrize("optimizer", ["sgd", "ndadam"])
def test_a_run_goes_on_from_what_was_written_aside(optimizer, data_home, tiny_config, tmp_path):
    config = variant(tiny_config, optimizer=optimizer, report_every=3)
    whole = [strip(report) for report in train(config, data_home=data_home)]
    options = {"data_home": data_home, "checkpoint_dir": tmp_path / "parts"}
    reports = train(config, **options, checkpoint_seconds=0)
    for _ in range(2):
        next(reports)
    reports.close()

    newest = checkpoint._read(max((tmp_path / "parts").glob("*.ckpt")))
    assert newest["step"] == 5
    after = [strip(report) for report in train(config, **options)]
    assert after == whole[1:]


@pytest.mark.usefixtures("_saves_aside")
def test_nothing_is_written_after_the_last_report(data_home, tiny_config, tmp_path):
    reports = train(
        variant(tiny_config), data_home=data_home, checkpoint_dir=tmp_path, checkpoint_seconds=0
    )
    for report in reports:
        if report.status == "complete":
            checkpoint.remove_all(tmp_path)

    assert not [*tmp_path.glob("step-*"), *tmp_path.glob(".checkpoint-*")]
