"""How many metric points a second the store keeps for good, written as a driver's writer does."""

import time

from benchmarks.sweep.parts import Figure, Options, submit, trivial_spec
from sweeps.records import Claim, NewTrial, TrialReports
from sweeps.store.store import Store
from worker.report import Report

#: A batch as a driver's writer has it of eight busy trials: what comes in 0.3 s at that rate.
TRIALS, REPORTS, METRICS = 8, 9, 20
SECONDS = 10.0


def store(options: Options) -> list[Figure]:
    """Points per second, each transaction on disk before the next."""
    database = Store(options.url)
    submit(database, trivial_spec(TRIALS, 10))
    claim = database.claim("benchmark", 3000.0)
    assert claim is not None
    attempts = database.start_attempts(claim, _add(database, claim, TRIALS))
    points, step, began = 0, 0, time.monotonic()
    while (passed := time.monotonic() - began) < SECONDS:
        batch = [
            TrialReports(number, attempt, [_report(step + i) for i in range(1, REPORTS + 1)])
            for number, attempt in attempts.items()
        ]
        database.record_batch(claim, batch)
        step += REPORTS
        points += TRIALS * REPORTS * METRICS
    database.close()
    rate = points / passed
    return [
        Figure(
            "store",
            options.kind,
            "metric points, durable",
            rate,
            "/s",
            target=5000.0,
            sense="at least",
        )
    ]


def _add(database: Store, claim: Claim, count: int) -> list[int]:
    """Add trials that differ in one value; their numbers."""
    return [trial.number for trial in database.add_trials(claim, made_up(range(count)))]


def made_up(points: range) -> list[NewTrial]:
    """Trials with a config of the usual size."""
    config = trivial_spec(1, 100).base.stored()
    return [
        NewTrial(
            point,
            0,
            {"alpha_v": 0.05 + point / 1e5, "alpha_s": 0.001},
            config | {"alpha_v": 0.05 + point / 1e5},
            f"key-{point}",
        )
        for point in points
    ]


def _report(step: int) -> Report:
    metrics = {f"effective_lr/conv{layer}": step / (layer + 1) for layer in range(METRICS)}
    return Report(step=step, num_steps=10**6, status="running", metrics=metrics)
