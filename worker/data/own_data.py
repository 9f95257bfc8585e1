"""Data of a registered data set on a device: checked, split, loaded once per process."""

import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from worker.config.part_declarations import DataFacts, Examples, Task, task_of
from worker.config.parts import Part
from worker.config.train_config import TrainConfig
from worker.data.augment import draw_epoch, plain
from worker.data.device_data import RunData, run_data
from worker.data.prepared import Arrays, describe
from worker.data.run_length import Length
from worker.data.split import split_validation
from worker.errors import DatasetRefused

#: Sets that a process keeps: trials usually share one.
_KEPT = 2


@dataclass(frozen=True)
class Tensors:
    """The examples of one set on a device."""

    inputs: Tensor  # (N, …)
    targets: Tensor  # (N,) int64, or (N, K) float32

    def part(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of examples (B,)."""
        return self.inputs.index_select(0, indices), self.targets.index_select(0, indices)


@dataclass(frozen=True)
class OwnInfo:
    """What provenance, checkpoints and reports need to know of a registered data set."""

    name: str
    #: sha256 of all tensors' bytes.
    checksum: str
    facts: DataFacts


@dataclass(frozen=True)
class OwnData:
    """The examples on which one run is trained and evaluated."""

    info: OwnInfo
    train: Tensors
    train_indices: Tensor  # (N,) int64, on the CPU
    validation_indices: Tensor  # (N,) int64, on the device, into ``train``
    test: Tensors
    test_indices: Tensor  # (N,) int64, on the device


@dataclass(frozen=True)
class _Loaded:
    train: Tensors
    test: Tensors
    outputs: int
    facts: dict[str, Any]
    checksum: str


_kept: OrderedDict[str, _Loaded] = OrderedDict()


def load_own_data(config: TrainConfig, device: torch.device) -> OwnData | RunData:
    """Load the registered data set of a resolved config. Raises DatasetRefused, FieldError."""
    part, task = config.parts()["dataset"], task_of(config)
    found = _cached(config, part, task, device)
    labels = found.train.targets
    if part.declared.get("images"):
        return _images(config, part, found, device)
    # Only classes can be held out in equal parts.
    is_plain = task == "classification" and labels.ndim == 1
    classes = labels.cpu().numpy() if is_plain else np.zeros(len(labels), dtype=np.int64)
    train, validation = split_validation(classes, config.validation_fraction, config.split_seed)
    facts = DataFacts(
        part.name, task, tuple(found.train.inputs.shape[1:]), found.outputs, len(train), found.facts
    )
    return OwnData(
        OwnInfo(part.name, found.checksum, facts),
        found.train,
        torch.from_numpy(train),
        torch.from_numpy(validation).to(device),
        found.test,
        torch.arange(len(found.test.inputs), device=device),
    )


def _cached(config: TrainConfig, part: Part, task: Task, device: torch.device) -> _Loaded:
    values = part.values(config)
    seen = values.model_dump_json() if values is not None else ""
    key = f"{part.key} of {part.package} {part.version} on {device}: {seen}"
    if key not in _kept:
        _kept[key] = _load(config, part, task, device)
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    _kept.move_to_end(key)
    return _kept[key]


def _load(config: TrainConfig, part: Part, task: Task, device: torch.device) -> _Loaded:
    examples = part.call(config)
    if not isinstance(examples, Examples):
        raise DatasetRefused(
            f"{part.title} must return ndsweep.Examples, got {type(examples).__name__}"
        )
    try:
        facts = json.loads(json.dumps(dict(examples.facts)))
    except (TypeError, ValueError) as error:
        raise DatasetRefused(
            f"facts of {part.title} must be plain values, of which JSON has a form: {error}"
        ) from error
    train, test = (
        _tensors(part, task, name, getattr(examples, name), device) for name in ("train", "test")
    )
    if train.inputs.shape[1:] != test.inputs.shape[1:]:
        raise DatasetRefused(
            f"inputs of {part.title} must have one shape in train and test, got "
            f"{tuple(train.inputs.shape[1:])} and {tuple(test.inputs.shape[1:])}"
        )
    digest = hashlib.sha256()
    for one in (train.inputs, train.targets, test.inputs, test.targets):
        digest.update(f"{one.dtype} {tuple(one.shape)}".encode())
        digest.update(one.cpu().contiguous().view(torch.uint8).numpy().data)
    both = torch.cat([train.targets.flatten(), test.targets.flatten()])
    classes = int(both.max()) + 1 if task == "classification" else train.targets.shape[1]
    if examples.outputs is not None and examples.outputs < classes:
        raise DatasetRefused(
            f"outputs of {part.title} must be at least the {classes} that its targets have, got "
            f"{examples.outputs}"
        )
    return _Loaded(train, test, examples.outputs or classes, facts, digest.hexdigest())


def _tensors(part: Part, task: Task, name: str, given: Any, device: torch.device) -> Tensors:
    """Return inputs and targets as tensors on the device. Raises DatasetRefused."""
    where = f"{name} of {part.title}"
    try:
        if not isinstance(given, tuple | list):
            given = default_collate([given[i] for i in range(len(given))])
        inputs, targets = (torch.as_tensor(one) for one in given)
    except Exception as error:  # it is not ours
        raise DatasetRefused(
            f"{where} must be inputs and targets, or a data set of such pairs: {error}"
        ) from error
    if inputs.ndim == 0 or len(inputs) != len(targets) or not len(inputs):
        raise DatasetRefused(
            f"{where} must have as many inputs as targets, at least one; got shapes "
            f"{tuple(inputs.shape)} and {tuple(targets.shape)}"
        )
    if inputs.dtype == torch.float64:
        inputs = inputs.float()
    if inputs.is_floating_point() and not inputs.isfinite().all():
        raise DatasetRefused(f"{where} has inputs that are NaN or infinite")
    return Tensors(inputs.to(device), _targets(where, task, targets).to(device))


def _targets(where: str, task: Task, targets: Tensor) -> Tensor:
    if task == "classification":
        if targets.is_floating_point() or targets.dtype == torch.bool or targets.min() < 0:
            raise DatasetRefused(
                f"targets in {where} must be whole numbers from 0, the classes; got "
                f"{targets.dtype} from {targets.min().item():g}"
            )
        return targets.long()
    found = targets.float()
    found = found[:, None] if found.ndim == 1 else found
    if found.ndim != 2 or not found.isfinite().all():
        raise DatasetRefused(
            f"targets in {where} must be finite and of shape (N,) or (N, K), got "
            f"{tuple(targets.shape)}"
        )
    if task == "multilabel" and not ((found == 0) | (found == 1)).all():
        raise DatasetRefused(
            f"targets in {where} must be 0 or 1, got {found.min():g} to {found.max():g}"
        )
    return found


def _images(config: TrainConfig, part: Part, found: _Loaded, device: torch.device) -> RunData:
    """Return uint8 images as if they came from a prepared set."""
    inputs = found.train.inputs
    if inputs.dtype != torch.uint8 or inputs.ndim != 4 or min(inputs.shape[1:3]) < 4:
        raise DatasetRefused(
            f"{part.title} declares images=True: its inputs must be uint8 (N, H, W, C), at least "
            f"4 x 4 pixels, got {inputs.dtype} {tuple(inputs.shape)}"
        )
    tensors = found.train.inputs, found.train.targets, found.test.inputs, found.test.targets
    arrays = Arrays(*(one.cpu().numpy() for one in tensors))
    names = tuple(map(str, range(found.outputs)))
    info = describe(part.name, arrays, names, f"{part.package} {part.version}")
    return run_data(config, info, tensors, device)


class OwnBatches:
    """Returns the batch of any step, a function of (seed, step) alone."""

    def __init__(self, config: TrainConfig, data: OwnData, length: Length) -> None:
        self._data, self._length, self._seed = data, length, config.seed
        self._epoch = -1

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of one step."""
        epoch, index = divmod(step, self._length.steps_per_epoch)
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = draw_epoch(
                self._data.train_indices,
                0,
                False,
                seed=self._seed,
                epoch=epoch,
                device=self._data.train.inputs.device,
            ).order
        start = index * self._length.batch_size
        return self._data.train.part(self._order[start : start + self._length.batch_size])


def held_out(data: Any, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Return inputs and targets of examples of ``Tensors`` or of ``Pixels``, for evaluation."""
    if isinstance(data, Tensors):
        return data.part(indices)
    return plain(data, indices), data.labels.index_select(0, indices)


def facts_of(data: OwnData | RunData) -> DataFacts:
    """Return what parts are told of a run's data."""
    if isinstance(data, OwnData):
        return data.info.facts
    height, width, channels = data.info.shape
    return DataFacts(
        data.info.name,
        "classification",
        (channels, height, width),
        data.info.num_classes,
        len(data.train_indices),
    )
