"""Stops wherever hypothesis wants them: the parts are the run that never stopped, bit for bit."""

import sys
import tempfile
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.training.test_resume import assert_bitwise, run, state_of, stop_after, variant
from worker import TrainConfig
from worker.training.run import Run

#: Both recipes' schedules, both optimizers, schedules by points and of alpha_s alone.
CONFIGS = {
    "ndadam, cosine, own schedule of alpha_s": {
        "alpha_s_schedule": ((0, 0.0), (7, 1.0), (14, 0.2)),
        "warmup_steps": 4,
    },
    "ndadam, cosine per epoch, kept batch": {
        "recipe": "paper-wrn",
        "last_batch": "keep",
        "alpha_s_schedule": "constant",
        "report_every": 4,
    },
    "sgd, points, nesterov, deterministic": {
        "optimizer": "sgd",
        "lr_schedule": ((0, 1.0), (5, 0.1), (11, 0.5)),
        "nesterov": True,
        "deterministic": True,
    },
    "sgd, cosine per epoch, kept batch": {
        "optimizer": "sgd",
        "recipe": "paper-wrn",
        "last_batch": "keep",
        "report_every": 7,
    },
}
#: Questions whether to stop: before each of 15 steps, and between batches of evaluations.
QUESTIONS = 18


@pytest.fixture(scope="module")
def made():
    """Every ``Run`` that ``train`` makes, in order."""
    runs = []

    class Remembered(Run):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            runs.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["worker.training.train"], "Run", Remembered)
        yield runs


@pytest.fixture(scope="module")
def whole(data_home, tiny_config, made):
    """Reports and last state of each config's run without a stop."""

    @cache
    def of(name):
        with tempfile.TemporaryDirectory() as folder:
            reports = run(variant(tiny_config, **CONFIGS[name]), data_home, folder)
        return reports, state_of(made[-1])

    return of


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(sorted(CONFIGS)),
    stops=st.lists(st.integers(0, QUESTIONS), min_size=1, max_size=3),
)
def test_stops_anywhere_change_nothing(name, stops, data_home, tiny_config, made, whole):
    config: TrainConfig = variant(tiny_config, **CONFIGS[name])
    reports, state = whole(name)

    parts = []
    with tempfile.TemporaryDirectory() as folder:
        for calls in stops:
            if not parts or parts[-1].status == "running":
                parts += run(config, data_home, folder, stop_after(calls))
        if not parts or parts[-1].status == "running":
            parts += run(config, data_home, folder)

    assert parts == reports
    assert_bitwise(state_of(made[-1]), state)


@pytest.mark.parametrize("name", CONFIGS)
def test_two_deterministic_runs_are_equal_to_the_bit(name, data_home, tiny_config, made, tmp_path):
    config = variant(tiny_config, **CONFIGS[name] | {"deterministic": True})

    reports = [run(config, data_home, tmp_path / part) for part in "ab"]

    assert reports[0] == reports[1]
    assert_bitwise(state_of(made[-2]), state_of(made[-1]))
