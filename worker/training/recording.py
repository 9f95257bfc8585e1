"""Weight dynamics of a training function's own model and optimizer, for ``Run.record``."""

import math
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ndadam import EffectiveLR
from ndadam.dynamics.step_hooks import StepHooks
from ndadam.invariance.probe import ProbeResult
from worker.report import Measurement, Series
from worker.training.weight_dynamics import Recorder

#: What the built-in training reports of each layer too.
QUANTITIES = ("effective_lr", "angular_update", "weight_norm", "projection_ratio")
#: In the folder of a checkpoint, beside what the function wrote.
FILE = "ndsweep-record.pt"


class Recording:
    """Measures every ``every``-th step of an optimizer; a report takes the newest measurement.

    In a match it also records every step that ``measurement`` asks for.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        every: int,
        *,
        probe: ProbeResult | None,
        measurement: Measurement | None,
        resumed: Path | None,
    ) -> None:
        """``resumed``: folder of the checkpoint that the run goes on from."""
        self._step = 0
        self._recorder: Recorder | None = None
        # Its hook comes first, so that the recorder knows whether the step is in its window.
        self._hooks = StepHooks(optimizer, self._before_step, self._after_step)
        if measurement is not None:
            self._recorder = Recorder(model, optimizer, measurement, probe)
        self._effective = EffectiveLR(model, optimizer, every=every, probe=probe)
        if resumed is not None and (resumed / FILE).is_file():
            self._load(torch.load(resumed / FILE, map_location="cpu", weights_only=True))

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._recorder is not None:
            self._recorder.before_step(self._step)

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._step += 1

    def metrics(self) -> dict[str, float]:
        """Return the newest measurement of each layer, by metric name; {} without a new one."""
        found = {}
        for layer, records in self._effective.drain().layers.items():
            for quantity in QUANTITIES:
                values = getattr(records, quantity)
                if values and math.isfinite(values[-1]):
                    found[f"{quantity}/{layer}"] = values[-1]
        return found

    def take_series(self) -> dict[str, Series]:
        """Return the records of a match since the last call."""
        return self._recorder.take_series() if self._recorder is not None else {}

    def final_metrics(self) -> dict[str, float]:
        """Return metrics of the whole record of a match, for the last report."""
        found = self._recorder.summary() if self._recorder is not None else {}
        return {name: value for name, value in found.items() if math.isfinite(value)}

    def provenance(self) -> dict[str, Any]:
        """Return what the probe found."""
        probed = self._recorder.probed if self._recorder is not None else {}
        return {"probe": probed} if probed else {}

    def save(self, folder: Path) -> None:
        """Write what a run that goes on needs."""
        state = {
            "step": self._step,
            "effective": self._effective.state_dict(),
            "recorder": self._recorder.state() if self._recorder is not None else None,
        }
        torch.save(state, folder / FILE)

    def _load(self, state: dict[str, Any]) -> None:
        self._step = state["step"]
        self._effective.load_state_dict(state["effective"])
        if self._recorder is not None:
            self._recorder.load(state["recorder"])

    def detach(self) -> None:
        """Measure no more."""
        self._hooks.remove()
        self._effective.detach()
        if self._recorder is not None:
            self._recorder.detach()
