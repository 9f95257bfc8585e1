import json
from pathlib import Path

import pytest

from worker.config.schedules import build_schedule

ORACLES = json.loads((Path(__file__).parents[2] / "ndadam" / "oracles.json").read_text())


@pytest.mark.parametrize(("step", "factor"), ORACLES["cosine_schedule"]["per_step_80000"].items())
def test_a_cosine_per_step_equals_the_reference_code(step, factor):
    schedule = build_schedule("cosine", num_steps=80_000, steps_per_epoch=390)

    assert schedule(int(step)) == pytest.approx(factor, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(("epoch", "factor"), ORACLES["cosine_schedule"]["per_epoch_200"].items())
def test_a_cosine_per_epoch_equals_the_reference_code(epoch, factor):
    schedule = build_schedule("cosine_epoch", num_steps=200 * 391, steps_per_epoch=391)

    first, last = int(epoch) * 391, int(epoch) * 391 + 390

    assert schedule(first) == schedule(last) == pytest.approx(factor, rel=1e-12)


def test_a_constant_schedule_never_moves():
    schedule = build_schedule("constant", num_steps=10, steps_per_epoch=5)

    assert {schedule(step) for step in range(10)} == {1.0}


@pytest.mark.parametrize(
    ("step", "factor"), [(0, 0.5), (10, 0.5), (15, 0.75), (20, 1.0), (60, 0.5), (100, 0), (500, 0)]
)
def test_points_are_joined_by_straight_lines(step, factor):
    points = ((10, 0.5), (20, 1.0), (100, 0.0))
    schedule = build_schedule(points, num_steps=600, steps_per_epoch=10)

    assert schedule(step) == pytest.approx(factor, abs=1e-15)


def test_warm_up_rises_in_a_line_and_then_leaves_the_schedule_alone():
    plain = build_schedule("cosine", num_steps=100, steps_per_epoch=10)
    warmed = build_schedule("cosine", num_steps=100, steps_per_epoch=10, warmup_steps=4)

    ratios = [warmed(step) / plain(step) for step in range(6)]

    assert ratios == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])
