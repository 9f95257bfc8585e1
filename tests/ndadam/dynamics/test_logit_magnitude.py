"""The size of the logits: by hand, in a loop, and what BN-Softmax pins it to."""

import math

import pytest
import torch
from torch import nn

from ndadam import BatchNormSoftmax, LogitMagnitude, logit_rms


def test_it_is_the_root_of_the_mean_square_over_images_and_classes():
    """(9 + 16 + 0 + 0) / 4 = 6.25."""
    logits = torch.tensor([[3.0, -4.0], [0.0, 0.0]], requires_grad=True)

    assert logit_rms(logits).item() == 2.5
    assert not logit_rms(logits).requires_grad


def test_half_precision_does_not_overflow():
    logits = torch.full((4, 3), 3e4, dtype=torch.float16)

    assert logit_rms(logits).dtype == torch.float32
    assert logit_rms(logits).item() == pytest.approx(3e4, rel=1e-3)


def test_bn_softmax_pins_it_to_gamma_c():
    model = nn.Sequential(nn.Linear(6, 5), BatchNormSoftmax(5, gamma_c=2.5, eps=1e-9))
    magnitude = LogitMagnitude(model)
    for size in (0.1, 1.0, 30.0):
        model(size * torch.randn(64, 6))

    assert magnitude.drain() == pytest.approx([2.5] * 3, rel=1e-4)


def test_training_passes_are_recorded_one_by_one_and_evaluations_are_not():
    head = nn.Linear(3, 2, bias=False)
    nn.init.constant_(head.weight, 1.0)
    model = nn.Sequential(nn.Identity(), head)
    magnitude = LogitMagnitude(head, every=2)
    for value in (1.0, 2.0, 3.0, 4.0):
        model.train()
        model(torch.full((2, 3), value)).sum().backward()
        model.eval()
        model(torch.full((2, 3), 100.0))

    assert magnitude.drain() == [3.0, 9.0]
    assert magnitude.drain() == []
    magnitude.detach()
    model.train()
    model(torch.ones(2, 3))
    assert magnitude.drain() == []


def test_recording_changes_no_bit_of_the_run_and_leaves_no_graph_behind():
    def train(recorded):
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        magnitude = LogitMagnitude(model) if recorded else None
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(5, 4)).square().mean().backward()
            optimizer.step()
        return model.weight.detach(), magnitude

    plain, _ = train(recorded=False)
    weight, magnitude = train(recorded=True)

    assert torch.equal(weight, plain)
    assert all(record.grad_fn is None for record in magnitude._records)
    assert all(math.isfinite(value) for value in magnitude.drain())


def test_a_module_that_returns_no_tensor_is_refused_by_name():
    class Model(nn.Linear):
        def forward(self, x):
            return {"logits": super().forward(x)}

    model = Model(3, 2)
    LogitMagnitude(model)

    with pytest.raises(TypeError, match="Model must return its logits as a tensor, got dict"):
        model(torch.ones(1, 3))


@pytest.mark.parametrize("every", [0, -1])
def test_a_period_below_one_is_refused(every):
    with pytest.raises(
        ValueError, match=f"every must be a whole number of at least 1, got {every}"
    ):
        LogitMagnitude(nn.Linear(2, 2), every=every)
