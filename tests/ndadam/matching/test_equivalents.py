"""What a setting equals in the other optimizers, and settings read back from optimizers."""

import math

import pytest
import torch

from ndadam import EffectiveLR, NDAdam, equivalents, param_groups, probe
from ndadam.matching.torch_settings import build_optimizer, setting_of_optimizer
from ndadam.theory.laws import NoStationaryRate, OptimizerSetting
from tests.ndadam.matching.measured_network import SGD, batches, first_batch, loss, network


def test_two_lines_and_a_loop_say_what_sgd_equals_in_the_other_optimizers():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), **SGD)
    found = probe(model, first_batch(), loss)
    dynamics = EffectiveLR(model, optimizer, shadow_betas=(0.9, 0.999), probe=found)
    for batch in list(batches(0))[:80]:
        optimizer.zero_grad()
        loss(model, batch).backward()
        optimizer.step()

    answer = equivalents(optimizer, model, num_steps=800, dynamics=dynamics, probe=found)

    k = math.sqrt((1 + 0.9) / (1 - 0.9) / answer.gain)
    assert answer.gain == dynamics.gain().overall
    assert answer.alpha_v == pytest.approx(answer.effective_lr * k, rel=0.03)
    assert answer.adamw_product == pytest.approx(0.1 * 0.004 / 0.1, rel=0.2)
    assert str(answer).startswith(
        "Your SGD (lr 0.1, momentum 0.9, weight_decay 0.004) equals AdamW lr x weight_decay = "
    )
    assert "until step 800; not for linear3, whose length the loss sees." in str(answer)


def test_adamw_is_said_in_terms_of_sgd_and_back():
    adamw = OptimizerSetting("adamw", lr=1e-3, weight_decay=1.0)
    there = equivalents(adamw, num_steps=6000)
    sgd = OptimizerSetting("sgd", lr=there.sgd_product / 1e-3, momentum=0.9, weight_decay=1e-3)
    back = equivalents(sgd, num_steps=6000)

    assert back.adamw_product == pytest.approx(1e-3, rel=1e-9)
    assert "SGD lr x weight_decay" in str(there)
    assert "AdamW lr" not in str(there)


def test_an_answer_that_holds_for_no_layer_says_so_and_one_without_a_probe_claims_none():
    model = torch.nn.Sequential(torch.nn.Linear(12, 8), torch.nn.ReLU(), torch.nn.Linear(8, 5))
    optimizer = torch.optim.SGD(model.parameters(), **SGD)
    found = probe(model, first_batch(), loss)

    seen = str(equivalents(optimizer, model, num_steps=6000, probe=found))
    unprobed = str(equivalents(optimizer, model, num_steps=6000))

    assert "but this holds for no layer here: the loss sees the length of every weight" in seen
    assert unprobed.endswith("; for layers whose length the loss ignores.")


@pytest.mark.parametrize("done", [0, 3, 10])
@pytest.mark.parametrize(
    "schedule",
    [
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10),
        lambda o: torch.optim.lr_scheduler.LinearLR(o, 0.1, total_iters=10),
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=11),
    ],
)
def test_of_an_optimizer_with_a_scheduler_the_full_rate_counts(schedule, done):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), **SGD)
    scheduler = schedule(optimizer)
    for _ in range(done):
        optimizer.step()
        scheduler.step()

    assert setting_of_optimizer(optimizer, model).lr == 0.1


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({"num_steps": 10.5}, "num_steps must be a whole number of at least 1, got 10.5"),
        ({"num_steps": "100"}, "num_steps must be a whole number of at least 1, got '100'"),
        ({"lr_schedule": 3}, "lr_schedule must be a function of the step .* got 3; leave it out"),
        ({"lr_schedule": lambda step: None}, "factors that are finite .* got None at step 0"),
        ({"lr_schedule": lambda step: 0.0}, "lr_schedule must be above 0 at some of the 100 steps"),
        ({"criterion": "best"}, "criterion must be one of .*, got 'best'"),
    ],
)
def test_a_run_that_cannot_be_is_refused_by_name(run, said):
    setting = OptimizerSetting("sgd", lr=0.1, momentum=0.9, weight_decay=1e-3)
    with pytest.raises(ValueError, match=said):
        equivalents(setting, **{"num_steps": 100} | run)


def test_a_run_shorter_than_its_settling_is_not_to_be_trusted():
    slow = OptimizerSetting("sgd", lr=0.1, momentum=0.9, weight_decay=1e-5)

    answer = equivalents(slow, num_steps=6000)

    assert "not to be trusted within 6000 steps, of which norms need 100000 to settle" in str(
        answer
    )


def test_adam_without_decay_is_refused_with_what_it_has_instead():
    model = network()
    with pytest.raises(NoStationaryRate, match="adam_without_decay"):
        equivalents(torch.optim.Adam(model.parameters()), model, num_steps=100)


@pytest.mark.parametrize(
    "setting",
    [
        OptimizerSetting("sgd", lr=0.1, momentum=0.9, weight_decay=1e-3, nesterov=True),
        OptimizerSetting("sgd", lr=0.1, momentum=0.9, weight_decay=1e-3, dampening=0.5),
        OptimizerSetting("adamw", lr=1e-3, weight_decay=0.5, betas=(0.8, 0.99)),
        OptimizerSetting("adam", lr=1e-3, weight_decay=0.5),
        OptimizerSetting("ndadam", lr=0.05),
    ],
)
def test_a_setting_survives_the_optimizer_built_from_it(setting):
    model = network()
    optimizer = build_optimizer(setting, model, alpha_s=1e-3, decay_scalars=False)

    assert setting_of_optimizer(optimizer, model) == setting
    scalars = next(g for g in optimizer.param_groups if g["name"] == "scalars")
    assert scalars["weight_decay"] == 0.0


def test_what_ndadam_trains_with_plain_adam_is_not_said_to_turn_at_its_rate():
    model = network()
    with pytest.raises(ValueError, match="all weight vectors of model with plain Adam"):
        setting_of_optimizer(NDAdam([{"params": model.parameters(), "vector_dim": None}]), model)

    # As the guide advises for the last layer.
    vectors, scalars = param_groups(model, alpha_v=0.02)
    head = vectors["params"].pop()
    groups = [{**vectors, "names": ()}, {**scalars, "names": ()}, {"params": [head], "lr": 1e-3}]

    assert setting_of_optimizer(NDAdam(groups), model) == OptimizerSetting("ndadam", lr=0.02)


def test_optimizers_without_a_law_and_uneven_groups_are_refused():
    model = network()
    with pytest.raises(ValueError, match="got Adagrad: measure"):
        setting_of_optimizer(torch.optim.Adagrad(model.parameters()), model)
    uneven = torch.optim.SGD(
        [{"params": model[0].parameters(), "lr": 0.2}, {"params": model[3].parameters(), "lr": 0.1}]
    )
    with pytest.raises(ValueError, match=r"lr must be the same for all weight vectors, got 0.2"):
        setting_of_optimizer(uneven, model)
    with pytest.raises(ValueError, match="trains none of them"):
        setting_of_optimizer(torch.optim.SGD(network().parameters()), model)
