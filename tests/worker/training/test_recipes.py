"""Both recipes of the paper, detail by detail, as they train: against loops written by hand."""

import math

import pytest
import torch

from tests.worker import by_hand, golden
from worker import TrainConfig
from worker.data.batches import BatchStream
from worker.data.device_data import load_run_data
from worker.data.run_length import run_length
from worker.networks.build import build_network
from worker.steps.optimizers import build_optimizer

NUM_STEPS = 12

BOTH = {"depth": 22, "widen_factor": 7.5, "batch_size": 128, "flip": True}
PAPER_TF = BOTH | {
    "input_norm": "per_image",
    "crop_pad": 2,
    "crop_fill": "zero",
    "activation": "leaky_relu",
    "shortcut": "pool_pad",
    "init": "fan_in_normal",
    "bn_eps": 1e-3,
    "bn_momentum": 0.1,
    "bn_scale": "trainable",
    "lr_schedule": "cosine",
    "last_batch": "drop",
    "steps": 80_000,
    "epochs": None,
}
PAPER_WRN = BOTH | {
    "input_norm": "channel",
    "crop_pad": 4,
    "crop_fill": "edge",
    "activation": "relu",
    "shortcut": "conv",
    "init": "kaiming_normal",
    "bn_eps": 1e-5,
    "bn_momentum": 0.1,
    "lr_schedule": "cosine_epoch",
    "last_batch": "keep",
    "steps": None,
    "epochs": 200,
}
SGD = {"lr": 0.1, "momentum": 0.9, "nesterov": False}


@pytest.mark.parametrize(
    ("recipe", "optimizer", "expected"),
    [
        ("paper-tf", "sgd", PAPER_TF | SGD | {"weight_decay": 1e-3, "decay_on": "vectors"}),
        ("paper-tf", "adam", PAPER_TF | {"lr": 1e-3, "betas": (0.9, 0.999), "weight_decay": 0.0}),
        (
            "paper-tf",
            "ndadam",
            PAPER_TF
            | {"alpha_v": 0.05, "alpha_s": 1e-3, "betas": (0.9, 0.999), "weight_decay": 0.0},
        ),
        (
            "paper-wrn",
            "sgd",
            PAPER_WRN | SGD | {"weight_decay": 5e-4, "decay_on": "all", "bn_scale": "trainable"},
        ),
        (
            "paper-wrn",
            "ndadam",
            PAPER_WRN
            | {
                "alpha_v": 0.04,
                "alpha_s": 0.04,
                "betas": (0.9, 0.99),
                "weight_decay": 5e-6,
                "decay_on": "scalars",
                "bn_scale": "fixed",
            },
        ),
    ],
)
def test_a_config_that_names_only_recipe_and_optimizer_is_the_papers(recipe, optimizer, expected):
    config = TrainConfig(recipe=recipe, optimizer=optimizer).resolved()

    assert {name: getattr(config, name) for name in expected} == expected
    assert config.gamma_c is None
    assert config.lambda_c is None


def cosine(lr):
    return lambda step, _: lr * by_hand.cosine(step, NUM_STEPS)


def by_epoch(lr):
    return lambda step, _: lr * by_hand.cosine_by_epoch(step, NUM_STEPS, 5)


def nd_rates(vectors, scalars):
    return lambda step, is_vector: (vectors if is_vector else scalars)(step, is_vector)


#: Name -> config fields, optimizer by hand, rate by hand, decay of scalars and of vectors.
RUNS = {
    "sgd, paper-tf": (
        {"optimizer": "sgd"},
        lambda: by_hand.Sgd(0.9),
        cosine(0.1),
        (0.0, 1e-3),
    ),
    "adam, paper-tf": (
        {"optimizer": "adam"},
        lambda: by_hand.Adam((0.9, 0.999)),
        cosine(1e-3),
        (0.0, 0.0),
    ),
    "ndadam, paper-tf": (
        {"optimizer": "ndadam"},
        lambda: by_hand.NdAdam((0.9, 0.999)),
        nd_rates(cosine(0.05), cosine(1e-3)),
        (0.0, 0.0),
    ),
    "ndadam, paper-tf, BN-Softmax, fixed scales": (
        {"optimizer": "ndadam", "gamma_c": 2.5, "bn_scale": "fixed"},
        lambda: by_hand.NdAdam((0.9, 0.999)),
        nd_rates(cosine(0.05), cosine(1e-3)),
        (0.0, 0.0),
    ),
    "sgd, paper-wrn": (
        {"optimizer": "sgd", "recipe": "paper-wrn"},
        lambda: by_hand.Sgd(0.9),
        by_epoch(0.1),
        (5e-4, 5e-4),
    ),
    "ndadam, paper-wrn, L2 on the logits": (
        {"optimizer": "ndadam", "recipe": "paper-wrn", "lambda_c": 1e-3},
        lambda: by_hand.NdAdam((0.9, 0.99)),
        by_epoch(0.04),
        (5e-6, 0.0),
    ),
    "sgd, nesterov": (
        {"optimizer": "sgd", "nesterov": True, "momentum": 0.8, "weight_decay": 0.01},
        lambda: by_hand.Sgd(0.8, nesterov=True),
        cosine(0.1),
        (0.0, 0.01),
    ),
    "sgd, warm-up": (
        {"optimizer": "sgd", "warmup_steps": 5},
        lambda: by_hand.Sgd(0.9),
        lambda step, _: 0.1 * by_hand.cosine(step, NUM_STEPS) * min(1.0, (step + 1) / 5),
        (0.0, 1e-3),
    ),
    "adamw": (
        {"optimizer": "adamw", "lr": 0.01, "weight_decay": 0.1},
        lambda: by_hand.Adam((0.9, 0.999), decoupled=True),
        cosine(0.01),
        (0.0, 0.1),
    ),
    "adam, points": (
        {"optimizer": "adam", "lr": 0.01, "lr_schedule": [[2, 1.0], [6, 0.2], [10, 0.4]]},
        lambda: by_hand.Adam((0.9, 0.999)),
        lambda step, _: 0.01 * [1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2, 0.25, 0.3, 0.35, 0.4, 0.4][step],
        (0.0, 0.0),
    ),
    "ndadam, a schedule of its own for alpha_s": (
        {"optimizer": "ndadam", "alpha_s": 0.02, "alpha_s_schedule": [[0, 0.0], [10, 1.0]]},
        lambda: by_hand.NdAdam((0.9, 0.999)),
        nd_rates(cosine(0.05), lambda step, _: 0.02 * min(1.0, step / 10)),
        (0.0, 0.0),
    ),
}


def network_by_hand(run):
    """The run's initial weights in a network written by hand."""
    state = {
        name: value.clone()
        for name, value in run.model.state_dict().items()
        if value.is_floating_point()
    }
    for name, _ in run.model.named_parameters():
        state[name].requires_grad_()
    return by_hand.Network(run.config.recipe, state, run.config.gamma_c)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_the_loop_written_by_hand(name, data_home):
    fields, optimizer, rate, decays = RUNS[name]
    # 84 images: an epoch has four batches, and a fifth of 4 where the last one is kept.
    base = {"dataset": "colours", "validation_fraction": 0.125, "batch_size": 20}
    config = TrainConfig.model_validate(
        golden.BASE | base | {"steps": NUM_STEPS, "report_every": None} | fields
    ).resolved()
    run = golden.make_run(config, data_home, torch.float64)
    network = network_by_hand(run)
    batches = [run._stream.batch(step) for step in range(NUM_STEPS)]
    doubles = [(images.double(), labels) for images, labels in batches]

    expected = by_hand.train(network, optimizer(), doubles, rate, decays, config.lambda_c)
    found = golden.take_losses(run, NUM_STEPS)

    assert run.length.steps_per_epoch == (5 if config.last_batch == "keep" else 4)
    assert found == pytest.approx(expected, rel=1e-10)
    for key, value in network.state.items():
        trained = run.model.state_dict()[key]
        torch.testing.assert_close(trained, value.detach(), rtol=1e-6, atol=1e-7, msg=key)


def new_network(recipe, **fields):
    config = TrainConfig(recipe=recipe, **fields).resolved()
    return build_network(config, 10, 3, torch.device("cpu"))


@pytest.mark.parametrize("recipe", ["paper-tf", "paper-wrn"])
def test_initial_weights_have_the_deviation_of_the_recipe(recipe):
    model = new_network(recipe, depth=10, widen_factor=4.0, optimizer="sgd")

    for name, weight in model.named_parameters():
        if weight.dim() == 4:
            expected = math.sqrt(by_hand.INIT_GAIN[recipe] / weight[0].numel())
            # Four standard errors of a deviation estimated from so many numbers.
            error = 4 * expected / math.sqrt(2 * weight.numel())
            assert weight.std().item() == pytest.approx(expected, abs=error), name
        else:
            assert torch.equal(weight, torch.full_like(weight, float(name.endswith("weight"))))


@pytest.mark.parametrize(
    ("recipe", "optimizer", "scales"),
    [("paper-tf", "sgd", 19), ("paper-tf", "ndadam", 19), ("paper-wrn", "sgd", 19),
     ("paper-wrn", "ndadam", 0)],
)  # fmt: skip
def test_the_network_of_the_paper_has_these_parameters_and_no_others(recipe, optimizer, scales):
    """19 normalisations, 20 convolutions, no bias of a convolution; WRN-22-7.5."""
    model = new_network(recipe, optimizer=optimizer)
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    shortcuts = {name: shape for name, shape in shapes.items() if "shortcut" in name}
    if recipe == "paper-wrn":
        assert list(shortcuts.values()) == [(120, 16, 1, 1), (240, 120, 1, 1), (480, 240, 1, 1)]
    else:
        assert shortcuts == {}
    convolutions = [s for n, s in shapes.items() if len(s) == 4 and "shortcut" not in n]
    assert convolutions == [
        (16, 3, 3, 3),
        (120, 16, 3, 3),
        *[(120, 120, 3, 3)] * 5,
        (240, 120, 3, 3),
        *[(240, 240, 3, 3)] * 5,
        (480, 240, 3, 3),
        *[(480, 480, 3, 3)] * 5,
        (10, 480, 1, 1),
    ]
    others = [name for name, shape in shapes.items() if len(shape) == 1]
    assert sum(name.endswith(".bias") for name in others) == 19
    assert sum(name.endswith(".weight") for name in others) == scales
    assert all("norm" in name for name in others)


@pytest.mark.parametrize(
    ("recipe", "sizes"), [("paper-tf", [500, 500]), ("paper-wrn", [500, 500, 298])]
)
def test_an_epochs_incomplete_last_batch_is_dropped_or_kept(recipe, sizes, data_home):
    config = TrainConfig(dataset="digits", recipe=recipe, batch_size=500, epochs=2).resolved()
    data = load_run_data(config, data_home, torch.device("cpu"))
    length = run_length(config, len(data.train_indices))
    stream = BatchStream(config, data.train, data.train_indices, length)

    found = [len(stream.batch(step)[1]) for step in range(length.num_steps)]

    assert found == 2 * sizes


@pytest.mark.parametrize(
    ("recipe", "optimizer", "decays"),
    [
        ("paper-tf", "sgd", {"convolutions": 1e-3, "scales": 0.0, "biases": 0.0}),
        ("paper-wrn", "sgd", {"convolutions": 5e-4, "scales": 5e-4, "biases": 5e-4}),
        ("paper-tf", "adam", {"convolutions": 0.0, "scales": 0.0, "biases": 0.0}),
        ("paper-tf", "ndadam", {"convolutions": 0.0, "scales": 0.0, "biases": 0.0}),
        ("paper-wrn", "ndadam", {"convolutions": 0.0, "biases": 5e-6}),
    ],
)
def test_decay_moves_the_parameters_that_the_recipe_says(recipe, optimizer, decays):
    """Without a gradient of the loss, only what decays is moved, by the first step."""
    config = TrainConfig(recipe=recipe, optimizer=optimizer, depth=10, widen_factor=1.0).resolved()
    model = build_network(config, 10, 3, torch.device("cpu"))
    built = build_optimizer(config, model)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("bias"):
                p.fill_(2.0)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.zeros_like(p)

    built.step()

    moved: dict[str, set[bool]] = {}
    for name, p in model.named_parameters():
        kind = "convolutions" if p.dim() == 4 else "scales" if name.endswith("weight") else "biases"
        # ND-Adam norms its vectors again, which may move a last digit.
        moved.setdefault(kind, set()).add(not torch.allclose(p, before[name], rtol=1e-6, atol=0))
        if optimizer == "sgd":
            expected = before[name] * (1 - 0.1 * decays[kind])
            torch.testing.assert_close(p.detach(), expected, rtol=1e-6, atol=0)
    assert moved == {kind: {rate > 0} for kind, rate in decays.items()}
