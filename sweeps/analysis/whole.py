"""A sweep's whole analysis: with the sweep that confirmed it, and what its driver computed.

The driver computes what needs Optuna or scipy: importance, rank correlation of rungs, the front.
"""

import logging
import time
from typing import Any

from sweeps.analysis.arms import analyse, complete_trials, estimate
from sweeps.records import Sweep, SweepState, TrialState
from sweeps.store.store import Store

#: Parts that take an engine or many curves: the driver computes them, and they lie in the result.
STORED = ("importance", "rungs", "front")


def full_analysis(store: Store, sweep_id: str) -> dict[str, Any]:
    """The tables as they are now, the confirmed best, and the driver's part as it last was."""
    sweep = store.get_sweep(sweep_id)
    stored = sweep.result or {}
    return analyse(store, sweep_id) | {
        "confirmed": [
            row for one in store.confirmations(sweep_id) for row in _confirmed(store, one)
        ],
        "confirms": sweep.confirms,
        **{name: stored.get(name) for name in STORED},
    }


def _confirmed(store: Store, sweep: Sweep) -> list[dict[str, Any]]:
    """A row for each point that a confirmation trains, best first."""
    original = (sweep.confirms or {}).get("points", [])
    rows = []
    for point in store.all_points(sweep.id):
        trials = list(store.all_trials(sweep.id, point=point.number))
        complete = complete_trials(trials)
        values = [t.objective for t in complete if t.objective is not None]
        read = [t.metrics["test_error"] for t in complete if "test_error" in t.metrics]
        objective = estimate(sweep.objective.metric, values)
        test = estimate("test_error", read)
        rows.append(
            {
                "sweep": sweep.id,
                "state": sweep.state.value,
                "point": original[point.number] if point.number < len(original) else None,
                "params": point.params,
                "metric": sweep.objective.metric,
                "objective": None if objective is None else vars(objective),
                "test_error": None if test is None else vars(test),
                "seeds": [trial.seed for trial in complete],
                "diverged": sum(trial.state == TrialState.DIVERGED for trial in trials),
            }
        )
    return sorted(
        rows,
        key=lambda row: (
            row["objective"] is None,
            sweep.objective.sign * (row["objective"] or {"mean": 0})["mean"],
        ),
    )


log = logging.getLogger(__name__)

#: While a sweep runs, the costly parts are left out beyond so many points; at its end they are not.
BUSY_POINTS = 2000


def driver_analysis(store: Store, sweep_id: str) -> dict[str, Any]:
    """The analysis of a sweep with importance and rung correlations, as JSON values."""
    from sweeps.analysis.stored.front import front_of
    from sweeps.analysis.stored.importance import ped_anova
    from sweeps.analysis.stored.rung_correlation import rung_correlations

    sweep = store.get_sweep(sweep_id)
    points = store.all_points(sweep_id)
    found = analyse(store, sweep_id)
    is_over = sweep.state != SweepState.RUNNING or not sweep.trials["running"]
    if len(points) > BUSY_POINTS and not is_over:
        return found | dict.fromkeys(STORED)
    began = time.monotonic()
    found["importance"] = ped_anova(sweep.spec, points)
    if sweep.has_front:
        found["front"] = front_of(store, sweep)
    found["rungs"] = rung_correlations(store, sweep, points)
    log.debug("importance, front and rungs took %.2f s", time.monotonic() - began)
    return found
