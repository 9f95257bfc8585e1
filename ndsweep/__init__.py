"""What a training function, a notebook or a script imports of ndsweep.

Names load lazily: importing this package loads neither torch nor the client.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from worker.config.training import Metric, training
    from worker.training.handle import Run, Stopped

#: Name -> module and attribute.
_HOME = {
    "Metric": ("worker.config.training", "Metric"),
    "Run": ("worker.training.handle", "Run"),
    "Stopped": ("worker.training.handle", "Stopped"),
    "training": ("worker.config.training", "training"),
}

__all__ = ["Metric", "Run", "Stopped", "training"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ndsweep' has no attribute {name!r}")
    module, attribute = _HOME[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value
