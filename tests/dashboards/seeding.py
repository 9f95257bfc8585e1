"""A store as it looks after some days of use, filled through the store's own verbs.

The numbers are made up but shaped like real ones: errors fall and level off, seeds differ, ND-Adam
has its best learning rate near 0.05, and one SGD point diverges.
"""

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from unittest.mock import patch

from sweeps.analysis.whole import driver_analysis
from sweeps.records import Claim, NewTrial, SweepState, TrialState
from sweeps.store.database import connection as store_connection
from sweeps.store.store import Store
from tests.dashboards.seeding_match import match_result, match_spec
from worker.config.train_config import TrainConfig
from worker.report import Report, Series, Usage

SEEDS = (0, 1, 2)
STEPS = 600
REPORTS = 12
LAYERS = [f"conv{number}" for number in range(1, 11)]
BASE = {
    "dataset": "digits",
    "depth": 10,
    "widen_factor": 1.0,
    "steps": STEPS,
    "batch_size": 64,
    "validation_fraction": 0.2,
}
SPACE = {
    "optimizer": {"kind": "choice", "values": ["ndadam", "sgd", "adam"]},
    "alpha_v": {
        "kind": "float",
        "low": 0.005,
        "high": 0.5,
        "log": True,
        "when": {"optimizer": ["ndadam"]},
    },
    "alpha_s": {
        "kind": "float",
        "low": 1e-4,
        "high": 1e-1,
        "log": True,
        "when": {"optimizer": ["ndadam"]},
    },
    "lr": {
        "kind": "float",
        "low": 1e-4,
        "high": 10.0,
        "log": True,
        "when": {"optimizer": ["sgd", "adam"]},
    },
    "gamma_c": {"kind": "float", "low": 0.5, "high": 8.0, "log": True},
    "lambda_c": {"kind": "float", "low": 1e-5, "high": 1e-2, "log": True},
}
SWEEP_SPEC = {
    "name": "digits-optimizers",
    "base": BASE,
    "space": SPACE,
    "sampler": "random",
    "scheduler": None,
    "num_points": 10,
    "replicates": len(SEEDS),
    "objective": {"metric": "validation_error", "direction": "minimize"},
    "resources": {"cpus": 1, "gpus": 0},
}


@dataclass
class Clock:
    """Time as the store sees it while seeding: it moves only when told."""

    now: int

    def advance(self, seconds: float) -> None:
        self.now += round(seconds * 1e6)


@contextmanager
def stopped_clock(seconds_ago: float) -> Iterator[Clock]:
    """Let the store live ``seconds_ago`` in the past, so that what is seeded took its time."""
    clock = Clock(store_connection.microseconds() - round(seconds_ago * 1e6))
    with patch.object(store_connection, "microseconds", lambda: clock.now):
        yield clock


def create(store: Store, name: str, **changes: Any) -> str:
    """Queue one more sweep; return its id."""
    spec = {**SWEEP_SPEC, "name": name, **changes}
    total = (spec["num_points"] or 0) * spec["replicates"]
    sweep, _ = store.create_sweep(
        "sweep", spec, name=name, tags=["digits", "paper-tf"], notes="", num_trials=total
    )
    return sweep.id


def claim(store: Store) -> Claim:
    """Take the oldest queued sweep, as a runner does, for as long as a test may last."""
    claimed = store.claim("seeding", lease_seconds=3_000.0)
    assert claimed is not None
    return claimed


def sampled_points(count: int, rng: random.Random) -> list[dict[str, Any]]:
    """Params of ``count`` points: half ND-Adam, the rest SGD and Adam, one SGD far too fast."""
    points: list[dict[str, Any]] = []
    for index in range(count):
        optimizer = ("ndadam", "sgd", "ndadam", "adam")[index % 4]
        params: dict[str, Any] = {"optimizer": optimizer}
        if optimizer == "ndadam":
            params["alpha_v"] = round(10 ** rng.uniform(-2.3, -0.3), 5)
            params["alpha_s"] = round(10 ** rng.uniform(-4, -1), 6)
        else:
            low, high = (-2.0, 0.3) if optimizer == "sgd" else (-4.0, -1.5)
            params["lr"] = 8.0 if index == 1 else round(10 ** rng.uniform(low, high), 6)
        params["gamma_c"] = round(10 ** rng.uniform(-0.3, 0.9), 3)
        params["lambda_c"] = round(10 ** rng.uniform(-5, -2), 7)
        points.append(params)
    return points


def new_trials(number: int, params: dict[str, Any]) -> list[NewTrial]:
    """The replicates of one point."""
    trials = []
    for seed in SEEDS:
        config = TrainConfig(**{**BASE, **params, "seed": seed})
        trials.append(NewTrial(number, seed, params, config.stored(), config.key()))
    return trials


def final_error(params: dict[str, Any]) -> float:
    """Error that a point levels off at: a parabola over the log of its learning rate."""
    best, floor = {"ndadam": (0.05, 0.013), "sgd": (0.15, 0.015), "adam": (0.002, 0.021)}[
        params["optimizer"]
    ]
    rate = params.get("alpha_v") or params["lr"]
    off = math.log10(rate / best)
    return floor + 0.016 * off**2 + 0.004 * abs(math.log10(params["gamma_c"] / 2.5))


def diverges(params: dict[str, Any]) -> bool:
    return bool(params.get("lr", 0.0) >= 8.0)


def reports(params: dict[str, Any], seed: int) -> Iterator[Report]:
    """What a trial of these params and this seed would report."""
    rng = random.Random(f"{sorted(params.items())}{seed}")
    floor = final_error(params) * math.exp(rng.gauss(0, 0.12))
    last = 3 if diverges(params) else REPORTS
    for part in range(1, last + 1):
        step = STEPS * part // REPORTS
        fade = math.exp(-7.0 * part / REPORTS)
        error = floor + (0.75 - floor) * fade * math.exp(rng.gauss(0, 0.05))
        is_last = part == last
        status = ("diverged" if diverges(params) else "complete") if is_last else "running"
        yield Report(
            step=step,
            num_steps=STEPS,
            status=status,
            metrics=_metrics(params, step, error, rng, is_last=is_last),
            diverged_at_step=step if status == "diverged" else None,
            provenance=PROVENANCE if part == 1 or is_last else {},
        )


def usage_of(started_at: datetime) -> Usage:
    """What every finished trial used: 0.5 hours of half a card, 150 Wh of it."""
    start = int(started_at.timestamp() * 1e6) // 1000 + 5000
    shown = {
        "gpu_0_utilization_percentage": [70.0, 80.0, 75.0],
        "gpu_0_memory_usage_megabytes": [21_000.0, 21_000.0, 22_000.0],
        "gpu_0_process_memory_usage_megabytes": [5_000.0, 5_000.0, 5_200.0],
        "gpu_0_power_usage_watts": [310.0, 290.0, 300.0],
        "process_cpu_utilization_percentage": [101.0, 99.0, 103.0],
        "process_memory_usage_megabytes": [1_900.0, 2_000.0, 2_050.0],
    }
    return Usage(
        totals={
            "seconds": 3600,
            "cpu_hours": 0.51,
            "gpu_hours": 0.5,
            "gpu_measured_hours": 0.5,
            "gpu_busy_hours": 0.375,
            "energy_watt_hours": 150,
            "memory_megabytes": 2_050,
            "gpu_memory_megabytes": 5_200,
            "sharing": 2,
        },
        samples={n: [Series(start=start, every=5000, values=v)] for n, v in shown.items()},
    )


PROVENANCE = {
    "git_commit": "0f3c2d9",
    "versions": {"python": "3.11.9", "torch": "2.14.1", "ndadam": "0.1.0"},
    "device": "cpu",
    "card": "AMD EPYC 7B13",
    "threads": 1,
    "host": "node-a",
    "pid": 4711,
    "data": {"name": "digits", "checksum": "sha256:9b1c…"},
    "peak_memory_bytes": 412_000_000,
}


def _metrics(
    params: dict[str, Any], step: int, error: float, rng: random.Random, *, is_last: bool
) -> dict[str, float]:
    factor = 0.5 * (1 + math.cos(math.pi * (step - 1) / STEPS))
    rate = params.get("alpha_v") or params["lr"] * 0.3
    metrics = {
        "train_loss": 3.1 * error + 0.02,
        "train_error": 0.8 * error,
        "validation_error": error,
        "logit_rms": params["gamma_c"] * (1 + 0.1 * rng.random()),
        "images_per_second": 5200 + 300 * rng.random(),
    }
    for depth, layer in enumerate(LAYERS):
        spread = math.exp(0.05 * depth + rng.gauss(0, 0.03))
        metrics[f"effective_lr/{layer}"] = rate * 0.2294 * factor * spread + 1e-6
        metrics[f"angular_update/{layer}"] = rate * 0.2294 * factor * spread + 1e-6
        metrics[f"weight_norm/{layer}"] = 1.0 + 0.3 * depth
    if is_last and not diverges(params):
        metrics["test_error"] = 1.1 * error
    return metrics


def train(
    store: Store, claimed: Claim, number: int, params: dict[str, Any], seed: int, clock: Clock
) -> None:
    """Run one added trial to its end."""
    attempt = store.start_attempt(claimed, number)
    for report in reports(params, seed):
        clock.advance(2.5)
        if report.status != "running":
            report = report.model_copy(update={"usage": usage_of(attempt.started_at)})
        store.record(claimed, number, attempt.id, [report])
    if diverges(params):
        state, cause = TrialState.DIVERGED, f"diverged at step {report.step}"
        objective = None
    else:
        state, cause = TrialState.COMPLETE, "complete"
        objective = report.metrics["validation_error"]
    store.finish_attempt(
        claimed, number, attempt.id, state, cause, trial_state=state, objective=objective
    )


def finished_sweep(store: Store, name: str, clock: Clock, num_points: int = 10) -> str:
    """A complete sweep over three optimizers with three seeds each; return its id."""
    sweep_id = create(store, name, num_points=num_points)
    claimed = claim(store)
    for number, params in enumerate(sampled_points(num_points, random.Random(name))):
        for trial in store.add_trials(claimed, new_trials(number, params)):
            train(store, claimed, trial.number, params, trial.seed, clock)
    store.set_mirror(
        sweep_id,
        {
            "experiment_id": "3",
            "url": "http://127.0.0.1:5000/#/experiments/3/runs/a1b2?workflowType=machine_learning",
            "behind_seconds": 0.0,
            "error": None,
        },
    )
    store.set_mlflow_run(store.trial(sweep_id, 0).attempts[0].id, "c3d4")
    store.set_result(claimed, driver_analysis(store, sweep_id))
    store.release(claimed, SweepState.COMPLETE, "all done")
    return sweep_id


def running_sweep(store: Store, name: str, clock: Clock) -> tuple[str, Claim, int, int]:
    """A sweep with 4 of 10 points done and one trial under way.

    Returns its id, the claim on it, and number and attempt of the running trial.
    """
    sweep_id = create(store, name)
    claimed = claim(store)
    points = sampled_points(10, random.Random(name))
    for number, params in enumerate(points[:4]):
        for trial in store.add_trials(claimed, new_trials(number, params)):
            train(store, claimed, trial.number, params, trial.seed, clock)
    waiting = store.add_trials(claimed, new_trials(4, points[4]))
    attempt = store.start_attempt(claimed, waiting[0].number)
    for report in list(reports(points[4], 0))[:5]:
        clock.advance(2.5)
        store.record(claimed, waiting[0].number, attempt.id, [report])
    return sweep_id, claimed, waiting[0].number, attempt.id


def finished_match(store: Store, clock: Clock, name: str = "sgd-to-ndadam") -> str:
    """A match of ND-Adam to SGD with a verdict; return its id."""
    spec = {**match_spec(), "name": name}
    sweep, _ = store.create_sweep("match", spec, name=spec["name"], tags=["digits"], num_trials=8)
    claimed = claim(store)
    result = match_result()
    roles = ["source"] * 3 + ["calibration"] * 2 + ["verdict"] * 3
    for index, role in enumerate(roles):
        rate = {"alpha_v": round(0.0489 + 0.0003 * (index >= 4), 4)} if role != "source" else {}
        arm = spec["source"] if role == "source" else {**spec["target"], **rate}
        params = {"optimizer": arm["optimizer"], **rate}
        config = TrainConfig(**{**spec["base"], **arm, "seed": index})
        trial = NewTrial(index, index, params, config.stored(), config.key(), role)
        [added] = store.add_trials(claimed, [trial])
        attempt = store.start_attempt(claimed, added.number)
        shape = {"optimizer": "ndadam", "alpha_v": 0.05, "gamma_c": 2.5}
        for report in reports(shape, index):
            clock.advance(4.0)
            store.record(claimed, added.number, attempt.id, [report])
        done = TrialState.COMPLETE
        store.finish_attempt(claimed, added.number, attempt.id, done, "complete", trial_state=done)
    store.set_result(claimed, dict(result))
    store.release(claimed, SweepState.COMPLETE, "verdict: matched")
    return sweep.id
