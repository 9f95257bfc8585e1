"""The measured match without a service: on a network of one's own, in one's own loop."""

import math
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

import ndadam
from ndadam import EffectiveLR, NDAdam, match_alpha_v, match_rate, param_groups
from ndadam.theory.fitted_curve import corrected_points, factor_of_points, points_of_records
from ndadam.theory.laws import OptimizerSetting
from tests.ndadam.matching.measured_network import BETAS, SGD, batches, loss, network


@pytest.fixture(scope="module")
def matched():
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    said = []
    found = match_alpha_v(
        model,
        loss,
        batches,
        sgd=SGD,
        betas=BETAS,
        num_steps=700,
        seeds=(0, 1),
        progress=said.append,
    )
    return model, before, said, found


def test_a_match_needs_a_model_a_loss_and_batches_only(matched):
    _, _, said, found = matched

    assert found.verdict.state in ("matched", "not shown")
    low, high = found.interval
    assert low < found.rate * 1.05
    assert found.rate < high * 1.05
    assert found.rate == pytest.approx(found.closed_form.criteria["stationary"].rate, rel=0.15)
    assert found.rate_name == "alpha_v"
    assert said[0] == "source sgd, seed 0"
    assert said[-1] == f"target ndadam at {found.rate:.4g}, seed 1"
    assert found.steps_trained == 700 * len(said)


def test_the_sentence_names_verdict_interval_horizon_and_layers_left_out(matched):
    sentence = str(matched[3])

    assert "(stationary, ±5 %" in sentence
    assert "To be trusted until step 700." in sentence
    assert "Not for linear3, whose length the loss sees." in sentence
    assert set(matched[3].layers) == {"linear1", "linear2", "linear3"}
    assert matched[3].warnings == matched[3].closed_form.warnings


def test_verdict_runs_share_no_seed_with_calibration(matched):
    said = matched[2]
    seeds = [(line.split()[0], int(line.rsplit(" ", 1)[1])) for line in said]

    assert [seed for role, seed in seeds if role == "source"] == [0, 1]
    assert [seed for role, seed in seeds if role == "target"][-2:] == [0, 1]
    assert all(seed > 1 for role, seed in seeds[2:-2])


def test_the_model_and_torchs_generators_stay_as_they_were(matched):
    model, before, _, _ = matched
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())

    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    short = {"num_steps": 250, "window": (5, 250), "seeds": (0,), "max_corrections": 0}
    match_alpha_v(model, loss, batches, sgd=SGD, betas=BETAS, criterion="equal_rotation", **short)

    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (OptimizerSetting("sgd", **SGD), OptimizerSetting("adamw", weight_decay=2.0)),
        (
            OptimizerSetting("adamw", lr=3e-3, weight_decay=2.0),
            OptimizerSetting("sgd", momentum=0.9, weight_decay=0.004),
        ),
    ],
)
def test_sgd_and_adamw_match_both_ways(source, target):
    found = match_rate(
        network(),
        loss,
        batches,
        source=source,
        target=target,
        num_steps=1000,
        seeds=(0,),
        max_corrections=1,
    )

    theory = ndadam.theory.predict(source, target, num_steps=1000).criteria["stationary"].rate
    assert found.rate_name == "lr"
    assert 0.5 < found.rate / theory < 2
    assert abs(found.log_ratio.value) < 0.15


def test_a_schedule_follows_the_source_over_the_whole_run():
    steps = 900
    found = match_alpha_v(
        network(),
        loss,
        batches,
        sgd=SGD,
        betas=BETAS,
        num_steps=steps,
        lr_schedule=lambda step: 0.5 * (1 + math.cos(math.pi * step / steps)),
        criterion="schedule",
        seeds=(0, 1),
    )
    source, target = (
        [
            math.sqrt(sum(r.record.effective_lr[i] ** 2 for r in runs for i in range(a, b)))
            for a, b in ((0, 45), (45, 250), (250, 550), (550, 855))
        ]
        for runs in (found.source_runs, found.target_runs)
    )

    assert found.points[0][1] < 0.5 * max(f for _, f in found.points)
    for a, b in zip(source[1:], target[1:], strict=True):
        assert b == pytest.approx(a, rel=0.06)
    assert target[0] == pytest.approx(source[0], rel=0.25)


def test_a_source_that_diverges_ends_the_match_with_a_sentence_and_no_number():
    wild = lambda model, batch: loss(model, batch) * 1e30  # noqa: E731
    model = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))

    found = match_alpha_v(model, wild, batches, sgd=SGD, betas=BETAS, num_steps=600, seeds=(0,))

    assert found.verdict.state == "not matchable"
    assert found.verdict.sentence.startswith("Not matchable: the source sgd diverged by step 49")
    assert "in linear1, linear2" in found.verdict.sentence
    assert found.interval is None


def test_a_layer_that_runs_away_while_the_loss_stays_finite_ends_the_match_too():
    def unread(model, batch):
        """The second layer adds 0 to the loss, with a gradient that is no number."""
        nothing = (0.0 * model[1].weight).square().sum().sqrt().nan_to_num()
        return functional.cross_entropy(model[2](model[0](batch[0])), batch[1]) + nothing

    model = nn.Sequential(nn.Linear(12, 4), nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4))

    found = match_alpha_v(model, unread, batches, sgd=SGD, betas=BETAS, num_steps=600, seeds=(0,))

    assert found.verdict.state == "not matchable"
    assert found.verdict.sentence.endswith("diverged by step 599 (seed 0), in linear2.")
    assert "To be trusted" not in str(found)  # there is nothing to trust


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"num_steps": 600, "betas": (0.9, 0.995)},
            "num_steps = 1029 would do, or a beta2 of "
            "the target of at most 0.9914 instead of 0.995",
        ),
        ({"num_steps": 90}, "a run of 576 steps would do"),
        ({"num_steps": 90, "sgd": SGD | {"weight_decay": 1e-3}}, "a run of 1715 steps would do"),
        ({"seeds": 3}, "seeds must be a sequence of whole numbers, got 3"),
        ({"window": "late"}, "window must be a sequence of whole numbers, got 'late'"),
        ({"window": (100, 500, 800)}, "window must be two steps, its start and its stop, got"),
        ({"lr_schedule": "cosine"}, "lr_schedule must be a function of the step .*got 'cosine'"),
        ({"sgd": SGD | {"momentum": 0.5}}, "level must be given"),
        ({"sgd": SGD | {"weight_decay": 0.0}}, "nothing shrinks the weights"),
        ({"sgd": {"momentum": 0.9, "weight_decay": 1e-3}}, "lr of sgd must be set"),
        ({"seeds": (1, 1)}, "seeds must be different"),
        ({"num_steps": "800"}, "num_steps must be a whole number of at least 1, got '800'"),
        ({"sgd": SGD | {"decay": 0.1}}, "source's fields are optimizer, lr, .*; got decay"),
        ({"sgd": SGD | {"lr": "0.1"}}, "lr must be a number, got '0.1'"),
        ({"sgd": 0.1}, "source must be an OptimizerSetting or a mapping of its fields, got 0.1"),
        ({"betas": (0.9,)}, "betas must be two numbers"),
        ({"betas": 0.9}, "betas must be two numbers, got 0.9"),
        ({"betas": ("0.9", 0.99)}, "betas must be two numbers, got"),
        ({"criterion": "stationery"}, "criterion must be one of stationary, .*got 'stationery'"),
        ({"level": "steps"}, "level must be step or long_range, got 'steps'"),
        ({"tolerance": 5}, r"a ratio minus 1 \(0.05 is 5 %\), got 5"),
        ({"tolerance": 0.0}, "tolerance must be above 0"),
        ({"tolerance": math.nan}, "tolerance must be above 0 and at most 0.5, .*got nan"),
        ({"max_corrections": -1}, "max_corrections must be a whole number of at least 0, got -1"),
        ({"alpha_s": -1.0}, "alpha_s must be a number >= 0 and at most 1e.50, got -1"),
        ({"lr_schedule": lambda step: math.nan}, "got nan at step 0"),
        ({"lr_schedule": lambda step: 1 - step / 512}, "got -0.001953125 at step 513"),
        ({"lr_schedule": lambda step: 0.0}, "must be above 0 at some of the 800 steps"),
        ({"num_steps": 4000, "sgd": SGD | {"weight_decay": 1e-5}}, "source is stationary only"),
    ],
)
def test_what_cannot_end_well_is_refused_before_anything_is_trained(changes, words):
    def never(model, batch):
        raise AssertionError("trained")

    with pytest.raises(ValueError, match=words):
        match_alpha_v(
            network(), never, batches, **{"sgd": SGD, "betas": BETAS, "num_steps": 800, **changes}
        )


def test_networks_whose_loss_sees_every_length_are_refused_with_their_layers():
    """Frozen layers do not count: nothing turns them."""
    plain, frozen = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 4)), network()
    for layer in (frozen[0], frozen[3]):
        layer.weight.requires_grad_(False)
    for model, layers in ((plain, "linear1, linear2"), (frozen, "linear1, linear2, linear3")):
        with pytest.raises(ValueError, match=rf"length the loss ignores.*{layers}"):
            match_alpha_v(model, loss, batches, sgd=SGD, betas=BETAS, num_steps=800)


def test_batches_that_cannot_be_repeated_are_refused():
    with pytest.raises(ValueError, match="pass a function of the seed for generators"):
        match_alpha_v(network(), loss, batches(0), sgd=SGD, betas=BETAS, num_steps=800)


def test_the_shadow_knows_the_step_that_ndadam_takes():
    """On ND-Adam's own run alpha^v times the shadow's step is how far weights move."""
    model = network()
    optimizer = NDAdam(param_groups(model, alpha_v=0.02, alpha_s=1e-3), betas=BETAS)
    dynamics = EffectiveLR(model, optimizer, shadow_betas=BETAS)
    for batch in batches(0):
        optimizer.zero_grad()
        loss(model, batch).backward()
        optimizer.step()

    record = dynamics.drain()

    assert record.shadow_step[0] == pytest.approx(1.0, rel=1e-5)
    for e, step in zip(record.effective_lr, record.shadow_step, strict=True):
        assert e == pytest.approx(0.02 * step, rel=0.03)  # normalisation takes a little back


def test_a_schedule_from_the_shadow_gives_the_wanted_curve_back():
    ndadam_setting = OptimizerSetting("ndadam", betas=BETAS)
    wanted = [0.01 * (1 - i / 1100) for i in range(1000)]
    shadow = [0.25 + 0.5 / (1 + i) for i in range(1000)]
    points = points_of_records(
        ndadam_setting, wanted, every=1, rate=0.04, gain=1.0, shadow=shadow, least=20
    )
    factor = factor_of_points(points)

    for i in (0, 1, 3, 100, 500, 900):
        e = 0.04 * factor(i) * shadow[i]
        assert e == pytest.approx(wanted[i], rel=0.05)


def test_a_calibration_run_corrects_the_shape_and_leaves_the_size_to_the_rate():
    points = ((0, 1.0), (500, 1.0), (999, 1.0))
    source = [0.01] * 1000
    target = [0.02 * math.exp(0.1 * (i / 1000 - 0.5)) for i in range(1000)]

    corrected = factor_of_points(corrected_points(points, source, target, every=1, least=20))

    assert corrected(0) == pytest.approx(math.exp(0.05), rel=0.01)
    assert corrected(500) == pytest.approx(1.0, rel=0.01)
    assert corrected(999) == pytest.approx(math.exp(-0.05), rel=0.01)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"optimizer": "adam"}, "adam without weight decay"),
        ({"optimizer": "sgdw", "momentum": 0.9, "weight_decay": 0.1}, "torch has no sgdw"),
        ({"optimizer": "adamw", "weight_decay": 1.0, "lr": 0.1}, "target.lr is what the match"),
        ({"weight_decay": 1.0}, "target must name its optimizer, got {'weight_decay': 1.0}"),
        ({"optimizer": "adamw", "decay": 1.0}, "target's fields are optimizer, .*; got decay"),
        (torch.optim.AdamW, "target must be an OptimizerSetting or a mapping of its fields, got"),
    ],
)
def test_a_target_is_a_setting_or_its_fields_and_refused_before_training(target, words):
    def never(model, batch):
        raise AssertionError("trained")

    with pytest.raises(ValueError, match=words):
        match_rate(network(), never, batches, source=SGD, target=target, num_steps=800)


def test_the_guides_code_is_not_refused():
    """What it shows begins to train: it may be copied as it stands."""
    text = (Path(__file__).parents[3] / "docs" / "matching.md").read_text()
    (block,) = re.findall(r"```python\n(match = .*?)```", text, re.DOTALL)

    class Trained(Exception):
        pass

    def loss_of_a_copy(model, batch):
        if model.training and next(model.parameters()).dtype == torch.float32:
            raise Trained  # the probe's copy is of double precision
        return loss(model, batch)

    names = {"ndadam": ndadam, "model": network(), "batches": batches, "loss": loss_of_a_copy}
    with pytest.raises(Trained):
        exec(block, names)
