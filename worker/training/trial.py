"""Runs one trial as a driver describes it, after replaying the reports of earlier attempts."""

import logging
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any

from worker.checkpoints.report_journal import ReportJournal
from worker.checkpoints.stop_file import StopFile
from worker.config.train_config import TrainConfig
from worker.report import Measurement, Report
from worker.steps.turns import Turn
from worker.training.train import CHECKPOINT_SECONDS, train_in_turns

_LOG = logging.getLogger(__name__)


def trial_reports(
    task: dict[str, Any], stop: Callable[[], bool] | None = None
) -> Generator[Report, None, None]:
    """Run a trial in this process and yield its reports: ``trial_turns`` without the turns."""
    with closing(trial_turns(task, stop)) as turns:
        for item in turns:
            if isinstance(item, Report):
                yield item


def trial_turns(
    task: dict[str, Any], stop: Callable[[], bool] | None = None
) -> Generator[Report | Turn, None, None]:
    """Run a trial and yield its reports, with turns between them.

    ``task`` is the argument of ``worker.tune_trainable``. Optional keys: ``threads``,
    torch's for a run on a CPU (0 = as they are), ``checkpoint_seconds`` between two checkpoints,
    ``stopped_by``, whose requests to stop are obeyed, and ``measurement``. If ``stop`` is given, it
    decides when to stop instead of these requests. An attempt that resumes first yields the reports
    of earlier attempts again. If there is no final report, a stop was requested and the checkpoint
    is kept.
    """
    config = TrainConfig.model_validate({**task["config"], "device": task["device"]})
    measurement = task.get("measurement")
    turns = train_in_turns(
        config,
        data_home=task["data_home"],
        checkpoint_dir=task["checkpoint_dir"],
        checkpoint_seconds=task.get("checkpoint_seconds", CHECKPOINT_SECONDS),
        measurement=Measurement.model_validate(measurement) if measurement else None,
        stop=stop or StopFile(task["checkpoint_dir"], task.get("stopped_by", "")),
        threads=task.get("threads", 0),
    )
    journal = ReportJournal(task["checkpoint_dir"])
    with closing(turns):
        for report in journal.replay():
            yield report
            if report.status != "running":
                return
        for item in turns:
            if isinstance(item, Report):
                _LOG.info(_line(item))
                journal.append(item)
            yield item


def _line(report: Report) -> str:
    shown = ("train_loss", "train_error", "validation_error", "test_error", "images_per_second")
    metrics = "  ".join(
        f"{name} {report.metrics[name]:.5g}" for name in shown if name in report.metrics
    )
    return f"step {report.step}/{report.num_steps}  {report.status}  {metrics}"
