"""Trainings by name: found without importing, imported once, refused in one sentence."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.worker.training.installed import on_path, write_package
from worker.config.train_config import TrainConfig
from worker.config.training import (
    FIXED_METRICS,
    Metric,
    config_class,
    find_training,
    load_training,
    training,
    training_names,
)
from worker.config.trial_config import FieldError, FreeConfig

ROOT = Path(__file__).parents[3]


def refusal(*folders: Path, name: str = "mine") -> str:
    with on_path(*folders), pytest.raises(FieldError) as caught:
        load_training(name)
    assert caught.value.field == "training"
    return str(caught.value)


def test_the_built_in_training_is_registered_like_any_other() -> None:
    images = load_training("images")

    assert images.config is TrainConfig
    assert images.metrics == FIXED_METRICS
    assert images.package == "ndadam-sweeps"


def test_images_and_external_have_their_class_without_an_import() -> None:
    assert config_class("images") is TrainConfig
    assert config_class("external") is FreeConfig


def test_a_package_s_training_is_found_before_it_is_imported(tmp_path: Path) -> None:
    with on_path(write_package(tmp_path, "raise RuntimeError")):
        found = find_training("mine")

        assert (found.package, found.version) == ("my-package", "1.2")
        assert training_names() == ["external", "images", "mine"]


def test_a_training_has_the_fields_and_metrics_that_its_package_declares(tmp_path: Path) -> None:
    with on_path(write_package(tmp_path)):
        found = load_training("mine")

        assert list(found.config.model_fields) == ["rate", "steps", "seed"]
        assert found.metrics["loss"] == Metric("minimize", unit="mm")
        assert load_training("mine") is found


#: A module -> part of the sentence that its training is refused with.
BROKEN = {
    "import nowhere": "my_module:train of my-package 1.2: ModuleNotFoundError: No module named",
    "1 / 0": "ZeroDivisionError: division by zero",
    "import sys; sys.exit(3)": "SystemExit: 3",
    "def": "SyntaxError: invalid syntax",
    "x = 1": "AttributeError: module 'my_module' has no attribute 'train'",
    "train = 3": "is not decorated with @ndsweep.training",
    "def train(config, run): ...": "is not decorated with @ndsweep.training",
}
_DECORATED = "import ndsweep\n@ndsweep.training()\ndef train"
BROKEN |= {
    f"{_DECORATED}(config, run): ...": "argument 'config' of the function has no type",
    f"{_DECORATED}(config: dict, run): ...": "dict must be a dataclass or a pydantic model",
    f"{_DECORATED}(config: 'Gone', run): ...": "the type 'Gone' is not known in its module",
    f"{_DECORATED}(config: int): ...": "must take two arguments, config and run",
}


@pytest.mark.parametrize(("source", "sentence"), BROKEN.items())
def test_an_entry_point_that_gives_no_training_is_refused(
    source: str, sentence: str, tmp_path: Path
) -> None:
    assert sentence in refusal(write_package(tmp_path, source))


def test_two_packages_of_one_name_are_refused_when_it_is_used(tmp_path: Path) -> None:
    one = write_package(tmp_path / "one", package="first")
    two = write_package(tmp_path / "two", package="second", version="3")

    assert refusal(one, two) == (
        "training 'mine' is registered by first 1.2 and second 3: uninstall all but one of them"
    )
    with on_path(one, two):
        assert load_training("images").config is TrainConfig


@pytest.mark.parametrize("name", ["images", "external"])
def test_the_names_of_ours_cannot_be_taken(name: str, tmp_path: Path) -> None:
    with on_path(write_package(tmp_path, "raise RuntimeError", name=name)):
        assert config_class(name) in (TrainConfig, FreeConfig)
        if name == "images":
            assert load_training(name).package == "ndadam-sweeps"


def test_an_unknown_name_is_refused_with_those_that_are_known() -> None:
    assert refusal(name="mine") == (
        "training must be one of external, images, got 'mine'; if a package registers it, install "
        "the package where the service runs"
    )


def test_a_metric_must_be_declared_as_one() -> None:
    with pytest.raises(TypeError, match=r"metric 'loss' must be an ndsweep\.Metric, got"):
        training(metrics={"loss": "minimize"})  # type: ignore[dict-item]


def test_importing_ndsweep_loads_neither_torch_nor_pydantic() -> None:
    code = "import sys, ndsweep; sys.exit(bool({'torch', 'pydantic'} & set(sys.modules)))"

    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_ndsweep_knows_its_names() -> None:
    import ndsweep

    assert {getattr(ndsweep, name).__name__ for name in ndsweep.__all__} == set(ndsweep.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ndsweep.nothing  # noqa: B018
