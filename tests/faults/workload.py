"""What workers run instead of training: steps and checkpoints of known length, and where it stands.

``steps`` is the number of reports and ``batch_size`` the milliseconds of a step; the first step and
each checkpoint take three times as long. ``phase``, beside the checkpoints, says what is going on
and in which process. While a file ``hold`` lies in the home, trials stand still in the phase that
it names, so that a fault can hit it; they hear when they are told to stop.
"""

import contextlib
import os
import time
from pathlib import Path
from typing import Any

from ray import tune

from worker.checkpoints.report_journal import ReportJournal
from worker.checkpoints.stop_file import StopFile
from worker.report import Report


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
        milliseconds = config["batch_size"] * (3 if step == 1 else 1)
        if _wait(milliseconds, stop) or _stands_still(folder, f"step {step}", stop):
            _note(folder, "stopped")
            return
        report = _report(config, step)
        journal.append(report)
        if step % 2 == 0:
            _note(folder, "checkpoint")
            _checkpoint(folder, step, config["batch_size"], stop)
        _note(folder, "reports")
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
        provenance={"pid": os.getpid(), "session": os.getsid(0)},
    )


def _wait(milliseconds: float, stop: StopFile) -> bool:
    """Wait; whether a stop was asked for meanwhile."""
    end = time.monotonic() + milliseconds / 1000
    while time.monotonic() < end:
        if stop():
            return True
        time.sleep(0.005)
    return False


def hold(home: Path, phase: str, first: int) -> None:
    """From now on, let trials from the number ``first`` on stand still in a phase."""
    part = home / "hold.part"
    part.write_text(f"{first} {phase}")
    part.replace(home / "hold")


def release(home: Path) -> None:
    """Let every trial go on."""
    (home / "hold").unlink(missing_ok=True)


def _stands_still(folder: Path, phase: str, stop: StopFile) -> bool:
    """Stand still while that is wanted; whether a stop was asked for meanwhile."""
    while _is_held(folder, phase):
        if stop():
            return True
        time.sleep(0.005)
    return False


def _is_held(folder: Path, phase: str) -> bool:
    try:
        first, _, held = (folder.parents[2] / "hold").read_text().partition(" ")
    except OSError:
        return False
    return phase == held and int(folder.name) >= int(first)


def _note(folder: Path, phase: str) -> None:
    with contextlib.suppress(OSError):
        (folder / "phase").write_text(f"{os.getpid()} {phase}")


def _checkpoint(folder: Path, step: int, milliseconds: float, stop: StopFile) -> None:
    """As training does: slowly, whole or not at all, and a full disk ends no trial."""
    part = folder / "checkpoint.part"
    with contextlib.suppress(OSError):
        with part.open("w") as file:
            for character in f"{step:06d}":
                file.write(character)
                file.flush()
                time.sleep(milliseconds / 2000)
            _stands_still(folder, "checkpoint", stop)
        part.replace(folder / "checkpoint")


def _last_checkpoint(folder: Path) -> int:
    path = folder / "checkpoint"
    return int(path.read_text()) if path.exists() else 0
