"""Lets Ray Tune run ``train``. The only file of the worker that imports ray.

Ray runs a Tune function in a thread of an actor and, with ``reuse_actors``, one after another in
the same process: the data set stays loaded, and whatever a trial changed must be put back.
"""

import logging
import math
import os
import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import torch
from ray import tune
from ray.tune import get_context

from worker.config import TrainConfig
from worker.measurement import Measurement, Report
from worker.report_journal import ReportJournal
from worker.stop_file import StopFile
from worker.train import train

#: What Tune's strict check and schedulers see when a report has no finite objective.
WORST = 1e9


def trainable(params: dict[str, Any]) -> None:
    """Run one trial and report to Tune.

    ``params["task"]`` holds ``config`` (a stored config), ``device``, ``measurement`` (or None),
    ``checkpoint_dir``, ``data_home``, ``log_path``, and optionally ``objective`` ({"metric",
    "direction"}; default: the smallest validation_error). Each report is
    ``{"report": Report as JSON values, "objective": a finite number}``. The function returns
    without a final report when a stop was requested (``worker.stop_file``); its checkpoint stands.
    An attempt that goes on where another ended first reports again what that one did
    (``worker.report_journal``).
    """
    task = params["task"]
    with _log_to(Path(task["log_path"])) as log:
        _use_trial_threads()
        measurement = task.get("measurement")
        try:
            config = TrainConfig.model_validate({**task["config"], "device": task["device"]})
            reports = train(
                config,
                data_home=task["data_home"],
                checkpoint_dir=task["checkpoint_dir"],
                measurement=Measurement.model_validate(measurement) if measurement else None,
                stop=StopFile(task["checkpoint_dir"]),
            )
            journal = ReportJournal(task["checkpoint_dir"])
            with closing(reports):
                for report in journal.replay():
                    _send(report, task)
                    if report.status != "running":
                        return
                for report in reports:
                    log.info(_line(report))
                    journal.append(report)
                    _send(report, task)
        except Exception:
            log.error("%s", traceback.format_exc())
            raise


def _send(report: Report, task: dict[str, Any]) -> None:
    objective = _objective(report, task.get("objective"))
    tune.report({"report": report.model_dump(mode="json"), "objective": objective})


def _use_trial_threads() -> None:
    """One torch thread per CPU of the trial: two trials on two cores then share nothing."""
    resources = get_context().get_trial_resources()
    cpus = resources.required_resources.get("CPU", 1.0) if resources else 1.0
    torch.set_num_threads(max(1, int(cpus)))


def _objective(report: Report, objective: dict[str, str] | None) -> float:
    wanted = objective or {"metric": "validation_error", "direction": "minimize"}
    worst = -WORST if wanted["direction"].startswith("max") else WORST
    value = report.metrics.get(wanted["metric"], worst)
    return value if report.status != "diverged" and math.isfinite(value) else worst


def _line(report: Report) -> str:
    shown = ("train_loss", "train_error", "validation_error", "test_error", "images_per_second")
    metrics = "  ".join(
        f"{name} {report.metrics[name]:.5g}" for name in shown if name in report.metrics
    )
    return f"step {report.step}/{report.num_steps}  {report.status}  {metrics}"


@contextmanager
def _log_to(path: Path) -> Iterator[logging.Logger]:
    """The worker's log in a file of this trial's own, appended to by every attempt."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log = logging.getLogger("worker")
    level, propagate = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        log.info("attempt starts in process %d", os.getpid())
        yield log
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagate
        handler.close()
