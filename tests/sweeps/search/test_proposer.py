"""Which points a sweep proposes: determinism, replay, conditions, budgets, repeats."""

import math
import random
import statistics
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps.records import TrialState
from sweeps.search.proposer import SweepProposer
from sweeps.search.protocol import Finished, Proposal
from tests.sweeps.sweep_cases import (
    BASE,
    SPACE,
    Curves,
    bowl,
    ended,
    keys,
    replayed,
    search,
    sweep_spec,
    waiting_trial,
)

SHARED = {name: value for name, value in BASE.items() if name != "optimizer"}
TWO_OPTIMIZERS: dict[str, Any] = {
    "base": SHARED,
    "space": {
        "optimizer": {"kind": "choice", "values": ["sgd", "ndadam"]},
        "lr": {"kind": "float", "low": 0.01, "high": 1.0, "when": {"optimizer": ["sgd"]}},
        "alpha_v": {"kind": "float", "low": 0.01, "high": 1.0, "when": {"optimizer": ["ndadam"]}},
    },
}


def proposer(**fields: Any) -> SweepProposer:
    return SweepProposer(sweep_spec(**fields), Curves())


@pytest.mark.parametrize("sampler", ["random", "qmc"])
@pytest.mark.parametrize("concurrency", [2, 5])
def test_points_do_not_depend_on_how_many_run_at_once(sampler: str, concurrency: int) -> None:
    alone, _ = search(proposer(sampler=sampler, replicates=2))
    together, _ = search(proposer(sampler=sampler, replicates=2), concurrency=concurrency)

    assert keys(together) == keys(alone)


@pytest.mark.parametrize("sampler", ["random", "qmc", "tpe", "gp"])
def test_another_sampler_seed_makes_other_points(sampler: str) -> None:
    one, _ = search(proposer(sampler=sampler))
    same, _ = search(proposer(sampler=sampler))
    other, _ = search(proposer(sampler=sampler, sampler_seed=1))

    assert keys(one) == keys(same)
    assert not set(keys(one)) & set(keys(other))


@settings(max_examples=25, deadline=None)
@given(
    sampler=st.sampled_from(["random", "qmc", "tpe"]),
    replicates=st.integers(1, 3),
    concurrency=st.integers(1, 4),
    killed_after=st.integers(0, 20),
    two=st.booleans(),
)
def test_a_sweep_that_was_killed_proposes_what_an_undisturbed_one_does(
    sampler: str, replicates: int, concurrency: int, killed_after: int, two: bool
) -> None:
    fields = {"sampler": sampler, "replicates": replicates} | (TWO_OPTIMIZERS if two else {})
    undisturbed, _ = search(proposer(**fields), concurrency=concurrency)

    before, _ = search(proposer(**fields), concurrency=concurrency, stop_after=killed_after)
    after, reason = search(proposer(**fields), concurrency=concurrency, history=before)

    assert reason == "all done"
    assert len(after) == len(undisturbed) == 6 * replicates
    assert len(set(keys(after))) == len(after)
    assert keys(after) == keys(undisturbed)


def test_tpe_learns_from_results_and_not_from_their_order() -> None:
    spec = {"sampler": "tpe", "num_points": 30}
    history, _ = search(proposer(**spec), stop_after=20)
    finished = [trial for trial in history if trial.state.is_finished()]

    one = replayed(proposer(**spec), finished).next()
    other = replayed(proposer(**spec), finished[::-1]).next()

    assert isinstance(one, Proposal)
    assert isinstance(other, Proposal)
    assert one.params == other.params


def test_tpe_finds_a_better_point_than_random_search_does() -> None:
    best = {}
    for sampler in ("tpe", "random"):
        scores = []
        for seed in range(5):
            trials, _ = search(proposer(sampler=sampler, num_points=40, sampler_seed=seed))
            scores.append(min(bowl(trial.params, 0) for trial in trials))
        best[sampler] = sum(scores)

    assert best["tpe"] < best["random"]


def test_every_point_runs_on_the_same_seeds() -> None:
    trials, _ = search(proposer(replicates=3, base=BASE | {"seed": 7}))

    seeds = [[t.seed for t in trials if t.point == point] for point in range(6)]
    assert seeds == [[7, 8, 9]] * 6
    assert len({trial.config_key for trial in trials}) == 6


def test_a_grid_is_every_combination_once_and_nothing_else() -> None:
    space = {
        "alpha_v": {"kind": "float", "low": 0.1, "high": 0.5, "step": 0.1},
        "widen_factor": {"kind": "int", "low": 1, "high": 3},
        "gamma_c": {"kind": "choice", "values": [None, 2.5]},
    }
    trials, reason = search(proposer(sampler="grid", space=space, num_points=None))

    assert reason == "all done"
    assert len(trials) == 5 * 3 * 2
    assert len({trial.config_key for trial in trials}) == 30
    assert {trial.params["alpha_v"] for trial in trials} == {0.1, 0.2, 0.3, 0.4, 0.5}


def test_a_huge_grid_is_walked_without_being_built() -> None:
    space = {
        name: {"kind": "float", "low": 0.0, "high": 0.1, "step": 0.0001}
        for name in ("alpha_v", "alpha_s", "weight_decay")
    }
    large = proposer(sampler="grid", space=space, num_points=3)

    trials, _ = search(large)

    assert [trial.params["weight_decay"] for trial in trials] == [0.0, 0.0001, 0.0002]


@pytest.mark.parametrize("sampler", ["random", "qmc", "tpe"])
def test_optimizers_get_equal_budgets(sampler: str) -> None:
    trials, _ = search(proposer(**TWO_OPTIMIZERS, sampler=sampler, num_points=10), concurrency=3)

    assert Counter(t.params["optimizer"] for t in trials) == {"sgd": 5, "ndadam": 5}


def test_a_point_has_exactly_the_fields_that_are_active_in_it() -> None:
    trials, _ = search(proposer(**TWO_OPTIMIZERS, num_points=8))

    fields = {t.params["optimizer"]: set(t.params) for t in trials}
    assert fields == {"sgd": {"optimizer", "lr"}, "ndadam": {"optimizer", "alpha_v"}}


def test_a_branch_without_more_points_leaves_its_turns_to_the_others() -> None:
    space = TWO_OPTIMIZERS["space"] | {
        "lr": {"kind": "choice", "values": [0.1, 0.2], "when": {"optimizer": ["sgd"]}}
    }
    trials, reason = search(proposer(base=SHARED, space=space, num_points=8))

    assert Counter(t.params["optimizer"] for t in trials) == {"sgd": 2, "ndadam": 6}
    assert reason == "all done"


@pytest.mark.parametrize("sampler", ["random", "qmc", "tpe"])
def test_a_space_that_has_no_more_points_ends_the_sweep(sampler: str) -> None:
    space = {"gamma_c": {"kind": "choice", "values": [1.0, 2.5, 5.0]}}

    trials, reason = search(proposer(sampler=sampler, space=space, num_points=10))

    assert reason == "space exhausted"
    assert sorted(trial.params["gamma_c"] for trial in trials) == [1.0, 2.5, 5.0]


def test_initial_points_come_first_and_count() -> None:
    first = [{"alpha_v": 0.05, "alpha_s": 0.001}, {"alpha_v": 0.2, "alpha_s": 0.01}]
    trials, _ = search(proposer(initial_points=first))
    resumed, _ = search(proposer(initial_points=first), history=trials[:1])

    assert [trial.params for trial in trials[:2]] == first
    assert len(trials) == 6
    assert keys(resumed) == keys(trials)


def test_fifty_more_points_leave_the_first_ones_as_they_are() -> None:
    trials, _ = search(proposer())

    more, _ = search(proposer(num_points=56), history=trials)

    assert keys(more)[:6] == keys(trials)
    assert len(set(keys(more))) == 56


def test_more_replicates_fill_up_every_point() -> None:
    trials, _ = search(proposer(replicates=1))

    more, _ = search(proposer(replicates=3), history=trials)

    assert Counter(trial.point for trial in more) == dict.fromkeys(range(6), 3)
    assert len(more) == 18


def test_values_stay_in_their_domains() -> None:
    space = {
        "alpha_v": {"kind": "float", "low": 0.25, "high": 1.0, "step": 0.25},
        "depth": {"kind": "int", "low": 10, "high": 28, "step": 6},
        "betas": {"kind": "choice", "values": [[0.9, 0.99], [0.9, 0.999]]},
    }
    for sampler in ("random", "qmc", "tpe"):
        trials, _ = search(proposer(sampler=sampler, space=space, num_points=32))

        assert {t.params["alpha_v"] for t in trials} <= {0.25, 0.5, 0.75, 1.0}
        assert {t.params["depth"] for t in trials} <= {10, 16, 22, 28}
        assert all(t.params["betas"] in ([0.9, 0.99], [0.9, 0.999]) for t in trials)


@pytest.mark.parametrize("sampler", ["tpe", "gp"])
def test_a_search_goes_on_past_failed_diverged_pruned_and_cancelled_trials(sampler: str) -> None:
    """And keeps away from where trials diverge: their worst case is a number."""
    early, late = 0, 0
    for seed in range(1, 5):
        diverged = _diverged_of_24(sampler, seed)
        early, late = early + sum(diverged[:12]), late + sum(diverged[12:])

    assert 1.5 * late <= early


def _diverged_of_24(sampler: str, seed: int) -> list[bool]:
    """Which of 24 points diverge, if those above alpha_v = 0.1 do."""
    curves = Curves()
    search_ = SweepProposer(sweep_spec(sampler=sampler, sampler_seed=seed, num_points=24), curves)
    diverged = []
    for number in range(24):
        answer = search_.next()
        assert isinstance(answer, Proposal)
        trial = waiting_trial(number, answer)
        search_.running(trial)
        diverged.append(trial.params["alpha_v"] > 0.1)
        others = ("complete", "pruned", "failed", "cancelled")
        state = "diverged" if diverged[-1] else others[number % 4]
        curves.curves[number] = [(10, 0.5), (20, 0.4)]
        search_.tell(ended(trial, 0.3 if state == "complete" else None, state))
    assert isinstance(search_.next(), Finished)
    return diverged


def test_if_every_trial_diverges_the_search_still_ends() -> None:
    search_ = proposer(sampler="tpe", num_points=12)
    for number in range(12):
        answer = search_.next()
        assert isinstance(answer, Proposal)
        trial = waiting_trial(number, answer)
        search_.running(trial)
        search_.tell(ended(trial, None, "diverged"))

    assert search_.next() == Finished("all done")


def test_the_sampler_is_told_the_mean_over_replicates() -> None:
    """Two seeds of opposite luck, or two of none: the next point is the same."""

    def next_after(offset: float) -> dict[str, Any]:
        spec = {"sampler": "tpe", "replicates": 2, "num_points": 30}
        luck = lambda params, seed: bowl(params, 0) + (offset if seed else -offset)  # noqa: E731
        history, _ = search(proposer(**spec), loss=luck, stop_after=40)
        finished = [trial for trial in history if trial.state.is_finished()]
        answer = replayed(proposer(**spec), finished).next()
        assert isinstance(answer, Proposal)
        return answer.params

    assert next_after(0.0) == next_after(0.25)


def test_a_trial_tried_again_counts_by_its_last_end() -> None:
    spec = {"sampler": "tpe", "num_points": 15}
    history, _ = search(proposer(**spec), stop_after=12)
    finished = [trial for trial in history if trial.state == TrialState.COMPLETE]
    failed_first = proposer(**spec)
    for trial in finished:
        failed_first.running(trial)
        failed_first.tell(ended(trial, None, "failed"))
        failed_first.tell(trial)

    assert failed_first.next() == replayed(proposer(**spec), finished).next()


def test_maximising_prefers_large_values() -> None:
    objective = {"metric": "validation_error", "direction": "maximize"}
    spec = {"sampler": "tpe", "num_points": 40, "space": {"alpha_v": SPACE["alpha_v"]}}
    trials, _ = search(
        proposer(**spec, objective=objective), loss=lambda params, seed: params["alpha_v"]
    )

    late = [trial.params["alpha_v"] for trial in trials[20:]]
    assert sum(value > 0.3 for value in late) > 10


def test_a_list_is_its_points_in_order_and_nothing_else() -> None:
    points = [{"alpha_v": 0.5, "alpha_s": 0.01}, {"alpha_v": 0.01, "alpha_s": 0.1}]
    spec = sweep_spec(sampler="list", initial_points=points, num_points=None, replicates=2)

    trials, reason = search(SweepProposer(spec, Curves()), concurrency=3)

    assert [trial.params for trial in trials] == [points[0], points[0], points[1], points[1]]
    assert reason == "all done"
    assert spec.num_trials() == 4


@pytest.mark.parametrize("sampler", ["tpe", "gp"])
def test_a_model_that_knows_earlier_results_looks_where_they_were_good(sampler: str) -> None:
    rng = random.Random(3)
    prior = []
    for _ in range(25):
        params = {"alpha_v": 10 ** rng.uniform(-3, 0), "alpha_s": 10 ** rng.uniform(-4, -1)}
        prior.append({"params": params, "value": abs(math.log10(params["alpha_v"] / 0.3))})

    def first_points(**fields: Any) -> list[float]:
        spec = sweep_spec(sampler=sampler, num_points=5, **fields)
        trials, _ = search(SweepProposer(spec, Curves()))
        return [abs(math.log10(trial.params["alpha_v"] / 0.3)) for trial in trials]

    assert statistics.fmean(first_points(prior=prior)) < statistics.fmean(first_points())


def test_prior_results_are_no_points_of_the_sweep() -> None:
    prior = [{"params": {"alpha_v": 0.1, "alpha_s": 0.01}, "value": 0.5}]
    spec = sweep_spec(sampler="tpe", num_points=3, prior=prior)

    trials, reason = search(SweepProposer(spec, Curves()))

    assert ([trial.point for trial in trials], reason) == ([0, 1, 2], "all done")


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_same_spec_proposes_the_same_points_at_any_concurrency(data: st.DataObject) -> None:
    """Grid, random and quasi-random, whatever the space, its conditions and the order of ends."""
    sampler = data.draw(st.sampled_from(["grid", "random", "qmc"]))
    size = data.draw(st.integers(2, 4))
    space: dict[str, Any] = {
        "optimizer": {"kind": "choice", "values": ["sgd", "ndadam"][: data.draw(st.integers(1, 2))]}
    }
    step = (1.0 - 0.25) / (size - 1) if sampler == "grid" else None
    space["gamma_c"] = {"kind": "float", "low": 0.25, "high": 1.0, "step": step}
    if len(space["optimizer"]["values"]) == 2:
        space["alpha_s"] = {
            "kind": "choice",
            "values": [0.001, 0.01, 0.1][:size],
            "when": {"optimizer": ["ndadam"]},
        }
    spec = sweep_spec(
        base=SHARED,
        space=space,
        sampler=sampler,
        num_points=data.draw(st.integers(1, 8)),
        replicates=data.draw(st.integers(1, 3)),
        sampler_seed=data.draw(st.integers(0, 2**32 - 1)),
    )
    one_by_one, _ = search(SweepProposer(spec, Curves()))
    many, _ = search(SweepProposer(spec, Curves()), concurrency=data.draw(st.integers(2, 40)))

    assert keys(many) == keys(one_by_one)
