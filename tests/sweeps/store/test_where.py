"""Conditions on trials, on both databases: what fits, and what is refused in which words."""

from typing import Any

import pytest

from sweeps.errors import InvalidFilter
from sweeps.records import NewTrial, TrialState
from sweeps.store.store import Store
from tests.sweeps.store_cases import LEASE
from worker.report import Report

#: Params and last metrics of six trials; the last one has not run.
TRIALS: list[tuple[dict[str, Any], dict[str, float]]] = [
    ({"optimizer": "ndadam", "alpha_v": 0.01, "gamma_c": None}, {"test_error": 0.03}),
    ({"optimizer": "ndadam", "alpha_v": 0.05, "gamma_c": 2.5}, {"test_error": 0.01}),
    ({"optimizer": "ndadam", "alpha_v": 0.2, "gamma_c": 2.5}, {"test_error": 0.02}),
    ({"optimizer": "sgd", "lr": 0.1}, {"test_error": 0.02}),
    ({"optimizer": "sgd", "lr": 5.0}, {}),
    ({"optimizer": "adam", "lr": 0.001}, {}),
]


@pytest.fixture
def sweep(store: Store) -> str:
    store.create_sweep("sweep", {"space": {}}, name="s", num_trials=6)
    claim = store.claim("runner", LEASE)
    assert claim is not None
    new = [NewTrial(n, n % 2, params, {"n": n}, f"key{n}") for n, (params, _) in enumerate(TRIALS)]
    for trial in store.add_trials(claim, new)[:5]:
        attempt = store.start_attempt(claim, trial.number)
        metrics = TRIALS[trial.number][1]
        report = Report(step=100, num_steps=100, status="complete", metrics=metrics)
        store.record(claim, trial.number, attempt.id, [report])
        state = TrialState.COMPLETE if metrics else TrialState.DIVERGED
        cause = "complete" if metrics else "diverged at step 100"
        store.finish_attempt(
            claim,
            trial.number,
            attempt.id,
            state,
            cause,
            trial_state=state,
            objective=metrics.get("test_error"),
        )
    return claim.sweep_id


def found(store: Store, sweep: str, where: str, **query: Any) -> list[int]:
    return [trial.number for trial in store.trials(sweep, where=where, **query).items]


@pytest.mark.parametrize(
    ("where", "numbers"),
    [
        ("alpha_v > 0.05", [2]),
        ("alpha_v >= 0.05 and state = complete", [1, 2]),
        ("0.005 < alpha_v < 0.1", [0, 1]),
        ("optimizer = sgd", [3, 4]),
        ("optimizer != sgd", [0, 1, 2, 5]),
        ("optimizer = 'sgd' or alpha_v = 0.2", [2, 3, 4]),
        ("not (optimizer = sgd)", [0, 1, 2, 5]),
        # Those without the field fit the opposite too.
        ("not alpha_v > 0.05", [0, 1, 3, 4, 5]),
        ("gamma_c = none", [0, 3, 4, 5]),
        ("gamma_c != none", [1, 2]),
        ("test_error <= 0.02", [1, 2, 3]),
        ("test_error = none", [4, 5]),
        ("state = diverged", [4]),
        ('exit_cause = "diverged at step 100"', [4]),
        ("objective < 0.025 and seed == 1", [1, 3]),
        ("number > 2.5 and number < 4.5", [3, 4]),
        ("step = 0", [5]),
        ("lr > -1e-9", [3, 4, 5]),
        ("lr < 1e999", [3, 4, 5]),
        ("   ", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_trials_that_fit_are_found(
    store: Store, sweep: str, where: str, numbers: list[int]
) -> None:
    assert found(store, sweep, where) == numbers


def test_a_condition_goes_with_filters_sorts_and_pages(store: Store, sweep: str) -> None:
    where = "optimizer = ndadam or lr > 0.01"

    assert found(store, sweep, where, sort="-params.alpha_v") == [2, 1, 0, 4, 3]
    assert found(store, sweep, "alpha_v < 0.1", sort="-params.alpha_v") == [1, 0]
    assert found(store, sweep, where, state="diverged") == [4]
    first = store.trials(sweep, where=where, limit=2)
    assert [t.number for t in first.items] == [0, 1]
    assert found(store, sweep, where, limit=2, cursor=first.next) == [2, 3]


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("alpha_w > 1", r"there is no field 'alpha_w'; there are number, point, .*alpha_v.*test_e"),
        ("alpha_v >", r"'alpha_v >' cannot be read; write conditions such as alpha_v > 0.05"),
        ("alpha_v", r"'alpha_v' is no condition"),
        ("state = finished", r"state must be one of waiting, running, .*, got 'finished'"),
        ("objective = low", r"objective is a number, got 'low'"),
        ("exit_cause = 3", r"exit_cause is a word, got 3.0"),
        ("alpha_v < none", r"alpha_v can be = none or != none"),
        ("alpha_v in (1, 2)", r"compared by =, !=, <, <=, > and >="),
        ("alpha_v = 1 + 1", r"'1 \+ 1' is no value; put words in quotes"),
        ("1 < 2", r"'2' is no field"),
        ("__import__('os').system('x') = 1", r"is no field"),
        ('optimizer = "a\\x00"', r"is no value"),
        ("number = 1 " + "and number = 1 " * 60, r"at most 500 characters"),
        ("(" * 300 + "1" + ")" * 150, r"cannot be read"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_words(
    store: Store, sweep: str, where: str, why: str
) -> None:
    with pytest.raises(InvalidFilter, match=why) as refused:
        store.trials(sweep, where=where)

    assert refused.value.field == "where"
