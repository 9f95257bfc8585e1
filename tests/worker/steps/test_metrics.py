"""Losses on their way from a device: a divergence is noticed within 100 steps."""

import math

import pytest

from worker.steps.metrics import RunningMetrics, StepRecord


class SlowDevice:
    """Records losses of steps; what is read of them is never there before it is waited for."""

    def __init__(self):
        self.rows = []

    def note(self, loss):
        self.rows.append(StepRecord(loss, 0, 1, 1.0, 1))
        return len(self.rows)

    def begin_read(self):
        rows, self.rows = self.rows, []
        return SlowRead(rows)


class SlowRead:
    is_done = False

    def __init__(self, rows):
        self.rows = rows

    def records(self):
        return self.rows


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("bad_step", [0, 1, 49, 50, 51, 99, 149])
def test_a_loss_that_is_not_finite_is_noticed_within_100_steps(bad_step, value):
    device, tally = SlowDevice(), RunningMetrics()
    tally.begin_read = device.begin_read
    step = 0

    while tally.diverged_at is None:
        tally.add_device(step, device.note(value if step == bad_step else 1.0))
        step += 1
        assert step - bad_step <= 100, "it should have been noticed by now"

    assert tally.diverged_at == bad_step
    assert tally.steps == bad_step  # what came after it is no part of the means
