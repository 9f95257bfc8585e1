"""The one rate of a whole network: which vectors enter it, and which enter it together."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from ndadam import EffectiveLR, WideResNet, probe, weight_vectors
from tests.ndadam.dynamics.moving_weights import batches, loss, sgd, train


def wrn_run(steps, use_probe, widen_factor=2):
    generator = torch.Generator().manual_seed(0)
    model = WideResNet(10, widen_factor, 5, generator=generator).double()
    x = torch.randn(8, 3, 8, 8, generator=generator, dtype=torch.float64)
    y = torch.randint(5, (8,), generator=generator)
    groups = model.residual_groups()
    found = probe(model, (x, y), loss, groups) if use_probe else None
    optimizer = sgd(model)
    dynamics = EffectiveLR(model, optimizer, residual_groups=groups, probe=found)
    weights, _ = train(model, optimizer, [(x, y)] * steps)
    return model, groups, dynamics, weights


@pytest.mark.parametrize(("use_probe", "widen_factor"), [(True, 2), (False, 2), (True, 1)])
def test_vectors_of_one_residual_channel_enter_the_headline_together(use_probe, widen_factor):
    model, groups, dynamics, weights = wrn_run(2, use_probe, widen_factor)
    vectors = weight_vectors(model)
    number = {v.parameter: i for i, v in enumerate(vectors)}
    joint = {number[p] for stream in groups for p, _ in stream}
    head = len(vectors) - 1

    headlines = dynamics.drain().effective_lr
    assert len(headlines) == 2
    for t, headline in enumerate(headlines):
        qq = [(b - a).square().sum(1) for a, b in zip(weights[t], weights[t + 1], strict=True)]
        ww = [a.square().sum(1) for a in weights[t]]
        units = [
            sum(qq[number[p]] for p, _ in stream) / sum(ww[number[p]] for p, _ in stream)
            for stream in groups
        ]
        alone = [i for i in range(len(vectors)) if i not in joint and not (use_probe and i == head)]
        units += [qq[i] / ww[i] for i in alone]
        assert headline == pytest.approx(torch.cat(units).mean().sqrt().item(), rel=1e-10)


def test_with_a_probe_kappa_of_the_headline_vanishes():
    balance = wrn_run(20, use_probe=True)[2].balance()

    assert abs(balance.kappa) < 1e-3
    assert abs(balance.layers["conv3"]) > abs(balance.kappa)
    assert abs(balance.residual) < 1e-10


def test_streams_with_shifted_channels_are_grouped_by_channel():
    generator = torch.Generator().manual_seed(0)
    model = WideResNet(10, 2, 5, shortcut="pool_pad", generator=generator)
    optimizer = sgd(model)
    dynamics = EffectiveLR(model, optimizer, residual_groups=model.residual_groups())

    # 128 channels hold 224 vectors; the other 16 + 32 + 64 + 128 and the head's 5 are alone.
    assert dynamics._average._num_units == 128 + 16 + 32 + 64 + 128 + 5


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        ((6, 4), r"linear1 \(0.weight\) has 6 weight vectors, and the probe has classes of 5"),
        ((5, 4, 3), r"linear3 \(2.weight\) has 3 weight vectors, and the probe has classes of 0"),
    ],
)
def test_a_probe_of_another_model_is_refused_by_its_layer(widths, message):
    def model(*widths):
        return nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise((3, *widths))))

    found = probe(model(5, 4), torch.randn(8, 3), lambda net, x: net(x).square().mean())
    other = model(*widths)

    with pytest.raises(ValueError, match=message):
        EffectiveLR(other, sgd(other), probe=found)


def test_when_no_vector_is_invariant_all_count():
    model = nn.Sequential(nn.Flatten(), nn.Linear(72, 5)).double()
    with torch.no_grad():
        model[1].weight.copy_(batches(1)[0][0][:5].flatten(1))
    found = probe(model, batches(1)[0], loss)
    optimizer = sgd(model)
    dynamics = EffectiveLR(model, optimizer, probe=found)
    train(model, optimizer, batches(2))
    record = dynamics.drain()

    assert "invariant" not in found.classes["linear1"]
    # Sums of the same numbers, whose order is the processor's.
    layer = record.layers["linear1"].effective_lr
    assert record.effective_lr == pytest.approx(layer, rel=1e-12)
