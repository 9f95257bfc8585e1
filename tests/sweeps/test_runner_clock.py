"""A runner whose machine's clock is set keeps its drivers' leases."""

import time

import pytest

from sweeps.runner import WallClock


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_a_clock_that_is_set_is_noticed_once(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    real = time.time
    clock = WallClock()

    assert not clock.has_jumped()
    monkeypatch.setattr(time, "time", lambda: real() + seconds)
    assert clock.has_jumped()
    assert not clock.has_jumped()
