"""Trains one configuration: data on the device, the loop, exact checkpoints, the Ray adapter.

Names load lazily, so that a process which only wants ``TrainConfig`` never imports torch.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from worker.config import TrainConfig
    from worker.measurement import Measurement, Report
    from worker.train import train

_HOME = {
    "Measurement": "worker.measurement",
    "Report": "worker.measurement",
    "TrainConfig": "worker.config",
    "train": "worker.train",
}

__all__ = ["Measurement", "Report", "TrainConfig", "train"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'worker' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


class _Package(ModuleType):
    """Keeps ``worker.train`` the function when somebody imports the file of the same name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
