"""A runner whose machine's clock is set keeps its drivers' leases."""

from types import SimpleNamespace

import pytest

from sweeps.driver import runner
from sweeps.driver.runner import WallClock


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_a_clock_that_is_set_is_noticed_once(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    now = SimpleNamespace(wall=1.8e9, since_start=500.0)
    clocks = SimpleNamespace(time=lambda: now.wall, monotonic=lambda: now.since_start)
    monkeypatch.setattr(runner, "time", clocks)
    clock = WallClock()
    now.wall += 60.0
    now.since_start += 60.0

    assert not clock.has_jumped()
    now.wall += seconds
    assert clock.has_jumped()
    assert not clock.has_jumped()
