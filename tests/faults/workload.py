"""What workers run instead of training: steps and checkpoints of known length, and where it stands.

``steps`` is the number of reports and ``batch_size`` the milliseconds of a step; the first step and
each checkpoint take three times as long, so that a fault can hit them. ``phase``, beside the
checkpoints, says what is going on.
"""

import contextlib
import os
import time
from pathlib import Path
from typing import Any

from ray import tune

from worker.measurement import Report
from worker.report_journal import ReportJournal
from worker.stop_file import StopFile


def steady(params: dict[str, Any]) -> None:
    """Report a loss per step; go on from the last whole checkpoint."""
    task = params["task"]
    config, folder = task["config"], Path(task["checkpoint_dir"])
    stop = StopFile(folder, task["stopped_by"])
    folder.mkdir(parents=True, exist_ok=True)
    journal = ReportJournal(folder)
    for report in journal.replay():
        tune.report({"report": report.model_dump(mode="json")})
    done = _last_checkpoint(folder)
    for step in range(done + 1, config["steps"] + 1):
        _note(folder, f"step {step}")
        if _wait(config["batch_size"] * (3 if step == 1 else 1), stop):
            return
        report = _report(config, step)
        journal.append(report)
        if step % 2 == 0:
            _note(folder, "checkpoint")
            _checkpoint(folder, step, config["batch_size"])
        tune.report({"report": report.model_dump(mode="json")})


def loss(config: dict[str, Any], step: int) -> float:
    """The same for the same configuration, seed and step, whatever happened on the way."""
    return abs(config["alpha_v"] - 0.05) + config["seed"] / 1000 + 1 / step


def _report(config: dict[str, Any], step: int) -> Report:
    return Report(
        step=step,
        num_steps=config["steps"],
        status="complete" if step == config["steps"] else "running",
        metrics={"validation_error": loss(config, step)},
        provenance={"pid": os.getpid()},
    )


def _wait(milliseconds: float, stop: StopFile) -> bool:
    """Wait; whether a stop was asked for meanwhile."""
    end = time.monotonic() + milliseconds / 1000
    while time.monotonic() < end:
        if stop():
            return True
        time.sleep(0.005)
    return False


def _note(folder: Path, phase: str) -> None:
    with contextlib.suppress(OSError):
        (folder / "phase").write_text(phase)


def _checkpoint(folder: Path, step: int, milliseconds: float) -> None:
    """As training does: slowly, whole or not at all, and a full disk ends no trial."""
    part = folder / "checkpoint.part"
    with contextlib.suppress(OSError):
        with part.open("w") as file:
            for character in f"{step:06d}":
                file.write(character)
                file.flush()
                time.sleep(milliseconds / 2000)
        part.replace(folder / "checkpoint")


def _last_checkpoint(folder: Path) -> int:
    path = folder / "checkpoint"
    return int(path.read_text()) if path.exists() else 0
