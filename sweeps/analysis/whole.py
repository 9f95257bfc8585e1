"""A sweep's analysis with everything around it: what confirmed it, and what its driver computed."""

from typing import Any

from sweeps.analysis.arms import analyse, estimate
from sweeps.records import Sweep, TrialState
from sweeps.store.store import Store

#: Parts that take an engine or many curves: the driver computes them, and they lie in the result.
STORED = ("importance", "rungs")


def full_analysis(store: Store, sweep_id: str) -> dict[str, Any]:
    """The tables as they are now, the confirmed best, and the driver's part as it last was."""
    sweep = store.get_sweep(sweep_id)
    stored = sweep.result or {}
    return analyse(store, sweep_id) | {
        "confirmed": [
            row for one in store.confirmations(sweep_id) for row in _confirmed(store, one)
        ],
        "confirms": sweep.spec.get("confirms"),
        **{name: stored.get(name) for name in STORED},
    }


def _confirmed(store: Store, sweep: Sweep) -> list[dict[str, Any]]:
    """A row for each point that a confirmation trains, best first."""
    original = sweep.spec["confirms"]["points"]
    metric = sweep.spec["objective"]["metric"]
    rows = []
    for point in store.all_points(sweep.id):
        trials = store.trials(sweep.id, point=point.number, sort="seed", limit=500).items
        complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
        objective = estimate([t.objective for t in complete if t.objective is not None])
        test = estimate([t.metrics["test_error"] for t in complete if "test_error" in t.metrics])
        rows.append(
            {
                "sweep": sweep.id,
                "state": sweep.state.value,
                "point": original[point.number] if point.number < len(original) else None,
                "params": point.params,
                "metric": metric,
                "objective": None if objective is None else vars(objective),
                "test_error": None if test is None else vars(test),
                "seeds": [trial.seed for trial in complete],
                "diverged": sum(trial.state == TrialState.DIVERGED for trial in trials),
            }
        )
    sign = -1.0 if sweep.spec["objective"]["direction"] == "maximize" else 1.0
    return sorted(
        rows,
        key=lambda row: (
            row["objective"] is None,
            sign * (row["objective"] or {"mean": 0})["mean"],
        ),
    )
