"""Networks, schedules and averages of timm with NDAdam."""

import warnings

import pytest
import torch

from ndadam import NDAdam, describe_groups, param_groups, prepare


@pytest.fixture
def timm():
    """Imported when it is used: processes that only collect the tests do without."""
    return pytest.importorskip("timm", reason="timm is not installed (extra integrations)")


NETWORKS = ["resnet18", "convnext_atto", "nf_resnet26", "vit_tiny_patch16_224"]


@pytest.mark.parametrize("name", NETWORKS)
def test_no_matrix_is_without_a_rule(name, timm):
    model = timm.create_model(name)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        param_groups(model)


def test_gains_of_standardised_convolutions_are_scalars_and_their_weights_vectors(timm):
    table = describe_groups(timm.create_model("nf_resnet26")).splitlines()
    gains = [line for line in table if ".gain " in line]
    weights = [line for line in table if "filters of a convolution" in line]

    assert gains
    assert all("gain of a convolution with standardised weights" in line for line in gains)
    assert sum("follows (standardised weights)" in line for line in weights) > 20


def test_norms_go_into_normalisations_with_an_activation_inside(timm):
    model = timm.create_model("mobilenetv3_small_050")

    prepared = prepare(model, torch.randn(2, 3, 64, 64))

    assert len(prepared.folded) > 20
    assert prepared.largest_difference < 1e-5


def test_its_cosine_keeps_the_ratio_of_both_rates_and_its_average_trains_on(timm):
    from timm.scheduler import CosineLRScheduler
    from timm.utils import ModelEmaV3

    torch.manual_seed(0)
    model = timm.create_model("resnet10t", num_classes=4)
    optimizer = NDAdam(param_groups(model, alpha_v=0.05, alpha_s=0.001))
    schedule = CosineLRScheduler(optimizer, t_initial=4, lr_min=0.0)
    average = ModelEmaV3(model, decay=0.5)
    x = torch.randn(2, 3, 64, 64)
    for step in range(2):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        average.update(model)
        schedule.step(step + 1)

    vectors, scalars = (group["lr"] for group in optimizer.param_groups)
    assert vectors / scalars == pytest.approx(50)
    assert vectors == pytest.approx(0.025)
    model.load_state_dict(average.module.state_dict())
    optimizer.step()
    norms = torch.linalg.vector_norm(model.layer1[0].conv1.weight.detach().flatten(1), dim=1)
    torch.testing.assert_close(norms, torch.ones_like(norms), rtol=0, atol=1e-6)
