"""The balance of growth and decay in SGD with momentum and L2, checked on a running model.

With c_t = <w_{t-1}, buf_t>, Q_t = ||w_t - w_{t-1}||^2 and R_t = ||w_t||^2, SGD's update alone says

    2 lr_t c_t = Q_t - (R_t - R_{t-1})
    c_t = mu (c_{t-1} - Q_{t-1} / lr_{t-1}) + lambda R_{t-1} + <g_t, w_{t-1}>

so growth by updates, decay and radial gradients balance exactly, stationary or not. An update is
split into the part of the loss and the part of weight decay. Shapes: N weight vectors.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ndadam.dynamics.flat_buffer import FlatBuffer
from ndadam.dynamics.group_rates import GroupSettings


class BalanceSums:
    """Sums the balance of every vector over consecutive steps."""

    def __init__(self, rows: FlatBuffer) -> None:
        # Left side, right side, <g, w>, lambda ||w||^2: (4, N).
        self.sums = rows.per_vector(4)
        # Q / lr and (R_t - R_{t-1}) / lr of the step before, NaN where there is none: (2, N).
        self._previous = rows.per_vector(2).fill_(torch.nan)
        self._has_previous = False
        self.steps = 0

    def update(
        self,
        qq: Tensor,  # (N,) ||dw||^2
        growth: Tensor,  # (N,) ||w_t||^2 - ||w_{t-1}||^2
        ww: Tensor,  # (N,) ||w_{t-1}||^2
        gw: Tensor,  # (N,)
        *,
        lr: Tensor,  # (N,)
        momentum: Tensor,  # (N,)
        decay: Tensor,  # (N,)
    ) -> None:
        """Take in one step. The first after a gap only starts the recursion.

        A step with learning rate 0 says nothing of its c_t, so it is left out with the next one.
        Work on the device alone: ``count`` says that it was done.
        """
        current = torch.where(lr > 0, torch.stack([qq, growth]) / lr, torch.nan)
        carried = momentum * self._previous
        pull = decay * ww
        left = current[0] + carried[0]
        right = 2 * (pull + gw) + current[1] - carried[1]
        is_known = (lr > 0) & ~self._previous[0].isnan()
        self.sums += torch.stack([left, right, gw, pull]).where(is_known, 0)
        self._previous.copy_(current)

    def interrupt(self) -> None:
        """Say, on the device, that the next step does not follow the last one."""
        self._previous.fill_(torch.nan)

    def count(self, *, follows: bool) -> None:
        """Count a step that ``update`` took in, or one that ``interrupt`` told of."""
        self.steps += follows and self._has_previous
        self._has_previous = follows

    def tensors(self) -> list[Tensor]:
        """All that ``update`` changes."""
        return [self.sums, self._previous]

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on, as copies."""
        return {
            "sums": self.sums.clone(),
            "previous": self._previous.clone(),
            "has_previous": self._has_previous,
            "steps": self.steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state_dict()``."""
        self.sums.copy_(state["sums"])
        self._has_previous = state["has_previous"]
        self._previous.copy_(state["previous"])
        if not self._has_previous:  # older states have zeros there
            self._previous.fill_(torch.nan)
        self.steps = state["steps"]


class DecaySplit:
    """The share of SGD's momentum that comes from weight decay.

    dw = dw^l + dw^p with dw^p = -lr buf^p and buf^p <- mu buf^p + lambda w
    (arXiv:1709.04546, Sec. 5.1). N vectors hold P elements.
    """

    def __init__(self, rows: FlatBuffer, settings: GroupSettings) -> None:
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

    @staticmethod
    def ratios(
        dots: Sequence[Tensor],  # three of (..., N), of ``pairs``
        dw_w: Tensor,  # (..., N) <dw, w>
        lr: Tensor,  # (..., N)
    ) -> list[Tensor]:
        """Projection ratio per vector on dw^p (the paper's Fig. 1(a)) and on -w: (..., N) each."""
        dw_p, p_p, w_p = dots
        # <dw^l, dw^p> / ||dw^p||^2 = <dw, dw^p> / ||dw^p||^2 - 1, and the same along w.
        return [-dw_p / (lr * p_p) - 1, -dw_w / (lr * w_p) - 1]

    def tensors(self) -> list[Tensor]:
        """All that ``update`` changes."""
        return [self.buffer]

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on, as copies."""
        return {"buffer": self.buffer.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state_dict()``."""
        self.buffer.copy_(state["buffer"])
