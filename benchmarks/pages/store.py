"""A store as the pages' benchmark needs it: one sweep of 10,000 trials, and one that is running."""

import math
import random
from dataclasses import dataclass, field
from typing import Any

from sweeps.analysis.whole import driver_analysis
from sweeps.records import AttemptEnd, Claim, NewTrial, SweepState, TrialReports, TrialState
from sweeps.store.database.tables import attempts, metric_names, metrics
from sweeps.store.store import Store
from worker.report import Report

SEEDS, STEPS, BATCH = 2, 20_000, 500
#: Steps between the reports of the running trial.
STRIDE = 13
_NDADAM, _SGD = ({"optimizer": [name]} for name in ("ndadam", "sgd"))
SPACE: dict[str, Any] = {
    "optimizer": {"kind": "choice", "values": ["ndadam", "sgd"]},
    "alpha_v": {"kind": "float", "low": 0.005, "high": 0.5, "log": True, "when": _NDADAM},
    "alpha_s": {"kind": "float", "low": 1e-4, "high": 0.1, "log": True, "when": _NDADAM},
    "lr": {"kind": "float", "low": 0.01, "high": 1.0, "log": True, "when": _SGD},
    "gamma_c": {"kind": "float", "low": 0.5, "high": 8.0, "log": True},
    "lambda_c": {"kind": "float", "low": 1e-5, "high": 1e-2, "log": True},
}
BASE = {
    "dataset": "digits",
    "depth": 10,
    "widen_factor": 1.0,
    "steps": STEPS,
    "validation_fraction": 0.2,
}


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
        for name, domain in SPACE.items():
            only = domain.get("when", {"optimizer": [params["optimizer"]]})
            if domain["kind"] == "float" and params["optimizer"] in only["optimizer"]:
                low, high = math.log(domain["low"]), math.log(domain["high"])
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
        started = store.start_attempts(claim, [trial.number for trial in added])
        errors = {t.number: _error(t.params, rng) for t in added}
        store.record_batch(
            claim,
            [TrialReports(n, a, [_report(STEPS, errors[n], STEPS)]) for n, a in started.items()],
        )
        done = TrialState.COMPLETE
        store.finish_attempts(
            claim, [AttemptEnd(n, a, done, done, "complete") for n, a in started.items()]
        )
    _fill_curves(store, claim.sweep_id, points)
    # What its driver would have left: importance is drawn from it.
    store.set_result(claim, driver_analysis(store, claim.sweep_id))
    store.release(claim, SweepState.COMPLETE, "all done")
    return claim.sweep_id


def _error(params: dict[str, Any], rng: random.Random) -> float:
    off = math.log10(params["alpha_v"] / 0.05 if "alpha_v" in params else params["lr"] / 0.1)
    return (0.05 + 0.03 * off * off + 0.01 * abs(math.log(params["gamma_c"] / 2.5))) * math.exp(
        rng.gauss(0, 0.05)
    )


def _report(step: int, error: float, steps: int, **more: Any) -> Report:
    values = {"validation_error": error, "train_loss": 3 * error, "images_per_second": 5000.0}
    return Report(step=step, num_steps=steps, status="running", metrics=values, **more)


def _fill_curves(store: Store, sweep_id: str, points: int) -> None:
    """The values before each trial's last, written past the verbs: two million reports are slow.

    Made inside the database from every trial's last value, in the order of the table's key.
    """
    shape = [
        (1000 + 2 * part + at, name, STEPS * part // points, _fade(part, points))
        for part in range(1, points)
        for at, name in enumerate(("validation_error", "train_loss"))
    ]
    with store._writing() as write:
        run = write.conn.exec_driver_sql
        run("CREATE TEMP TABLE shape (seq INTEGER PRIMARY KEY, name TEXT, step INTEGER, fade REAL)")
        run("INSERT INTO shape VALUES (?, ?, ?, ?)", shape)
        run(
            f"""
            INSERT INTO {metrics.name} (attempt_id, seq, name_id, step, value, at)
            SELECT last.attempt_id, shape.seq, last.name_id, shape.step,
                   shape.fade * last.value, last.at
            FROM {attempts.name} AS tries
            CROSS JOIN shape
            JOIN {metric_names.name} AS names
              ON names.sweep_id = tries.sweep_id AND names.name = shape.name
            JOIN {metrics.name} AS last
              ON last.attempt_id = tries.id AND last.name_id = names.id AND last.step = ?
            WHERE tries.sweep_id = ?
            ORDER BY tries.id, shape.seq
            """,
            (STEPS, sweep_id),
        )
        run("DROP TABLE shape")


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
        self.step += STRIDE
        self.store.record(self.claim, self.number, self.attempt, [_report(self.step, 0.1, STEPS)])
        return self.step


def live_sweep(store: Store) -> LiveSweep:
    """Half of its 50 trials have ended, one runs."""
    claim = _queued(store, "fifty", 25)
    added = store.add_trials(claim, _trials(range(25), random.Random(3)))
    started = store.start_attempts(claim, [trial.number for trial in added[:25]])
    done = TrialState.COMPLETE
    ended = [n for n in started if n > 0]
    store.record_batch(
        claim, [TrialReports(n, started[n], [_report(STEPS, 0.1, STEPS)]) for n in ended]
    )
    store.finish_attempts(claim, [AttemptEnd(n, started[n], done, done, "complete") for n in ended])
    return LiveSweep(store, claim, 0, started[0], sweep=claim.sweep_id)
