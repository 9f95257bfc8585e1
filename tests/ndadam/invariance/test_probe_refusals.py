"""What a probe refuses, what it takes, and what it leaves as it was."""

import collections
import dataclasses

import pytest
import torch
from torch import nn
from torch.nn import functional

from ndadam import probe
from ndadam.invariance.passes import same_randomness_after
from ndadam.matching.equivalents import layers_in_words, layers_without_rate

Named = collections.namedtuple("Named", "x y")


@dataclasses.dataclass
class Fields:
    x: torch.Tensor
    y: torch.Tensor
    scale: float = 1.0


def net(eps=1e-5, width=32):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(16, width), nn.BatchNorm1d(width, eps=eps), nn.ReLU(), nn.Linear(width, 10)
    )


def data():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 16, generator=generator)
    return x, torch.randint(10, (64,), generator=generator)


def loss(model, batch):
    return functional.cross_entropy(model(batch[0]), batch[1])


def frozen(model):
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return model


@pytest.mark.parametrize(
    ("model", "loss", "error", "words"),
    [
        (3, loss, TypeError, "model must be an nn.Module, got int"),
        (nn.BatchNorm1d(16), loss, ValueError, "must hold weight vectors .* BatchNorm1d has none"),
        (frozen(net()), loss, ValueError, "all of them are frozen"),
        (net(), lambda m, b: m(b[0]), ValueError, r"one number, got a tensor of shape \(64, 10\)"),
        (net(), lambda m, b: loss(m, b).detach(), ValueError, "it is detached"),
        (net(), lambda m, b: loss(m, b).detach().item(), ValueError, "a gradient, got float"),
        (net(), lambda m, b: loss(m, b) * float("nan"), ValueError, "must be finite .* got nan"),
        (net(), lambda m, b: loss(m, b) + float("inf"), ValueError, "must be finite .* got inf"),
    ],
)
def test_what_cannot_be_probed_is_refused_with_a_sentence(model, loss, error, words):
    with pytest.raises(error, match=words):
        probe(model, data(), loss)


def test_a_model_that_keeps_its_activations_is_refused_by_the_attributes_name():
    model = net()
    model[0].last = model(data()[0])

    with pytest.raises(ValueError, match=r"earlier forward pass in 0\.last; set them to None"):
        probe(model, data(), loss)


@pytest.mark.parametrize("pack", [Named, Fields, lambda x, y: collections.UserDict(x=x, y=y)])
def test_batches_come_in_whatever_holds_tensors(pack):
    def any_loss(model, batch):
        x, y = (batch.x, batch.y) if hasattr(batch, "x") else (batch["x"], batch["y"])
        assert x.dtype == torch.float64
        return functional.cross_entropy(model(x), y)

    assert probe(net(), pack(*data()), any_loss).layer_classes()["linear1"] == "invariant"


def test_a_model_that_casts_on_the_way_is_probed_in_single_precision():
    def casting(model, batch):
        return loss(model, (batch[0].float(), batch[1]))

    found = probe(net(), data(), casting)

    assert set(found.classes["linear1"]) == {"invariant"}
    assert set(found.classes["linear2"]) == {"neither"}
    assert 0 < max(found.cosines["linear1"]) < 1e-3


def test_torchs_generator_goes_on_as_if_nothing_had_been_probed():
    model = net()
    model[2] = nn.Dropout(0.5)
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)

    probe(model, data(), loss)

    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("has_cards", [True, False])
def test_generators_of_every_card_that_is_in_use_are_put_back(has_cards, monkeypatch):
    """Seeding seeds all of them, whatever cards the model is on."""
    put_back = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: has_cards)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.random, "fork_rng", lambda devices: put_back.append([*devices]))

    same_randomness_after()

    assert put_back == [[0, 1] if has_cards else []]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_model_on_the_host_leaves_the_generators_of_cards_alone():
    torch.cuda.manual_seed_all(1)
    expected = torch.rand(3, device="cuda")
    torch.cuda.manual_seed_all(1)

    with same_randomness_after():
        torch.manual_seed(2)

    assert torch.equal(torch.rand(3, device="cuda"), expected)


def test_what_no_normalisation_follows_is_never_limited_by_eps_nor_invariant_by_chance():
    """Of 4,000 rows of 64 elements 25 or so have |cos| below 1e-3, as any random directions."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 4000), nn.ReLU(), nn.Linear(4000, 10))
    generator = torch.Generator().manual_seed(0)
    batch = (torch.randn(64, 64, generator=generator), torch.arange(64) % 10)

    found = probe(model, batch, loss)

    assert sum(cosine < 1e-3 for cosine in found.cosines["linear1"]) > 5
    assert found.counts()["neither"] == 4010


def test_a_single_vector_before_a_normalisation_is_no_chance():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 1), nn.BatchNorm1d(1), nn.Linear(1, 10))

    assert probe(model, data(), loss).classes["linear1"] == ("invariant",)


def test_layers_that_eps_keeps_from_being_invariant_are_named_however_far_they_are():
    model = net(eps=1.0)
    found = probe(model, data(), loss)

    assert found.layer_classes()["linear1"] in ("eps_limited", "neither")
    assert found.limited_by_eps == ("linear1",)
    words = layers_in_words(layers_without_rate(found), found.limited_by_eps)
    assert words == (
        "not for linear2, whose length the loss sees; not exactly for linear1, whose length the "
        "loss sees through the eps of a normalisation"
    )


def test_frozen_layers_are_not_said_to_be_seen_by_their_length():
    model = net()
    frozen(model[0])
    found = probe(model, data(), loss)

    assert found.frozen == ("linear1",)
    assert set(found.classes["linear1"]) == {"neither"}
    assert layers_without_rate(found) == ("linear2",)
