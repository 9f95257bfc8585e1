"""Importance and rung correlations: what a driver adds to the analysis of its sweep."""

import math
import random

import pytest

from sweeps.analysis.stored.importance import FEWEST_POINTS, ped_anova
from sweeps.analysis.stored.rung_correlation import spearman
from sweeps.analysis.whole import driver_analysis, full_analysis
from sweeps.records import Point, SweepState, TrialState
from sweeps.store.commands.growth import confirmation_key
from sweeps.store.store import Store
from tests.sweeps.store_cases import SPEC, claimed, finished_trial, new_sweep, report, trial
from tests.sweeps.sweep_cases import sweep_spec


def point(number: int, params: dict[str, float], mean: float | None) -> Point:
    return Point("0" * 12, number, params, mean, None, 1, TrialState.COMPLETE)


def made_up(count: int, sign: float = 1.0) -> list[Point]:
    """Points whose mean depends on alpha_v alone."""
    draws = random.Random(1)
    points = []
    for number in range(count):
        params = {
            "alpha_v": math.exp(draws.uniform(math.log(0.001), 0.0)),
            "alpha_s": math.exp(draws.uniform(math.log(0.0001), math.log(0.1))),
        }
        points.append(point(number, params, sign * abs(math.log(params["alpha_v"] / 0.03))))
    return points


def test_the_field_that_decides_has_nearly_all_of_the_importance() -> None:
    spec = sweep_spec(num_points=100).model_dump(mode="json")

    (row,) = ped_anova(spec, made_up(100))

    assert row["points"] == 100
    assert row["fields"]["alpha_v"] > 0.8
    assert sum(row["fields"].values()) == pytest.approx(1.0)


def test_few_points_or_a_single_field_have_no_importance() -> None:
    spec = sweep_spec().model_dump(mode="json")
    one = sweep_spec(space={"alpha_v": {"kind": "float", "low": 0.001, "high": 1.0, "log": True}})
    alone = [point(p.number, {"alpha_v": p.params["alpha_v"]}, p.mean) for p in made_up(20)]

    assert ped_anova(spec, made_up(FEWEST_POINTS - 1)) == []
    assert ped_anova(one.model_dump(mode="json"), alone) == []


def test_ranks_share_what_is_equal() -> None:
    # Ranks 3.5 1 3.5 2 against 4 1 3 2: 4.5 over the root of 4.5 * 5.
    pairs = [(0.3, 4), (0.1, 1), (0.3, 3), (0.2, 2)]
    assert spearman(pairs) == pytest.approx(math.sqrt(0.9))


def test_spearman_by_hand() -> None:
    # Ranks 1 2 3 4 against 1 3 2 4: 1 - 6 * 2 / (4 * 15).
    assert spearman([(1, 10), (2, 30), (3, 20), (4, 40)]) == pytest.approx(0.8)
    assert spearman([(1, 4), (2, 3), (3, 2), (4, 1)]) == pytest.approx(-1.0)
    assert spearman([(1, 1), (2, 2), (3, 3)]) is None
    assert spearman([(1, 1), (1, 2), (1, 3), (1, 4)]) is None


def test_a_rung_is_correlated_with_the_end_over_the_points_that_reached_it(store: Store) -> None:
    asha = {"kind": "asha", "min_steps": 25, "reduction_factor": 2}
    spec = {
        "objective": {"metric": "validation_error", "direction": "minimize"},
        "scheduler": asha,
        "sampler": "random",
    } | sweep_spec(scheduler=asha, base=BASE).model_dump(mode="json")
    claim = claimed(store, spec=spec)
    # At step 25 the order is right, at step 50 it is reversed.
    for number, (early, middle, end) in enumerate(
        [(0.1, 0.9, 0.1), (0.2, 0.8, 0.2), (0.3, 0.7, 0.3), (0.4, 0.6, 0.4), (0.9, None, None)]
    ):
        added = store.add_trials(claim, [trial(number)])[0]
        attempt = store.start_attempt(claim, added.number)
        values = [(25, early), (50, middle), (100, end)]
        reports = [report(step, value) for step, value in values if value is not None]
        store.record(claim, added.number, attempt.id, reports)
        state = TrialState.PRUNED if end is None else TrialState.COMPLETE
        store.finish_attempt(
            claim, added.number, attempt.id, state, "x", trial_state=state, objective=end
        )

    found = driver_analysis(store, claim.sweep_id)

    assert found["rungs"] == [
        {"step": 25, "points": 4, "spearman": pytest.approx(1.0)},
        {"step": 50, "points": 4, "spearman": pytest.approx(-1.0)},
    ]
    store.set_result(claim, found)
    store.release(claim, SweepState.COMPLETE, "all done")
    assert full_analysis(store, claim.sweep_id)["rungs"] == found["rungs"]


def test_a_confirmation_is_averaged_over_all_of_its_seeds(sqlite_store: Store) -> None:
    sweep = new_sweep(sqlite_store)
    spec = SPEC | {"confirms": {"sweep": sweep.id, "points": [7]}}
    # The mean of 0, 1, 2, ... 599.
    found = [finished_trial(seed, float(seed)) for seed in range(600)]
    key = confirmation_key(sweep.id, "x")
    sqlite_store.import_sweep(spec, found, key=key, name="c", tags=(), notes="", num_trials=600)

    (row,) = full_analysis(sqlite_store, sweep.id)["confirmed"]

    assert row["point"] == 7
    assert row["seeds"] == list(range(600))
    assert row["objective"]["n"] == 600
    assert row["objective"]["mean"] == pytest.approx(299.5)


BASE = {
    "dataset": "digits",
    "depth": 10,
    "widen_factor": 1,
    "optimizer": "ndadam",
    "steps": 100,
    "validation_fraction": 0.2,
}
