"""The built-in training with parts of a package: networks, data, optimizers, losses, and more."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.worker.training.installed import on_path
from tests.worker.training.parts_package import write_parts
from worker.config.train_config import FieldError, TrainConfig
from worker.data import own_data
from worker.errors import PackageMismatch
from worker.report import Measurement, Report
from worker.steps.optimizers import LearningRates, build_optimizer
from worker.training.final_weights import FILE, load_network
from worker.training.train import train
from worker.training.trial import trial_reports


@pytest.fixture(scope="module", autouse=True)
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = write_parts(tmp_path_factory.mktemp("package"))
    with on_path(folder):
        yield folder
    own_data._kept.clear()


def config(**fields: Any) -> TrainConfig:
    few = {"network": "net", "optimizer": "sgd", "batch_size": 16, "steps": 24, "report_every": 8}
    return TrainConfig.model_validate(
        few | {name.replace("__", "."): value for name, value in fields.items()}
    )


def run(folder: Path | None = None, *, measured: bool = False, **fields: Any) -> list[Report]:
    measurement = Measurement() if measured else None
    return list(train(config(**fields), checkpoint_dir=folder, measurement=measurement))


# --- Data ---------------------------------------------------------------------------------------


def test_a_regression_on_floats_learns_and_reports_losses_without_errors() -> None:
    reports = run(dataset="numbers", lr=0.02, weight_decay=0.0, steps=60)
    first, last = reports[0].metrics, reports[-1].metrics

    assert last["loss"] < 0.5 * first["loss"]
    assert {"loss", "validation_loss", "test_loss", "examples_per_second"} <= last.keys()
    assert not {"train_loss", "train_error", "test_error", "images_per_second"} & last.keys()
    assert "effective_lr/linear1" in last
    assert reports[0].provenance["data"]["name"] == "numbers"
    assert len(reports[0].provenance["data"]["checksum"]) == 64


def test_labels_of_which_several_hold_have_the_fraction_of_wrong_ones_as_error() -> None:
    reports = run(dataset="labels", lr=0.5, weight_decay=0.0, steps=80)

    assert reports[-1].metrics["train_loss"] < 0.5
    assert reports[-1].metrics["test_error"] < 0.3


def test_text_is_whole_numbers_whose_alphabet_the_network_is_told() -> None:
    reports = run(network="text-net", dataset="text", dataset__length=4, lr=0.5, steps=60)

    assert reports[-1].metrics["test_error"] < reports[0].metrics["validation_error"] + 0.1
    assert reports[-1].metrics["train_error"] < 0.3
    assert "effective_lr/embedding1" in reports[-1].metrics


def test_uint8_images_of_a_package_are_trained_like_a_prepared_set() -> None:
    small = {"network": "wrn", "depth": 10, "widen_factor": 1.0, "crop_pad": 1, "steps": 8}
    reports = run(dataset="pictures", **small)

    assert reports[-1].status == "complete"
    assert "images_per_second" in reports[-1].metrics
    assert "plain_loop" not in reports[-1].provenance


def test_a_network_without_weight_vectors_is_trained_without_their_dynamics() -> None:
    reports = run(network="no-vectors", dataset="numbers", weight_decay=0.0)

    assert reports[-1].status == "complete"
    assert not [name for name in reports[-1].metrics if "/" in name]


def test_a_network_for_images_is_refused_for_other_data() -> None:
    with pytest.raises(FieldError, match="network 'wrn' needs images, and inputs of data set"):
        run(network="wrn", depth=10, widen_factor=1.0, dataset="numbers")


# --- Optimizers ---------------------------------------------------------------------------------


def test_a_schedule_free_optimizer_evaluates_with_its_own_weights_and_resumes(
    tmp_path: Path,
) -> None:
    fields = {"dataset": "numbers", "optimizer": "free", "optimizer__eta": 0.01}
    whole = run(tmp_path / "whole", **fields)
    made = train(
        config(**fields), checkpoint_dir=tmp_path / "halves", stop=_after(12, calls=iter(range(99)))
    )
    halves = [*made, *run(tmp_path / "halves", **fields)]

    assert [r.metrics["validation_loss"] for r in whole] == [
        r.metrics["validation_loss"] for r in halves
    ]
    network, about = load_network(tmp_path / "whole" / FILE)
    inputs, targets = _test_examples()
    loss = torch.nn.functional.mse_loss(network(inputs), targets).item()
    assert loss == pytest.approx(whole[-1].metrics["test_loss"], rel=1e-5)
    assert about["config"]["lr_schedule"] == "constant"


def _after(steps: int, calls: Iterator[int]) -> Any:
    """A request to stop at the so-many-th question."""
    return lambda: next(calls) >= steps


def _test_examples() -> tuple[torch.Tensor, torch.Tensor]:
    kept = next(one for key, one in own_data._kept.items() if "numbers" in key)
    return kept.test.inputs, kept.test.targets


def test_an_optimizer_has_rates_of_its_own_for_each_group_and_decay_as_declared() -> None:
    found = config(
        dataset="numbers", optimizer="two-rates", lr=0.1, optimizer__scalar_lr=0.3, batch_size=16
    ).resolved()
    model = torch.nn.Linear(5, 1)
    optimizer = build_optimizer(found, model)
    length = own_data.Length(10, 4, 16, 64)
    LearningRates(found, optimizer, length).set(0)

    assert {group["name"]: group["lr"] for group in optimizer.param_groups} == {
        "vectors": 0.1,
        "scalars": 0.3,
    }
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.5, 0.5]
    assert found.decay_on == "all"


# --- Losses, augmentations, metrics -------------------------------------------------------------


def test_a_loss_with_state_goes_on_where_it_stopped(tmp_path: Path) -> None:
    fields = {"dataset": "numbers", "loss": "scaled", "loss__power": 1.5, "metrics": ["worst"]}
    whole = run(**fields)
    made = train(config(**fields), checkpoint_dir=tmp_path, stop=_after(12, calls=iter(range(99))))
    halves = [*made, *run(tmp_path, **fields)]

    assert [r.metrics["loss"] for r in whole] == [r.metrics["loss"] for r in halves]
    assert whole[-1].metrics["test_worst"] < 0
    assert {"validation_loss", "validation_worst"} <= whole[0].metrics.keys()


def test_mixup_trains_on_mixed_targets_and_counts_errors_on_those_that_are_true() -> None:
    reports = run(
        network="mlp",
        depth=1,
        widen_factor=0.25,
        dataset="pictures",
        augmentation="mixup",
        augmentation__alpha=0.2,
    )

    assert 0 <= reports[-1].metrics["train_error"] <= 1
    assert reports[-1].metrics["train_loss"] > 0
    assert "images_per_second" in reports[-1].metrics
    assert "augmentation 'mixup'" in reports[-1].provenance["plain_loop"]


def test_a_measured_run_records_an_optimizer_of_a_package_on_data_of_a_package() -> None:
    reports = run(dataset="numbers", optimizer="free", measured=True)
    values = [v for report in reports for v in report.series["effective_lr"].values]

    assert len(values) == 24
    assert all(math.isfinite(value) for value in values)


# --- Provenance -----------------------------------------------------------------------------------


def test_a_report_says_where_the_parts_come_from_and_what_the_plain_loop_costs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO"):
        found = run(dataset="numbers", optimizer="free")[0].provenance

    assert found["parts"] == {
        "networks/net": "my-parts 1.2",
        "datasets/numbers": "my-parts 1.2",
        "optimizers/free": "my-parts 1.2",
    }
    assert found["versions"]["my-parts"] == "1.2"
    assert found["plain_loop"].startswith("plain loop, which costs nothing on a CPU: network 'net'")
    assert caplog.messages.count(found["plain_loop"]) == 1


def test_a_worker_with_another_version_trains_nothing(tmp_path: Path) -> None:
    task = {
        "config": config(dataset="numbers").stored(),
        "device": "cpu",
        "checkpoint_dir": str(tmp_path),
        "parts": {"networks/net": {"name": "my-parts", "version": "1.1"}},
    }
    with pytest.raises(PackageMismatch, match=r"network .net. was submitted with my-parts 1\.1"):
        list(trial_reports(task))
