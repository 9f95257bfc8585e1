"""The Pareto front: who is on it, its hypervolume, and what its intervals do not show."""

from dataclasses import replace

import pytest

from sweeps.analysis.stored.front import Front, pareto_front
from sweeps.records import SweepObjective, Trial, TrialState
from sweeps.search.protocol import Proposal
from tests.sweeps.spec.test_training import external
from tests.sweeps.sweep_cases import ended, waiting_trial

OBJECTIVES = (SweepObjective("loss", "minimize"), SweepObjective("speed", "maximize"))


def trials_of(*points: tuple[list[float], list[float]], state: str = "complete") -> list[Trial]:
    """Trials of points, each with the losses and the speeds of its seeds."""
    spec, found = external(), list[Trial]()
    for point, (losses, speeds) in enumerate(points):
        params = {"lr": 0.1 + point / 100}
        for seed, (loss, speed) in enumerate(zip(losses, speeds, strict=True)):
            proposal = Proposal(point, params, spec.config(params, seed))
            trial = ended(waiting_trial(len(found), proposal), loss, state)
            found.append(replace(trial, metrics={"loss": loss, "speed": speed}))
    return found


def front(trials: list[Trial], objectives: tuple[SweepObjective, ...] = OBJECTIVES) -> Front:
    return pareto_front(objectives, trials)


def test_points_that_another_beats_in_every_objective_are_off_it() -> None:
    found = front(trials_of(([1, 1.1], [1, 1.1]), ([3, 3.1], [5, 5.1]), ([3.2, 3.3], [2, 2.1])))

    assert [one.point for one in found.points] == [0, 1]
    assert found.points[1].values["speed"].mean == pytest.approx(5.05)
    assert found.num_points == 3


def test_its_hypervolume_is_the_area_up_to_the_reference() -> None:
    trials = trials_of(([1], [4]), ([2], [6]), ([5], [3]))
    declared = (
        SweepObjective("loss", "minimize", 4.0),
        SweepObjective("speed", "maximize", 0.0),
    )

    # Of 0: 3 wide, 4 high; of 1: 2 wide, 6 high; both: 2 wide, 4 high.
    assert front(trials, declared).hypervolume == pytest.approx(12 + 12 - 8)
    assert front(trials, declared).reference == {"loss": 4.0, "speed": 0.0}
    # The worst means: loss 5, speed 3. Of 0: 4 x 1; of 1: 3 x 3; both: 3 x 1.
    assert front(trials).hypervolume == pytest.approx(4 + 9 - 3)
    assert "compare it only between sweeps" in front(trials).notes[-1]


def test_points_that_are_told_apart_are_counted() -> None:
    near = ([1.0, 1.3, 0.8], [1.0, 1.4, 0.9])
    nearly = ([1.1, 1.4, 0.9], [1.2, 1.5, 1.0])
    far = ([9.0, 9.1, 9.2], [9.0, 9.1, 9.05])

    found = front(trials_of(near, nearly, far))

    assert {one.point: one.is_distinct for one in found.points} == {0: False, 1: False, 2: True}
    assert found.num_distinct == 1
    assert "1 of its 3 points is shown to differ from every other one" in found.notes[1]


def test_a_point_off_it_whose_interval_reaches_it_is_counted() -> None:
    found = front(trials_of(([1.0, 1.1], [5, 5.1]), ([1.0, 1.4], [5, 5.01]), ([8, 8.1], [1, 1.1])))

    assert [one.point for one in found.points] == [0]
    assert found.num_reaching == 1
    assert "1 point off the front has intervals that reach beyond it." in found.notes


def test_one_seed_shows_nothing_and_says_so() -> None:
    found = front(trials_of(([1], [1]), ([2], [2])))

    assert found.num_distinct is None
    assert [one.is_distinct for one in found.points] == [None, None]
    assert any("One seed of a point says nothing" in note for note in found.notes)


def test_points_without_all_means_are_left_out() -> None:
    spoilt = trials_of(([1, 1], [9, 9]))
    spoilt[1] = replace(spoilt[1], state=TrialState.DIVERGED)

    assert front(spoilt).points == []
    assert front(spoilt).hypervolume is None
    assert front(trials_of(([1], [1]), state="failed")).num_points == 0
