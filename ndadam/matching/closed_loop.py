"""Closed loop: nudges ND-Adam's learning rate so that weights move as fast as a curve says.

The law of ND-Adam gives the learning rate for a wanted effective learning rate up to a factor that
a run changes slowly: how strongly gradients agree, and what the second moment remembers. That
factor is measured after every few steps, and the rate of the next ones divided by its moving
average, so a curve is followed without knowing either beforehand.
"""

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.optim import Optimizer

from ndadam.checks import refuse_unless_whole
from ndadam.dynamics.average_over_units import AverageOverUnits
from ndadam.dynamics.flat_buffer import FlatBuffer
from ndadam.dynamics.step_hooks import StepHooks, refuse_no_optimizer
from ndadam.invariance.probe import ProbeResult
from ndadam.optimizer.loss_scale import skips_step
from ndadam.theory.along_schedule import Factor
from ndadam.theory.laws import OptimizerSetting, step_ratio, tangential_factor
from ndadam.theory.settling import start_up
from ndadam.vectors.weight_vectors import refuse_without_vectors, weight_vectors

#: Steps between two corrections, in lengths 1 / (1 - beta1) of the first moment. A step's length is
#: its rate times that of the first moment, which the next steps mostly share: within half a length
#: what was measured still holds. A host that looks more often waits for the device more often.
_LENGTHS = 0.5
#: Share of a measured gap that a correction closes: of the n-th one 1 / (n + 2), then this. The
#: rate is then what a moving average of the measured factor over 17 steps of the usual beta1 asks
#: for. The step answers to its rate at once, so any share below 2 is stable; a smaller one lags
#: while the second moment forgets the first gradients, a larger one passes on more noise.
_LEAST_SHARE = 0.3
#: A single correction asks for a factor in this range, whatever was measured.
_LARGEST = 1.5
#: Weights that move at less than a quarter of the wanted rate have all but lost their gradients,
#: which may come back: a tenth of the share keeps the rate from running away meanwhile.
_STALLED, _STALLED_SHARE = 1 / 16, 0.1


class FollowCurve:
    """Sets the rate of ND-Adam's weight vectors so that their effective lr follows a curve.

    ::

        follow = FollowCurve(model, optimizer, lambda step: 0.01)
        for step, batch in enumerate(batches):
            follow.set_rate()
            ...                                 # zero_grad, loss, backward, optimizer.step()

    It hooks into ``optimizer.step`` to measure. Deterministic: the rate follows from the steps
    taken alone; ``state_dict`` goes into a checkpoint. A step that torch's ``GradScaler`` skips is
    none: the curve waits where it is. Where the optimizer skips it by itself, on the device, as a
    fused one does, each step under a scaler waits for the device to know that.

    Args:
        model: Its weight vectors that ``optimizer`` holds are measured.
        optimizer: NDAdam, with vectors in groups that have ``vector_dim``.
        curve: Step (from 0) -> wanted effective learning rate, >= 0.
        probe: Only vectors that it found invariant, alone or jointly, are measured.
        first_step: Number of the next step, for a run that goes on.

    Raises:
        ValueError: ``optimizer`` holds no weight vectors in groups with ``vector_dim``.
        TypeError: What is no model, no optimizer or no result of a probe.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        curve: Factor,
        *,
        probe: ProbeResult | None = None,
        first_step: int = 0,
    ) -> None:
        if not callable(curve):
            raise ValueError(
                "curve must be a function of the step that returns an effective learning rate, got "
                f"{curve!r}"
            )
        refuse_unless_whole("first_step", first_step)
        found = weight_vectors(model)
        refuse_no_optimizer(optimizer)
        self._optimizer = optimizer
        groups = self._groups()
        held = {p for group in groups for p in group["params"]}
        vectors = [v for v in found if v.parameter in held]
        if not vectors:
            refuse_without_vectors(model, found)
            raise ValueError(
                "optimizer must be NDAdam with weight vectors of model in a group with vector_dim"
            )
        self._rows = FlatBuffer(vectors)
        self._average = AverageOverUnits(self._rows, None, probe)
        self._setting = OptimizerSetting("ndadam", betas=tuple(groups[0]["betas"]))
        self._every = max(2, round(_LENGTHS / (1 - self._setting.betas[0])))
        self._curve = curve
        self.step = first_step
        #: Log of the factor on the law's rate that measurement has asked for so far.
        self.correction = 0.0
        #: alpha^v that was last set.
        self.last_rate = 0.0
        self._corrections = 0
        self._wanted = 0.0  # sums over the steps since the last correction
        self._moved: Tensor | None = None
        self._count = 0
        self._before = self._rows.elements()
        self._after = self._rows.elements()
        self._hooks = StepHooks(optimizer, self._before_step, self._after_step)

    def rate(self) -> float:
        """alpha^v of the next step: 0 where the curve is 0.

        Raises ValueError where the curve gives no finite number of at least 0.
        """
        e = self._curve(self.step)
        if not (isinstance(e, Real) and math.isfinite(e) and e >= 0):
            raise ValueError(f"curve must be finite and >= 0, got {e!r} at step {self.step}")
        e = float(e)
        if e == 0:
            return 0.0
        beta1 = self._setting.betas[0]
        law = e / step_ratio(beta1) * tangential_factor(e, beta1)
        return law / start_up(self._setting, self.step) * math.exp(self.correction)

    def set_rate(self) -> None:
        """Give the optimizer the rate of the next step."""
        self.last_rate = self.rate()
        for group in self._groups():
            group["lr"] = self.last_rate

    def detach(self) -> None:
        """Stop measuring; the rate stays where it is."""
        self._hooks.remove()

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on after a restart, bit for bit."""
        return {
            "step": self.step,
            "correction": self.correction,
            "corrections": self._corrections,
            "last_rate": self.last_rate,
            "wanted": self._wanted,
            "moved": None if self._moved is None else self._moved.clone(),
            "count": self._count,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state_dict()``."""
        self.step, self.correction = state["step"], state["correction"]
        self._corrections, self.last_rate = state["corrections"], state["last_rate"]
        self._wanted, self._count = state["wanted"], state["count"]
        moved = state["moved"]
        self._moved = None if moved is None else moved.to(self._rows.device)

    def _groups(self) -> list[dict[str, Any]]:
        # Loading a state gives the optimizer new group dicts, so none is kept.
        groups = self._optimizer.param_groups
        return [group for group in groups if group.get("vector_dim") is not None]

    @_disable_dynamo  # what the host counts would be compiled in, anew at each step
    @torch.no_grad()
    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        torch._foreach_copy_(self._rows.views(self._before), self._weights())

    @_disable_dynamo
    @torch.no_grad()
    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        skipped = skips_step(optimizer, self._rows.device)
        if skipped is not None and bool(skipped):
            return
        step, self.step = self.step, self.step + 1
        torch._foreach_copy_(self._rows.views(self._after), self._weights())
        moved = self._after.sub_(self._before)
        qq, ww = self._rows.row_dots([(moved, moved), (self._before, self._before)])
        square = self._average.mean_square(qq, ww)
        self._moved = square if self._moved is None else self._moved + square
        self._wanted += self._curve(step) ** 2
        self._count += 1
        if self._count >= self._every:
            self._correct()

    def _correct(self) -> None:
        assert self._moved is not None
        moved = float(self._moved)  # waits for the device
        # Where nothing moved at all, gradients were 0, which says nothing about the rate.
        if self._wanted > 0 and moved > 0 and math.isfinite(moved):
            # Not the log of the ratio: its mean is below the log of the mean, so noise alone would
            # push the rate up.
            gap = (1 - moved / self._wanted) / 2
            gap = min(math.log(_LARGEST), max(-math.log(_LARGEST), gap))
            share = max(_LEAST_SHARE, 1 / (self._corrections + 2))
            if moved < _STALLED * self._wanted:
                share *= _STALLED_SHARE
            self.correction += share * gap
            self._corrections += 1
        self._wanted, self._moved, self._count = 0.0, None, 0

    def _weights(self) -> list[Tensor]:
        return [
            v.parameter if v.vector_dim == 0 else v.parameter.movedim(v.vector_dim, 0)
            for v in self._rows.vectors
        ]
