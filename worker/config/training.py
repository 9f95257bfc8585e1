"""Trainings by name: what a trial runs, the class of its config and the metrics that it reports.

A package registers one with an entry point in the group ``ndsweep.training``. Imports no torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from worker.config.registry import registered_names
from worker.config.train_config import TrainConfig
from worker.config.trial_config import FieldError, FreeConfig, TrialConfig

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


#: Names with a meaning of their own, in every training.
FIXED_METRICS: Mapping[str, Metric] = {
    "validation_error": Metric("minimize", "%", "Error on held-out data, a fraction."),
    "train_error": Metric("minimize", "%", "Error on the training data, a fraction."),
    "train_loss": Metric("minimize", "nats", "Loss on the training data."),
    "test_error": Metric("minimize", "%", "Error on the test data, a fraction.", test=True),
}
#: Reported as fractions from 0 to 1 and shown in percent.
FRACTIONS = frozenset(name for name in FIXED_METRICS if name.endswith("_error"))


def is_test(name: str, declared: Metric | None = None) -> bool:
    """Whether a metric is measured on test data: it says so, or its name does."""
    return name.startswith("test") or (declared is not None and declared.test)


def training_names() -> list[str]:
    """Return the names that a spec may give, sorted."""
    return sorted({IMAGES, EXTERNAL, *registered_names("training")})


def config_class(training: str) -> type[TrialConfig]:
    """Return the class that validates a training's configs. Raises FieldError if there is none."""
    if training == IMAGES:
        return TrainConfig
    if training == EXTERNAL:
        return FreeConfig
    raise FieldError(
        "training", f"training must be one of {', '.join(training_names())}, got {training!r}"
    )
