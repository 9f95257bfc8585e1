"""Analysis and comparisons as data frames, with what their notes say."""

import pytest

import ndsweep
from ndsweep.frames import FRACTION


def test_an_analysis_has_a_frame_for_each_table(sweep):
    found = sweep.analysis()

    assert (found.metric, found.direction) == ("validation_error", "minimize")
    assert list(found.arms["point"]) == [0]
    assert found.arms["objective.mean"].iloc[0] == pytest.approx(0.105)
    assert found.arms["params.alpha_v"].iloc[0] == 0.05
    assert found.arms.attrs["units"]["objective.low"] == FRACTION
    for empty in (found.comparisons, found.sensitivity, found.importance, found.rungs):
        assert empty.empty
        assert len(empty.columns) >= 3
    assert found.seed_deviation == pytest.approx(0.01 / 2**0.5)


def test_sweeps_are_compared_by_object_and_by_id(connected, finished):
    good = connected.sweep(finished("sgd", [0.040, 0.041, 0.042]))
    bad = finished("adam", [0.060, 0.061, 0.062])

    found = good.compare(bad, metric="test_error")

    assert list(found.arms["n"]) == [3, 3]
    assert list(found.differences["verdict"]) == ["lower"]
    assert found.differences["difference"].iloc[0] == pytest.approx(-0.02)
    assert found.differences.attrs["units"]["difference"] == FRACTION
    assert list(found.values["value"]) == pytest.approx([0.040, 0.041, 0.042, 0.060, 0.061, 0.062])
    assert list(found.values["seed"]) == [0, 1, 2, 0, 1, 2]


def test_points_of_one_sweep_are_compared(connected, sweep):
    arms = [{"sweep": sweep.id, "point": 0}, {"sweep": sweep.id, "trials": [2]}]

    found = connected.compare(*arms, metric="validation_error")

    assert list(found.arms["mean"]) == pytest.approx([0.105, 0.2])
    assert found.notes


def test_one_arm_cannot_be_compared(sweep):
    with pytest.raises(ndsweep.ServiceRefused, match="needs 2 to 20 arms"):
        sweep.compare()
