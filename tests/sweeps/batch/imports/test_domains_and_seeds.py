"""Domains that are inferred from values; seeds that are given, mapped or counted."""

import pytest

from sweeps.batch.imports.domains import inferred
from sweeps.batch.imports.found import FoundTrial
from sweeps.batch.imports.seeds import with_seeds
from sweeps.records import TrialState


@pytest.mark.parametrize(
    ("values", "domain"),
    [
        ([0.1, 0.25, 0.5], {"kind": "float", "low": 0.1, "high": 0.5, "log": False}),
        ([1e-4, 1e-3, 1e-1], {"kind": "float", "low": 1e-4, "high": 0.1, "log": True}),
        ([0.0, 1e-3, 1e-1], {"kind": "float", "low": 0.0, "high": 0.1, "log": False}),
        ([3, 7, 12], {"kind": "int", "low": 3, "high": 12}),
        ([32, 64, 32, 64], {"kind": "choice", "values": [32, 64]}),
        ([1e-2, 1e-1, 1e-2], {"kind": "choice", "values": [0.01, 0.1]}),
        (["sgd", "adam"], {"kind": "choice", "values": ["adam", "sgd"]}),
        ([True, False], {"kind": "choice", "values": [False, True]}),
        ([None, 2.5], {"kind": "choice", "values": [2.5, None]}),
        ([[0.9, 0.99]], {"kind": "choice", "values": [[0.9, 0.99]]}),
    ],
)
def test_a_domain_is_inferred_from_values(values, domain):
    assert inferred(values) == domain


def trials(*seeds, states=None):
    return [
        FoundTrial(str(n), {}, (states or {}).get(n, TrialState.COMPLETE), seed=seed)
        for n, seed in enumerate(seeds)
    ]


def seeds_of(found, keys):
    placed, taken, lacks = with_seeds(found, keys)
    return [(trial.label, seed) for trial, seed in placed], taken, lacks


def test_seeds_of_the_source_are_kept():
    placed, taken, lacks = seeds_of(trials(42, 1337, 42), ["a", "a", "b"])

    assert placed == [("0", 42), ("1", 1337), ("2", 42)]
    assert taken == ["intervals for 1 of 2 points, of 2 complete trials each"]
    assert lacks == []


def test_without_seeds_repetitions_are_numbered():
    placed, taken, lacks = seeds_of(trials(None, None, None), ["a", "b", "a"])

    assert placed == [("0", 0), ("1", 0), ("2", 1)]
    assert taken == ["intervals for 1 of 2 points, of 2 complete trials each"]
    assert lacks == ["no seeds: repetitions of a point are numbered as they come"]


def test_single_trials_say_that_there_are_no_intervals():
    _, taken, lacks = seeds_of(trials(None, None), ["a", "b"])

    assert taken == []
    assert lacks == [
        "n = 1 for every point: no intervals and no verdicts",
        "no seeds: repetitions of a point are numbered as they come",
    ]


def test_seeds_that_are_words_or_negative_are_numbered_by_their_value():
    placed, _, _ = seeds_of(trials("first", "second", "first"), ["a", "a", "b"])
    negative, _, _ = seeds_of(trials(-1, 5), ["a", "a"])

    assert placed == [("0", 0), ("1", 1), ("2", 0)]
    assert negative == [("0", 0), ("1", 1)]


def test_of_the_same_point_and_seed_the_last_complete_one_is_kept():
    placed, _, lacks = seeds_of(trials(0, 0, 0, states={2: TrialState.FAILED}), ["a", "a", "a"])

    assert placed == [("1", 0)]
    assert (
        "2 trials with the same point and seed as another: the last complete one is kept" in lacks
    )


def test_a_trial_without_a_seed_among_others_takes_a_free_number():
    placed, _, lacks = seeds_of(trials(0, None), ["a", "a"])

    assert placed == [("0", 0), ("1", 1)]
    assert "no seed of 1 trial: repetitions of a point are numbered as they come" in lacks
