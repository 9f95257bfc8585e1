"""ND-Adam's moments of the gradients that another optimizer sees, without touching the weights."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ndadam.dynamics.flat_buffer import FlatBuffer


class ShadowMoments:
    """Feeds g_s = (g - <g, w> w / ||w||^2) ||w|| to ND-Adam's running averages.

    g_s is the gradient that ND-Adam would see on the unit sphere. A vector whose gradient is not
    finite sits the step out, as there. Averages begin after
    ``warmup`` = 5 / (1 - beta1) steps, when the first moment has forgotten its start.
    N vectors hold P elements.
    """

    def __init__(self, rows: FlatBuffer, betas: tuple[float, float]) -> None:
        if not isinstance(betas, Sequence) or len(betas) != 2:
            raise ValueError(f"shadow_betas must be two numbers in [0, 1), got {betas!r}")
        for i, beta in enumerate(betas):
            if not isinstance(beta, float | int) or not 0.0 <= beta < 1.0:
                raise ValueError(f"shadow_betas[{i}] must be in [0, 1), got {beta}")
        self.rows = rows
        self.betas = betas
        self.warmup = round(5 / (1 - betas[0]))
        # Steps taken in, where a CUDA graph can count them.
        self._step = rows.numbers(1)
        logs = [math.log(beta) if beta else -math.inf for beta in betas]
        self._log_betas = torch.tensor(logs, dtype=rows.dtype, device=rows.device)
        self.exp_avg = rows.elements()  # (P,)
        self.exp_avg_sq = rows.per_vector()  # (N,)
        # Sums over measured steps of ||m_hat||^2, ||g_s||^2 and v_hat.
        self.sums = rows.per_vector(3)  # (3, N)

    def update(
        self,
        w: Tensor,  # (P,)
        grad: Tensor,  # (P,)
        gw: Tensor,  # (N,) <g, w>
        ww: Tensor,  # (N,) ||w||^2
    ) -> Tensor:  # (N,)
        """Take in the gradients of one step, on the device alone.

        Returns ||m_hat||^2 / v_hat, the square of the step that ND-Adam would take at alpha^v = 1:
        0 for vectors that have had no gradient, or none that is finite now.
        """
        beta1, beta2 = self.betas
        self._step += 1
        # 1 - beta^t, with all digits also where that is small.
        correction1, correction2 = -torch.expm1(self._log_betas * self._step)
        radial = torch.where(ww > 0, gw / ww, 0.0)
        tangent = torch.addcmul(grad, w, self.rows.spread(radial), value=-1)
        tangent.mul_(self.rows.spread(ww.sqrt()))
        # <g, w> is not finite where an element of g is not.
        finite = gw.isfinite()
        torch.where(self.rows.spread(finite), tangent, self.exp_avg, out=tangent)
        self.exp_avg.lerp_(tangent, 1 - beta1)
        gg, mm = self.rows.row_dots([(tangent, tangent), (self.exp_avg, self.exp_avg)])
        self.exp_avg_sq.lerp_(torch.where(finite, gg, self.exp_avg_sq), 1 - beta2)
        m_hat_sq = mm / correction1.square()
        v_hat = self.exp_avg_sq / correction2
        counts = finite & (self._step > self.warmup)
        self.sums += torch.where(counts, torch.stack([m_hat_sq, gg, v_hat]), 0.0)
        return torch.where(finite & (v_hat > 0), m_hat_sq / v_hat, 0.0)

    @property
    def steps(self) -> int:
        """Steps that entered the averages. Waits for the device."""
        return max(int(self._step.item()) - self.warmup, 0)

    def gain(self) -> tuple[Tensor, Tensor]:
        """A and mean ||g||^2 / mean v_hat per vector, twice (N,); NaN where gradients have died.

        A running average is at most as long as what it averages, so A beyond
        (1 + beta1) / (1 - beta1) says that the average outlived its gradients.
        """
        most = (1 + self.betas[0]) / (1 - self.betas[0])
        mm, gg, vv = self.sums
        is_alive = (gg > 0) & (mm <= gg)
        return torch.where(is_alive, most * mm / gg, torch.nan), gg / vv

    def tensors(self) -> list[Tensor]:
        """All that ``update`` changes."""
        return [self._step, self.exp_avg, self.exp_avg_sq, self.sums]

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on, as copies."""
        return {
            "step": int(self._step.item()),
            "exp_avg": self.exp_avg.clone(),
            "exp_avg_sq": self.exp_avg_sq.clone(),
            "sums": self.sums.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state_dict()``."""
        self._step.fill_(state["step"])
        self.exp_avg.copy_(state["exp_avg"])
        self.exp_avg_sq.copy_(state["exp_avg_sq"])
        self.sums.copy_(state["sums"])
