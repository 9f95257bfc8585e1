"""The built-in network that is not a WRN."""

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from ndadam import weight_vectors
from worker import Measurement, TrainConfig, train
from worker.config.registry import registered_names
from worker.networks.build import build_network

MLP = {"network": "mlp", "dataset": "colours", "depth": 2, "widen_factor": 0.25, "batch_size": 20}


def built(side=8, **fields):
    config = TrainConfig(**{**MLP, **fields}).resolved()
    model = build_network(config, 4, 3, torch.device("cpu"))
    return model, model(torch.randn(6, 3, side, side))


def test_it_is_registered_by_name():
    assert registered_names("networks") == ["mlp", "wrn"]


@pytest.mark.parametrize("side", [8, 32])
def test_images_of_any_size_give_logits(side):
    model, logits = built(side)

    assert logits.shape == (6, 4)
    assert [v.count for v in weight_vectors(model)] == [16, 16, 4]
    assert [v.length for v in weight_vectors(model)] == [3 * 64, 16, 16]


def test_the_head_has_a_bias_unless_bn_softmax_follows_it():
    plain, _ = built()
    scaled, _ = built(gamma_c=2.5)

    assert [m.bias is not None for m in plain if isinstance(m, nn.Linear)] == [False, False, True]
    assert not any(m.bias is not None for m in scaled if isinstance(m, nn.Linear))


def test_scales_are_trained_or_fixed():
    fixed, _ = built(bn_scale="fixed")
    names = [name for name, _ in fixed.named_parameters()]

    assert sum(p.dim() == 1 for p in fixed.parameters()) == 3  # two shifts, the head's bias
    assert len(names) == 6


def test_initial_weights_depend_on_the_seed_alone():
    torch.manual_seed(1)
    a, _ = built(seed=3)
    torch.manual_seed(2)
    b, _ = built(seed=3)
    c, _ = built(seed=4)

    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(next(a.parameters()), next(c.parameters()))
    assert a[2].weight.detach().std().item() == pytest.approx((1 / 192) ** 0.5, rel=0.1)


def test_a_wrns_fields_are_refused():
    with pytest.raises(ValidationError, match="an mlp has no shortcuts"):
        TrainConfig(**MLP, shortcut="conv")
    assert TrainConfig(**MLP).resolved().shortcut is None


def test_it_trains_and_its_hidden_rows_are_invariant(data_home):
    config = TrainConfig(**MLP, steps=40, validation_fraction=0.0, alpha_s=0.01, crop_pad=1)
    (*_, last) = train(config, data_home=data_home, measurement=Measurement(every=1))

    assert last.status == "complete"
    assert last.metrics["train_loss"] < 1.39  # log 4
    assert last.provenance["probe"]["layers"]["linear1"] in ("invariant", "eps_limited")
    assert last.provenance["probe"]["layers"]["linear3"] == "neither"
