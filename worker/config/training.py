"""Trainings by name: what a trial runs, the class of its config and the metrics that it reports.

A package registers one with an entry point in the group ``ndsweep.training``. Imports no torch.
"""

import inspect
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from worker.config.declared_config import UntypedConfig, config_model, type_of_first
from worker.config.registry import (
    Registered,
    find,
    imported,
    look_again,
    only_one,
    registered_names,
    registrations,
)
from worker.config.train_config import TrainConfig
from worker.config.trial_config import FieldError, FreeConfig, TrialConfig
from worker.errors import PackageMismatch

#: The built-in training of networks on images.
IMAGES = "images"
#: Trials that agents run, or that were imported: nothing of theirs runs here.
EXTERNAL = "external"


@dataclass(frozen=True)
class Metric:
    """What is known of a metric before anything is measured.

    Args:
        direction: Which end is better; None where neither is.
        unit: Unit of the values as they are reported; "" for a pure number.
        description: For people, at most a sentence.
        test: Whether it is measured on test data, by which nothing may be chosen.
    """

    direction: Literal["minimize", "maximize"] | None = None
    unit: str = ""
    description: str = ""
    test: bool = False

    def __post_init__(self) -> None:
        if self.direction not in (None, "minimize", "maximize"):
            raise ValueError(
                f"direction must be 'minimize', 'maximize' or None, got {self.direction!r}"
            )
        for name, most in (("unit", 40), ("description", 500)):
            text = getattr(self, name)
            if not isinstance(text, str) or len(text) > most or not text.isprintable():
                raise ValueError(
                    f"{name} must be printable text of at most {most} characters, got {text!r:.80}"
                )


#: Names with a meaning of their own, in every training.
FIXED_METRICS: Mapping[str, Metric] = {
    "validation_error": Metric("minimize", "%", "Error on held-out data, a fraction."),
    "train_error": Metric("minimize", "%", "Error on the training data, a fraction."),
    "train_loss": Metric("minimize", "nats", "Loss on the training data."),
    "test_error": Metric("minimize", "%", "Error on the test data, a fraction.", test=True),
}
#: Reported as fractions from 0 to 1 and shown in percent.
FRACTIONS = frozenset(name for name in FIXED_METRICS if name.endswith("_error"))


#: What a declared metric may be called; a slash begins the name of a layer or part.
METRIC_NAME = r"^[A-Za-z_][A-Za-z0-9_./@ -]{0,99}$"


def is_test(name: str) -> bool:
    """Whether a metric's name says that it is measured on test data."""
    return name.startswith("test")


@dataclass(frozen=True)
class Training:
    """What a trial runs, and where it comes from."""

    name: str
    #: Called with an instance of the declared config and a ``Run``.
    function: Callable[..., Any]
    config: type[TrialConfig]
    metrics: Mapping[str, Metric]
    #: The distribution that registers it, as pip knows it.
    package: str
    version: str


Function = TypeVar("Function", bound=Callable[..., Any])
#: Attribute of a function under which its declaration lies.
_DECLARED = "__ndsweep_training__"


def training(*, metrics: Mapping[str, Metric] | None = None) -> Callable[[Function], Function]:
    """Declare a training function ``train(config, run)``.

    The type of its first argument, a dataclass or pydantic model, gives the fields of a spec. Its
    package registers it with an entry point in the group ``ndsweep.training``.

    Args:
        metrics: What it reports, by name. Others may be reported too; they have no direction and
            can be no objective.
    """
    given = dict(metrics or {})
    for name, one in given.items():
        if not isinstance(one, Metric):
            raise TypeError(f"metric {name!r} must be an ndsweep.Metric, got {one!r}")
        if not isinstance(name, str) or not re.match(METRIC_NAME, name):
            raise ValueError(
                "a metric's name must begin with a letter or _ and hold letters, digits and "
                f"_ . / @ - alone, at most 100; got {name!r}"
            )
        fixed = FIXED_METRICS.get(name)
        if fixed and (
            one.direction != fixed.direction
            or one.unit not in ("", fixed.unit)
            or one.test > fixed.test
        ):
            raise ValueError(
                f"metric {name!r} has a fixed meaning ({fixed.direction}, {fixed.unit}): give it "
                f"another name, got {one!r}"
            )

    def declare(function: Function) -> Function:
        setattr(function, _DECLARED, given)
        return function

    return declare


def training_names() -> list[str]:
    """Return the names that a spec may give, sorted."""
    return sorted({IMAGES, EXTERNAL, *registered_names("training")})


def config_class(training: str) -> type[TrialConfig]:
    """Return the class that validates a training's configs.

    Imports the package of a registered training. Raises FieldError as ``load_training`` does.
    """
    if training == IMAGES:
        return TrainConfig  # without torch, which its function loads
    return FreeConfig if training == EXTERNAL else load_training(training).config


_loaded: dict[str, Training] = {}
#: Reads a registered training without importing its package here; None = it is imported.
_reader: Callable[[Registered], Training] | None = None


def read_trainings_with(reader: Callable[[Registered], Training] | None) -> None:
    """Have packages read elsewhere from now on, in a process that must stay small and quick.

    ``reader`` raises FieldError as ``load_training`` does. None: they are imported again.
    """
    global _reader
    _reader = reader


def load_training(name: str) -> Training:
    """Import the training registered as ``name``, or have it read where a process says so.

    Raises FieldError with one sentence: for a name that nobody or several packages register, for
    an entry point that cannot be imported, for a function or config that is none.
    """
    if _reader is not None:
        look_again("training")
        return _reader(find_training(name))
    if name not in _loaded:
        _loaded[name] = _load(find_training(name))
    return _loaded[name]


def find_training(name: str) -> Registered:
    """Return the entry point of a training without importing it. Raises FieldError."""
    if name == IMAGES:
        return registrations("training")[name][0]  # ours is the first
    found = find("training", name) if name != EXTERNAL else []
    if not found:
        known = ", ".join(training_names())
        raise FieldError(
            "training",
            f"training must be one of {known}, got {name!r}; if a package registers it, install "
            "the package where the service runs",
        )
    return only_one(found, "training", "training")


def check_package(wanted: Mapping[str, str] | None, found: Training) -> None:
    """Raise PackageMismatch unless a training is of the package and version that a spec names."""
    if not wanted or (wanted["name"], wanted["version"]) == (found.package, found.version):
        return
    raise PackageMismatch(
        f"training {found.name!r} was submitted with {wanted['name']} {wanted['version']}, and "
        f"{socket.gethostname()} has {found.package} {found.version}; run {install(wanted)} there"
    )


def install(package: Mapping[str, str]) -> str:
    """Return the command that installs a package's version."""
    return f"pip install {package['name']}=={package['version']}"


def _load(found: Registered) -> Training:
    where = found.where
    function = imported(found, "training", "training")
    metrics = getattr(function, _DECLARED, None)
    if not callable(function) or metrics is None:
        raise FieldError(
            "training",
            f"training {found.entry.name!r} names {where}, which is not decorated with "
            "@ndsweep.training",
        )
    try:
        made = _config_of(function)
    except UntypedConfig as error:
        raise FieldError(
            "training", f"training {found.entry.name!r}: the config of {where}: {error}"
        ) from error
    return Training(
        found.entry.name, function, made, metrics, package=found.package, version=found.version
    )


def _config_of(function: Callable[..., Any]) -> type[TrialConfig]:
    """Return the config class of a function: the type of its first argument."""
    if len(inspect.signature(function).parameters) < 2:
        raise UntypedConfig("the function must take two arguments, config and run")
    declared = type_of_first(function)
    if isinstance(declared, type) and issubclass(declared, TrialConfig):
        return declared
    return config_model(declared)
