"""Measure how fast any optimizer turns the weight vectors of a model.

The effective learning rate of a vector is ||w_t - w_{t-1}|| / ||w_{t-1}|| (arXiv:1709.04546,
Sec. 2.2). N vectors of L layers hold P elements.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.optim import Optimizer

from ndadam.checks import refuse_unless_whole
from ndadam.cuda import is_capturing
from ndadam.dynamics.average_over_units import AverageOverUnits
from ndadam.dynamics.balance import BalanceSums, DecaySplit
from ndadam.dynamics.flat_buffer import FlatBuffer
from ndadam.dynamics.group_rates import GroupSettings
from ndadam.dynamics.records import Balance, DynamicsRecord, Gain, LayerDynamics
from ndadam.dynamics.shadow_moments import ShadowMoments
from ndadam.dynamics.step_hooks import StepHooks, refuse_no_optimizer
from ndadam.invariance.probe import ProbeResult
from ndadam.optimizer.loss_scale import held_where, skips_step, unscale_
from ndadam.vectors.weight_vectors import refuse_without_vectors, weight_vectors


class Phase(Enum):
    """What is done around one optimizer step."""

    #: Nothing.
    PASSED = "passed"
    #: Running averages take the step in.
    CARRIED = "carried"
    #: And it is recorded.
    RECORDED = "recorded"


class EffectiveLR:
    """Record the dynamics of every weight vector at each step of ``optimizer``.

    Attach it to any loop and read it when you like::

        dynamics = EffectiveLR(model, optimizer)
        ...                                # the loop, unchanged
        record = dynamics.drain()          # record.effective_lr, record.layers["conv1"]

    It hooks into ``optimizer.step``; records stay on the device until ``drain``, so no step waits
    for the host. Weights and gradients are only read. A step that torch's ``GradScaler`` skips is
    none, unless the optimizer skips it by itself, on the device: then its record has no movement
    and no gradient, and no average takes it in.

    A step captured in a CUDA graph takes what is measured around it into the graph, as ``phase``
    is at the capture: a step of another phase needs a graph of its own. Call ``replayed`` after
    every replay.

    Args:
        model: Its weight vectors are measured, if ``optimizer`` has them. Those of groups that are
            added to it later are not, and the next step warns once: attach a new one then.
        optimizer: Any torch optimizer whose step writes the parameters.
        every: Optimizer steps between two records.
        shadow_betas: Feed the gradients to ND-Adam's moments with these betas, for ``gain()``.
        residual_groups: Residual streams as ``WideResNet.residual_groups`` lists them: vectors that
            write to one channel enter the average together. With a ``probe`` those that it found.
        probe: Result of ``ndadam.probe``: only vectors that it found invariant, alone or jointly,
            enter the average. Without it all do.
        first_step: Number of the next optimizer step, for a run that goes on; below 0 for steps
            before the run.
        rules: Rules of your own, as in ``param_groups``.

    Attributes:
        recording: Set to False to pause, as outside a window.
        step: Number of the next optimizer step.

    Raises:
        ValueError: ``every`` < 1 or not whole, betas outside [0, 1), no weight vectors in
            ``optimizer``, or a ``probe`` of another model.
        TypeError: What is no model, no optimizer or no result of a probe.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        every: int = 1,
        shadow_betas: tuple[float, float] | None = None,
        residual_groups: Sequence[Sequence[tuple[Tensor, int]]] | None = None,
        *,
        probe: ProbeResult | None = None,
        first_step: int = 0,
        rules: Mapping[Any, int | None] | None = None,
    ) -> None:
        _refuse_every(every)
        refuse_unless_whole("first_step", first_step)
        found = weight_vectors(model, rules)
        refuse_no_optimizer(optimizer)
        held = {p for group in optimizer.param_groups for p in group["params"]}
        measured = [v for v in found if v.parameter in held]
        if not measured:
            refuse_without_vectors(model, found)
            raise ValueError(
                "optimizer must train weight vectors of model, and trains none of the "
                f"{len(found)} parameters that have any: was it made of another model, or before "
                "the parameters were replaced?"
            )
        self.rows = FlatBuffer(measured)
        self.every = every
        self.recording = True
        self.step = first_step
        self._settings = GroupSettings(optimizer, self.rows)
        self._average = AverageOverUnits(self.rows, residual_groups, probe)
        self._shadow = ShadowMoments(self.rows, shadow_betas) if shadow_betas else None
        sgd = self._settings.is_plain_sgd
        self._split = DecaySplit(self.rows, self._settings) if sgd else None
        # The balance links each step to the one before.
        self._balance = BalanceSums(self.rows) if sgd and every == 1 else None
        self._allocate()
        self._records: list[Tensor] = []
        self._steps: list[int] = []
        self._skipped: Tensor | None = None  # whether the step under way is, where it may be
        self._hooks = StepHooks(optimizer, self._before_step, self._after_step)

    def _allocate(self) -> None:
        self._w, self._dw, self._grad = (self.rows.elements() for _ in range(3))
        self._make_views()
        counts = torch.tensor(self.rows.counts, device="cpu")
        index = torch.repeat_interleave(counts)
        self._layer_index = index.to(self.rows.device)
        self._layer_counts = counts.to(self.rows.device, self.rows.dtype)
        numbers = len(_quantities(self._split is not None)) * len(counts)
        #: The newest record, where a graph writes it: shares of all vectors, then of each layer.
        self._latest = self.rows.numbers(numbers + (1 if self._shadow is None else 2))

    def _make_views(self) -> None:
        self._w_views = self.rows.views(self._w)
        self._dw_views = self.rows.views(self._dw)
        self._grad_views = self.rows.views(self._grad)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_views()  # pickle keeps no two tensors in one memory

    @property
    def phase(self) -> Phase:
        """What is done around the next optimizer step."""
        if not self.recording:
            return Phase.PASSED
        if self.step % self.every == 0:
            return Phase.RECORDED
        carries = self._shadow is not None or self._split is not None
        return Phase.CARRIED if carries else Phase.PASSED

    def replayed(self) -> None:
        """Count a step that was taken by the replay of a CUDA graph. Waits for nothing."""
        phase, step = self.phase, self.step
        self.step = step + 1
        if self._balance is not None:
            self._balance.count(follows=phase is Phase.RECORDED)
        if phase is Phase.RECORDED:
            self._records.append(self._latest.clone())
            self._steps.append(step)

    def detach(self) -> None:
        """Stop measuring for good; what was recorded can still be read."""
        self._hooks.remove()

    def drain(self) -> DynamicsRecord:
        """Hand out what was recorded since the last call. Waits for the device once."""
        layers = [v.layer for v in self.rows.vectors]
        names = _quantities(self._split is not None)
        if not self._records:
            return DynamicsRecord([], [], {layer: LayerDynamics() for layer in layers})
        table = torch.stack(self._records).cpu()
        steps, self._steps, self._records = self._steps, [], []
        averages = table[:, 0].sqrt().tolist()
        shadow = table[:, 1].sqrt().tolist() if self._shadow is not None else []
        first = 1 if self._shadow is None else 2
        quantities = table[:, first:].reshape(-1, len(names), len(layers))
        for i, name in enumerate(names):
            if name in _MEAN_SQUARES:
                quantities[:, i].sqrt_()
        by_layer = {
            layer: LayerDynamics(
                **{name: quantities[:, i, j].tolist() for i, name in enumerate(names)}
            )
            for j, layer in enumerate(layers)
        }
        return DynamicsRecord(steps, averages, by_layer, shadow)

    def gain(self) -> Gain | None:
        """Gain A of the shadow moments, or None without ``shadow_betas`` or before their warm-up.

        The first 5 / (1 - beta1) steps warm the first moment up and are not averaged.
        """
        if self._shadow is None or self._shadow.steps == 0:
            return None
        gain, memory = self._shadow.gain()
        counted = self._average.counted
        layers = [part.nanmean() for part in torch.split(gain, self.rows.counts)]
        values = torch.stack([gain[counted].nanmean(), memory[counted].nanmean(), *layers])
        overall, remembered, *by_layer = values.tolist()
        names = [v.layer for v in self.rows.vectors]
        return Gain(
            overall, dict(zip(names, by_layer, strict=True)), remembered, self._shadow.steps
        )

    def balance(self) -> Balance | None:
        """Balance law on all recorded steps, or None unless SGD with L2 and ``every`` = 1.

        SGD here is ``torch.optim.SGD`` without Nesterov, dampening and maximize.
        """
        if self._balance is None or self._balance.steps == 0:
            return None
        sums = self._balance.sums
        total = sums[:, self._average.counted].sum(1)
        by_layer = torch.stack([part.sum(1) for part in torch.split(sums, self.rows.counts, 1)], 1)
        table = torch.cat([total[:, None], by_layer], 1).double()
        kappa = (table[2] / table[3]).tolist()
        names = [v.layer for v in self.rows.vectors]
        return Balance(
            kappa[0],
            (table[0, 0] / table[1, 0] - 1).item(),
            dict(zip(names, kappa[1:], strict=True)),
            self._balance.steps,
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on after a restart, records not yet drained included."""
        parts = self._stateful()
        return {
            "step": self.step,
            "steps": list(self._steps),
            "records": [record.clone() for record in self._records],
            **{name: part.state_dict() for name, part in parts.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state_dict()`` of an object built with the same arguments.

        Raises:
            ValueError: Those were others, or the optimizer was.
        """
        parts, saved = set(self._stateful()), set(state) - {"step", "steps", "records"}
        if parts != saved:
            raise ValueError(
                "state must be of an EffectiveLR with the same shadow_betas, every and kind of "
                f"optimizer: this one has {_listed(parts)}, the state has {_listed(saved)}"
            )
        self.step = state["step"]
        self._steps = list(state["steps"])
        self._records = [record.to(self.rows.device) for record in state["records"]]
        for name, part in self._stateful().items():
            part.load_state_dict(state[name])

    def _stateful(self) -> dict[str, ShadowMoments | DecaySplit | BalanceSums]:
        parts = {"shadow": self._shadow, "split": self._split, "balance": self._balance}
        return {name: part for name, part in parts.items() if part is not None}

    @_disable_dynamo  # the host's lists and counters would be compiled in, anew at each step
    @torch.no_grad()
    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._settings.warn_of_new_groups()
        if self.phase is not Phase.PASSED:
            torch._foreach_copy_(self._w_views, self._weights())
            self._copy_gradients()
            unscale_(self._grad, optimizer)
            self._skipped = skips_step(optimizer, self.rows.device)
            if self._skipped is not None:
                self._grad.masked_fill_(self._skipped, 0)

    @_disable_dynamo
    @torch.no_grad()
    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        phase = self.phase
        if phase is Phase.PASSED:
            if self._balance is not None:
                self._balance.interrupt()
        else:
            if _has_closure(args, kwargs):
                # The gradient that the step used was computed inside it.
                self._copy_gradients()
            moving = [t for part in self._stateful().values() for t in part.tensors()]
            with held_where(self._skipped, moving):
                self._take_in(phase)
        if not is_capturing(self.rows.device):
            self.replayed()

    def _take_in(self, phase: Phase) -> None:
        """Work on the device alone, which a graph can hold."""
        if self._split is not None:
            self._split.update(self._w)
        if phase is Phase.RECORDED:
            self._latest.copy_(self._measure())
        elif self._shadow is not None:
            gw, ww = self.rows.row_dots([(self._grad, self._w), (self._w, self._w)])
            self._shadow.update(self._w, self._grad, gw, ww)

    def _measure(self) -> Tensor:
        """What the step under way adds to the record."""
        torch._foreach_copy_(self._dw_views, self._weights())
        w, dw = self._w, self._dw.sub_(self._w)
        pairs = [(dw, dw), (w, w), (dw, w), (self._grad, w)]
        if self._split is not None:
            pairs += self._split.pairs(w, dw)
        dots = self.rows.row_dots(pairs)
        qq, ww, dw_w, gw = dots[:4]
        growth = 2 * dw_w + qq  # ||w_t||^2 - ||w_{t-1}||^2
        quantities = [_ratio(qq, ww), _squared_angle(qq, ww, growth), ww, _ratio(gw, ww)]
        if self._split is not None:
            quantities += self._split.ratios(dots[4:], dw_w, self._settings.per_vector("lr"))
        if self._balance is not None:
            lr, momentum, decay = map(self._settings.per_vector, ("lr", "momentum", "weight_decay"))
            self._balance.update(qq, growth, ww, gw, lr=lr, momentum=momentum, decay=decay)
        averages = [self._average.mean_square(qq, ww)]
        if self._shadow is not None:
            square = self._shadow.update(w, self._grad, gw, ww)
            if self._skipped is not None:
                square = square.masked_fill(self._skipped, 0)
            averages.append(self._average.mean_square(square, torch.ones_like(square)))
        return torch.cat([torch.stack(averages), self._layer_means(quantities)])

    def _layer_means(self, quantities: Sequence[Tensor]) -> Tensor:
        """Means over the vectors of each layer of (N,) quantities, flat (quantities x L,)."""
        values = torch.stack(list(quantities))
        sums = values.new_zeros(len(values), len(self._layer_counts))
        return (sums.index_add_(1, self._layer_index, values) / self._layer_counts).flatten()

    def _weights(self) -> list[Tensor]:
        return [_vectors_first(v.parameter, v.vector_dim) for v in self.rows.vectors]

    def _copy_gradients(self) -> None:
        views, gradients = [], []
        for view, v in zip(self._grad_views, self.rows.vectors, strict=True):
            grad = v.parameter.grad
            if grad is None:
                view.zero_()
            else:
                views.append(view)
                # A dense gradient is returned as it is.
                gradients.append(_vectors_first(grad.to_dense(), v.vector_dim))
        if views:
            torch._foreach_copy_(views, gradients)


_MEAN_SQUARES = ("effective_lr", "angular_update", "weight_norm")


def _quantities(with_split: bool) -> list[str]:
    """Recorded per layer, in order."""
    ratios = ["projection_ratio", "projection_ratio_on_w"] if with_split else []
    return [*_MEAN_SQUARES, "radial_gradient", *ratios]


def _refuse_every(every: Any) -> None:
    if not isinstance(every, Real) or not float(every) >= 1:
        raise ValueError(f"every must be >= 1, got {every!r}")
    if not float(every).is_integer():
        raise ValueError(f"every must be a whole number of steps, got {every}")


def _listed(parts: set[str]) -> str:
    return ", ".join(sorted(parts)) or "no averages"


def _vectors_first(tensor: Tensor, vector_dim: int) -> Tensor:
    return tensor if vector_dim == 0 else tensor.movedim(vector_dim, 0)


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(b > 0, a / b, 0.0)


def _squared_angle(qq: Tensor, ww: Tensor, growth: Tensor) -> Tensor:
    """Square of the angle between w_{t-1} and w_t, radians^2, (N,).

    From the chord between the unit vectors, because the cosine of a small angle has no digits left
    in float32.
    """
    before, after = ww.sqrt(), (ww + growth).clamp_min(0).sqrt()
    stretch = _ratio(growth, before + after)
    chord_sq = _ratio(qq - stretch.square(), before * after).clamp(0, 4)
    return (2 * torch.asin(chord_sq.sqrt() / 2)).square()


def _has_closure(args: Any, kwargs: Any) -> bool:
    # args[0] is the optimizer itself.
    return (len(args) > 1 and args[1] is not None) or kwargs.get("closure") is not None
