"""Unit vectors without another function: ``prepare``, and the warning that leads to it."""

import copy
import re
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from ndadam import NDAdam, Scaled, describe_groups, param_groups, prepare, weight_vectors
from ndadam.optimizer.unit_norm import spread_of_norms


def stretched(model):
    """Weights whose vectors have lengths from 0.1 to 10, and statistics that are no default's."""
    torch.manual_seed(0)
    for v in weight_vectors(model):
        size = torch.rand(v.count) * 4.6 - 2.3
        shape = [-1 if d == v.vector_dim else 1 for d in range(v.parameter.dim())]
        v.parameter.data.mul_(size.exp().view(shape))
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 3)
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    return model


def norms_of(model):
    return {
        v.name: torch.linalg.vector_norm(
            v.parameter.detach().movedim(v.vector_dim, 0).flatten(1), dim=1
        )
        for v in weight_vectors(model)
    }


def convolutional():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 6, 3, bias=False),
        nn.BatchNorm2d(6),
        nn.Conv2d(6, 6, 3, groups=2),
        nn.GELU(),
        nn.Flatten(),
        nn.LazyLinear(10),
    )


def transformer():
    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(11, 16)
            self.pos_embed = nn.Parameter(torch.randn(1, 5, 16))
            layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(16, 11, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, ids):
            return self.head(self.encoder(self.embedding(ids) + self.pos_embed))

    return Language()


IMAGES = torch.randn(4, 3, 9, 9)
IDS = torch.randint(0, 11, (3, 5))
MODELS = {"convolutional": (convolutional, IMAGES), "transformer": (transformer, IDS)}


@pytest.mark.parametrize("kind", MODELS)
def test_outputs_are_kept_to_rounding_and_the_optimizer_changes_nothing(kind):
    make, batch = MODELS[kind]
    model = make().eval()
    model(batch)  # shapes of lazy layers
    model = stretched(model).double()
    batch = batch.double() if batch.is_floating_point() else batch
    before = model(batch).detach()

    prepared = prepare(model, batch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NDAdam(param_groups(model, rules=prepared.rules))

    assert prepared.largest_difference < 1e-13
    torch.testing.assert_close(model(batch), before, rtol=1e-11, atol=1e-11)
    for name, norms in norms_of(model).items():
        if name in prepared.folded + prepared.scaled or name.endswith(".original"):
            torch.testing.assert_close(norms, torch.ones_like(norms), rtol=0, atol=1e-12)


def test_what_is_folded_and_what_is_scaled():
    model = convolutional()
    model(IMAGES)

    prepared = prepare(stretched(model), IMAGES)

    assert prepared.folded == ("0.weight", "3.weight")
    assert prepared.scaled == ("5.weight", "8.weight")
    assert prepared.kept == {}
    assert prepared.largest_difference < 1e-5
    assert "8.parametrizations.weight.original" in describe_groups(model)
    assert describe_groups(model).count("has a scale") == 2
    assert [v.layer for v in weight_vectors(model)] == ["conv1", "conv2", "conv3", "linear1"]


def test_in_training_mode_a_folded_normalisation_differs_by_its_eps_only():
    model = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7, eps=1e-12)).double()
    stretched(model)
    twin, batch = copy.deepcopy(model).train(), torch.randn(20, 5, dtype=torch.float64)

    assert prepare(model).folded == ("0.weight",)

    torch.testing.assert_close(model.train()(batch), twin(batch), rtol=1e-9, atol=1e-9)


def test_a_plain_layer_comes_back():
    layer = nn.Linear(5, 7)
    weight = layer.weight.detach().clone()

    prepare(layer)
    assert layer.weight.shape == (7, 5)
    parametrize.remove_parametrizations(layer, "weight")

    torch.testing.assert_close(layer.weight.detach(), weight, rtol=1e-6, atol=1e-7)


def test_tied_weights_stay_tied():
    model = transformer()

    prepared = prepare(model, IDS)

    assert "embedding.weight" in prepared.scaled
    first, second = model.embedding.parametrizations.weight, model.head.parametrizations.weight
    assert first.original is second.original
    assert first[0].scale is second[0].scale
    assert len([v for v in weight_vectors(model) if "embedding" in v.name]) == 1


def test_a_training_step_moves_vectors_and_scales():
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2))
    optimizer = NDAdam(param_groups(model, rules=prepare(model).rules), betas=(0.9, 0.99))
    before = [p.detach().clone() for p in model.parameters()]

    model(torch.randn(9, 5)).square().sum().backward()
    optimizer.step()

    moved = [not torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True)]
    assert all(moved)
    assert len(moved) == 6
    for norms in norms_of(model).values():
        torch.testing.assert_close(norms, torch.ones_like(norms), rtol=0, atol=1e-6)


def test_what_has_nowhere_to_go_is_kept_and_trained_by_plain_adam():
    model = nn.ModuleDict(
        {
            "recurrent": nn.LSTM(3, 4),
            "zero": nn.Linear(3, 2),
            "sparse": nn.Embedding(4, 3, sparse=True),
            "renormed": nn.Embedding(4, 3, max_norm=1.0),
            "frozen": nn.Linear(3, 2).requires_grad_(False),
            "unit": Scaled(nn.Linear(3, 2)),
            "own": nn.Linear(3, 2),
            "tied": nn.Embedding(5, 3, padding_idx=1),
            "head": nn.Linear(3, 5, bias=False),
        }
    )
    model["head"].weight = model["tied"].weight
    nn.init.zeros_(model["zero"].weight)
    before = copy.deepcopy(model.state_dict())

    prepared = prepare(model, rules={"own": None})
    groups = param_groups(model, rules=prepared.rules, exclude=["sparse"])

    assert prepared.kept == {
        "recurrent.weight_ih_l0": "recurrent layers keep their weights in one buffer",
        "recurrent.weight_hh_l0": "recurrent layers keep their weights in one buffer",
        "zero.weight": "2 of its vectors are zero, and a scale of zero learns nothing",
        "sparse.weight": "its gradients are sparse",
        "renormed.weight": "max_norm changes it in the forward pass",
        "tied.weight": "1 of its vectors are zero, and a scale of zero learns nothing",
    }
    assert (prepared.folded, prepared.scaled, prepared.largest_difference) == ((), (), None)
    assert [g["names"] for g in groups if g["name"] == "vectors"] == [
        ["frozen.weight", "unit.layer.weight"]
    ]
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@pytest.mark.filterwarnings("ignore:1 of 9 weight vectors of .*original are zero")
def test_the_row_of_a_padding_index_stays_zero_and_is_no_hindrance():
    model = nn.Sequential(nn.Embedding(9, 4, padding_idx=2), nn.Flatten(), nn.Linear(8, 2))
    ids = torch.tensor([[2, 1], [3, 2]])

    assert prepare(model, ids).scaled == ("0.weight", "2.weight")
    optimizer = NDAdam(param_groups(model))
    model(ids).square().sum().backward()
    optimizer.step()

    assert torch.equal(model[0].weight[2], torch.zeros(4))


def test_batches_may_be_arguments_by_name_or_several_and_modes_are_kept():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)
            self.dropout = nn.Dropout()

        def forward(self, x, y):
            return {"sum": [self.dropout(self.layer(x)) + y], "count": torch.tensor(3)}

    x, y = torch.randn(4, 3), torch.randn(4, 2)
    for batch in ((x, y), {"x": x, "y": y}):
        model = Two()
        model.dropout.eval()
        assert prepare(model, batch).largest_difference < 1e-6
        assert (model.training, model.dropout.training) == (True, False)


def test_a_model_without_values_and_what_is_no_model_are_refused():
    with torch.device("meta"):
        model = nn.Linear(3, 2)

    with pytest.raises(ValueError, match="parameters of it are on the meta device"):
        prepare(model)
    with pytest.raises(TypeError, match=r"model must be an nn\.Module, got list"):
        prepare([nn.Linear(3, 2)])


NEW = {
    "linear": lambda: nn.Linear(100, 64),
    "he": lambda: nn.init.kaiming_normal_(torch.empty(64, 32, 3, 3)),
    "orthogonal": lambda: nn.init.orthogonal_(torch.empty(64, 128)),
    "truncated": lambda: nn.init.trunc_normal_(torch.empty(200, 30), std=0.02),
    "sparse": lambda: nn.init.sparse_(torch.empty(64, 128), 0.9),
    "embedding": lambda: nn.Embedding(300, 16, padding_idx=0),
}


@pytest.mark.parametrize("kind", NEW)
def test_new_weights_have_the_spread_of_random_numbers(kind):
    torch.manual_seed(3)
    made = NEW[kind]()
    weight = made if isinstance(made, torch.Tensor) else made.weight.detach()

    (spread,) = spread_of_norms(weight.flatten(1))

    assert spread < 1.3


def test_the_spread_is_one_for_independent_numbers_and_counts_what_is_more():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(256, 400, generator=generator)

    # With D = 400 elements norms vary by 1 / sqrt(2 D) = 3.5 %; by 20 % more beside that.
    assert spread_of_norms(rows)[0] == pytest.approx(1, abs=0.15)
    factor = 1 + 0.2 * torch.randn(256, 1, generator=generator)
    assert spread_of_norms(rows * factor)[0] == pytest.approx(0.2 / 0.0354, rel=0.15)
    assert spread_of_norms(rows[:31]) == []


def trained():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 40))
    for layer in (model[0], model[2]):
        layer.weight.data.mul_(torch.rand(len(layer.weight), 1) + 0.5)
    return model


MESSAGE = re.escape(
    "2 of 2 weights look trained, not newly initialised: the norms of their vectors"
)


def test_trained_weights_draw_a_warning_that_leads_to_prepare():
    with pytest.warns(UserWarning, match=f"^{MESSAGE}") as caught:
        NDAdam(param_groups(trained()))

    assert len(caught) == 1
    assert "ndadam.prepare(model), before the optimizer is made, keeps it" in str(caught[0].message)
    assert caught[0].filename == __file__


def test_layers_that_are_unfrozen_draw_it_too_and_prepared_ones_do_not():
    model = trained()
    optimizer = NDAdam(param_groups(nn.Linear(3, 3)))

    with pytest.warns(UserWarning, match=f"^{MESSAGE}"):
        optimizer.add_param_group(param_groups(model))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NDAdam(param_groups(model))  # they have unit norm now
        other = trained()
        prepare(other)
        NDAdam(param_groups(other))
