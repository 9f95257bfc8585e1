"""Split SGD's update into the part of the loss and the part of weight decay."""

from typing import Any

import torch
from torch import Tensor

from ndadam.dynamics.flat_buffer import RowBuffer
from ndadam.dynamics.group_rates import GroupSettings


class DecaySplit:
    """The share of SGD's momentum that comes from weight decay.

    dw = dw^l + dw^p with dw^p = -lr buf^p and buf^p <- mu buf^p + lambda w
    (arXiv:1709.04546, Sec. 5.1). N vectors hold P elements.
    """

    def __init__(self, rows: RowBuffer, settings: GroupSettings) -> None:
        self.settings = settings
        self.buffer = rows.elements()  # (P,) buf^p

    def update(self, w: Tensor) -> None:
        """Take in the weights (P,) before one step."""
        for group, elements, _ in self.settings.spans:
            options = self.settings.optimizer.param_groups[group]
            part = self.buffer[elements]
            part.mul_(options["momentum"]).add_(w[elements], alpha=options["weight_decay"])

    def pairs(self, w: Tensor, dw: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Which inner products ``ratios`` takes, as pairs of (P,)."""
        return [(dw, self.buffer), (self.buffer, self.buffer), (w, self.buffer)]

    def ratios(
        self,
        dots: Tensor,  # (3, N) of ``pairs``
        dw_w: Tensor,  # (N,) <dw, w>
        lr: Tensor,  # (N,)
    ) -> Tensor:
        """Projection ratio per vector on dw^p (the paper's Fig. 1(a)) and on -w: (2, N)."""
        dw_p, p_p, w_p = dots
        # <dw^l, dw^p> / ||dw^p||^2 = <dw, dw^p> / ||dw^p||^2 - 1, and the same along w.
        return torch.stack([-dw_p / (lr * p_p) - 1, -dw_w / (lr * w_p) - 1])

    def tensors(self) -> list[Tensor]:
        """All that ``update`` changes."""
        return [self.buffer]

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on, as copies."""
        return {"buffer": self.buffer.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state_dict()``."""
        self.buffer.copy_(state["buffer"])
