"""Stop and go on at any step: bit for bit the run that never stopped."""

import errno
import io
import itertools
import logging
import os
import re
import sys

import pytest
import torch

from tests.worker.conftest import made_up_arrays
from worker import Measurement, TrainConfig, train
from worker.checkpoints import checkpoint
from worker.checkpoints.stop_file import StopFile, request_stop, withdraw_stop
from worker.data.prepared import write_dataset
from worker.errors import CheckpointError
from worker.training.run import Run

WINDOW = Measurement(start=2, per_layer=True, shadow_betas=(0.9, 0.99))


def variant(config, **fields):
    base = config.model_dump(exclude_unset=True)
    if fields.get("optimizer", "ndadam") != "ndadam":
        base.pop("alpha_s")
    return TrainConfig.model_validate(base | {"batch_size": 16, "steps": 15} | fields)


VARIANTS = {
    "ndadam": {"gamma_c": 2.5, "test_evaluation": "curve"},
    "ndadam, following a curve": {"follow": ((0, 0.005), (8, 0.02), (14, 0.01))},
    "sgd, edge, kept batch": {"optimizer": "sgd", "recipe": "paper-wrn", "last_batch": "keep"},
    "adam, own reports": {"optimizer": "adam", "report_every": 6, "lambda_c": 0.01},
    "adamw, bf16": {"optimizer": "adamw", "precision": "bf16"},
}


def stop_after(calls):
    """Say stop at the given question: before a step, or between batches of an evaluation."""
    counter = itertools.count()
    return lambda: next(counter) >= calls


def strip(report):
    metrics = {n: v for n, v in report.metrics.items() if n != "images_per_second"}
    return report.model_copy(update={"metrics": metrics, "provenance": {}})


def run(config, home, folder, stop=None, seconds=1e9):
    reports = train(
        config,
        data_home=home,
        checkpoint_dir=folder,
        checkpoint_seconds=seconds,
        measurement=WINDOW,
        stop=stop,
    )
    return [strip(report) for report in reports]


@pytest.fixture
def runs(monkeypatch):
    """Every ``Run`` that ``train`` makes, in order."""
    made = []

    class Remembered(Run):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            made.append(self)

    # ``worker.train`` is the function; the module of that name is only found here.
    monkeypatch.setattr(sys.modules["worker.training.train"], "Run", Remembered)
    return made


@pytest.fixture(scope="module")
def never_stopped():
    """Reports and state of the runs that never stopped, by variant."""
    return {}


def state_of(run):
    optimizer = run.optimizer.state_dict()
    return {
        "step": run.step,
        "model": run.model.state_dict(),
        "optimizer": optimizer["state"],
        "rates": [group["lr"] for group in optimizer["param_groups"]],
        "dynamics": run.dynamics.state(),
    }


def assert_bitwise(a, b, path="state"):
    if isinstance(a, torch.Tensor):
        assert torch.equal(a, b), path
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for key in a:
            assert_bitwise(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), path
        for index, pair in enumerate(zip(a, b, strict=True)):
            assert_bitwise(*pair, f"{path}[{index}]")
    else:
        assert a == b, path


# Questions are asked before every step and between batches of an evaluation, so that these stop
# before the first step, in the middle of an epoch, inside an evaluation and right after a report.
@pytest.mark.parametrize("calls", [0, 3, 5, 6, 12])
@pytest.mark.parametrize("name", VARIANTS)
def test_stopping_and_going_on_equals_never_having_stopped(
    name, calls, data_home, tiny_config, tmp_path, runs, never_stopped
):
    config = variant(tiny_config, **VARIANTS[name])
    if name not in never_stopped:
        never_stopped[name] = run(config, data_home, tmp_path / "whole"), state_of(runs.pop())
    whole, state = never_stopped[name]

    before = run(config, data_home, tmp_path / "parts", stop_after(calls))
    after = run(config, data_home, tmp_path / "parts")

    assert len(runs) == 2
    assert after[-1].status == "complete"
    assert before + after == whole
    assert_bitwise(state, state_of(runs[1]))


def test_stopping_at_every_single_step_changes_nothing(data_home, tiny_config, tmp_path, runs):
    config = variant(tiny_config)
    whole = run(config, data_home, tmp_path / "whole")

    parts = []
    while not parts or parts[-1].status == "running":
        # Two questions: an attempt takes at most two steps, fewer where a report is due.
        parts += run(config, data_home, tmp_path / "parts", stop_after(2))

    assert len(runs) > config.steps / 2
    assert parts == whole
    assert_bitwise(state_of(runs[0]), state_of(runs[-1]))


def test_a_run_killed_between_checkpoints_goes_on_from_the_last(data_home, tiny_config, tmp_path):
    """The generator is dropped, as by a kill; reports since the checkpoint come again, equal."""
    config = variant(tiny_config, report_every=3)
    whole = run(config, data_home, tmp_path / "whole")
    reports = train(
        config,
        data_home=data_home,
        checkpoint_dir=tmp_path / "parts",
        checkpoint_seconds=0,
        measurement=WINDOW,
    )
    seen = [strip(next(reports)) for _ in range(2)]
    reports.close()

    after = run(config, data_home, tmp_path / "parts")

    assert seen == whole[:2]
    assert after == whole[-len(after) :]
    assert after[0].step <= 6


def test_a_truncated_newest_checkpoint_costs_one_step_and_no_bit(
    data_home, tiny_config, tmp_path, caplog
):
    config = variant(tiny_config)
    whole = run(config, data_home, tmp_path / "whole")
    run(config, data_home, tmp_path / "parts", stop_after(9), seconds=0)
    newest = max((tmp_path / "parts").glob("*.ckpt"))
    newest.write_bytes(newest.read_bytes()[:-10])

    with caplog.at_level(logging.WARNING, "worker"):
        after = run(config, data_home, tmp_path / "parts")

    assert "skipping checkpoint" in caplog.text
    assert after == whole[-len(after) :]


def test_a_full_disk_never_stops_training(data_home, tiny_config, tmp_path, monkeypatch, caplog):
    config = variant(tiny_config)
    whole = run(config, data_home, tmp_path / "whole")

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with caplog.at_level(logging.WARNING, "worker"):
        reports = run(config, data_home, tmp_path / "full", seconds=0)

    assert reports == whole
    assert "training continues" in caplog.text
    assert list((tmp_path / "full").iterdir()) == []


def test_a_checkpoint_of_another_run_is_refused(data_home, tiny_config, tmp_path):
    run(variant(tiny_config), data_home, tmp_path, stop_after(3))

    with pytest.raises(CheckpointError, match="belongs to another config"):
        run(variant(tiny_config, seed=1), data_home, tmp_path)


def test_a_checkpoint_of_other_images_under_the_same_name_is_refused(tiny_config, tmp_path):
    home, folder = tmp_path / "data", tmp_path / "run"
    write_dataset("colours", home, made_up_arrays(), classes=tuple("abcd"), source="made up")
    run(variant(tiny_config), home, folder, stop_after(3))
    other = made_up_arrays(seed=1)
    write_dataset("colours", home, other, classes=tuple("abcd"), source="made up again")

    with pytest.raises(CheckpointError, match="belongs to another config or other images"):
        run(variant(tiny_config), home, folder)


def test_a_checkpoint_that_names_no_images_goes_on_in_the_same_bits_with_a_warning(
    data_home, tiny_config, tmp_path, caplog
):
    """As it was written before checkpoints named their images: an upgrade loses no progress."""
    config, folder = variant(tiny_config), tmp_path / "parts"
    whole = run(config, data_home, tmp_path / "whole")
    run(config, data_home, folder, stop_after(9))
    newest = max(folder.glob("*.ckpt"))
    state = torch.load(io.BytesIO(newest.read_bytes()[40:]), weights_only=True)
    older = re.sub(r" on [0-9a-f]{16} ", " ", state["config_key"])
    checkpoint.save(folder, state["step"], state | {"config_key": older})

    with caplog.at_level(logging.WARNING, "worker"):
        after = run(config, data_home, folder)

    assert older != state["config_key"]
    assert "which did not record the images" in caplog.text
    assert after == whole[-len(after) :]
    with pytest.raises(CheckpointError, match="delete the checkpoints to start from step 0"):
        run(variant(tiny_config, seed=1), data_home, folder)


def test_a_stop_file_ends_a_run_with_a_checkpoint(data_home, tiny_config, tmp_path):
    request_stop(tmp_path)
    assert run(variant(tiny_config), data_home, tmp_path, StopFile(tmp_path)) == []
    assert len(list(tmp_path.glob("*.ckpt"))) == 1

    withdraw_stop(tmp_path)
    assert (
        run(variant(tiny_config), data_home, tmp_path, StopFile(tmp_path))[-1].status == "complete"
    )
