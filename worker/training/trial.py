"""Runs one trial as a driver describes it, after replaying the reports of earlier attempts.

Imports no torch: a training of one's own may do without.
"""

import inspect
import logging
import math
import time
from collections.abc import Callable, Generator
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worker.checkpoints.report_journal import ReportJournal
from worker.checkpoints.stop_file import StopFile
from worker.config.declared_config import DeclaredConfig
from worker.config.parts import check_part_packages
from worker.config.train_config import TrainConfig
from worker.config.training import IMAGES, Training, check_package, load_training
from worker.config.trial_config import TrialConfig
from worker.report import Measurement, Report
from worker.training.handle import CHECKPOINT_SECONDS, Run
from worker.training.in_thread import BATCH, SILENCE, Reports
from worker.training.provenance import function_provenance, origin
from worker.training.usage import with_usage

if TYPE_CHECKING:
    from worker.steps.turns import Turn

_LOG = logging.getLogger(__name__)

#: Seconds between two lines about reports in the log of a function that reports often.
_LINE_SECONDS = 1.0


def trial_reports(
    task: dict[str, Any], stop: Callable[[], bool] | None = None
) -> Generator[Report, None, None]:
    """Run a trial in this process and yield its reports: ``trial_turns`` without the turns."""
    with closing(trial_batches(task, stop)) as batches:
        for batch in batches:
            yield from batch


def trial_batches(
    task: dict[str, Any], stop: Callable[[], bool] | None = None
) -> Generator[list[Report], None, None]:
    """Run a trial in this process and yield its reports: those together that came together.

    A batch may be empty: the training has been silent for a while since the one before.
    """
    with closing(_items(task, stop)) as items:
        for item in items:
            if isinstance(item, list):
                yield item


def trial_turns(
    task: dict[str, Any], stop: Callable[[], bool] | None = None
) -> Generator["Report | Turn", None, None]:
    """Run a trial and yield its reports, with turns between them if its training takes turns.

    ``task`` is the argument of ``worker.tune_trainable``. Optional keys: ``training`` (images),
    ``package`` that it must come from, ``parts``, where its parts must come from, ``objective``,
    ``objectives``, ``threads``, torch's for a run on a CPU (0 = as they are),
    ``checkpoint_seconds`` between two checkpoints, ``stopped_by``, whose requests to stop are
    obeyed, and ``measurement``. If ``stop`` is given, it decides when to stop instead of these
    requests. An attempt that resumes first yields the reports of earlier attempts again. If there
    is no final report, a stop was requested and the checkpoint is kept.
    """
    with closing(_items(task, stop)) as items:
        for item in items:
            if isinstance(item, list):
                yield from item
            else:
                yield item


def _items(
    task: dict[str, Any], stop: Callable[[], bool] | None
) -> Generator["list[Report] | Turn", None, None]:
    """Yield batches of reports, and turns between them."""
    training = load_training(task.get("training", IMAGES))
    check_package(task.get("package"), training)
    config = _config(training, task)
    if isinstance(config, TrainConfig):
        check_part_packages(task.get("parts"), config.parts().values())
    with closing(ReportJournal(task["checkpoint_dir"])) as journal:
        yield from _attempt(task, training, config, journal, stop)


def _attempt(
    task: dict[str, Any],
    training: Training,
    config: TrialConfig,
    journal: ReportJournal,
    stop: Callable[[], bool] | None,
) -> Generator["list[Report] | Turn", None, None]:
    """Yield the reports of earlier attempts, then those of this one."""
    reported = -1
    earlier = journal.replay()
    while batch := list(islice(earlier, BATCH)):
        yield batch
        if batch[-1].status != "running":
            return
        reported = batch[-1].step
    make = partial(_run, task, training, config, journal, reported, stop)
    items: Generator[list[Report] | Turn, None, None]
    if inspect.isgeneratorfunction(training.function):
        items = _in_turns(training, config, make)
    else:
        items = _in_thread(training, config, make, task["device"])
    with closing(with_usage(items, task["device"])) as measured:
        yield from measured


def _config(training: Training, task: dict[str, Any]) -> TrialConfig:
    """Return the task's config; the built-in one also says on which device."""
    device = {"device": task["device"]} if issubclass(training.config, TrainConfig) else {}
    return training.config.model_validate({**task["config"], **device})


def _run(
    task: dict[str, Any],
    training: Training,
    config: TrialConfig,
    journal: ReportJournal,
    reported: int,
    stop: Callable[[], bool] | None,
    send: Callable[[Report], None],
    provenance: Callable[[], dict[str, Any]],
) -> Run:
    folder, measurement = task["checkpoint_dir"], task.get("measurement")
    return Run(
        seed=config.seed,
        device="cuda:0" if task["device"] == "cuda" else task["device"],
        folder=Path(folder),
        config_key=config.key(),
        journal=journal,
        stop=stop or StopFile(folder, task.get("stopped_by", "")),
        send=send,
        metrics=training.metrics,
        objectives=_objectives(task),
        reported=reported,
        provenance=provenance,
        config=config.stored(),
        measurement=Measurement.model_validate(measurement) if measurement else None,
        data_home=task.get("data_home"),
        threads=task.get("threads", 0),
        checkpoint_seconds=task.get("checkpoint_seconds", CHECKPOINT_SECONDS),
    )


def _objectives(task: dict[str, Any]) -> tuple[str, ...]:
    """Names of the metrics whose values must be finite."""
    one = (task.get("objective") or {}).get("metric")
    return tuple(task.get("objectives") or ([one] if one else []))


Make = Callable[[Callable[[Report], None], Callable[[], dict[str, Any]]], Run]


def _in_turns(
    training: Training, config: TrialConfig, make: Make
) -> Generator["list[Report] | Turn", None, None]:
    """Run a training that hands on the turn itself, in this thread.

    An empty batch says at the first turn after ``SILENCE`` that no report has come since.
    """
    reports: list[Report] = []
    silent_from = math.inf
    run = make(reports.append, partial(origin, training))
    with closing(training.function(config, run)) as turns:
        for turn in turns:
            if turn is not None:
                yield turn
                if time.monotonic() > silent_from:
                    silent_from = math.inf
                    yield []
            elif reports:
                _LOG.info(_line(reports[-1]))
                yield reports.copy()
                reports.clear()
                silent_from = time.monotonic() + SILENCE


def _in_thread(
    training: Training, config: TrialConfig, make: Make, device: str
) -> Generator[list[Report], None, None]:
    """Run any other function in a thread of its own."""
    reports = Reports()
    run = make(reports.send, partial(function_provenance, training, device))
    given = config.declared() if isinstance(config, DeclaredConfig) else config
    next_line = 0.0
    with closing(reports.batches(training.function, given, run)) as batches:
        for batch in batches:
            if batch and (time.monotonic() >= next_line or batch[-1].status != "running"):
                _LOG.info(_line(batch[-1]))
                next_line = time.monotonic() + _LINE_SECONDS
            yield batch


#: Shown of a report that has many metrics.
_SHOWN = ("train_loss", "train_error", "validation_error", "test_error", "images_per_second")
_MOST_SHOWN = 8


def _line(report: Report) -> str:
    known = [name for name in _SHOWN if name in report.metrics]
    shown = known or [name for name in report.metrics if "/" not in name][:_MOST_SHOWN]
    metrics = "  ".join(f"{name} {report.metrics[name]:.5g}" for name in shown)
    of = "" if report.num_steps is None else f"/{report.num_steps}"
    return f"step {report.step}{of}  {report.status}  {metrics}"
