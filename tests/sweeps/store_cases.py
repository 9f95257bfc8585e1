"""Small sweeps in a store, for tests."""

from datetime import UTC, datetime
from typing import Any

from sweeps.records import Attempt, Claim, NewTrial, Sweep, TrialState
from sweeps.store.commands.imports import ImportedAttempt, ImportedTrial
from sweeps.store.store import Store
from worker.report import Report

#: Seconds of a driver's lease: no test is about one that runs out by itself, however slow its disk.
LEASE = 3000.0
SPEC = {"objective": {"metric": "validation_error", "direction": "minimize"}}


def new_sweep(store: Store, name: str = "tiny", **options: Any) -> Sweep:
    """Queue a sweep of four trials."""
    sweep, _ = store.create_sweep(
        "sweep", options.pop("spec", SPEC), name=name, **({"num_trials": 4} | options)
    )
    return sweep


def claimed(store: Store, **options: Any) -> Claim:
    """Queue a sweep and claim it."""
    sweep = new_sweep(store, **options)
    claim = store.claim("runner-1", LEASE)
    assert claim is not None
    assert claim.sweep_id == sweep.id
    return claim


def trial(point: int = 0, seed: int = 0, **options: Any) -> NewTrial:
    """A trial whose only hyperparameter is lr = point."""
    params = {"lr": float(point)}
    return NewTrial(point, seed, params, params | {"seed": seed}, f"key-{point}", **options)


def report(step: int, error: float = 0.5, **options: Any) -> Report:
    """A report of a run of 100 steps."""
    metrics = options.pop("metrics", {"validation_error": error})
    return Report(
        step=step,
        num_steps=100,
        status=options.pop("status", "running"),
        metrics=metrics,
        **options,
    )


def run(
    store: Store,
    claim: Claim,
    number: int,
    error: float | None,
    state: TrialState = TrialState.COMPLETE,
) -> Attempt:
    """Train a trial to its end with one report."""
    attempt = store.start_attempt(claim, number)
    if error is not None:
        store.record(claim, number, attempt.id, [report(100, error)])
    store.finish_attempt(claim, number, attempt.id, state, state.value, trial_state=state)
    return attempt


def finished_trial(seed: int, objective: float, card: str = "card") -> ImportedTrial:
    """A complete trial of another machine, at the only point of its sweep."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return ImportedTrial(
        point=0,
        seed=seed,
        params={},
        config={"seed": seed},
        config_key="key",
        state=TrialState.COMPLETE,
        objective=objective,
        metrics={"validation_error": objective},
        curves={},
        step=100,
        num_steps=100,
        diverged_at_step=None,
        exit_cause="complete",
        attempts=(ImportedAttempt(TrialState.COMPLETE, at, at, "complete"),),
        provenance={"card": card},
    )
