"""Limits of one trial, and of a sweep's steps."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from sweeps.driver.limits import Limits
from sweeps.records import Attempt, Trial, TrialState
from sweeps.search.protocol import Proposal
from sweeps.spec.declarations import TrialLimits
from sweeps.spec.sweep_spec import Budget, explain
from tests.sweeps.sweep_cases import NOW, sweep_spec, waiting_trial


class Clock:
    """Seconds since 1970, moved by hand."""

    def __init__(self) -> None:
        self.now = NOW.timestamp()

    def __call__(self) -> float:
        return self.now


def a_trial(number: int = 0) -> Trial:
    config = sweep_spec().config({"alpha_v": 0.1}, 0)
    return waiting_trial(number, Proposal(number, {"alpha_v": 0.1}, config))


def limits(clock: Clock, budget: Budget | None = None, gpus: float = 0.0, **most: Any) -> Limits:
    return Limits(
        budget or Budget(),
        gpus=gpus,
        started_at=NOW,
        per_trial=TrialLimits(**most),
        clock=clock,
    )


def attempt(seconds: float, cause: str) -> Attempt:
    end = NOW + timedelta(seconds=seconds)
    return Attempt(1, 1, TrialState.FAILED, NOW, end, cause, {}, None)


def test_wall_time_of_a_trial_adds_up_over_its_attempts() -> None:
    clock = Clock()
    held = limits(clock, wall_seconds=60)
    held.count(replace(a_trial(), attempts=(attempt(40, "lost: its worker died"),)))

    held.started(a_trial())
    clock.now += 19
    before = held.overrun_of(a_trial())
    clock.now += 1

    assert before is None
    assert held.overrun_of(a_trial()) == "limit: 60 s of wall time"
    assert held.overrun_of(a_trial(1)) is None


def test_a_trial_that_is_retried_after_its_limit_gets_the_limit_anew() -> None:
    clock = Clock()
    held = limits(clock, wall_seconds=60)
    held.count(replace(a_trial(), attempts=(attempt(60, "limit: 60 s of wall time"),)))

    held.started(a_trial())
    clock.now += 59

    assert held.overrun_of(a_trial()) is None


def test_gpu_hours_of_a_trial_count_its_share() -> None:
    clock = Clock()
    held = limits(clock, gpus=0.25, gpu_hours=0.5)

    held.started(a_trial())
    clock.now += 2 * 3600 - 1
    before = held.overrun_of(a_trial())
    clock.now += 1

    assert (before, held.overrun_of(a_trial())) == (None, "limit: 0.5 GPU-hours")


def test_steps_of_a_trial_and_of_all_trials() -> None:
    held = limits(Clock(), Budget(steps=150), steps=100)

    held.reported(a_trial(0), 100)
    held.reported(a_trial(0), 50)
    held.reported(a_trial(1), 49)
    first = held.overrun(), held.overrun_of(a_trial(0))
    held.reported(a_trial(1), 50)
    held.reported(a_trial(0), 101)

    assert first == (None, None)
    assert held.overrun() == "budget spent: 150 steps"
    assert held.overrun_of(a_trial(0)) == "limit: 100 steps"


def test_steps_of_an_earlier_driver_count() -> None:
    held = limits(Clock(), Budget(steps=100))

    held.count(replace(a_trial(), step=100))

    assert held.overrun() == "budget spent: 100 steps"


@pytest.mark.parametrize(
    "change",
    [
        {"limits": {"steps": 99}},
        {
            "limits": {"steps": 199},
            "space": {"steps": {"kind": "int", "low": 100, "high": 200}},
        },
    ],
)
def test_a_spec_whose_trials_are_asked_for_more_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"limits\.steps") as refused:
        sweep_spec(**change)

    assert explain(refused.value)[0]["path"] == "limits.steps"  # type: ignore[arg-type]
