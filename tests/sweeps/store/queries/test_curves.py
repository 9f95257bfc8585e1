"""The store's contract on measurements: each point once, later attempts win, nothing non-finite."""

import math

import pytest

from sweeps.errors import SweepStateConflict
from sweeps.records import PointCurve, TrialCurves, TrialReports, TrialState
from sweeps.store.queries.thinning import thin
from sweeps.store.store import Store
from tests.sweeps.store_cases import claimed, report, trial
from worker.report import Series


def test_reports_become_curves_by_name(store: Store) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial()])
    attempt = store.start_attempt(claim, 0)

    reports = [report(s, metrics={"train_loss": s / 10, "α^v": 1.0}) for s in (10, 20, 30)]
    store.record(claim, 0, attempt.id, reports)
    # The whole batch again, as after an answer that was lost.
    store.record(claim, 0, attempt.id, reports)

    curves = store.metrics(claim.sweep_id, 0)
    assert curves == {
        "train_loss": [(10, 1.0), (20, 2.0), (30, 3.0)],
        "α^v": [(10, 1.0), (20, 1.0), (30, 1.0)],
    }
    assert store.metrics(claim.sweep_id, 0, names=["train_loss", "no"], max_points=2) == {
        "train_loss": [(10, 1.0), (30, 3.0)]
    }
    assert store.metric_names(claim.sweep_id) == ["train_loss", "α^v"]


def test_non_finite_values_are_left_out_and_flagged(store: Store) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial()])
    attempt = store.start_attempt(claim, 0)

    for step, value in enumerate((math.nan, math.inf, -math.inf, 0.5), start=1):
        store.record(claim, 0, attempt.id, [report(step, metrics={"loss": value, "ok": 1.0})])

    assert store.metrics(claim.sweep_id, 0)["loss"] == [(4, 0.5)]
    assert len(store.metrics(claim.sweep_id, 0)["ok"]) == 4
    provenance = store.trial(claim.sweep_id, 0).attempts[0].provenance
    assert provenance == {"non_finite": {"loss": 1}}


def test_a_resumed_attempt_repeats_no_step(store: Store) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial()])
    first = store.start_attempt(claim, 0)
    for step in (10, 20, 30, 40):
        store.record(
            claim,
            0,
            first.id,
            [
                report(
                    step,
                    metrics={"loss": 1.0},
                    series={"effective_lr": Series(start=step - 10, every=1, values=[1.0] * 10)},
                )
            ],
        )
    store.finish_attempt(
        claim, 0, first.id, TrialState.FAILED, "killed", trial_state=TrialState.WAITING
    )
    # Its checkpoint was taken at step 25.
    second = store.start_attempt(claim, 0)
    store.record(
        claim,
        0,
        second.id,
        [
            report(
                30,
                metrics={"loss": 2.0},
                series={"effective_lr": Series(start=25, every=1, values=[2.0] * 5)},
            )
        ],
    )

    assert store.metrics(claim.sweep_id, 0)["loss"] == [(10, 1.0), (20, 1.0), (30, 2.0)]
    assert store.series(claim.sweep_id, 0, "effective_lr") == [
        Series(start=0, every=1, values=[1.0] * 25 + [2.0] * 5)
    ]
    assert store.series_names(claim.sweep_id) == ["effective_lr"]
    assert store.series(claim.sweep_id, 0, "other") == []


def test_series_with_a_gap_stay_apart(store: Store) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial()])
    attempt = store.start_attempt(claim, 0)
    parts = [
        Series(start=0, every=5, values=[0.0, 1.0]),
        Series(start=10, every=5, values=[2.0]),
        Series(start=40, every=5, values=[8.0, math.nan]),
    ]

    store.record(
        claim, 0, attempt.id, [report(i, series={"x": part}) for i, part in enumerate(parts)]
    )

    first, second = store.series(claim.sweep_id, 0, "x")
    assert first == Series(start=0, every=5, values=[0.0, 1.0, 2.0])
    assert (second.start, second.values[0]) == (40, 8.0)
    assert math.isnan(second.values[1])


def test_point_curves_are_means_over_seeds(store: Store) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial(0, 0), trial(0, 1), trial(1, 0)])
    for number, values in enumerate(([1.0, 2.0], [3.0], [7.0, 8.0])):
        attempt = store.start_attempt(claim, number)
        reports = [report(10 * i, metrics={"loss": v}) for i, v in enumerate(values, start=1)]
        store.record(claim, number, attempt.id, reports)

    curves = store.point_curves(claim.sweep_id, "loss", [1, 0, 5])

    assert curves == [
        PointCurve(point=1, steps=[10, 20], mean=[7.0, 8.0], sd=[None, None], n=[1, 1]),
        PointCurve(point=0, steps=[10, 20], mean=[2.0, 2.0], sd=[2.0**0.5, None], n=[2, 1]),
    ]
    thinned = store.point_curves(claim.sweep_id, "loss", [0], max_points=1)
    assert thinned[0].steps == [20]


def test_whole_curves_of_many_trials_come_in_pages(store: Store) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial(0, seed=s) for s in range(3)])
    for number in range(3):
        attempt = store.start_attempt(claim, number)
        store.record(claim, number, attempt.id, [report(s, error=s / 10) for s in (1, 2)])

    first = store.trial_curves(claim.sweep_id, limit=2)
    second = store.trial_curves(claim.sweep_id, limit=2, cursor=first.next)
    nothing = store.trial_curves(claim.sweep_id, [])

    assert [one.number for one in (*first.items, *second.items)] == [0, 1, 2]
    assert second.next is None
    assert second.items == [
        TrialCurves(2, 0, 2, {"validation_error": [(1, 0.1), (2, 0.2)]}),
    ]
    assert [one.curves for one in nothing.items] == [{}, {}, {}]


def test_series_are_read_as_steps_with_values(store: Store) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial()])
    attempt = store.start_attempt(claim, 0)
    series = {"effective_lr": Series(start=4, every=2, values=[0.5, 0.25])}
    store.record(claim, 0, attempt.id, [report(10, series=series)])

    assert store.recorded_curve(claim.sweep_id, 0, "effective_lr") == [(4, 0.5), (6, 0.25)]


def test_one_batch_holds_reports_of_many_trials(store: Store) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial(0), trial(1)])
    attempts = [store.start_attempt(claim, n) for n in (0, 1)]

    store.record_batch(
        claim, [TrialReports(n, a.id, [report(5, 0.1 * (n + 1))]) for n, a in enumerate(attempts)]
    )

    assert [t.objective for t in store.all_trials(claim.sweep_id)] == [0.1, 0.2]
    with pytest.raises(SweepStateConflict, match="not one of trial 1"):
        store.record(claim, 1, attempts[0].id, [report(6)])


@pytest.mark.parametrize("most", [1, 2, 3, 7, 10, 11])
def test_thinning_keeps_the_ends_and_the_order(most: int) -> None:
    items = list(range(10))

    kept = thin(items, most)

    assert len(kept) == min(most, 10)
    assert kept == sorted(set(kept))
    assert kept[-1] == 9
    assert most == 1 or kept[0] == 0
