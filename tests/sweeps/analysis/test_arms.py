"""Analysis: intervals by hand, the arm's best point, nothing chosen from the test set."""

import json
import math
from typing import Any

import pytest

from sweeps.analysis.arms import Analysis, analyse, analysis, estimate
from sweeps.analysis.result_tables import result_table
from sweeps.analysis.sensitivity import sensitivity
from sweeps.errors import InvalidFilter
from sweeps.records import Claim, NewTrial, Point, TrialState
from sweeps.store.store import Store
from tests.sweeps.store_cases import claimed, report
from tests.sweeps.sweep_cases import stored_sweep

SPACE = {
    "optimizer": {"kind": "choice", "values": ["sgd", "ndadam"]},
    "lr": {"kind": "float", "low": 0.1, "high": 0.4, "when": {"optimizer": ["sgd"]}},
}


def spec(**changes: Any) -> dict[str, Any]:
    objective = {"metric": "validation_error", "direction": "minimize"}
    return {
        "objective": objective,
        "sampler": "random",
        "scheduler": None,
        "replicates": 3,
        "space": SPACE,
    } | changes


def finish(
    store: Store,
    claim: Claim,
    point: int,
    params: dict[str, Any],
    results: list[tuple[float, float] | None],
) -> None:
    """Train a point: (validation error, test error) per seed, None for a diverged seed."""
    for seed, result in enumerate(results):
        (trial,) = store.add_trials(claim, [NewTrial(point, seed, params, params, f"k{point}")])
        attempt = store.start_attempt(claim, trial.number)
        state = TrialState.DIVERGED if result is None else TrialState.COMPLETE
        if result is not None:
            metrics = {"validation_error": result[0], "test_error": result[1]}
            store.record(claim, trial.number, attempt.id, [report(100, metrics=metrics)])
        store.finish_attempt(claim, trial.number, attempt.id, state, state.value, trial_state=state)


@pytest.fixture
def compared(store: Store) -> tuple[Store, str]:
    """Two optimizers; the better point of SGD is its second, the third diverged once."""
    claim = claimed(store, spec=spec())
    finish(store, claim, 0, {"optimizer": "sgd", "lr": 0.4}, [(0.3, 0.1), (0.4, 0.1), (0.5, 0.1)])
    finish(
        store, claim, 1, {"optimizer": "sgd", "lr": 0.2}, [(0.1, 0.20), (0.2, 0.22), (0.3, 0.24)]
    )
    finish(store, claim, 2, {"optimizer": "sgd", "lr": 0.3}, [(0.01, 0.01), None, (0.01, 0.01)])
    finish(store, claim, 3, {"optimizer": "ndadam"}, [(0.2, 0.10), (0.2, 0.12), (0.2, 0.14)])
    return store, claim.sweep_id


def test_an_estimate_is_the_mean_with_its_t_interval() -> None:
    found = estimate("train_loss", [1.0, 2.0, 3.0])

    assert found is not None
    assert (found.mean, found.sd, found.n) == (2.0, 1.0, 3)
    # t(0.975, 2) = 4.302653; half = 4.302653 / sqrt(3)
    assert found.high == pytest.approx(2 + 4.302653 / math.sqrt(3), abs=1e-6)
    single = estimate("train_loss", [0.5])
    assert single is not None
    assert (single.sd, single.low, single.high) == (None, None, None)
    assert estimate("train_loss", []) is None


def test_the_interval_of_an_error_stays_between_0_and_100_percent() -> None:
    found = estimate("test_error", [0.04512, 0.06248])
    # Not a fraction, whatever it is called.
    other = estimate("reconstruction_error", [1.0, 3.0])

    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.00647, 0.3317), rel=1e-3)
    assert other is not None
    assert other.low == pytest.approx(2 - 12.7062)


def test_each_optimizer_stands_with_its_best_stable_point(compared: tuple[Store, str]) -> None:
    sgd, ndadam = analysis(*compared).arms

    # Point 2 has the best seeds, but one of them diverged.
    assert (sgd.arm, sgd.point, sgd.params["lr"]) == ({"optimizer": "sgd"}, 1, 0.2)
    assert (sgd.points, sgd.points_diverged, sgd.selected) == (3, 1, True)
    assert sgd.objective is not None
    assert sgd.objective.mean == pytest.approx(0.2)
    assert sgd.test_error is not None
    assert sgd.test_error.mean == pytest.approx(0.22)
    assert (ndadam.point, ndadam.selected) == (3, False)


def test_arms_are_compared_by_test_error_with_welch(compared: tuple[Store, str]) -> None:
    (comparison,) = analysis(*compared).comparisons

    assert (comparison.a, comparison.b) == ({"optimizer": "sgd"}, {"optimizer": "ndadam"})
    assert comparison.metric == "test_error"
    assert comparison.difference == pytest.approx(0.1)
    # Equal spreads of 0.02: error 0.02 sqrt(2/3), 4 degrees of freedom, t(0.975, 4) = 2.776445.
    half = 2.776445 * 0.02 * math.sqrt(2 / 3)
    assert comparison.high == pytest.approx(0.1 + half, abs=1e-6)
    assert comparison.verdict == "higher"


@pytest.mark.parametrize(
    ("field", "results", "words"),
    [
        ("dataset", [(0.1, 0.20), (0.2, 0.22)], "their errors are of other images"),
        ("optimizer", [(0.1, 0.20), (0.2, 0.20)], "any difference would look certain"),
    ],
)
def test_arms_that_get_no_verdict_are_told_with_the_reason(
    store: Store, field: str, results: list[tuple[float, float] | None], words: str
) -> None:
    names = ["sgd", "ndadam"]
    claim = claimed(store, spec=spec(space={field: {"kind": "choice", "values": names}}))
    for point, name in enumerate(names):
        finish(store, claim, point, {field: name}, results)

    found = analysis(store, claim.sweep_id, [field])

    assert found.comparisons == []
    assert words in found.notes[0]


def test_arms_that_are_left_out_of_the_comparisons_are_told_with_the_reason(store: Store) -> None:
    names = list("abcdefghi")
    claim = claimed(store, spec=spec(space={"optimizer": {"kind": "choice", "values": names}}))
    for point, name in enumerate(names[:7]):
        finish(store, claim, point, {"optimizer": name}, [(0.1, 0.2), (0.2, 0.2 + point / 100)])
    finish(store, claim, 7, {"optimizer": "h"}, [(0.1, 0.2)])

    few = analysis(store, claim.sweep_id)

    assert len(few.comparisons) == 7 * 6 / 2
    assert "Not compared, for want of two seeds with a value: h." in few.notes

    for point, name in ((8, "i"), (9, "j")):
        finish(store, claim, point, {"optimizer": name}, [(0.1, 0.2), (0.2, 0.3)])
    many = analysis(store, claim.sweep_id)

    assert many.comparisons == []
    assert many.notes[0].startswith("9 arms have two seeds or more, and differences are listed for")
    assert many.notes[0] in result_table(many)


def test_the_spread_of_seeds_is_pooled_over_points(compared: tuple[Store, str]) -> None:
    found = analysis(*compared)

    # Points 0, 1 and 3 with deviations 0.1, 0.1 and 0.
    assert found.seed_deviation == pytest.approx(math.sqrt(0.02 / 3))
    assert found.detectable_difference is not None
    assert found.detectable_difference > found.seed_deviation


def test_notes_say_what_a_reader_must_know(compared: tuple[Store, str]) -> None:
    notes = " ".join(analysis(*compared).notes)

    assert "optimistic" in notes
    assert "unequal numbers of points: sgd 3, ndadam 1" in notes


def test_nothing_is_chosen_where_the_objective_is_the_test_error(store: Store) -> None:
    claim = claimed(store, spec=spec(objective={"metric": "test_error"}, sampler="grid"))
    finish(store, claim, 0, {"optimizer": "sgd", "lr": 0.4}, [(0.3, 0.1), (0.4, 0.2)])
    finish(store, claim, 1, {"optimizer": "sgd", "lr": 0.2}, [(0.1, 0.3), (0.2, 0.4)])

    found = analysis(store, claim.sweep_id)

    assert [(a.arm["lr"], a.selected) for a in found.arms] == [(0.4, False), (0.2, False)]
    assert [a.test_error and a.test_error.mean for a in found.arms] == [
        pytest.approx(0.15),
        pytest.approx(0.35),
    ]
    by_optimizer = analysis(store, claim.sweep_id, arms=["optimizer"])
    assert "no test any more" in by_optimizer.notes[0]


def test_arms_must_be_fields_of_the_space(compared: tuple[Store, str]) -> None:
    with pytest.raises(InvalidFilter, match="optimizer, lr"):
        analysis(*compared, arms=["depth"])


def test_a_sweep_without_a_finite_result_says_so(store: Store) -> None:
    claim = claimed(store, spec=spec())
    assert analysis(store, claim.sweep_id).arms == []

    finish(store, claim, 0, {"optimizer": "sgd", "lr": 0.4}, [None, None])
    found = analysis(store, claim.sweep_id)

    assert "No finite result." in found.notes
    assert found.arms[0].objective is None
    assert "–" in result_table(found)


def test_an_analysis_is_valid_json(compared: tuple[Store, str]) -> None:
    values = analyse(*compared)

    assert json.loads(json.dumps(values, allow_nan=False)) == values
    assert values["arms"][0]["objective"]["n"] == 3


def test_the_table_shows_percent_with_the_interval(compared: tuple[Store, str]) -> None:
    found: Analysis = analysis(*compared)

    text = result_table(found)
    markdown = result_table(found, "markdown")

    # 0.02 * 4.302653 / sqrt(3) = 0.0497, and logit(0.22) ± 0.0497 / (0.22 * 0.78)
    assert "22.00 (17.43 to 27.37)" in text
    assert "20.00 (5.03 to 54.15) (selected)" in text
    assert "3 (1 diverged)" in text
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len(rows) == 4
    assert {row.count("|") for row in rows} == {rows[0].count("|")}


class TestSensitivity:
    def points(self, means: dict[float, float | None]) -> list[Point]:
        return [
            Point(
                "s",
                number,
                {"lr": lr},
                mean,
                None,
                1 if mean is not None else 0,
                TrialState.COMPLETE if mean is not None else TrialState.DIVERGED,
            )
            for number, (lr, mean) in enumerate(means.items())
        ]

    def test_few_values_have_a_bin_each(self) -> None:
        design = spec(sampler="grid", space={"lr": {"kind": "choice", "values": [0.4, 0.1]}})
        points = self.points({0.1: 0.5, 0.4: None})

        (found,) = sensitivity(stored_sweep(design), points)

        assert [(b.value, b.mean, b.n, b.diverged) for b in found.bins] == [
            (0.4, None, 0, 1),
            (0.1, 0.5, 1, 0),
        ]

    def test_a_log_range_is_binned_evenly_in_its_logarithm(self) -> None:
        space = {"lr": {"kind": "float", "low": 1e-6, "high": 1.0, "log": True}}
        points = self.points({10 ** -(x / 2 + 0.25): x / 10 for x in range(12)})

        (found,) = sensitivity(stored_sweep(spec(space=space)), points)

        assert found.log
        assert [b.n for b in found.bins] == [2] * 6
        assert found.bins[0].low == 1e-6
        assert found.bins[-1].high == 1.0
        assert found.bins[0].high == pytest.approx(1e-5)
        assert all(b.mean_low is not None for b in found.bins)

    @pytest.mark.parametrize(
        "changes", [{"sampler": "tpe"}, {"sampler": "gp"}, {"scheduler": {"kind": "asha"}}]
    )
    def test_a_search_that_follows_results_has_none(self, changes: dict[str, Any]) -> None:
        space = {"lr": {"kind": "choice", "values": [0.1, 0.4]}}

        sweep = stored_sweep(spec(space=space, **changes))
        assert sensitivity(sweep, self.points({0.1: 0.5})) == []

    def test_one_field_alone_may_be_asked_for(self) -> None:
        choice = {"kind": "choice", "values": [0.1]}
        sweep = stored_sweep(spec(space={"momentum": choice, "lr": choice}))
        points = self.points({0.1: 0.5})

        assert [one.field for one in sensitivity(sweep, points, "lr")] == ["lr"]
        assert sensitivity(sweep, points, "momentum") == []


def test_the_table_has_the_declared_unit_and_only_a_test_error_that_is_reported(
    store: Store,
) -> None:
    hostile = "<b>|$5_"
    declared = {"score": {"direction": "maximize", "unit": hostile}}
    objective = {"metric": "score", "direction": "maximize"}
    claim = claimed(store, spec=spec(objective=objective, metrics=declared))
    finish(store, claim, 0, {"optimizer": "sgd", "lr": 0.4}, [None, None])

    found = analysis(store, claim.sweep_id)
    text, markdown, latex = (
        result_table(found, form, declared).splitlines() for form in ("text", "markdown", "latex")
    )

    assert "test error %" not in "".join([*text, *markdown, *latex])
    assert f"score {hostile}" in text[0]
    assert "score \\<b\\>\\|$5\\_" in markdown[0]
    assert any(r"score <b>|\$5\_" in line for line in latex)
    assert "test error %" in result_table(found)
