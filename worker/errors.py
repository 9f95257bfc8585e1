"""What goes wrong in the worker, as a small tree under one base class.

    WorkerError
    ├── DatasetNotFound    no prepared set of that name
    ├── DatasetRefused     a file or folder that does not fit; nothing was prepared
    ├── CheckpointError    every checkpoint of a folder is damaged, or belongs to another config
    ├── DeviceLost         a fault on the card that ends every run of its process
    ├── PackageMismatch    a training's package is of another version here than at submission
    ├── WrongMachine       this machine has other code, another home or other data than its driver
    └── HostLost           the process that trained the trials of a card has ended under them

A config that cannot be trained (a batch larger than the set, a precision that the device lacks)
raises ``worker.config.train_config.FieldError``, which names the field.
"""

from collections.abc import Sequence


class WorkerError(Exception):
    """Base of everything that the worker refuses, with one sentence for the person who reads it."""


class DatasetNotFound(WorkerError, LookupError):
    """No prepared data set has this name."""


class DatasetRefused(WorkerError, ValueError):
    """A source whose counts, shapes, labels or checksum are wrong. Nothing was prepared."""


class CheckpointError(WorkerError):
    """No checkpoint of a folder can be used."""


class PackageMismatch(WorkerError):
    """This machine lacks the version of a package that a spec was submitted with."""


class WrongMachine(WorkerError):
    """This machine has other code, another home or other data than the driver of its trials."""

    def __init__(self, machine: str, differences: Sequence[tuple[str, str]]) -> None:
        """``machine`` is Ray's id; ``differences`` are kinds and sentences."""
        super().__init__(machine, differences)
        self.machine = machine
        self.differences = differences

    def __str__(self) -> str:
        return "; ".join(text for _, text in self.differences)


class DeviceLost(WorkerError, RuntimeError):
    """The card will not work again in this process."""


class HostLost(WorkerError, ConnectionError):
    """The host of a card's trials has ended; nothing is known to be wrong with this trial."""
