"""Measure how fast any optimizer turns the weight vectors of a model.

The effective learning rate of a vector is ||w_t - w_{t-1}|| / ||w_{t-1}|| (arXiv:1709.04546,
Sec. 2.2). N vectors of L layers hold P elements.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.optim import Optimizer

from ndadam.checks import refuse_unless_whole
from ndadam.cuda import HAS_TRITON, is_capturing, runs_kernels
from ndadam.dynamics.average_over_units import AverageOverUnits
from ndadam.dynamics.balance import BalanceSums, DecaySplit
from ndadam.dynamics.flat_buffer import FlatBuffer
from ndadam.dynamics.group_rates import GroupSettings
from ndadam.dynamics.records import Balance, DynamicsRecord, Gain, LayerDynamics
from ndadam.dynamics.shadow_moments import ShadowMoments
from ndadam.dynamics.step_hooks import StepHooks, refuse_no_optimizer
from ndadam.dynamics.summary import MEAN_SQUARES, NUM_SUMS, Summary, quantities
from ndadam.invariance.probe import ProbeResult
from ndadam.optimizer.loss_scale import held_where, skips_step, unscale_
from ndadam.optimizer.ndadam import NDAdam
from ndadam.vectors.weight_vectors import refuse_without_vectors, weight_vectors

if TYPE_CHECKING:
    from ndadam.fused.row_sums import RowSums
    from ndadam.fused.step import SumsRequest


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
        self._summary = Summary(
            self.rows, self._average, with_split=sgd, with_shadow=self._shadow is not None
        )
        # The balance links each step to the one before.
        self._balance = BalanceSums(self.rows) if sgd and every == 1 else None
        self._allocate()
        self._records: list[Tensor] = []
        self._steps: list[int] = []
        self._skipped: Tensor | None = None  # whether the step under way is, where it may be
        self._hooks = StepHooks(optimizer, self._before_step, self._after_step)

    def _allocate(self) -> None:
        #: The newest record, where a graph writes it: shares of all vectors, then of each layer.
        self._latest = self.rows.numbers(self._summary.size)
        #: Sums of recorded steps that are not summed up yet, and how many these are; the last place
        #: is that of graphs, (K + 1, S, N).
        self._sums = self.rows.per_vector(self._summary.steps_at_once + 1, self._summary.num_sums)
        self._num_waiting = 0
        # Kernels read what is here read by calls, if nothing needs single elements.
        self._kernels: RowSums | None = None
        self._by_kernels = False  # of the step under way
        self._request: SumsRequest | None = None  # to the step under way
        self._buffers: tuple[Tensor, Tensor, Tensor] | None = None
        if self._shadow is None and self._split is None and has_kernels(self.rows):
            self._kernels = new_row_sums(self.rows)
        else:
            self._make_buffers()

    def _make_buffers(self) -> None:
        """Room for weights, steps and gradients, (P,) each."""
        self._buffers = self.rows.elements(), self.rows.elements(), self.rows.elements()
        self._make_views()

    def _make_views(self) -> None:
        if self._buffers is not None:
            self._w, self._dw, self._grad = self._buffers
            self._w_views, self._dw_views, self._grad_views = map(self.rows.views, self._buffers)

    def __getstate__(self) -> dict[str, Any]:
        self._sum_up()
        views = ("_w", "_dw", "_grad", "_w_views", "_dw_views", "_grad_views")
        return {key: value for key, value in self.__dict__.items() if key not in views} | {
            "_kernels": None,
            "_request": None,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_views()  # pickle keeps no two tensors in one memory
        if self._buffers is None:
            self._kernels = new_row_sums(self.rows)

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
        self._count(self.phase, recorded=self._keep_latest)

    def _count(self, phase: Phase, *, recorded: Callable[[], None]) -> None:
        self.step += 1
        if self._balance is not None:
            self._balance.count(follows=phase is Phase.RECORDED)
        if phase is Phase.RECORDED:
            self._steps.append(self.step - 1)
            recorded()

    def _keep_latest(self) -> None:
        """Keep the sums, or the record, that a graph has made."""
        if self._sums_wait:
            self._sums[self._num_waiting].copy_(self._sums[-1])
            self._keep()
            return
        self._sum_up()
        self._records.append(self._latest.clone())

    def _sum_up(self) -> None:
        """Make records of the sums that wait for it."""
        if self._num_waiting:
            waiting, self._num_waiting = self._sums[: self._num_waiting], 0
            self._records += self._summary.of(waiting).unbind()

    def detach(self) -> None:
        """Stop measuring for good; what was recorded can still be read."""
        self._hooks.remove()

    def drain(self) -> DynamicsRecord:
        """Hand out what was recorded since the last call. Waits for the device once."""
        layers = [v.layer for v in self.rows.vectors]
        names = quantities(self._split is not None)
        self._sum_up()
        if not self._records:
            return DynamicsRecord([], [], {layer: LayerDynamics() for layer in layers})
        table = torch.stack(self._records).cpu()
        steps, self._steps, self._records = self._steps, [], []
        averages = table[:, 0].sqrt().tolist()
        shadow = table[:, 1].sqrt().tolist() if self._shadow is not None else []
        first = 1 if self._shadow is None else 2
        values = table[:, first:].reshape(-1, len(names), len(layers))
        for i, name in enumerate(names):
            if name in MEAN_SQUARES:
                values[:, i].sqrt_()
        by_layer = {
            layer: LayerDynamics(**{name: values[:, i, j].tolist() for i, name in enumerate(names)})
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
        self._sum_up()
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
        self._num_waiting = 0
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
        if self.phase is Phase.PASSED:
            return
        self._skipped = skips_step(optimizer, self.rows.device)
        read = partial(self._read, optimizer, args, kwargs)
        self._request = None
        if (
            self._kernels is not None
            and self._skipped is None
            and type(optimizer) is NDAdam
            and not _has_closure(args, kwargs)
        ):
            # A fused step has most of what is summed at hand, and spares reading all of it twice.
            self._request = new_request(self._kernels, self._place_of_sums(), read)
            optimizer.request_sums(self._request)
        else:
            read()

    def _read(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Take in weights and gradients before a step that does not sum by itself."""
        self._by_kernels = (
            self._kernels is not None
            and not _has_closure(args, kwargs)  # gradients come in it
            and self._kernels.before(self._place_of_sums())
        )
        if self._by_kernels:
            gradient = self._place_of_sums()[_GW]
        else:
            if self._buffers is None:
                self._make_buffers()
            torch._foreach_copy_(self._w_views, self._weights())
            self._copy_gradients()
            gradient = self._grad
        unscale_(gradient, optimizer)
        if self._skipped is not None:
            gradient.masked_fill_(self._skipped, 0)

    @_disable_dynamo
    @torch.no_grad()
    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        phase = self.phase
        captures = is_capturing(self.rows.device)
        if phase is Phase.PASSED:
            if self._balance is not None:
                self._balance.interrupt()
        else:
            if self._request is not None and self._request.is_written:
                unscale_(self._place_of_sums()[_GW], optimizer)
            if _has_closure(args, kwargs):
                # The gradient that the step used was computed inside it.
                self._copy_gradients()
            moving = [t for part in self._stateful().values() for t in part.tensors()]
            with held_where(self._skipped, moving):
                self._take_in(phase)
            if phase is Phase.RECORDED and captures and not self._sums_wait:
                # A graph has one place for its record, which it makes itself.
                self._latest.copy_(self._summary.of(self._place_of_sums()))
        if not captures:
            self._count(phase, recorded=self._keep)

    def _take_in(self, phase: Phase) -> None:
        """Work on the device alone, which a graph can hold."""
        if self._split is not None:
            self._split.update(self._w)
        if phase is Phase.RECORDED:
            self._measure(self._place_of_sums())
        elif self._shadow is not None:
            gw, ww = self.rows.row_dots([(self._grad, self._w), (self._w, self._w)])
            self._shadow.update(self._w, self._grad, gw, ww)

    def _place_of_sums(self) -> Tensor:
        """Where the step under way puts its sums, (S, N): a graph always into the last place."""
        captures = is_capturing(self.rows.device)
        return self._sums[-1 if captures else self._num_waiting]

    def _measure(self, sums: Tensor) -> None:
        """Write the sums of the step under way, (S, N)."""
        if self._request is not None and self._request.is_written:
            return
        if self._by_kernels:
            assert self._kernels is not None
            self._kernels.after(sums)
            return
        torch._foreach_copy_(self._dw_views, self._weights())
        w, dw = self._w, self._dw.sub_(self._w)
        pairs = [(dw, dw), (w, w), (dw, w), (self._grad, w)]
        if self._split is not None:
            pairs += self._split.pairs(w, dw)
        dots = self.rows.row_dots(pairs)
        sums[: len(dots)] = dots
        qq, ww, dw_w, gw = dots[:NUM_SUMS]
        if self._split is not None:
            sums[len(dots)] = self._settings.per_vector("lr")
        if self._balance is not None:
            growth = 2 * dw_w + qq
            lr, momentum, decay = map(self._settings.per_vector, ("lr", "momentum", "weight_decay"))
            self._balance.update(qq, growth, ww, gw, lr=lr, momentum=momentum, decay=decay)
        if self._shadow is not None:
            square = self._shadow.update(w, self._grad, gw, ww)
            if self._skipped is not None:
                square = square.masked_fill(self._skipped, 0)
            sums[-1] = square

    @property
    def _sums_wait(self) -> bool:
        """Whether sums of several steps are summed up together."""
        return len(self._sums) > 2

    def _keep(self) -> None:
        """Keep the sums of a step that was called; sum up when as many wait as there is room."""
        self._num_waiting += 1
        if self._num_waiting == len(self._sums) - 1:
            self._sum_up()

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


_GW = NUM_SUMS - 1


def has_kernels(rows: FlatBuffer) -> bool:
    """Whether Triton's kernels can read all of the parameters, and sum in their type."""
    return HAS_TRITON and rows.dtype == torch.float32 and runs_kernels(rows.vectors[0].parameter)


def new_row_sums(rows: FlatBuffer) -> "RowSums | None":
    """The kernels for these parameters, None where they cannot read them."""
    from ndadam.fused.row_sums import RowSums

    params = [(v.parameter, v.vector_dim) for v in rows.vectors]
    return RowSums(params) if RowSums.takes(params) else None


def new_request(kernels: "RowSums", out: Tensor, read: Callable[[], None]) -> "SumsRequest":
    """A request for the sums of a step, (4, N), and what is called if it declines."""
    from ndadam.fused.step import SumsRequest

    return SumsRequest(kernels.params, out[:NUM_SUMS], read)


def _refuse_every(every: Any) -> None:
    if not isinstance(every, Real) or not float(every) >= 1:
        raise ValueError(f"every must be >= 1, got {every!r}")
    if not float(every).is_integer():
        raise ValueError(f"every must be a whole number of steps, got {every}")


def _listed(parts: set[str]) -> str:
    return ", ".join(sorted(parts)) or "no averages"


def _vectors_first(tensor: Tensor, vector_dim: int) -> Tensor:
    return tensor if vector_dim == 0 else tensor.movedim(vector_dim, 0)


def _has_closure(args: Any, kwargs: Any) -> bool:
    # args[0] is the optimizer itself.
    return (len(args) > 1 and args[1] is not None) or kwargs.get("closure") is not None
