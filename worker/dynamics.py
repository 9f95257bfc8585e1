"""Weight dynamics of a run: one step's worth before each report, and measured series."""

from typing import Any

from torch import nn
from torch.optim import Optimizer

from worker.config import TrainConfig
from worker.layer_meter import LayerMeter
from worker.measurement import Measurement, Series


class Dynamics:
    """Watches how far each layer's weight vectors move."""

    def __init__(
        self,
        config: TrainConfig,
        model: nn.Module,
        optimizer: Optimizer,
        measurement: Measurement | None,
    ) -> None:
        self._meter = LayerMeter(config, model, optimizer)

    def before_step(self, step: int, report_step: int) -> None:
        """Call before step ``step``; the next report comes after ``report_step`` steps."""
        self._meter.before_step(step, report_step)

    def after_step(self, step: int) -> None:
        """Call after every step."""
        self._meter.after_step()

    def metrics(self) -> dict[str, float]:
        """Per layer, of the last step before this report."""
        return self._meter.metrics()

    def final_metrics(self) -> dict[str, float]:
        return {}

    def take_series(self) -> dict[str, Series]:
        return {}

    def provenance(self) -> dict[str, Any]:
        return {}

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"meter": self._meter.state()}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from ``state``."""
        self._meter.load(state["meter"])
