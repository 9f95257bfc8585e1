"""Points as numbers people typed, whichever sampler draws them and however a spec is ordered."""

import random
from dataclasses import replace
from decimal import Decimal
from itertools import chain
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sweeps.search.proposer import SweepProposer
from sweeps.search.protocol import Proposal
from sweeps.spec.domains import FloatRange
from tests.sweeps.sweep_cases import (
    BASE,
    SPACE,
    Curves,
    bowl,
    ended,
    search,
    sweep_spec,
    waiting_trial,
)

SHARED = {name: value for name, value in BASE.items() if name != "optimizer"}
SAMPLERS = ["random", "qmc", "tpe", "gp"]
TENTHS: dict[str, Any] = {"kind": "float", "low": 0.1, "high": 0.7, "step": 0.1}


def params_of(**fields: Any) -> list[dict[str, Any]]:
    trials, _ = search(SweepProposer(sweep_spec(**fields), Curves()))
    return [trial.params for trial in trials]


def values_of(name: str, **fields: Any) -> list[Any]:
    return [params[name] for params in params_of(**fields)]


# --- Float ranges with a step --------------------------------------------------------------------


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_seven_steps_are_the_seven_numbers_that_were_meant(sampler: str) -> None:
    values = values_of("alpha_v", space={"alpha_v": TENTHS}, sampler=sampler, num_points=7)

    assert sorted(values) == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]


@pytest.mark.parametrize("sampler", ["random", "qmc"])
def test_a_grid_and_a_search_over_it_train_the_same_configs(sampler: str) -> None:
    fields = {"space": {"alpha_v": TENTHS | {"low": 0.05, "high": 0.5, "step": 0.05}}}
    grid = sweep_spec(**fields, sampler="grid", num_points=None)
    drawn, _ = search(SweepProposer(sweep_spec(**fields, sampler=sampler, num_points=10), Curves()))

    keys = {grid.config(params, grid.base.seed).key() for params in grid.grid_points()}
    assert {trial.config_key for trial in drawn} == keys
    assert len(keys) == 10


@settings(max_examples=60, deadline=None)
@given(
    low=st.integers(0, 300),
    step=st.integers(1, 99),
    size=st.integers(2, 30),
    places=st.integers(0, 9),
    sampler=st.sampled_from(["random", "qmc", "tpe"]),
)
def test_every_sampler_draws_the_decimals_of_the_grid(
    low: int, step: int, size: int, places: int, sampler: str
) -> None:
    unit = Decimal(1).scaleb(-places)
    expected = [float((low + k * step) * unit) for k in range(size)]
    # Rates of the optimizer: at most 10^4 here, and not 0.
    assume(0 < expected[0] and expected[-1] < 1e3)
    domain = {"kind": "float", "low": expected[0], "high": expected[-1], "step": float(step * unit)}

    values = values_of("alpha_v", space={"alpha_v": domain}, sampler=sampler, num_points=5)

    assert set(values) <= set(expected)
    ranged = FloatRange.model_validate(domain)
    assert [ranged.value(k) for k in range(size)] == expected
    assert [ranged.index(value) for value in expected] == list(range(size))


def test_a_rounding_beside_the_grid_is_the_number_on_it() -> None:
    off = 0.1 + 0.2
    assert off != 0.3
    fields = {"space": {"alpha_v": TENTHS}, "initial_points": [{"alpha_v": off}]}

    values = values_of("alpha_v", **fields, num_points=7)

    assert values[0] == 0.3
    assert sorted(values) == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]


def test_a_prior_result_beside_the_grid_is_taken() -> None:
    prior = [{"params": {"alpha_v": 0.1 + 0.2}, "value": 0.5}]

    values = values_of("alpha_v", space={"alpha_v": TENTHS}, sampler="tpe", prior=prior)

    assert set(values) <= {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7}


@pytest.mark.parametrize("sampler", ["random", "qmc", "tpe"])
def test_a_stored_sweep_with_a_rounding_in_it_goes_on_without_training_it_twice(
    sampler: str,
) -> None:
    fields = {"space": {"alpha_v": TENTHS}, "sampler": sampler, "num_points": 7}
    undisturbed, _ = search(SweepProposer(sweep_spec(**fields), Curves()))
    spec = sweep_spec(**fields)
    stored = []
    for trial in undisturbed[:6]:
        off = 0.1 + 0.2 if trial.params["alpha_v"] == 0.3 else trial.params["alpha_v"]
        config = spec.config({"alpha_v": off}, trial.seed)
        params, key = {"alpha_v": off}, config.key()
        stored.append(replace(trial, params=params, config=config.stored(), config_key=key))

    trials, _ = search(SweepProposer(spec, Curves()), history=stored)

    assert sorted(round(trial.params["alpha_v"], 9) for trial in trials) == [
        0.1,
        0.2,
        0.3,
        0.4,
        0.5,
        0.6,
        0.7,
    ]


# --- Other numbers -------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(low=st.floats(1e-8, 1e3), factor=st.floats(1.0001, 1e6), drawn=st.floats(0, 1))
def test_a_logarithmic_range_ends_where_it_was_typed(
    low: float, factor: float, drawn: float
) -> None:
    high = low * factor
    assume(high > low)
    domain = FloatRange.model_validate({"kind": "float", "low": low, "high": high, "log": True})

    for near in (low * (1 - 2e-16), high * (1 + 2e-16), low + drawn * (high - low)):
        assert low <= domain.canonical(near) <= high
    assert (domain.canonical(low), domain.canonical(high)) == (low, high)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_no_draw_of_a_logarithmic_range_passes_its_ends(sampler: str) -> None:
    # exp(log(0.3)) is above 0.3.
    domain = {"kind": "float", "low": 0.3, "high": 0.30000000000000016, "log": True}

    values = values_of("alpha_v", space={"alpha_v": domain}, sampler=sampler, num_points=3)

    assert all(0.3 <= value <= 0.30000000000000016 for value in values)


@pytest.mark.parametrize(
    ("one", "other"), [(0.0, -0.0), (0, -0.0), (0.001, 1e-3), (1, 1.0)], ids=repr
)
def test_two_ways_to_write_a_number_are_one_config(one: float, other: float) -> None:
    spec = sweep_spec(base=BASE | {"lambda_c": None})

    keys = {spec.config({"alpha_v": 0.1, "weight_decay": n}, 0).key() for n in (one, other)}

    assert len(keys) == 1


# --- The order of fields -------------------------------------------------------------------------

CONDITIONAL: dict[str, Any] = {
    "optimizer": {"kind": "choice", "values": ["sgd", "ndadam"]},
    "lr": {"kind": "float", "low": 0.01, "high": 1.0, "when": {"optimizer": ["sgd"]}},
    "alpha_v": {"kind": "float", "low": 0.01, "high": 1.0, "when": {"optimizer": ["ndadam"]}},
    "alpha_s": TENTHS | {"when": {"optimizer": ["ndadam"]}},
    "bn_eps": {"kind": "choice", "values": [1e-3, 1e-5]},
    "widen_factor": {"kind": "int", "low": 1, "high": 4},
}


@settings(max_examples=25, deadline=None)
@given(order=st.permutations(list(CONDITIONAL)), sampler=st.sampled_from(["random", "qmc", "tpe"]))
def test_points_do_not_depend_on_the_order_of_fields(order: list[str], sampler: str) -> None:
    fields: dict[str, Any] = {"base": SHARED, "sampler": sampler, "num_points": 8}

    reordered = params_of(**fields, space={name: CONDITIONAL[name] for name in order})

    assert reordered == params_of(**fields, space=CONDITIONAL)


def test_a_point_lists_its_fields_as_the_spec_does() -> None:
    for space in (SPACE, dict(reversed(SPACE.items()))):
        assert [list(params) for params in params_of(space=space)] == [list(space)] * 6


@settings(max_examples=15, deadline=None)
@given(
    order=st.permutations(list(CONDITIONAL)),
    sampler=st.sampled_from(["random", "qmc", "tpe"]),
    killed_after=st.integers(1, 7),
)
def test_a_sweep_goes_on_when_its_stored_spec_comes_back_in_another_order(
    order: list[str], sampler: str, killed_after: int
) -> None:
    fields: dict[str, Any] = {"base": SHARED, "sampler": sampler, "num_points": 8}
    undisturbed = params_of(**fields, space=CONDITIONAL)
    spec = sweep_spec(**fields, space=CONDITIONAL)
    before, _ = search(SweepProposer(spec, Curves()), stop_after=killed_after)

    other = sweep_spec(**fields, space={name: CONDITIONAL[name] for name in order})
    after, _ = search(SweepProposer(other, Curves()), history=before)

    assert [trial.params for trial in after] == undisturbed


#: What 0.1.0 proposed for ``SPACE`` (alpha_v, then alpha_s), with sampler_seed 0 and ``bowl``.
OF_0_1_0 = {
    "random": [
        (0.059172152057458606, 0.00019185055317124527),
        (0.005606606665868319, 0.0003533085735833839),
        (0.16690191238004207, 0.08480858722394742),
        (0.012504008334381925, 0.04161935870241108),
        (0.17273420609664272, 0.0002144129452141469),
        (0.02494315671773294, 0.0005576690488094981),
    ],
    "qmc": [
        (0.059172152057458606, 0.00019185055317124527),
        (0.06629050518565789, 0.033382247575049484),
        (0.013584869822403691, 0.002592336553952216),
        (0.0010706549647032566, 0.012418682163355519),
        (0.8340559766908158, 0.0002202765757979625),
        (0.3165810922884932, 0.003654497719095143),
    ],
    "tpe": [
        (0.21528578412183505, 0.061932017351647696),
        (0.687472869869622, 0.0010020617503020514),
        (0.3436476380728571, 0.00012884746542008913),
        (0.029961150159310876, 0.003122028492759356),
        (0.0027880176416221246, 0.03791817085263145),
        (0.8347824920843385, 0.0011021059804538172),
    ],
}


@pytest.mark.parametrize("sampler", OF_0_1_0)
@pytest.mark.parametrize("stored", [1, 3, 5])
def test_a_stored_sweep_of_0_1_0_keeps_its_own_points(sampler: str, stored: int) -> None:
    spec = sweep_spec(sampler=sampler, space=SPACE)
    history = []
    for number, (alpha_v, alpha_s) in enumerate(OF_0_1_0[sampler][:stored]):
        params = {"alpha_v": alpha_v, "alpha_s": alpha_s}
        proposal = Proposal(number, params, spec.config(params, spec.base.seed))
        history.append(ended(waiting_trial(number, proposal), bowl(params, proposal.seed)))

    trials, reason = search(SweepProposer(spec, Curves()), history=history)

    assert reason == "all done"
    found = [trial.params[name] for trial in trials for name in ("alpha_v", "alpha_s")]
    assert found == pytest.approx(list(chain(*OF_0_1_0[sampler])), rel=1e-12)


def test_shuffled_fields_give_the_same_first_point_in_every_process() -> None:
    order = random.Random(1).sample(list(SPACE), k=len(SPACE))
    spec = {name: SPACE[name] for name in order}

    assert params_of(space=spec)[0] == params_of(space=SPACE)[0]
