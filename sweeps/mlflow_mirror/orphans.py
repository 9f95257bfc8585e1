"""Finds the mirror's runs in MLflow that nobody noted down, and ends those that nothing feeds.

A mirror may be killed between any two of its requests, and people edit what they see in MLflow.
"""

import logging
import time

from sweeps.mlflow_mirror.client import Gone, KnownRun, MirrorClient, MlflowRefused
from sweeps.mlflow_mirror.run_fields import (
    ATTEMPT_STATUS,
    ATTEMPT_TAG,
    SWEEP_TAG,
    experiment_name,
    milliseconds,
)
from sweeps.records import Attempt, DeletedSweep

log = logging.getLogger(__name__)


def run_of_sweep(client: MirrorClient, sweep_id: str, experiment_id: str) -> str | None:
    """The sweep's own run, made before but not noted down; None if there is none."""
    for run in client.runs(experiment_id):
        if run.tags.get(SWEEP_TAG) == sweep_id and ATTEMPT_TAG not in run.tags:
            return run.run_id
    return None


def reconcile(
    client: MirrorClient, sweep_id: str, experiment_id: str, attempts: list[Attempt]
) -> dict[int, str]:
    """End and delete runs that are not as the store has them.

    Returns runs of attempts which the store knows no run of, by attempt. A run that MLflow lets
    nobody change does not hold up the others.
    """
    by_run = {a.mlflow_run_id: a for a in attempts if a.mlflow_run_id is not None}
    by_id = {str(a.id): a for a in attempts}
    unclaimed: dict[int, str] = {}
    for run in client.runs(experiment_id):
        own = by_run.get(run.run_id)
        try:
            if own is not None:
                _end_if_ended(client, run, own)
            elif run.tags.get(SWEEP_TAG) == sweep_id and ATTEMPT_TAG in run.tags:
                # Tags are people's to edit: one that names no attempt is a run of nobody's.
                attempt = by_id.get(run.tags[ATTEMPT_TAG])
                if attempt is None or attempt.mlflow_run_id is not None:
                    client.delete_run(run.run_id)
                else:
                    unclaimed.setdefault(attempt.id, run.run_id)
        except (Gone, MlflowRefused) as error:
            log.warning("run %s of sweep %s stays as it is: %s", run.run_id, sweep_id, error)
    return unclaimed


def end_deleted(client: MirrorClient, deleted: DeletedSweep) -> None:
    """End what still runs in MLflow of a sweep that the store no longer has."""
    experiment = deleted.experiment_id
    if experiment is None:
        experiment = client.experiment_named(experiment_name(deleted.name, deleted.sweep_id))
    if experiment is None:
        return
    for run in client.runs(experiment):
        if run.is_open and run.tags.get(SWEEP_TAG) == deleted.sweep_id:
            client.set_status(run.run_id, "KILLED", time.time_ns() // 1_000_000)


def _end_if_ended(client: MirrorClient, run: KnownRun, attempt: Attempt) -> None:
    if run.is_open and attempt.state.is_finished() and attempt.finished_at is not None:
        end = milliseconds(attempt.finished_at)
        client.set_status(run.run_id, ATTEMPT_STATUS[attempt.state], end)
