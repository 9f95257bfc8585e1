"""How far each layer moves in the last step before a report.

Letters: V weight vectors of D elements each.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ndadam import weight_vectors
from worker.config import TrainConfig

#: What ``step_quantities`` measures, in this order.
QUANTITIES = ("effective_lr", "angular_update", "weight_norm")
#: Part of weight decay's momentum that may be missing when its record starts late.
_FORGOTTEN = 1e-4


class LayerMeter:
    """Measures one step per report: two copies of the weights and a few norms, no host sync."""

    def __init__(self, config: TrainConfig, model: nn.Module, optimizer: Optimizer) -> None:
        self._layers = weight_vectors(model)
        self._parameters = [layer.parameter for layer in self._layers]
        self._decay = DecayMomentum(config, self._parameters, optimizer)
        self._before: list[Tensor] | None = None
        self._measured: Tensor | None = None  # (layers, quantities)
        self._metrics: dict[str, float] = {}

    def before_step(self, step: int, report_step: int) -> None:
        """Call before every step, with the number of steps after which the next report comes."""
        if report_step - step <= self._decay.window:
            self._decay.update(step)
        if report_step == step + 1:
            self._before = [p.detach().clone() for p in self._parameters]

    def after_step(self) -> None:
        """Call after every step; does something only in the last one before a report."""
        if self._before is None:
            return
        rows = [
            torch.cat([step_quantities(before, after, dim), self._decay.ratio(i, before, after)])
            for i, (before, after, dim) in enumerate(self._steps())
        ]
        self._measured = torch.stack(rows)
        self._before = None

    def _steps(self) -> list[tuple[Tensor, Tensor, int]]:
        assert self._before is not None
        return [
            (before, layer.parameter.detach(), layer.vector_dim)
            for before, layer in zip(self._before, self._layers, strict=True)
        ]

    def metrics(self) -> dict[str, float]:
        """The newest measurement, by metric name."""
        if self._measured is not None:
            names = (*QUANTITIES, "projection_ratio")
            self._metrics = {
                f"{quantity}/{layer.layer}": value
                for layer, row in zip(self._layers, self._measured.tolist(), strict=True)
                for quantity, value in zip(names, row, strict=False)
            }
            self._measured = None
        return self._metrics

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"metrics": self.metrics(), "decay": self._decay.state()}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from ``state``."""
        self._metrics = state["metrics"]
        self._decay.load(state["decay"])


def step_quantities(
    before: Tensor,  # weights of one layer, V of them along ``vector_dim``
    after: Tensor,
    vector_dim: int,
) -> Tensor:  # (3,) as QUANTITIES
    """Effective learning rate, angle in radians and norm of a layer, root mean square over vectors.

    The effective learning rate of a vector is ||w_t - w_(t-1)|| / ||w_(t-1)||, its norm that of
    w_(t-1). Vectors of norm 0 are left out of the first two.
    """
    w0, w1 = _rows(before, vector_dim), _rows(after, vector_dim)
    norm0 = torch.linalg.vector_norm(w0, dim=1)
    norm1 = torch.linalg.vector_norm(w1, dim=1)
    moves = (norm0 > 0) & (norm1 > 0)
    relative = torch.linalg.vector_norm(w1 - w0, dim=1) / norm0
    # Half the chord between the two directions is the sine of half the angle; an arc cosine would
    # lose every digit at angles this small.
    chord = torch.linalg.vector_norm(w1 / norm1[:, None] - w0 / norm0[:, None], dim=1)
    angle = 2 * torch.asin((chord / 2).clamp(max=1))
    squares = torch.where(moves, torch.stack([relative, angle]).square(), 0).sum(1) / moves.sum()
    return torch.cat([squares, norm0.square().mean()[None]]).sqrt()


def _rows(weights: Tensor, vector_dim: int) -> Tensor:  # (V, D) float64
    return weights.movedim(vector_dim, 0).flatten(1).double()


class DecayMomentum:
    """The share of SGD's momentum that weight decay put there, for ``projection_ratio``.

    Delta w = Delta w^l + Delta w^p with Delta w^p = -lr * buf^p and
    buf^p <- mu * buf^p + lambda * w (arXiv:1709.04546, Sec. 5.1 and Fig. 1(a)). It is kept only for
    the last ``window`` steps before a report: a record that starts from the value of a vector that
    stood still, lambda * w / (1 - mu), has forgotten that by then.
    """

    def __init__(
        self, config: TrainConfig, parameters: list[nn.Parameter], optimizer: Optimizer
    ) -> None:
        self._parameters = parameters
        self._optimizer = optimizer
        self._momentum = config.momentum or 0.0
        self._nesterov = bool(config.nesterov)
        self._lambda = config.weight_decay or 0.0
        decays = config.optimizer == "sgd" and config.decay_on != "scalars" and self._lambda > 0
        #: Steps before a report in which ``update`` must be called.
        self.window = 0
        if decays:
            forget = math.log(_FORGOTTEN) / math.log(self._momentum) if self._momentum else 1
            self.window = math.ceil(forget)
        self._buffers: list[Tensor] = []
        self._next_step = -1

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights before one step."""
        weights = [p.detach() for p in self._parameters]
        if step != self._next_step:
            self._buffers = [torch.zeros_like(w) for w in weights]
            if step > 0:
                resting = self._lambda / (1 - self._momentum)
                torch._foreach_add_(self._buffers, weights, alpha=resting)
        torch._foreach_mul_(self._buffers, self._momentum)
        torch._foreach_add_(self._buffers, weights, alpha=self._lambda)
        self._next_step = step + 1

    def ratio(self, layer: int, before: Tensor, after: Tensor) -> Tensor:
        """Scalar projection of Delta w^l on Delta w^p over ||Delta w^p||, mean over vectors: (1,).

        Empty for optimizers without L2 on the weight vectors. Its plateau for independent gradients
        is -2 mu / (1 + mu)^2.
        """
        if not self.window:
            return before.new_zeros(0, dtype=torch.float64)
        w0, w1 = _rows(before, 0), _rows(after, 0)
        decay = _rows(self._buffers[layer], 0)
        if self._nesterov:
            decay = self._momentum * decay + self._lambda * w0
        part = -float(self._optimizer.param_groups[0]["lr"]) * decay
        ratio = ((w1 - w0 - part) * part).sum(1) / part.square().sum(1)
        return ratio.mean()[None]

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"buffers": self._buffers, "next_step": self._next_step}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from ``state``."""
        self._next_step = state["next_step"]
        self._buffers = [
            torch.empty_like(p).copy_(b)
            for p, b in zip(self._parameters, state["buffers"], strict=False)
        ]
