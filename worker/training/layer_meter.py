"""Measures how far each layer moves in the last step before a report.

Letters: V weight vectors of D elements each.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ndadam import weight_vectors
from worker.config.train_config import TrainConfig

#: Quantities that ``layer_quantities`` returns, in this order.
QUANTITIES = ("effective_lr", "angular_update", "weight_norm")
#: Part of weight decay's momentum that may be missing when its record starts late. Its replacement
#: is off by a few percent itself, so the ratio is off by about 1e-3 of its value at most.
_FORGOTTEN = 1e-2


class LayerMeter:
    """Measures one step per report: two copies of the weights, a few norms, no host sync."""

    def __init__(self, config: TrainConfig, model: nn.Module, optimizer: Optimizer) -> None:
        self._layers = weight_vectors(model)
        self._parameters = [layer.parameter for layer in self._layers]
        counts = [layer.count for layer in self._layers]
        # A network of a package may have no weight vectors.
        device = next((p.device for p in self._parameters), torch.device("cpu"))
        self._counts = VectorCounts(counts, device)
        self._decay = DecayMomentum(config, self._parameters, optimizer)
        self._before: list[Tensor] | None = None
        self._measured: Tensor | None = None  # (quantities, layers)
        self._metrics: dict[str, float] = {}

    @torch.no_grad()
    def before_step(self, step: int, report_step: int) -> None:
        """Call before every step, with the number of steps at the next report."""
        if report_step - step <= self._decay.window:
            self._decay.update(step)
        if report_step == step + 1 and self._parameters:
            self._before = [p.clone() for p in self._parameters]

    @torch.no_grad()
    def after_step(self) -> None:
        """Call after every step; acts only after the last one before a report."""
        if self._before is None:
            return
        products, ratios = [], []
        for i, (before, layer) in enumerate(zip(self._before, self._layers, strict=True)):
            w0 = _rows(before, layer.vector_dim)
            step = _rows(layer.parameter, layer.vector_dim) - w0
            products.append(row_products(w0, step))
            if self._decay.window:
                ratios.append(self._decay.ratio(i, w0, step, layer.vector_dim))
        self._measured = layer_quantities(torch.cat(products, 1), self._counts)
        if ratios:
            self._measured = torch.cat([self._measured, torch.stack(ratios)[None]])
        self._before = None

    def metrics(self) -> dict[str, float]:
        """Return the newest measurement, by metric name."""
        if self._measured is not None:
            names = (*QUANTITIES, "projection_ratio")
            self._metrics = {
                f"{quantity}/{layer.layer}": value
                for quantity, row in zip(names, self._measured.tolist(), strict=False)
                for layer, value in zip(self._layers, row, strict=True)
            }
            self._measured = None
        return self._metrics

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"metrics": self.metrics(), "decay": self._decay.state()}

    def load(self, state: dict[str, Any]) -> None:
        """Restore ``state``."""
        self._metrics = state["metrics"]
        self._decay.load(state["decay"])


class VectorCounts:
    """Number of weight vectors in each layer, copied to the device once.

    A copy from ordinary memory would make the host wait until the card has done all queued work.
    """

    def __init__(self, counts: list[int], device: torch.device) -> None:
        self.sizes = counts
        self.on_device = torch.tensor(counts, dtype=torch.float64, device=device)  # (L,)


def row_products(
    w0: Tensor,  # (V, D) float64: weights before a step
    step: Tensor,  # (V, D) float64: what it added to them
) -> Tensor:  # (3, V)
    """Return ||w0||, ||step|| and <w0, step> of each vector."""
    norms = [torch.linalg.vector_norm(x, dim=1) for x in (w0, step)]
    return torch.stack([*norms, (w0 * step).sum(1)])


def layer_quantities(
    products: Tensor,  # (3, V) as ``row_products``, vectors of all L layers
    counts: VectorCounts,  # of each layer
) -> Tensor:  # (3, L) as QUANTITIES
    """Return each layer's effective learning rate, angle in radians and norm (RMS over vectors).

    The effective learning rate of a vector is ||w_t - w_(t-1)|| / ||w_(t-1)||, its norm that of
    w_(t-1). Vectors of norm 0 are left out of the first two.
    """
    norm0, moved, along = products
    growth = 2 * along + moved.square()  # ||w_t||^2 - ||w_(t-1)||^2
    norm1 = (norm0.square() + growth).clamp(min=0).sqrt()
    moves = (norm0 > 0) & (norm1 > 0)
    # Half the chord between the two directions is the sine of half the angle; an arc cosine would
    # lose every digit at angles this small, and so would the difference of two large norms.
    stretch = growth / (norm0 + norm1)
    chord = ((moved.square() - stretch.square()) / (norm0 * norm1)).clamp(min=0).sqrt()
    angle = 2 * torch.asin((chord / 2).clamp(max=1))
    squares = torch.stack([moved / norm0, angle]).square()
    rows = torch.stack([*torch.where(moves, squares, 0), norm0.square(), moves.double()])
    sums = torch.stack([part.sum(1) for part in torch.split(rows, counts.sizes, 1)], 1)  # (4, L)
    number = torch.stack([sums[3], sums[3], counts.on_device])
    return (sums[:3] / number).sqrt()


def _rows(weights: Tensor, vector_dim: int) -> Tensor:  # (V, D) float64
    return weights.movedim(vector_dim, 0).flatten(1).double()


class DecayMomentum:
    """Weight decay's share of SGD's momentum, for ``projection_ratio``.

    Delta w = Delta w^l + Delta w^p with Delta w^p = -lr * buf^p and
    buf^p <- mu * buf^p + lambda * w (arXiv:1709.04546, Sec. 5.1 and Fig. 1(a)). The class keeps
    (1 - mu) / lambda * buf^p, an average of the past weights, and only for the last ``window``
    steps before a report: it starts from w itself, the average of a constant vector, and forgets
    this start within the window.
    """

    def __init__(
        self, config: TrainConfig, parameters: list[nn.Parameter], optimizer: Optimizer
    ) -> None:
        self._parameters = parameters
        self._optimizer = optimizer
        self._momentum = config.momentum or 0.0
        self._nesterov = bool(config.nesterov)
        self._lambda = config.weight_decay or 0.0
        decays = (
            bool(parameters)
            and config.optimizer == "sgd"
            and config.decay_on != "scalars"
            and self._lambda > 0
        )
        #: Steps before a report in which ``update`` must be called.
        self.window = 0
        if decays:
            forget = math.log(_FORGOTTEN) / math.log(self._momentum) if self._momentum else 1
            self.window = math.ceil(forget)
        self._averages: list[Tensor] = []
        self._next_step = -1

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the weights before one step."""
        weights = [p.detach() for p in self._parameters]
        if step != self._next_step:
            start = torch.zeros_like if step == 0 else torch.clone
            self._averages = [start(w) for w in weights]
        torch._foreach_lerp_(self._averages, weights, 1 - self._momentum)
        self._next_step = step + 1

    @torch.no_grad()
    def ratio(
        self,
        layer: int,
        w0: Tensor,  # (V, D) float64: weights before the step
        step: Tensor,  # (V, D) float64: what it added to them
        vector_dim: int,
    ) -> Tensor:  # ()
        """Return the projection of Delta w^l on Delta w^p over ||Delta w^p||, mean over vectors.

        Its plateau for independent gradients is -2 mu / (1 + mu)^2.
        """
        decay = _rows(self._averages[layer], vector_dim) * (self._lambda / (1 - self._momentum))
        if self._nesterov:
            decay = self._momentum * decay + self._lambda * w0
        # The value is not read here: on a card, reading it would wait for the device.
        lr = self._optimizer.param_groups[0]["lr"]
        ratios: Tensor = (step * decay).sum(1) / (-lr * decay.square().sum(1)) - 1
        return ratios.mean()

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"averages": self._averages, "next_step": self._next_step}

    def load(self, state: dict[str, Any]) -> None:
        """Restore ``state``."""
        self._next_step = state["next_step"]
        self._averages = [
            torch.empty_like(p).copy_(average)
            for p, average in zip(self._parameters, state["averages"], strict=False)
        ]
