"""A store as the pages' benchmark needs it: one sweep of 10,000 trials, and one that is running."""

import math
import random
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from sweeps.records import AttemptEnd, Claim, NewTrial, SweepState, TrialReports, TrialState
from sweeps.store import Store
from sweeps.tables import metric_names, metrics
from worker.measurement import Report

SEEDS, STEPS, BATCH = 2, 20_000, 500
SPACE: dict[str, Any] = {
    "optimizer": {"kind": "choice", "values": ["ndadam", "sgd"]},
    "alpha_v": {"kind": "float", "low": 0.005, "high": 0.5, "log": True},
    "alpha_s": {"kind": "float", "low": 1e-4, "high": 0.1, "log": True},
    "gamma_c": {"kind": "float", "low": 0.5, "high": 8.0, "log": True},
    "lambda_c": {"kind": "float", "low": 1e-5, "high": 1e-2, "log": True},
}
BASE = {"dataset": "digits", "depth": 10, "widen_factor": 1.0, "steps": STEPS}


def _spec(name: str, points: int) -> dict[str, Any]:
    return {
        "name": name,
        "base": BASE,
        "space": SPACE,
        "sampler": "random",
        "scheduler": None,
        "num_points": points,
        "replicates": SEEDS,
        "objective": {"metric": "validation_error", "direction": "minimize"},
        "resources": {"cpus": 1, "gpus": 0},
    }


def _queued(store: Store, name: str, points: int) -> Claim:
    spec = _spec(name, points)
    store.create_sweep("sweep", spec, name=name, tags=["large"], num_trials=points * SEEDS)
    claim = store.claim("benchmark", 86_400.0)
    assert claim is not None
    return claim


def _trials(points: range, rng: random.Random) -> list[NewTrial]:
    found = []
    for number in points:
        params: dict[str, Any] = {"optimizer": rng.choice(("ndadam", "sgd"))}
        for name in ("alpha_v", "alpha_s", "gamma_c", "lambda_c"):
            low, high = math.log(SPACE[name]["low"]), math.log(SPACE[name]["high"])
            params[name] = float(f"{math.exp(rng.uniform(low, high)):.5g}")
        for seed in range(SEEDS):
            config = {**BASE, **params, "seed": seed}
            found.append(NewTrial(number, seed, params, config, f"point-{number}"))
    return found


def full_sweep(store: Store, trials: int, points: int) -> str:
    """A finished sweep of ``trials``, each with ``points`` values of two metrics; its id."""
    claim = _queued(store, "ten-thousand", trials // SEEDS)
    rng = random.Random(7)
    for start in range(0, trials // SEEDS, BATCH // SEEDS):
        end = min(start + BATCH // SEEDS, trials // SEEDS)
        added = store.add_trials(claim, _trials(range(start, end), rng))
        attempts = store.start_attempts(claim, [trial.number for trial in added])
        errors = {t.number: _error(t.params, rng) for t in added}
        store.record_batch(
            claim,
            [TrialReports(n, a, [_report(STEPS, errors[n], STEPS)]) for n, a in attempts.items()],
        )
        _fill_curves(store, claim.sweep_id, attempts, errors, points)
        done = TrialState.COMPLETE
        store.finish_attempts(
            claim, [AttemptEnd(n, a, done, done, "complete") for n, a in attempts.items()]
        )
    store.release(claim, SweepState.COMPLETE, "all done")
    return claim.sweep_id


def _error(params: dict[str, Any], rng: random.Random) -> float:
    off = math.log10(params["alpha_v"] / 0.05)
    return (0.05 + 0.03 * off * off + 0.01 * abs(math.log(params["gamma_c"] / 2.5))) * math.exp(
        rng.gauss(0, 0.05)
    )


def _report(step: int, error: float, steps: int, **more: Any) -> Report:
    values = {"validation_error": error, "train_loss": 3 * error, "images_per_second": 5000.0}
    return Report(step=step, num_steps=steps, status="running", metrics=values, **more)


def _fill_curves(
    store: Store,
    sweep_id: str,
    attempts: dict[int, int],
    errors: dict[int, float],
    points: int,
) -> None:
    """The values before each trial's last, written past the verbs: two million reports are slow."""
    with store._writing() as write:
        query = sa.select(metric_names.c.name, metric_names.c.id).where(
            metric_names.c.sweep_id == sweep_id, metric_names.c.kind == "metric"
        )
        names = {row.name: row.id for row in write.conn.execute(query)}
        # Past SQLAlchemy too: it makes a dictionary of each of four million rows.
        shape = [
            (1000 + 2 * part + at, names[name], STEPS * part // points, scale * _fade(part, points))
            for part in range(1, points)
            for at, (name, scale) in enumerate((("validation_error", 1.0), ("train_loss", 3.0)))
        ]
        rows = [
            (attempt, seq, name, step, value * errors[number], write.now)
            for number, attempt in attempts.items()
            for seq, name, step, value in shape
        ]
        write.conn.exec_driver_sql(
            f"INSERT INTO {metrics.name} (attempt_id, seq, name_id, step, value, at) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            rows,
        )


def _fade(part: int, points: int) -> float:
    return 1 + 8 * math.exp(-6 * part / points)


@dataclass
class LiveSweep:
    """A sweep of 50 trials of which one is running; ``report`` moves it on."""

    store: Store
    claim: Claim
    number: int
    attempt: int
    step: int = 0
    sweep: str = field(default="")

    def report(self) -> int:
        """Record one more report; return its step."""
        self.step += 13
        self.store.record(self.claim, self.number, self.attempt, [_report(self.step, 0.1, STEPS)])
        return self.step


def live_sweep(store: Store) -> LiveSweep:
    """Half of its 50 trials have ended, one runs."""
    claim = _queued(store, "fifty", 25)
    added = store.add_trials(claim, _trials(range(25), random.Random(3)))
    attempts = store.start_attempts(claim, [trial.number for trial in added[:25]])
    done = TrialState.COMPLETE
    ended = [n for n in attempts if n > 0]
    store.record_batch(
        claim, [TrialReports(n, attempts[n], [_report(STEPS, 0.1, STEPS)]) for n in ended]
    )
    store.finish_attempts(
        claim, [AttemptEnd(n, attempts[n], done, done, "complete") for n in ended]
    )
    return LiveSweep(store, claim, 0, attempts[0], sweep=claim.sweep_id)
