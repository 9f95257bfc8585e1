"""Presets: each parses, and the paper's resolve to the numbers the paper gives."""

import json
from typing import Any

import pytest
import torch

from ndadam import weight_vectors
from sweeps.errors import PresetNotFound
from sweeps.spec.presets import main, preset_names, preset_text, read_preset
from sweeps.spec.sweep_spec import SweepSpec
from worker.config.train_config import TrainConfig
from worker.networks.build import wide_resnet

PAPER = [
    "paper-adam-l2",
    "paper-fig1a",
    "paper-fig1b",
    "paper-fig2",
    "paper-fig3",
    "paper-gamma-depth",
    "paper-gamma-width",
    "paper-lambda-depth",
    "paper-scales-softmax",
    "paper-table1-cifar10",
    "paper-table1-cifar100",
    "paper-table2-beta2",
    "paper-table2-cifar10",
    "paper-table2-cifar10-wrn28",
    "paper-table2-cifar100",
    "paper-table2-cifar100-wrn28",
]

#: Those that ask for the best value of something.
CHOOSING = ["paper-gamma-depth", "paper-gamma-width", "paper-lambda-depth"]

#: Common to every run of a recipe, as the paper and the codes it ran have them.
TF = {
    "activation": "leaky_relu",
    "shortcut": "pool_pad",
    "init": "fan_in_normal",
    "bn_eps": 1e-3,
    "bn_momentum": 0.1,
    "input_norm": "per_image",
    "crop_pad": 2,
    "crop_fill": "zero",
    "flip": True,
    "last_batch": "drop",
    "lr_schedule": "cosine",
    "steps": 80_000,
    "epochs": None,
    "batch_size": 128,
    "depth": 22,
    "widen_factor": 7.5,
    "lambda_c": None,
}
WRN = {
    "activation": "relu",
    "shortcut": "conv",
    "init": "kaiming_normal",
    "bn_eps": 1e-5,
    "bn_momentum": 0.1,
    "input_norm": "channel",
    "crop_pad": 4,
    "crop_fill": "edge",
    "flip": True,
    "last_batch": "keep",
    "lr_schedule": "cosine_epoch",
    "steps": None,
    "epochs": 200,
    "batch_size": 128,
    "gamma_c": None,
}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "tf sgd": {
        "lr": 0.1,
        "momentum": 0.9,
        "nesterov": False,
        "weight_decay": 1e-3,
        "decay_on": "vectors",
    },
    "tf adam": {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0},
    "tf ndadam": {
        "alpha_v": 0.05,
        "alpha_s": 1e-3,
        "betas": [0.9, 0.999],
        "eps": 1e-8,
        "weight_decay": 0.0,
    },
    "wrn sgd": {
        "lr": 0.1,
        "momentum": 0.9,
        "nesterov": False,
        "weight_decay": 5e-4,
        "decay_on": "all",
        "bn_scale": "trainable",
        "lambda_c": None,
    },
    "wrn ndadam": {
        "alpha_v": 0.04,
        "alpha_s": 0.04,
        "betas": [0.9, 0.99],
        "eps": 1e-8,
        "weight_decay": 5e-6,
        "decay_on": "scalars",
        "bn_scale": "fixed",
        "lambda_c": 1e-3,
    },
}


def spec_of(name: str) -> SweepSpec:
    return SweepSpec.model_validate(read_preset(name).spec)


def resolved(name: str) -> list[dict[str, Any]]:
    """The stored config of every point of a preset."""
    spec = spec_of(name)
    points = spec.initial_points or spec.grid_points()
    return [spec.config(params, spec.base.seed).stored() for params in points]


def holds(config: dict[str, Any], expected: dict[str, Any]) -> bool:
    return {name: config[name] for name in expected} == expected


def test_the_presets_are_those_that_are_promised() -> None:
    assert set(PAPER) | {"quickstart"} <= set(preset_names())


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_parses_and_has_a_title(name: str) -> None:
    preset = read_preset(name)

    assert preset.spec["name"] == preset.name == name
    assert preset.title.endswith(".")
    if preset.kind == "sweep":
        assert SweepSpec.model_validate(preset.spec).num_trials() >= 1
    else:
        from sweeps.match.match_spec import MatchSpec

        assert MatchSpec.model_validate(preset.spec).name == name


@pytest.mark.parametrize("name", [name for name in PAPER if name not in CHOOSING])
def test_the_papers_presets_choose_nothing_by_the_test_set(name: str) -> None:
    spec = spec_of(name)

    assert spec.sampler == "grid"
    assert spec.scheduler is None
    assert spec.base.validation_fraction == 0
    assert spec.base.test_evaluation == "curve"
    assert spec.base.seed == 0


@pytest.mark.parametrize(("dataset", "gamma_c"), [("cifar10", 2.5), ("cifar100", 1.0)])
def test_table_1_has_three_optimizers_with_and_without_scales(dataset: str, gamma_c: float) -> None:
    name = f"paper-table1-{dataset}"
    configs = resolved(name)

    assert spec_of(name).replicates == 3
    assert [(c["optimizer"], c["bn_scale"], c["gamma_c"]) for c in configs] == [
        (optimizer, *softmax)
        for optimizer in ("sgd", "adam", "ndadam")
        for softmax in (("trainable", None), ("fixed", gamma_c))
    ]
    for config in configs:
        assert config["dataset"] == dataset
        assert holds(config, TF)
        assert holds(config, OPTIMIZERS[f"tf {config['optimizer']}"])


@pytest.mark.parametrize(
    ("name", "dataset", "depth", "widen_factor"),
    [
        ("paper-table2-cifar10", "cifar10", 22, 7.5),
        ("paper-table2-cifar100", "cifar100", 22, 7.5),
        ("paper-table2-cifar10-wrn28", "cifar10", 28, 10.0),
        ("paper-table2-cifar100-wrn28", "cifar100", 28, 10.0),
    ],
)
def test_table_2_regularises_the_softmax_of_nd_adam_only(
    name: str, dataset: str, depth: int, widen_factor: float
) -> None:
    configs = resolved(name)

    assert spec_of(name).replicates == 3
    assert [c["optimizer"] for c in configs] == ["sgd", "ndadam"]
    for config in configs:
        network = {"dataset": dataset, "depth": depth, "widen_factor": widen_factor}
        assert holds(config, WRN | network)
        assert holds(config, OPTIMIZERS[f"wrn {config['optimizer']}"])


def test_figure_1_has_the_settings_that_the_paper_names() -> None:
    (left,) = resolved("paper-fig1a")
    right = resolved("paper-fig1b")

    assert holds(left, TF | OPTIMIZERS["tf sgd"])
    assert spec_of("paper-fig1b").num_trials() == 5
    sgd = [(c["lr"], c["weight_decay"]) for c in right if c["optimizer"] == "sgd"]
    assert sgd == [(0.1, 1e-3), (0.05, 2e-3), (0.1, 5e-4)]
    assert [c["alpha_v"] for c in right if c["optimizer"] == "ndadam"] == [0.05, 0.025]
    assert all(holds(c, TF) for c in right)


def test_figures_2_and_3_are_the_arms_of_table_1() -> None:
    table = resolved("paper-table1-cifar10")

    assert resolved("paper-fig2") == [c for c in table if c["bn_scale"] == "trainable"]
    assert resolved("paper-fig3") == table


def test_a_figure_shows_the_fifth_convolution_counted_from_the_stem() -> None:
    (config,) = resolved("paper-fig1a")
    with torch.device("meta"):
        network = wide_resnet(TrainConfig.model_validate(config), num_classes=10, in_channels=3)
    layers = {vectors.name: vectors.layer for vectors in weight_vectors(network)}

    assert layers["stem.weight"] == "conv1"
    assert layers["groups.0.1.conv2.weight"] == "conv5"
    for name in ("paper-fig1a", "paper-fig1b"):
        assert "/conv5 of its trial" in preset_text(name)


@pytest.mark.parametrize("name", CHOOSING)
def test_where_a_softmax_is_chosen_it_is_chosen_on_held_out_images(name: str) -> None:
    spec = spec_of(name)

    assert spec.objective.metric == "validation_error"
    assert spec.base.validation_fraction == 0.1
    assert spec.base.test_evaluation == "end"


def test_the_softmax_is_varied_around_the_published_value() -> None:
    depths, widths, lambdas = (
        resolved(name) for name in ("paper-gamma-depth", "paper-gamma-width", "paper-lambda-depth")
    )
    without = {name: value for name, value in TF.items() if name not in ("depth", "widen_factor")}

    assert {(c["depth"], c["gamma_c"]) for c in depths} == {
        (depth, gamma) for depth in (16, 22, 28) for gamma in (1.0, 1.6, 2.5, 4.0, 6.3)
    }
    assert {(c["optimizer"], c["widen_factor"]) for c in widths} == {
        (optimizer, width) for optimizer in ("sgd", "adam", "ndadam") for width in (3.75, 7.5)
    }
    for config in depths + widths:
        assert holds(config, without | {"bn_scale": "fixed"})
        assert holds(config, OPTIMIZERS[f"tf {config['optimizer']}"])
    assert {(c["depth"], c["lambda_c"]) for c in lambdas} == {
        (depth, value) for depth in (16, 22, 28) for value in (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
    }


def test_the_claims_of_the_text_share_arms_with_the_tables() -> None:
    table_1 = {TrainConfig.model_validate(c).key() for c in resolved("paper-table1-cifar10")}
    table_2 = {TrainConfig.model_validate(c).key() for c in resolved("paper-table2-cifar10")}

    def shared(name: str, table: set[str]) -> list[bool]:
        return [TrainConfig.model_validate(c).key() in table for c in resolved(name)]

    assert shared("paper-fig1a", table_1) == [True]
    assert shared("paper-fig1b", table_1) == [True, False, False, True, False]
    assert shared("paper-scales-softmax", table_1) == [False, True] * 3
    assert shared("paper-adam-l2", table_1) == [True, False, False, False]
    assert shared("paper-table2-beta2", table_2) == [True, False]


def test_the_quickstart_gives_each_optimizer_a_space_of_its_own() -> None:
    spec = spec_of("quickstart")

    assert spec.base.dataset == "digits"
    assert spec.base.recipe == "paper-wrn"
    assert spec.replicates >= 2
    by_optimizer = {b.fixed["optimizer"]: set(b.free) for b in spec.branches()}
    assert by_optimizer["sgd"] == by_optimizer["adam"] == {"lr"}
    assert {"alpha_v", "alpha_s"} <= by_optimizer["ndadam"]


def test_a_preset_can_be_had_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper-fig1b"]) == 0

    assert json.loads(capsys.readouterr().out) == read_preset("paper-fig1b").spec
    assert main(["paper-fig9"]) == 2
    assert "there is no preset 'paper-fig9'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "quickstart.yaml", "../pyproject", "no-such", "\x00"])
def test_an_unknown_preset_is_not_found_and_never_a_path(name: str) -> None:
    with pytest.raises(PresetNotFound, match="paper-fig1a"):
        preset_text(name)
