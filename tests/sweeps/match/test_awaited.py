"""What a match says that it waits for, and how long: stage, trials, steps."""

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from sweeps.match.awaited import awaited_trials
from sweeps.match.proposer import MatchProposer
from sweeps.records import Trial, TrialState
from sweeps.search.protocol import Proposal
from tests.sweeps.match.match_simulation import START, World, match_spec

NOW = START + timedelta(seconds=100)


def stored(**changes: Any) -> dict[str, Any]:
    return match_spec(**changes).model_dump(mode="json")


def at_step(world: World, *steps: int) -> list[Trial]:
    """Source trials of the first stage that began 100 s ago and are at these steps."""
    proposer = MatchProposer(match_spec(), world)
    for step in steps:
        proposal = proposer.next()
        assert isinstance(proposal, Proposal)
        trial = world.start(proposal)
        proposer.running(trial)
        world.trials[trial.number] = dataclasses.replace(trial, step=step, num_steps=2400)
    return world.trials


def test_the_slowest_running_trial_and_those_behind_it_decide_how_long_a_stage_takes() -> None:
    found = awaited_trials(stored(), at_step(World(), 1200, 600), NOW)

    assert found is not None
    assert (found.stage, found.planned, found.ended) == ("source", 3, 0)
    assert found.slowest is not None
    assert found.slowest.number == 1
    # 300 s to its end, then the third one, which takes 400 s.
    assert found.seconds == pytest.approx(300 + 400)
    assert found.later == {"calibration": 1, "verdict": 3, "comparison": 0}


def test_nothing_is_said_of_time_before_a_trial_has_reported() -> None:
    found = awaited_trials(stored(max_corrections=0), at_step(World(), 0), NOW)

    assert found is not None
    assert (found.slowest, found.seconds) == (None, None)
    assert found.later == {"calibration": 0, "verdict": 3, "comparison": 0}


def test_a_calibration_counts_the_trials_of_its_own_round() -> None:
    trials = at_step(World(), 2400, 2400, 2400)
    done = [dataclasses.replace(t, state=TrialState.COMPLETE) for t in trials]
    rounds = [
        dataclasses.replace(done[0], number=3, role="calibration", point=1),
        dataclasses.replace(trials[0], number=4, role="calibration", point=2, step=1200),
    ]
    found = awaited_trials(stored(), [*done, *rounds], NOW)

    assert found is not None
    assert (found.stage, found.planned, found.ended) == ("calibration", 1, 0)
    assert found.seconds == pytest.approx(100)
    assert awaited_trials(stored(), done, NOW) is None
