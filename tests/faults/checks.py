"""What must hold of a sweep after any fault: planned trials once each, and three records alike."""

import time
from typing import Any

from mlflow.tracking import MlflowClient

from sweeps.mlflow_mirror.run_fields import ATTEMPT_STATUS, SWEEP_STATUS
from sweeps.records import Attempt, Sweep, SweepState, Trial, TrialState
from sweeps.search.proposer import SweepProposer
from sweeps.spec.sweep_spec import SweepSpec
from tests.faults import workload
from tests.faults.processes import PATIENCE, below, until
from tests.faults.service_under_test import Service, patiently
from tests.sweeps.sweep_cases import BASE, Curves, keys, search

STEPS = 4
#: In all, of each sweep below.
TRIALS = 6


def small_sweep(sampler: str, name: str, milliseconds: int = 60, **fields: Any) -> dict[str, Any]:
    """Six trials of four steps: a grid of three points, or random ones, two seeds each."""
    values = [0.02, 0.05, 0.3]
    rate = {"kind": "choice", "values": values}
    if sampler == "random":
        rate = {"kind": "float", "low": 0.001, "high": 1.0, "log": True}
    base = BASE | {"steps": STEPS, "batch_size": milliseconds, "alpha_s": 0.001}
    spec = {"name": name, "base": base, "space": {"alpha_v": rate}, "sampler": sampler}
    return spec | {"num_points": 3, "replicates": 2, "sampler_seed": 7} | fields


def finished(service: Service, sweep_id: str, seconds: float = 600.0) -> Sweep:
    """The sweep at its end."""
    until(lambda: service.sweep(sweep_id).state.is_finished(), f"{sweep_id} ends", seconds, 0.1)
    return service.sweep(sweep_id)


def assert_whole(service: Service, sweep_id: str, spec: dict[str, Any]) -> None:
    """The sweep ended as asked: everything planned, once, as an undisturbed run proposes it."""
    sweep = service.sweep(sweep_id)
    trials = list(service.store.all_trials(sweep_id))
    parsed = SweepSpec.model_validate(spec)
    undisturbed, _ = search(SweepProposer(parsed, Curves()))
    if sweep.state == SweepState.CANCELLED:
        assert set(keys(trials)) <= set(keys(undisturbed))
        assert all(trial.state.is_finished() for trial in trials)
    else:
        odd = {t.number: t.exit_cause for t in trials if t.state != TrialState.COMPLETE}
        assert (sweep.state, sweep.reason, odd) == (SweepState.COMPLETE, "all done", {})
        assert keys(trials) == keys(undisturbed)
        assert len(trials) == parsed.num_trials()
    for trial in trials:
        _assert_recorded_once(service, service.store.trial(sweep_id, trial.number))
    _assert_api_agrees(service, sweep, trials)
    assert_mlflow_agrees(service, sweep_id)
    assert_nothing_left(service)
    assert_no_files_left(service, sweep)


def _assert_recorded_once(service: Service, trial: Trial) -> None:
    attempts = trial.attempts
    assert [attempt.number for attempt in attempts] == list(range(1, len(attempts) + 1))
    assert all(attempt.state.is_finished() and attempt.exit_cause for attempt in attempts)
    ends = [attempt.state for attempt in attempts]
    assert ends.count(TrialState.COMPLETE) == (trial.state == TrialState.COMPLETE)
    if trial.state != TrialState.COMPLETE:
        return
    assert ends[-1] == TrialState.COMPLETE
    steps = trial.config["steps"]
    curve = service.store.metrics(trial.sweep_id, trial.number)["validation_error"]
    assert curve == [(step, workload.loss(trial.config, step)) for step in range(1, steps + 1)]
    assert trial.objective == workload.loss(trial.config, steps)


def _assert_api_agrees(service: Service, sweep: Sweep, trials: list[Trial]) -> None:
    shown = patiently(lambda: service.client.get(sweep.id))
    assert (shown.id, shown.state, shown.reason) == (sweep.id, sweep.state, sweep.reason)
    listed = list(patiently(lambda: list(service.client.all_trials(sweep.id))))
    assert [(t.number, t.state, t.objective) for t in listed] == [
        (t.number, t.state, t.objective) for t in trials
    ]


def assert_mlflow_agrees(service: Service, sweep_id: str, seconds: float = PATIENCE) -> None:
    """A run per attempt and one for the sweep, each in the state that the store has."""
    until(
        lambda: service.store.mirror_pending(1, 1, sweep_id=sweep_id) == _NOTHING,
        "the mirror has sent everything",
        seconds,
        0.2,
    )
    sweep = service.sweep(sweep_id)
    attempts = service.store.attempts(sweep_id)
    place = sweep.mirror or {}
    if not place.get("experiment_id"):
        # It never started, so MLflow never heard of it.
        assert (attempts, sweep.started_at is None or sweep.state == "cancelled") == ([], True)
        return
    client = MlflowClient(tracking_uri=service.endpoints.mlflow_url)
    runs = {run.info.run_id: run for run in client.search_runs([place["experiment_id"]])}
    parent = runs.pop(place["run_id"])
    assert parent.info.status == SWEEP_STATUS[sweep.state]
    assert {run_id: run.info.status for run_id, run in runs.items()} == {
        attempt.mlflow_run_id: ATTEMPT_STATUS[attempt.state] for attempt in attempts
    }
    for attempt in attempts:
        if attempt.state == TrialState.COMPLETE:
            _assert_same_curve(service, client, attempt)


def _assert_same_curve(service: Service, client: MlflowClient, attempt: Attempt) -> None:
    assert attempt.mlflow_run_id is not None
    sent = client.get_metric_history(attempt.mlflow_run_id, "validation_error")
    steps = [metric.step for metric in sent]
    assert steps == sorted(set(steps)), "in order, and none twice"
    assert steps[-1] == STEPS


def assert_nothing_left(service: Service) -> None:
    """No worker of an ended sweep, and no driver but the one that waits for the next."""
    until(lambda: not service.workers(), "workers of ended sweeps end", every=0.1)
    until(
        lambda: len(below(service.process.pid, "-m sweeps.driver.driver")) <= 1,
        "drivers of ended sweeps end",
        every=0.1,
    )


def assert_no_files_left(service: Service, sweep: Sweep) -> None:
    """Nothing of Tune's, and no checkpoint of a trial that is complete."""
    until(lambda: not list(service.home.glob(f"tune/{sweep.id}-*")), "Tune's folders go", every=0.1)
    if sweep.state == SweepState.COMPLETE:
        assert list(service.home.glob(f"checkpoints/{sweep.id}/*/checkpoint*")) == []


def _pending_nothing() -> Any:
    from sweeps.records import MirrorWork

    return MirrorWork([], [])


_NOTHING = _pending_nothing()


def settle(seconds: float = 0.0) -> None:
    """Let time pass."""
    time.sleep(seconds)
