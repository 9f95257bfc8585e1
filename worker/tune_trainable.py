"""Lets Ray Tune run ``train``. The only file of the worker that imports ray.

Ray runs a Tune function in a thread of an actor and, with ``reuse_actors``, one after another in
the same process: the data set stays loaded, and whatever a trial changed must be put back. A trial
that shares its card with others is trained by the host of that card; the actor only passes on what
it hears (``worker.card_sharing.process``).
"""

import logging
import math
import os
import socket
import sys
import traceback
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from ray import get_runtime_context, tune
from ray.tune import get_context

from worker.card_sharing.client import hosted_batches
from worker.card_sharing.protocol import host_address
from worker.data.machine_check import check_once
from worker.process.logs import TEXT, JsonFormatter
from worker.report import Report
from worker.training.trial import trial_batches

#: What Tune's strict check and schedulers see when a report has no finite objective.
WORST = 1e9
#: Words in the first line of each attempt in a trial's log.
STARTS = "starts in process"


def trainable(params: dict[str, Any]) -> None:
    """Run one trial and report to Tune.

    ``params["task"]`` holds ``config`` (a stored config), ``device``, ``measurement`` (or None),
    ``checkpoint_dir``, ``stopped_by``, ``data_home``, ``log_path``, and optionally ``training``
    (its name; default: images), ``machine`` (what this one must have,
    ``worker.data.machine_check``), ``package`` (that it must come from), ``parts`` (where its parts
    must come from), ``log_ids`` (for a log in JSON beside the one for people; default: none),
    ``objective`` ({"metric", "direction"}; default: the smallest
    validation_error), ``objectives`` (the names of several, all of which must be finite) and
    ``trials_per_gpu``, how many share a card (1). What Tune gets is
    ``{"report": Report as JSON values, "objective": a finite number}``, with reports that were made
    shortly before it in ``"before"``, if there are any; or ``{"silent": True, "objective": …}``
    when nothing has come for a second, so that Tune passes on what it holds back. The function
    returns
    without a final report when a stop was requested (``worker.checkpoints.stop_file``);
    its checkpoint stands.
    An attempt that goes on where another ended first reports again what that one did
    (``worker.checkpoints.report_journal``).
    """
    task = params["task"]
    if task.get("machine"):
        # First of all: on another home nobody would find what is written here.
        check_once(task["machine"], get_runtime_context().get_node_id())
    with _log_to(Path(task["log_path"]), task.get("log_ids")) as log:
        try:
            with closing(_batches(task | {"threads": _trial_threads()})) as batches:
                objective = _objective(None, task.get("objective"))
                for batch in batches:
                    if batch:
                        objective = _objective(batch[-1], task.get("objective"))
                    _send(batch, objective)
        except Exception:
            log.error("%s", traceback.format_exc())
            raise


def _batches(task: dict[str, Any]) -> Generator[list[Report], None, None]:
    if task.get("trials_per_gpu", 1) > 1:
        with closing(hosted_batches(task, host_address(_host_key()))) as batches:
            yield from batches
    else:
        yield from trial_batches(task)


def _host_key() -> str:
    """Trials with the same key share a host: same card, same cluster, same code."""
    card = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return f"{get_runtime_context().gcs_address} {card} {Path(__file__).parent} {sys.prefix}"


def _send(batch: list[Report], objective: float) -> None:
    if not batch:
        tune.report({"silent": True, "objective": objective})
        return
    *before, report = (report.model_dump(mode="json") for report in batch)
    tune.report({"report": report, "objective": objective} | ({"before": before} if before else {}))


def _trial_threads() -> int:
    """One torch thread per CPU of the trial: two trials on two cores then share nothing."""
    resources = get_context().get_trial_resources()
    cpus = resources.required_resources.get("CPU", 1.0) if resources else 1.0
    return max(1, int(cpus))


def _objective(report: Report | None, objective: dict[str, str] | None) -> float:
    wanted = objective or {"metric": "validation_error", "direction": "minimize"}
    worst = -WORST if wanted["direction"].startswith("max") else WORST
    if report is None:
        return worst
    value = report.metrics.get(wanted["metric"], worst)
    return value if report.status != "diverged" and math.isfinite(value) else worst


def _attempts_in(path: Path) -> int:
    """Count the attempts that have written to a log; one that found no worker has written none."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            return sum(f" {STARTS} " in line for line in lines)
    except FileNotFoundError:
        return 0


@contextmanager
def _log_to(path: Path, ids: Mapping[str, str | int] | None) -> Iterator[logging.Logger]:
    """The worker's log in a file of this trial's own, appended to by every attempt.

    Pages show that file. With ``ids``, the same records are written as JSON to one beside it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    attempt = 1 + _attempts_in(path)
    formats = {path: logging.Formatter(TEXT)}
    if ids:
        of_attempt = {**ids, "attempt": attempt, "host": socket.gethostname()}
        formats[path.with_suffix(".jsonl")] = JsonFormatter("worker", of_attempt)
    handlers = [_to_file(file, formatter) for file, formatter in formats.items()]
    log = logging.getLogger("worker")
    level, propagate = log.level, log.propagate
    for handler in handlers:
        log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        log.info("attempt %d %s %d on %s", attempt, STARTS, os.getpid(), socket.gethostname())
        yield log
    finally:
        log.setLevel(level)
        log.propagate = propagate
        for handler in handlers:
            log.removeHandler(handler)
            handler.close()


def _to_file(path: Path, formatter: logging.Formatter) -> logging.Handler:
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(formatter)
    return handler
