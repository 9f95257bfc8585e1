"""Search for a front: NSGA-II, TPE and GP over two objectives, resumed from any point."""

import statistics
from dataclasses import replace
from typing import Any

import pytest

from sweeps.records import Trial, TrialState
from sweeps.search.optuna_samplers import POPULATION
from sweeps.search.proposer import SweepProposer
from sweeps.search.protocol import Finished, Proposal
from tests.sweeps.spec.test_training import external
from tests.sweeps.sweep_cases import Curves, keys, replayed, waiting_trial

#: Between x = 0 and x = 2 one objective is bought with the other.
SPACE = {
    "x": {"kind": "float", "low": -10.0, "high": 10.0},
    "y": {"kind": "float", "low": -10.0, "high": 10.0},
}


def proposer(**fields: Any) -> SweepProposer:
    objectives = [{"metric": "near"}, {"metric": "far", "direction": "maximize"}]
    spec = {"sampler": "nsga2", "num_points": 5 * POPULATION, "space": SPACE} | fields
    return SweepProposer(
        external(**{"objectives": objectives, "objective": {"metric": "near"}} | spec), Curves()
    )


def ended(trial: Trial) -> Trial:
    x, y = trial.params["x"], trial.params["y"]
    near, far = x**2 + y**2, -((x - 2) ** 2) - y**2
    metrics = {"near": near, "far": far}
    return replace(trial, state=TrialState.COMPLETE, objective=near, metrics=metrics)


def searched(search: SweepProposer, count: int, history: list[Trial] | None = None) -> list[Trial]:
    trials = list(history or [])
    replayed(search, trials)
    while len(trials) < count:
        answer = search.next()
        assert isinstance(answer, Proposal)
        trial = waiting_trial(len(trials), answer)
        search.running(trial)
        trials.append(ended(trial))
        search.tell(trials[-1])
    return trials


@pytest.mark.parametrize("sampler", ["nsga2", "tpe"])
def test_the_search_goes_to_the_front(sampler: str) -> None:
    count = 5 * POPULATION if sampler == "nsga2" else 40
    trials = searched(proposer(sampler=sampler), count)
    # The front is y = 0, 0 <= x <= 2.
    away = [abs(t.params["y"]) + max(0, -t.params["x"], t.params["x"] - 2) for t in trials]
    part = count // 3

    assert statistics.median(away[-part:]) < statistics.median(away[:part]) / 2


def test_gp_and_designs_take_several_objectives_too() -> None:
    for sampler in ("gp", "random", "qmc"):
        assert len(searched(proposer(sampler=sampler), 6)) == 6


def test_nsga2_goes_on_in_a_new_process_as_it_would_have() -> None:
    whole = searched(proposer(), 3 * POPULATION)
    resumed = searched(proposer(), 3 * POPULATION, whole[: 2 * POPULATION + 3])

    assert keys(resumed) == keys(whole)


def test_nsga2_searches_for_one_objective_too_and_ends() -> None:
    search = proposer(objectives=[], num_points=4)
    searched(search, 4)

    assert search.next() == Finished("all done")


def test_diverged_points_count_as_the_worst_in_every_objective() -> None:
    search, diverged = proposer(), list[bool]()
    for number in range(4 * POPULATION):
        answer = search.next()
        assert isinstance(answer, Proposal)
        trial = waiting_trial(number, answer)
        search.running(trial)
        diverged.append(trial.params["y"] > 1)
        bad = replace(trial, state=TrialState.DIVERGED)
        search.tell(bad if diverged[-1] else ended(trial))

    assert sum(diverged[-POPULATION:]) < sum(diverged[:POPULATION]) / 2
