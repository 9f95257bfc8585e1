"""Weight dynamics of a training function's own model and optimizer, for ``Run.record``."""

import math
from pathlib import Path

import torch
from torch import nn
from torch.optim import Optimizer

from ndadam import EffectiveLR
from ndadam.invariance.probe import ProbeResult

#: What the built-in training reports of each layer too.
QUANTITIES = ("effective_lr", "angular_update", "weight_norm", "projection_ratio")
#: In the folder of a checkpoint, beside what the function wrote.
FILE = "ndsweep-record.pt"


class Recording:
    """Measures every ``every``-th step of an optimizer; a report takes the newest measurement."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        every: int,
        probe: ProbeResult | None,
        resumed: Path | None,
    ) -> None:
        """``resumed``: folder of the checkpoint that the run goes on from."""
        self._effective = EffectiveLR(model, optimizer, every=every, probe=probe)
        if resumed is not None and (resumed / FILE).is_file():
            state = torch.load(resumed / FILE, map_location="cpu", weights_only=True)
            self._effective.load_state_dict(state)

    def metrics(self) -> dict[str, float]:
        """Return the newest measurement of each layer, by metric name; {} without a new one."""
        found = {}
        for layer, records in self._effective.drain().layers.items():
            for quantity in QUANTITIES:
                values = getattr(records, quantity)
                if values and math.isfinite(values[-1]):
                    found[f"{quantity}/{layer}"] = values[-1]
        return found

    def save(self, folder: Path) -> None:
        """Write what a run that goes on needs."""
        torch.save(self._effective.state_dict(), folder / FILE)

    def detach(self) -> None:
        """Measure no more."""
        self._effective.detach()
