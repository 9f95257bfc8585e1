"""Trials of several sweeps in one listing, and views under a name, on both databases."""

from typing import Any

import pytest

from sweeps.errors import InvalidFilter, InvalidSort, SweepNotFound, ViewNotFound
from sweeps.records import NewTrial, TrialState
from sweeps.store.store import Store
from tests.sweeps.store_cases import LEASE
from worker.report import Report

#: Base, and params with the last error, of two sweeps: the second one fixes what the first varies.
SWEEPS: list[tuple[str, dict[str, Any], list[tuple[dict[str, Any], float | None]]]] = [
    (
        "varied",
        {"dataset": "digits"},
        [
            ({"lr": 0.1, "optimizer": "sgd"}, 0.04),
            ({"lr": 0.5, "optimizer": "sgd"}, None),
            ({"lr": 0.02, "optimizer": "adam"}, 0.02),
        ],
    ),
    (
        "fixed",
        {"dataset": "cifar10", "lr": 0.2, "optimizer": "sgd", "nesterov": True},
        [({"alpha_v": 0.05}, 0.03), ({"alpha_v": 0.2}, 0.01)],
    ),
]


@pytest.fixture
def both(store: Store) -> list[str]:
    ids = []
    for name, base, trials in SWEEPS:
        space = {field: {} for params, _ in trials for field in params}
        spec = {"space": space, "base": base}
        store.create_sweep("sweep", spec, name=name, num_trials=len(trials))
        claim = store.claim("runner", LEASE)
        assert claim is not None
        ids.append(claim.sweep_id)
        new = [
            NewTrial(n, 0, params, base | params, f"{name}{n}")
            for n, (params, _) in enumerate(trials)
        ]
        for trial in store.add_trials(claim, new):
            error = trials[trial.number][1]
            attempt = store.start_attempt(claim, trial.number)
            metrics = {} if error is None else {"test_error": error}
            report = Report(step=9, num_steps=9, status="complete", metrics=metrics)
            store.record(claim, trial.number, attempt.id, [report])
            state = TrialState.DIVERGED if error is None else TrialState.COMPLETE
            store.finish_attempt(
                claim, trial.number, attempt.id, state, "", trial_state=state, objective=error
            )
    return ids


def listed(store: Store, ids: list[str], limit: int = 50, **query: Any) -> list[str]:
    """``v0`` for trial 0 of the first sweep, ``f1`` for trial 1 of the second."""
    found: list[str] = []
    cursor = None
    while True:
        page = store.trials_across(ids, cursor=cursor, limit=limit, **query)
        found += [f"{'vf'[ids.index(t.sweep_id)]}{t.number}" for t in page.items]
        cursor = page.next
        if cursor is None:
            return found


class TestAcross:
    @pytest.mark.parametrize("limit", [1, 2, 50])
    @pytest.mark.parametrize(
        ("sort", "order"),
        [
            ("sweep", "v0 v1 v2 f0 f1"),
            ("-sweep", "f1 f0 v2 v1 v0"),
            ("objective", "f1 v2 f0 v0 v1"),
            ("-metrics.test_error", "v0 f0 v2 f1 v1"),
            ("params.lr", "v2 v0 f0 f1 v1"),
            ("-params.lr", "v1 f1 f0 v0 v2"),
            ("params.alpha_v", "f0 f1 v0 v1 v2"),
            ("params.optimizer", "v2 v0 v1 f0 f1"),
            ("params.nesterov", "f0 f1 v0 v1 v2"),
        ],
    )
    def test_every_trial_comes_once_in_order(
        self, store: Store, both: list[str], sort: str, order: str, limit: int
    ) -> None:
        assert listed(store, both, limit, sort=sort) == order.split()

    @pytest.mark.parametrize(
        ("where", "fits"),
        [
            ("lr > 0.05", "v0 v1 f0 f1"),
            ("lr > 0.05 and test_error < 0.035", "f0 f1"),
            ("optimizer = sgd and state = complete", "v0 f0 f1"),
            ("alpha_v = none", "v0 v1 v2"),
            ("dataset = digits", "v0 v1 v2"),
            ("nesterov = true", "f0 f1"),
            ("sweep = fixed and alpha_v > 0.1", "f1"),
            ("sweep != fixed", "v0 v1 v2"),
            ("not lr > 0.15", "v0 v2"),
            ("point_mean <= 0.02", "v2 f1"),
        ],
    )
    def test_a_field_that_a_sweep_fixes_has_its_value_there(
        self, store: Store, both: list[str], where: str, fits: str
    ) -> None:
        assert listed(store, both, where=where) == fits.split()

    def test_the_order_of_the_sweeps_is_as_given(self, store: Store, both: list[str]) -> None:
        found = store.trials_across(both[::-1]).items
        assert [trial.sweep_id for trial in found] == [both[1]] * 2 + [both[0]] * 3

    def test_what_is_nowhere_is_refused(self, store: Store, both: list[str]) -> None:
        with pytest.raises(InvalidFilter, match="there is no field 'beta'"):
            store.trials_across(both, where="beta > 1")
        with pytest.raises(InvalidSort):
            store.trials_across(both, sort="params.beta")
        with pytest.raises(InvalidSort, match=r"metrics\.test_error"):
            store.trials_across(both, sort="metrics.beta")
        with pytest.raises(SweepNotFound):
            store.trials_across([both[0], "000000000000"])
        with pytest.raises(InvalidFilter, match="1 to 20 sweeps, got 0"):
            store.trials_across([])


class TestOneSweep:
    def test_trials_are_sorted_by_a_metric(self, store: Store, both: list[str]) -> None:
        found = store.trials(both[0], sort="-metrics.test_error").items
        assert [trial.number for trial in found] == [0, 2, 1]

    def test_points_are_found_by_a_condition_and_curves_have_the_trials_that_fit(
        self, store: Store, both: list[str]
    ) -> None:
        where = "point_mean < 0.03"
        assert store.points_where(both[0], where) == {2}
        curves = store.point_curves(both[0], "test_error", [0, 1, 2], where=where)
        assert [(one.point, one.mean) for one in curves] == [(2, [0.02])]


class TestSavedViews:
    def test_a_view_is_kept_under_its_name_and_replaced_under_it(
        self, store: Store, both: list[str]
    ) -> None:
        store.save_view(both[0], "best", "where=lr+%3E+1")
        store.save_view(both[0], "best", "sort=mean")
        store.save_view(None, "best", "sweep=a&sweep=b")

        [view] = store.saved_views(both[0])
        assert (view.name, view.query) == ("best", "sort=mean")
        assert store.saved_view(None, "best").query == "sweep=a&sweep=b"
        assert store.saved_views(both[1]) == []

    def test_it_is_still_there_after_a_restart_and_goes_with_its_sweep(
        self, store: Store, both: list[str]
    ) -> None:
        store.save_view(both[0], "best", "sort=mean")
        again = Store(store.url)
        assert [view.name for view in again.saved_views(both[0])] == ["best"]
        again.close()

        store.delete_view(both[0], "best")
        store.delete_view(both[0], "best")
        with pytest.raises(ViewNotFound, match="there is no saved view 'best'"):
            store.saved_view(both[0], "best")
        with pytest.raises(SweepNotFound):
            store.save_view("000000000000", "best", "")
