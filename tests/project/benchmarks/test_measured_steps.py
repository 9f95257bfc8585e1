"""The benchmark of measured steps, with runs that report at known times."""

from types import SimpleNamespace

import pytest

from benchmarks import measured_steps


@pytest.fixture
def _runs_of_known_speed(monkeypatch):
    """A step takes 2 ms, and 1 ms more where something is measured; the first report is late."""
    now = 0.0

    def train(config, data_home, measurement):
        nonlocal now
        ms = 2 + (measurement is not None or config.follow is not None)
        now += 60  # compilation
        for step in range(config.report_every, config.steps + 1, config.report_every):
            now += ms * config.report_every / 1000
            yield SimpleNamespace(step=step)
        now += 60  # the last evaluation

    monkeypatch.setattr(measured_steps, "train", train)
    monkeypatch.setattr(measured_steps, "time", SimpleNamespace(perf_counter=lambda: now))


@pytest.mark.usefixtures("_runs_of_known_speed")
def test_rows_say_what_a_measured_step_takes_beside_one_that_is_not(tmp_path):
    rows = list(measured_steps.network_rows("cpu", "WRN-10-1", tmp_path, "digits"))

    for row in rows:
        is_plain = row["measured"] == "nothing"
        assert row["ms"] == pytest.approx(2 if is_plain else 3)
        assert row["ratio"] == pytest.approx(1 if is_plain else 1.5)
    of_ndadam = [row["measured"] for row in rows if row["optimizer"] == "ndadam"]
    assert of_ndadam == ["nothing", "every step", "every 4 steps, layers", "closed loop"]
    assert [row["measured"] for row in rows if row["optimizer"] == "sgd"] == list(
        measured_steps.MEASUREMENTS
    )
