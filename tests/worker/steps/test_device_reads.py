"""When what a device recorded is read: without waiting for it, or at the last moment."""

import math

import pytest

from worker.steps.metrics import DRAIN_STEPS, RunningMetrics, StepRecord


class Device:
    """Holds the records of steps; a read is done when it is told so."""

    def __init__(self):
        self.waiting, self.reads = [], []
        self.tally = RunningMetrics()
        self.tally.begin_read = self.begin_read

    def step(self, number, loss):
        self.waiting.append(StepRecord(loss, 1, 10, 4.0, 40))
        self.tally.add_device(number, len(self.waiting))

    def begin_read(self):
        read, self.waiting = Read(self.waiting), []
        self.reads.append(read)
        return read


class Read:
    def __init__(self, records):
        self._records, self.is_done, self.was_waited_for = records, False, False

    def records(self):
        self.was_waited_for |= not self.is_done
        return self._records


def test_a_read_under_way_is_waited_for_only_when_the_next_one_begins():
    device = Device()
    for step in range(2 * DRAIN_STEPS - 1):
        device.step(step, 1.0)
    (first,) = device.reads
    assert device.tally.steps == 0
    assert device.tally.is_open
    assert not first.was_waited_for

    device.step(2 * DRAIN_STEPS - 1, 1.0)
    assert first.was_waited_for
    assert device.tally.steps == DRAIN_STEPS


def test_a_read_that_is_done_is_taken_in_at_the_next_step():
    device = Device()
    for step in range(DRAIN_STEPS):
        device.step(step, 2.0)
    device.reads[0].is_done = True

    device.step(DRAIN_STEPS, 4.0)

    assert device.tally.steps == DRAIN_STEPS
    assert not device.reads[0].was_waited_for
    device.tally.drain()
    assert device.tally.steps == DRAIN_STEPS + 1
    expected = (2.0 * DRAIN_STEPS + 4.0) / (DRAIN_STEPS + 1)
    assert device.tally.metrics()["train_loss"] == pytest.approx(expected)
    assert device.tally.state()["steps"] == DRAIN_STEPS + 1


def test_what_comes_after_a_divergence_is_not_summed():
    device = Device()
    for step in range(2 * DRAIN_STEPS):
        device.step(step, math.nan if step == 7 else 1.0)

    device.tally.drain()

    assert device.tally.diverged_at == 7
    assert device.tally.steps == 7
