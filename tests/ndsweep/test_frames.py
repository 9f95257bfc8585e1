"""Data frames of a sweep: complete, typed, with units; checked against what the store holds."""

import math

import pandas
import pytest

from ndsweep.frames import FRACTION, row_frame, typed
from tests.sweeps.store_cases import claimed, report, run
from tests.sweeps.store_cases import trial as new_trial
from worker.report import Series

LOGIT = math.log(0.105 / 0.895)


def test_trials_are_rows_with_states_times_params_and_metrics(sweep):
    frame = sweep.trials()

    assert list(frame["trial"]) == [0, 1, 2, 3]
    assert list(frame["state"]) == ["complete"] * 3 + ["diverged"]
    assert "pruned" in frame["state"].cat.categories
    assert list(frame["params.alpha_v"]) == [0.05, 0.05, 0.06, 0.06]
    assert frame["metrics.validation_error"].iloc[1] == pytest.approx(0.11)
    assert math.isnan(frame["objective"].iloc[3])
    assert {name: str(kind) for name, kind in frame.dtypes.items()} == {
        "trial": "int64",
        "point": "int64",
        "seed": "int64",
        "state": "category",
        "objective": "float64",
        "step": "int64",
        "num_steps": "Int64",
        "diverged_at_step": "Int64",
        "exit_cause": "str",
        "created_at": "datetime64[us, UTC]",
        "started_at": "datetime64[us, UTC]",
        "finished_at": "datetime64[us, UTC]",
        "params.alpha_v": "float64",
        "metrics.effective_lr/conv1": "float64",
        "metrics.train_loss": "float64",
        "metrics.validation_error": "float64",
    }
    units = frame.attrs["units"]
    assert units["objective"] == units["metrics.validation_error"] == FRACTION
    assert units["metrics.train_loss"] == "nats"
    assert units["params.alpha_v"] == "per step"
    assert (units["step"], units["started_at"]) == ("steps", "UTC")


def test_the_whole_configuration_comes_where_it_is_asked_for(sweep):
    frame = sweep.trials(config=True)

    assert list(frame["config.seed"]) == [0, 1, 0, 1]
    assert not [name for name in sweep.trials() if name.startswith("config.")]


def test_points_have_their_mean_over_seeds_and_its_interval(sweep):
    """Two seeds: 0.10 and 0.11, so t = 12.706; an error's interval is on the logit scale."""
    frame = sweep.points()

    assert list(frame["point"]) == [0, 1]
    assert frame["mean"].iloc[0] == pytest.approx(0.105)
    assert frame["sd"].iloc[0] == pytest.approx(0.01 / math.sqrt(2))
    half = 12.7062 * 0.005 / (0.105 * 0.895)
    ends = [1 / (1 + math.exp(-logit)) for logit in (LOGIT - half, LOGIT + half)]
    assert [frame["low"].iloc[0], frame["high"].iloc[0]] == pytest.approx(ends, rel=1e-4)
    assert math.isnan(frame["high"].iloc[1])
    assert list(frame["selected"]) == [True, False]
    assert frame.attrs["units"]["high"] == FRACTION


def test_curves_are_every_value_of_every_trial(sweep):
    frame = sweep.curves()

    assert set(frame["metric"].cat.categories) == {"train_loss", "validation_error"}
    assert len(frame) == 2 * (3 * 2 + 1)
    one = frame[(frame["trial"] == 1) & (frame["metric"] == "train_loss")]
    assert list(one["step"]) == [10, 20]
    assert list(one["value"]) == [1.0, pytest.approx(0.22)]
    assert list(one["seed"]) == [1, 1]
    assert frame.attrs["units"]["value"] == {"train_loss": "nats", "validation_error": FRACTION}
    wide = frame.pivot(index=["trial", "step"], columns="metric", values="value")
    assert wide.loc[(0, 10), "validation_error"] == 0.5


def test_curves_of_some_metrics(sweep):
    frame = sweep.curves("train_loss")

    assert set(frame["metric"]) == {"train_loss"}
    assert len(frame) == 7


def test_dynamics_are_by_quantity_and_layer(sweep):
    frame = sweep.dynamics()

    assert list(frame.columns) == ["trial", "point", "seed", "quantity", "layer", "step", "value"]
    assert set(frame["quantity"]) == {"effective_lr"}
    assert set(frame["layer"]) == {"conv1"}
    assert len(frame) == 7
    assert frame.attrs["units"]["value"] == {"effective_lr": "per step"}


def test_layers_are_ordered_by_depth_and_records_of_every_step_are_dynamics(connected, store):
    """A match records series; conv2 stands before conv10, and the whole network before both."""
    claim = claimed(store)
    store.add_trials(claim, [new_trial()])
    attempt = store.start_attempt(claim, 0)
    series = {
        name: Series(start=2, every=2, values=[0.5, 0.25])
        for name in ("effective_lr", "effective_lr/conv10", "effective_lr/conv2")
    }
    store.record(claim, 0, attempt.id, [report(100, series=series)])

    frame = connected.sweep(claim.sweep_id).dynamics()

    assert list(frame["layer"].cat.categories) == ["", "conv2", "conv10"]
    assert frame["layer"].cat.ordered
    whole = frame[frame["layer"] == ""]
    assert list(zip(whole["step"], whole["value"], strict=True)) == [(2, 0.5), (4, 0.25)]


def test_many_pages_are_one_frame(connected, store, monkeypatch):
    """Pages of the API end after 500 rows; none is lost and none comes twice."""
    claim = claimed(store, num_trials=1100)
    store.add_trials(claim, [new_trial(point, 0) for point in range(1100)])
    run(store, claim, 0, 0.5)
    run(store, claim, 1099, 0.25)
    sweep = connected.sweep(claim.sweep_id)

    assert list(sweep.trials()["trial"]) == list(range(1100))
    assert list(sweep.points()["point"]) == list(range(1100))
    assert list(sweep.curves()["trial"]) == [0, 1099]


def test_a_sweep_without_trials_has_frames_with_columns_and_no_rows(connected, spec):
    sweep = connected.submit(spec)

    for frame in (sweep.trials(), sweep.points(), sweep.curves(), sweep.dynamics()):
        assert frame.empty
        assert len(frame.columns) >= 6
    assert str(sweep.curves()["value"].dtype) == "float64"


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([True, False], "bool"),
        ([True, None], "boolean"),
        ([1, 2], "int64"),
        ([1, None], "Int64"),
        ([1, 2.5, None], "float64"),
        (["a", None], "str"),
        ([1, "a"], "object"),
        ([[0.9, 0.999], None], "object"),
        ([2**63], "float64"),
        ([None, None], "float64"),
        ([], "object"),
    ],
)
def test_a_column_has_the_narrowest_type_that_all_its_values_have(values, kind):
    assert str(pandas.Series(typed(values)).dtype) == kind


def test_rows_of_different_keys_share_their_columns():
    frame = row_frame([{"a": 1}, {"b": "x"}], {"a": "s", "c": "m"})

    assert list(frame.columns) == ["a", "b"]
    assert frame.attrs["units"] == {"a": "s"}
