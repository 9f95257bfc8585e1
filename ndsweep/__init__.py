"""ndsweep in Python: what a notebook, a script or a training function imports.

    import ndsweep

    client = ndsweep.connect()
    sweep = client.submit("sweep.yaml")
    sweep.watch()
    sweep.points()

Names load on first use (PEP 562): importing this package loads no torch, pandas or plotly.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ndsweep.best import Best
    from ndsweep.client import Client, connect
    from ndsweep.results import Analysis, Comparison, NothingToShow
    from ndsweep.sweep import Sweep
    from service.client.agents import Agent, AgentTrial
    from service.client.client import (
        DamagedDownload,
        ServiceError,
        ServiceRefused,
        ServiceUnreachable,
    )
    from worker.config.part_declarations import (
        DataFacts,
        Examples,
        dataset,
        loss,
        metric,
        optimizer,
    )
    from worker.config.training import Metric, training
    from worker.training.handle import Run, Stopped

#: Name -> module and attribute.
_HOME = {
    "Agent": ("service.client.agents", "Agent"),
    "AgentTrial": ("service.client.agents", "AgentTrial"),
    "Analysis": ("ndsweep.results", "Analysis"),
    "Best": ("ndsweep.best", "Best"),
    "Client": ("ndsweep.client", "Client"),
    "Comparison": ("ndsweep.results", "Comparison"),
    "DamagedDownload": ("service.client.client", "DamagedDownload"),
    "DataFacts": ("worker.config.part_declarations", "DataFacts"),
    "Examples": ("worker.config.part_declarations", "Examples"),
    "Metric": ("worker.config.training", "Metric"),
    "NothingToShow": ("ndsweep.results", "NothingToShow"),
    "Run": ("worker.training.handle", "Run"),
    "ServiceError": ("service.client.client", "ServiceError"),
    "ServiceRefused": ("service.client.client", "ServiceRefused"),
    "ServiceUnreachable": ("service.client.client", "ServiceUnreachable"),
    "Stopped": ("worker.training.handle", "Stopped"),
    "Sweep": ("ndsweep.sweep", "Sweep"),
    "connect": ("ndsweep.client", "connect"),
    "dataset": ("worker.config.part_declarations", "dataset"),
    "loss": ("worker.config.part_declarations", "loss"),
    "metric": ("worker.config.part_declarations", "metric"),
    "optimizer": ("worker.config.part_declarations", "optimizer"),
    "training": ("worker.config.training", "training"),
}

__all__ = [
    "Agent",
    "AgentTrial",
    "Analysis",
    "Best",
    "Client",
    "Comparison",
    "DamagedDownload",
    "DataFacts",
    "Examples",
    "Metric",
    "NothingToShow",
    "Run",
    "ServiceError",
    "ServiceRefused",
    "ServiceUnreachable",
    "Stopped",
    "Sweep",
    "connect",
    "dataset",
    "loss",
    "metric",
    "optimizer",
    "training",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ndsweep' has no attribute {name!r}")
    module, attribute = _HOME[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
