"""Rules of one's own, exclusions and rates by pattern."""

import warnings

import pytest
import torch
from torch import nn

from ndadam import EffectiveLR, ModelNDAdam, NDAdam, describe_groups, param_groups, per_group


class Transposed(nn.Module):
    """Keeps its weight as (in, out), and holds a linear layer."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4))
        self.bias = nn.Parameter(torch.zeros(4))
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x @ self.weight + self.bias)


def network():
    return nn.ModuleDict(
        {
            "blocks": nn.ModuleList([nn.ModuleDict({"qkv": nn.Linear(4, 6)}) for _ in range(2)]),
            "mine": Transposed(),
            "head": nn.Linear(4, 2),
        }
    )


def dims(model, **choices):
    groups = param_groups(model, **choices)
    return {name: g["vector_dim"] for g in groups for name in g["names"]}


def test_a_pattern_fits_a_module_and_all_in_it():
    found = dims(network(), rules={"head": None, "blocks.*.qkv": 1, "mine": 1})

    assert found["head.weight"] is None
    assert found["blocks.0.qkv.weight"] == found["blocks.1.qkv.weight"] == 1
    assert found["blocks.0.qkv.bias"] is None
    assert found["mine.weight"] == found["mine.inner.weight"] == 1


def test_a_class_fits_what_its_modules_hold_themselves():
    found = dims(network(), rules={Transposed: 1})

    assert found["mine.weight"] == 1
    assert found["mine.inner.weight"] == 0


def test_a_module_and_a_parameter_pick_themselves():
    model = network()

    found = dims(model, rules={model["mine"].weight: -1, model["head"]: None})

    assert found["mine.weight"] == 1
    assert found["head.weight"] is None


def test_the_last_rule_that_fits_counts():
    rules = {"*": None, "mine": 1, "mine.inner": 0}

    found = dims(network(), rules=rules)

    assert (found["mine.weight"], found["mine.inner.weight"]) == (1, 0)
    assert found["blocks.0.qkv.weight"] is None


def test_a_tied_parameter_has_the_rule_of_any_of_its_names():
    model = nn.ModuleDict({"embedding": nn.Embedding(5, 3), "head": nn.Linear(3, 5, bias=False)})
    model["head"].weight = model["embedding"].weight

    assert dims(model, rules={"head": None}) == {"embedding.weight": None}


def test_the_table_says_whose_rule_it_was():
    table = describe_groups(network(), rules={"head": None, Transposed: 1}, exclude=["blocks.0"])

    assert "your rule for 'head'" in table
    assert "your rule for Transposed" in table
    assert "excluded by 'blocks.0'" in table


def test_what_is_excluded_is_in_no_group():
    model = network()

    found = dims(model, rules={Transposed: 1}, exclude=["blocks.0", nn.Embedding][:1])

    assert {name for name in found if name.startswith("blocks.0")} == set()
    assert "blocks.1.qkv.weight" in found
    assert dims(model, rules={Transposed: 1}, exclude="blocks.0") == found


def test_rates_by_pattern_have_groups_of_their_own():
    groups = param_groups(
        network(), alpha_v=0.2, alpha_s=0.01, rules={"mine": 1}, rate_factors={"head": 0.5}
    )

    found = [(g["name"], g["vector_dim"], g["lr"], g["names"][-1]) for g in groups]
    assert found == [
        ("vectors", 0, 0.2, "blocks.1.qkv.weight"),
        ("vectors", 0, 0.1, "head.weight"),
        ("vectors", 1, 0.2, "mine.inner.weight"),
        ("scalars", None, 0.01, "mine.inner.bias"),
        ("scalars", None, 0.005, "head.bias"),
    ]


def test_values_for_schedules_follow_the_factors():
    model = network()
    factors = {"head": 0.5, "blocks": 0.25}
    optimizer = NDAdam(param_groups(model, rules={"mine": 0}, rate_factors=factors))

    rates = per_group(optimizer, alpha_v=0.8, alpha_s=0.04)

    assert rates == [0.8, 0.2, 0.4, 0.04, 0.01, 0.02]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rates, total_steps=10)
    assert [g["max_lr"] for g in optimizer.param_groups] == rates
    assert len(schedule.get_last_lr()) == 6
    warm = per_group(optimizer, alpha_v=min, alpha_s=max)
    assert warm == [min, min, min, max, max, max]


def test_a_state_with_factors_loads():
    model = network()
    optimizer = NDAdam(param_groups(model, rules={"mine": 1}, rate_factors={"head": 0.5}))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.load_state_dict(optimizer.state_dict())

    assert [g.get("rate_factor") for g in optimizer.param_groups] == [None, 0.5, None, None, 0.5]


def test_a_class_with_keyword_arguments_takes_them_too():
    model = network()
    choices = {"rules": {"mine": 1}, "exclude": ["blocks.0"], "rate_factors": {"head": 0.5}}

    optimizer = ModelNDAdam(model.parameters(), model=model, **choices)

    expected = NDAdam(param_groups(model, **choices)).param_groups
    assert sorted((g["vector_dim"] or -1, g["lr"], len(g["params"])) for g in expected) == sorted(
        (g["vector_dim"] or -1, g["lr"], len(g["params"])) for g in optimizer.param_groups
    )


def test_vectors_of_a_rule_are_measured_with_it():
    model = network()
    rules = {Transposed: 1}
    optimizer = NDAdam(param_groups(model, rules=rules))
    dynamics = EffectiveLR(model["mine"], optimizer, rules=rules)

    model["mine"](torch.randn(5, 3)).square().sum().backward()
    optimizer.step()

    # At the first step every vector's tangent has length alpha_v: it turns by arctan(0.05).
    layers = dynamics.drain().layers
    assert list(layers) == ["transposed1", "linear1"]
    assert layers["transposed1"].angular_update[0] == pytest.approx(0.0499584, abs=1e-6)


WRONG = [
    ({"rules": {"haed": None}}, ValueError, "rules has 'haed', which fits no parameter of the mod"),
    ({"rules": {nn.Conv2d: 0}}, ValueError, "rules has Conv2d, which fits no parameter"),
    ({"rules": {nn.Parameter(torch.ones(2)): 0}}, ValueError, r"a parameter of shape \(2,\)"),
    ({"rules": {"*.bias": 0}}, ValueError, "vector_dim 0 to '.*bias', .* fewer than 2 dimensions"),
    ({"rules": {"head": 2}}, ValueError, r"vector_dim 2 to 'head', .* shape \(2, 4\) without"),
    ({"rules": {"head": 1.0}}, TypeError, "a dimension, or None for scalars, got 1.0 for 'head'"),
    ({"rules": {"head": True}}, TypeError, "a dimension, or None for scalars, got True"),
    ({"rules": {3: 0}}, TypeError, "a module or the parameter itself, got 3"),
    ({"rules": {int: 0}}, TypeError, "got <class 'int'>"),
    ({"rules": ["head"]}, TypeError, "rules must be a mapping from what it picks .* got list"),
    ({"exclude": ["haed"]}, ValueError, "exclude has 'haed', which fits no parameter"),
    ({"rate_factors": {"haed": 0.1}}, ValueError, "rate_factors has 'haed', which fits no"),
    ({"rate_factors": {"head": -1}}, ValueError, "numbers >= 0, got -1 for 'head'"),
    ({"rate_factors": 0.1}, TypeError, "rate_factors must be a mapping .* got float"),
]


@pytest.mark.parametrize(("choices", "kind", "message"), WRONG)
@pytest.mark.filterwarnings("ignore:.*no rule says which slices")
def test_what_picks_nothing_or_makes_no_sense_is_refused(choices, kind, message):
    with pytest.raises(kind, match=message):
        param_groups(network(), **choices)
