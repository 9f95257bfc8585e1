"""What packages import to declare parts of the built-in training. Imports no torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from worker.config.parts import DECLARED
from worker.config.train_config import TrainConfig
from worker.config.training import FIXED_METRICS, Metric

Task = Literal["classification", "regression", "multilabel"]
_TASKS = ("classification", "regression", "multilabel")
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Examples:
    """What a data set's function returns: the examples to learn from, and those to test on.

    Args:
        train: Inputs and targets, tensors or arrays of N examples each, or a map-style data set
            (``len(it)``, ``it[i]`` = one input and its target). All of it is kept on the device.
            Targets of a classification are whole numbers from 0; of a regression (N,) or (N, K);
            of multi-label data (N, K) zeros and ones. The validation set is taken from here.
        test: The same for the test set.
        outputs: Numbers that a network must return for an example; None = as many as classes, or
            as the targets have columns.
        facts: What a network must know of the data, such as ``{"tokens": 256}``: plain values.
    """

    train: Any
    test: Any
    outputs: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DataFacts:
    """What functions of networks, losses and augmentations are told of the data."""

    name: str
    task: Task
    #: Of one input: (channels, height, width) of images, (features,) of a table.
    shape: tuple[int, ...]
    #: Numbers that the network returns for an example: classes, targets or labels.
    outputs: int
    #: Examples that are trained on, without the validation set.
    num_train: int
    facts: Mapping[str, Any] = field(default_factory=dict)


def _declare(**values: Any) -> Callable[[Function], Function]:
    def declare(function: Function) -> Function:
        setattr(function, DECLARED, values)
        return function

    return declare


def dataset(
    task: Task = "classification", *, images: bool = False
) -> Callable[[Function], Function]:
    """Declare a data set ``data(config) -> Examples``; ``config`` may be left out.

    Args:
        task: Decides the loss and the errors: cross-entropy; squared error and no error; binary
            cross-entropy, with the fraction of wrong labels as error.
        images: The inputs are uint8 images (N, H, W, C), which the built-in training standardises,
            crops and flips, on a card in recorded steps. Only for a classification.
    """
    if task not in _TASKS:
        raise ValueError(f"task must be one of {', '.join(_TASKS)}, got {task!r}")
    if images and task != "classification":
        raise ValueError(f"images=True needs task 'classification', got {task!r}")
    return _declare(task=task, images=images)


def optimizer(rate: str = "lr", *, scalars: str | None = None) -> Callable[[Function], Function]:
    """Declare an optimizer ``make(config, groups) -> torch.optim.Optimizer``.

    ``groups`` are torch's parameter groups, named "vectors" (weights of linear, convolutional,
    recurrent, attention and embedding layers) and "scalars" (everything else). Before every step
    ``group["lr"]`` is set to the rate times the factor of ``lr_schedule``.

    Args:
        rate: Field of its config that holds the learning rate.
        scalars: The field with that of the group "scalars"; None = the same.
    """
    return _declare(rate=rate, scalars=scalars or rate)


def loss(*, unit: str = "") -> Callable[[Function], Function]:
    """Declare a loss ``make(config, data) -> loss(outputs, targets)``, a scalar to be minimised.

    What it returns may be a module with buffers, which checkpoints keep.
    """
    return _declare(metric=Metric("minimize", unit))


def metric(
    direction: Literal["minimize", "maximize"], *, unit: str = "", description: str = ""
) -> Callable[[Function], Function]:
    """Declare a metric ``measure(outputs, targets) -> float`` of a whole held-out set.

    It is reported as ``validation_NAME`` and ``test_NAME``.
    """
    return _declare(metric=Metric(direction, unit, description))


#: Fields of a config that decide which metrics are reported.
METRIC_FIELDS = ("dataset", "loss", "augmentation", "metrics")


def task_of(config: TrainConfig) -> Task:
    """Return what kind of targets a config's data has."""
    part = config.parts().get("dataset")
    task: Task = part.declared.get("task", "classification") if part else "classification"
    return task


def takes_images(config: TrainConfig) -> bool:
    """Whether the data are uint8 images with class labels, as those of prepared sets are."""
    part = config.parts().get("dataset")
    return part is None or bool(part.declared.get("images"))


def has_own_loop(config: TrainConfig) -> bool:
    """Whether its data, loss, augmentation or metrics need a loop other than that of images."""
    is_plain = config.loss is None and config.augmentation is None and not config.metrics
    return not (is_plain and takes_images(config))


def metrics_of(config: TrainConfig) -> dict[str, Metric]:
    """Return the metrics by which a config's trials may be judged, by name."""
    if not has_own_loop(config):
        return dict(FIXED_METRICS)
    parts, task = config.parts(), task_of(config)
    own = parts.get("loss")
    unit = "" if own or task == "regression" else "nats"
    of_loss: Metric = own.declared.get("metric", Metric("minimize")) if own else Metric("minimize")
    unit = of_loss.unit if own else unit
    found = dict(FIXED_METRICS) if task != "regression" else {}
    if own or task == "regression":
        found.pop("train_loss", None)
        found["loss"] = Metric("minimize", unit, "Loss on the training data.")
    found["validation_loss"] = Metric("minimize", unit, "Loss on held-out data.")
    found["test_loss"] = Metric("minimize", unit, "Loss on the test data.", test=True)
    for part in parts.values():
        if part.field == "metrics":
            one: Metric = part.declared.get("metric", Metric())
            found[f"validation_{part.name}"] = one
            found[f"test_{part.name}"] = Metric(one.direction, one.unit, one.description, test=True)
    return found
