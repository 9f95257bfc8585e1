"""Trains one configuration: data on the device, the loop, exact checkpoints, the Ray adapter.

Names load lazily, so that a process which only wants ``TrainConfig`` never imports torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from worker.config.train_config import TrainConfig
    from worker.report import Measurement, Report
    from worker.training.train import train

_HOME = {
    "Measurement": "worker.report",
    "Report": "worker.report",
    "TrainConfig": "worker.config.train_config",
    "train": "worker.training.train",
}

__all__ = ["Measurement", "Report", "TrainConfig", "train"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'worker' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value
