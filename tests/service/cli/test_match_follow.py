"""Curves of one trial, for a closed loop."""

from types import SimpleNamespace

import pytest
import typer

from service.cli.match_input import follow_points
from sweeps.store.queries.thinning import thin


def points_of(records, trial="0123456789ab/3"):
    asked = []

    def metrics(sweep, number, **query):
        asked.append((sweep, number, query["name"]))
        return {"effective_lr": records} if records else {}

    points = follow_points(
        {},
        csv=None,
        match=None,
        trial=trial,
        steps=10,
        lr_schedule="constant",
        service=lambda: SimpleNamespace(metrics=metrics),
    )
    assert asked == [("0123456789ab", 3, ["effective_lr"])]
    return points


def test_the_records_of_a_trial_are_smoothed_over_stretches():
    points = points_of([(step, 0.01 + 1e-6 * step) for step in range(800)])

    assert len(points) == 400
    assert points[0] == (0, pytest.approx(0.0100005))
    assert points[-1] == (798, pytest.approx(0.0107985))


@pytest.mark.parametrize("steps", [12_000, 15_000, 20_000])
def test_thinned_records_keep_their_steps(steps):
    records = [(step, 0.01 if step < steps // 2 else 0.002) for step in range(steps)]
    points = points_of(thin(records, 10_000))

    assert points[-1][0] == pytest.approx(steps, rel=0.01)
    dropped = next(step for step, value in points if value < 0.005)
    assert dropped == pytest.approx(steps // 2, rel=0.01)


def test_a_trial_without_records_is_refused_with_what_there_is_instead():
    with pytest.raises(typer.BadParameter, match="only trials of matches do: --match follows"):
        points_of([])


def test_a_trial_is_named_by_sweep_and_number():
    with pytest.raises(typer.BadParameter, match="expected SWEEP/NUMBER, got '0123456789ab'"):
        points_of([(0, 0.1), (1, 0.1)], trial="0123456789ab")
