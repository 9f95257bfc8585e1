"""One line about a run whose parts keep its steps from being recorded, and what that costs."""

import torch
from torch import nn

from worker.config.part_declarations import METRIC_FIELDS, has_own_loop, takes_images
from worker.config.train_config import TrainConfig

#: Measured on an H200: docs/benchmarks/train.md.
COST = "2.5 times as slow for a WRN-22-7.5 on an H200"
COST_OF_OPTIMIZER = "1 % slower for a WRN-22-7.5 on an H200"


def plain_loop(config: TrainConfig, model: nn.Module, device: torch.device) -> str | None:
    """Say why a run with registered parts takes a plain loop; None where parts change nothing."""
    parts = config.parts()
    reasons = []
    if "network" in parts:
        reasons.append(f"network {config.network!r} is none whose steps are recorded")
    if has_own_loop(config):
        if not takes_images(config):
            reasons.append(f"data set {config.dataset!r} does not consist of uint8 images")
        reasons += [p.title for p in parts.values() if p.field in METRIC_FIELDS[1:]]
    if not reasons and "optimizer" not in parts:
        return None
    if device.type != "cuda":
        what = ", ".join(reasons) or f"optimizer {config.optimizer!r}"
        return f"plain loop, which costs nothing on a CPU: {what}"
    if not reasons:
        return (
            f"optimizer {config.optimizer!r} is called by the host after each recorded step, "
            f"{COST_OF_OPTIMIZER}"
        )
    return f"plain loop instead of recorded steps, {COST}: {', '.join(reasons)}"
