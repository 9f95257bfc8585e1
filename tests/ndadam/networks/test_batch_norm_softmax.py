"""Regularised softmax against hand-sized numbers."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from ndadam import (
    BatchNormSoftmax,
    batch_norm_softmax,
    logit_penalty,
    softmax_gradient,
    softmax_gradient_limits,
    softmax_gradient_ratios,
)

ORACLES = json.loads((Path(__file__).parents[1] / "oracles.json").read_text())
EXACT = {"rtol": 0, "atol": 1e-12}


def double(values):
    return torch.tensor(values, dtype=torch.float64)


CASES = [
    ("eps=1e-05 gamma=2.5", 1e-5, 2.5),
    ("eps=1e-05 gamma=1", 1e-5, 1.0),
    ("eps=0.001 gamma=2.5", 1e-3, 2.5),
    ("eps=0.001 gamma=1", 1e-3, 1.0),
]


def test_all_cases_of_the_oracle_are_tested():
    assert {name for name, _, _ in CASES} == set(ORACLES["bn_softmax"]["cases"])


@pytest.mark.parametrize(("name", "eps", "gamma_c"), CASES)
def test_bn_softmax_equals_the_numbers(name, eps, gamma_c):
    case = ORACLES["bn_softmax"]
    expected = case["cases"][name]
    logits = double(case["Z"])
    module = BatchNormSoftmax(3, gamma_c, eps=eps).double()

    for scaled in (module(logits), batch_norm_softmax(logits, gamma_c, eps)):
        torch.testing.assert_close(scaled, double(expected["logits"]), **EXACT)
        loss = functional.cross_entropy(scaled, torch.tensor(case["targets"]))
        assert loss.item() == pytest.approx(expected["cross_entropy_mean"], abs=1e-12)


def test_only_the_bias_of_bn_softmax_is_trained():
    module = BatchNormSoftmax(3, 2.5)

    assert [name for name, _ in module.named_parameters()] == ["bias"]
    assert "weight" not in module.state_dict()


def test_bn_softmax_uses_running_statistics_in_evaluation():
    torch.manual_seed(0)
    module = BatchNormSoftmax(3, 2.5, momentum=1.0)
    logits = 5 + 3 * torch.randn(4096, 3)
    module(logits)

    scaled = module.eval()(logits)

    torch.testing.assert_close(scaled.std(0), torch.full((3,), 2.5), rtol=1e-3, atol=0)
    torch.testing.assert_close(scaled.mean(0), torch.zeros(3), rtol=0, atol=1e-3)


@settings(deadline=None, max_examples=30)
@given(scale=st.floats(0.01, 100))
def test_bn_softmax_ignores_the_size_of_the_logits(scale):
    logits = double(ORACLES["bn_softmax"]["Z"])

    scaled = batch_norm_softmax(scale * logits, 2.5, eps=1e-18)

    torch.testing.assert_close(scaled, batch_norm_softmax(logits, 2.5, eps=1e-18), **EXACT)


@pytest.mark.parametrize("gamma_c", [2, np.float32(2), torch.tensor(2)])
def test_a_scale_is_any_single_number(gamma_c):
    """A whole one would make a scale of whole numbers, which torch's batch norm refuses."""
    module = BatchNormSoftmax(3, gamma_c)
    logits = torch.randn(8, 3)

    assert torch.equal(module(logits), BatchNormSoftmax(3, 2.0)(logits))
    assert torch.equal(batch_norm_softmax(logits, gamma_c), batch_norm_softmax(logits, 2.0))
    assert module.gamma_c == 2.0


@pytest.mark.parametrize("gamma_c", [0.0, -1.0, float("nan"), torch.ones(1)])
def test_a_scale_that_is_not_positive_is_refused(gamma_c):
    with pytest.raises(ValueError, match="gamma_c must be > 0, got"):
        BatchNormSoftmax(3, gamma_c)
    with pytest.raises(ValueError, match="gamma_c must be > 0, got"):
        batch_norm_softmax(torch.eye(3), gamma_c)


def test_the_logit_penalty_and_its_gradient_equal_the_numbers():
    case = ORACLES["l2_logit_penalty"]
    logits = double(case["Z"]).requires_grad_()

    penalty = logit_penalty(logits, case["lambda_c"])
    penalty.backward()

    assert penalty.item() == pytest.approx(case["batch_mean"], abs=1e-12)
    torch.testing.assert_close(logits.grad, double(case["grad_of_batch_mean"]), **EXACT)
    for row, expected in zip(double(case["Z"]), case["per_sample"], strict=True):
        single = logit_penalty(row[None], case["lambda_c"])
        assert single.item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("eta", ORACLES["softmax_gradients"]["by_eta"])
def test_the_softmax_gradient_equals_the_numbers(eta):
    case = ORACLES["softmax_gradients"]
    expected = case["by_eta"][eta]
    logits, target = double([case["logits"]]), torch.tensor([case["target"]])

    gradient = softmax_gradient(logits, target, float(eta))
    ratios = softmax_gradient_ratios(logits, target, float(eta))

    torch.testing.assert_close(gradient[0], double(expected["grad"]), **EXACT)
    loss = functional.cross_entropy(float(eta) * logits, target)
    assert loss.item() == pytest.approx(expected["loss"], rel=1e-9, abs=1e-15)
    assert ratios[0, case["target"]] == 0
    wrong = [c for c in range(4) if c != case["target"]]
    # The quotient that the numbers were made with loses digits where eta is extreme.
    torch.testing.assert_close(
        ratios[0, wrong], double(expected["ratios_nontarget_to_target"]), rtol=0, atol=1e-9
    )


def test_the_softmax_gradient_is_that_of_the_cross_entropy():
    logits = double(ORACLES["bn_softmax"]["Z"]).requires_grad_()
    target = torch.tensor([1, 2, 0, 1])

    functional.cross_entropy(3 * logits, target, reduction="sum").backward()

    torch.testing.assert_close(softmax_gradient(logits.detach(), target, 3.0), logits.grad, **EXACT)


def test_gradient_ratios_tend_to_their_limits():
    case = ORACLES["softmax_gradients"]
    logits, target = double([case["logits"]]), torch.tensor([case["target"]])

    small, large = softmax_gradient_limits(logits, target)

    assert small.tolist() == [[0, pytest.approx(1 / 3), pytest.approx(1 / 3), pytest.approx(1 / 3)]]
    assert large.tolist() == [[0, 1, 0, 0]]
    tiny = softmax_gradient_ratios(logits, target, 1e-9)
    huge = softmax_gradient_ratios(logits, target, 1e3)
    torch.testing.assert_close(tiny, small, rtol=0, atol=1e-8)
    torch.testing.assert_close(huge, large, **EXACT)


def test_resetting_its_parameters_keeps_the_scale_also_after_the_meta_device():
    with torch.device("meta"):
        layer = BatchNormSoftmax(5, 2.5)
    layer.to_empty(device="cpu")
    layer.reset_parameters()

    assert torch.equal(layer.weight, torch.full((5,), 2.5))
    assert torch.equal(layer.running_var, torch.ones(5))
    assert [name for name, _ in layer.named_parameters()] == ["bias"]
