"""Progress bars: what was done before somebody looked is no part of the rate."""

from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from service.cli.terminal.progress import follow, progress_bars
from service.contract.outputs import EventOut, SweepOut
from service.submission.admission import sweep_out


class Watched:
    """A service whose events are given."""

    def __init__(self, sweep: SweepOut, events: list[EventOut]) -> None:
        self.sweep, self.events = sweep, events

    def watch(self, sweep_id):
        yield from self.events

    def get(self, sweep_id):
        return self.sweep


@pytest.fixture
def sweep(trained):
    return sweep_out(trained)


def progress_event(number, seconds, step):
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    data = {"trial": 0, "step": step, "num_steps": 1000}
    return EventOut(id=number, sweep_id="0123456789ab", at=at, kind="progress", data=data)


def test_the_rate_counts_from_when_the_bar_began(sweep):
    events = [progress_event(1, -60, 400), progress_event(2, -5, 700), progress_event(3, 60, 750)]
    bars = progress_bars(Console(quiet=True))

    follow(Watched(sweep, events), sweep, bars, "a [/b]")

    fields = bars.tasks[0].fields
    assert fields["steps_done"] - fields["steps_before"] == 50
