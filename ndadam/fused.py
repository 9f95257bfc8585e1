"""The fused step: every parameter of every group in one launch, on CUDA.

``FusedStep`` keeps the device tables between steps. A step compares addresses, refreshes what has
moved, and launches: one small kernel per group (step count, bias corrections) and one kernel that
reads each weight, gradient and moment once and writes weight and moment once. Nothing is read back,
so a step can be captured in a CUDA graph: every number that changes from step to step (the count,
a learning rate given as a tensor, the loss scale) is read on the device.

What it does at the edges: a row whose new norm is 0, or whose gradient or new norm is not finite,
is left as it was with its moments; a row that has seen no tangential gradient keeps its bits, also
with eps = 0; no row touches another; gradients are never written.
"""

import math
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from ndadam import fused_kernels as kernels
from ndadam.fused_choice import runs_kernels
from ndadam.fused_table import (
    ALIGNMENT,
    AddressColumns,
    Operands,
    Table,
    is_capturing,
    rows_of,
    same_strides,
)

_ELEMENT = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
_ADVANCE_BLOCK = 128


def fits_fused_step(p: Tensor, vector_dim: int | None) -> bool:
    """Whether the fused step can update ``p`` in place: its type, and rows that are dense runs."""
    return p.dtype in _ELEMENT and p.numel() > 0 and rows_of(p, vector_dim) is not None


@dataclass(slots=True)
class FusedGroup:
    """Parameters that share hyperparameters, with the operands of their step.

    State is float32; steps are scalars on the parameters' device.
    """

    params: Sequence[Tensor]
    grads: Sequence[Tensor]
    exp_avgs: Sequence[Tensor]
    exp_avg_sqs: Sequence[Tensor]
    steps: Sequence[Tensor]
    lr: float | Tensor  # a device tensor is read on the device
    betas: tuple[float, float]
    eps: float
    vector_dim: int | None
    weight_decay: float = 0.0
    maximize: bool = False


class FusedStep:
    """Takes the steps of one optimizer, with device tables kept between them.

    Attributes:
        copied_gradients: Gradients that had to be copied into their parameter's layout so far.
        records_effective_lr: Whether each step also records the length of every row's step.
    """

    def __init__(self) -> None:
        self.copied_gradients = 0
        self.records_effective_lr = False
        self._launches: list[_Launch] = []
        self._addresses: list[int] = []
        self._layouts: list[tuple[tuple[int, ...], torch.dtype]] = []
        self._taken: dict[int, tuple[Tensor, int, int | None, bool]] = {}

    def takes(self, p: Tensor, vector_dim: int | None) -> bool:
        """Whether this step can update ``p``; remembered while ``p`` stays in its place."""
        known = self._taken.get(id(p))
        if known is None or known[0] is not p or known[1:3] != (p.data_ptr(), vector_dim):
            fits = runs_kernels(p) and fits_fused_step(p, vector_dim)
            known = self._taken[id(p)] = (p, p.data_ptr(), vector_dim, fits)
        return known[3]

    def __call__(
        self,
        groups: Sequence[FusedGroup],
        *,
        grad_scale: Tensor | None = None,
        found_inf: Tensor | None = None,
    ) -> None:
        """Update every parameter.

        Args:
            groups: What to update.
            grad_scale: Device scalar the gradients are divided by.
            found_inf: Device scalar; when it is not 0 nothing is changed, steps included.

        Raises:
            RuntimeError: A first step, or one after parameters have moved, inside a capture.
            ValueError: A parameter whose rows are not dense runs of memory.
        """
        grads = [grad for group in groups for grad in group.grads]
        if not grads:
            return
        if _addresses(groups) != self._addresses:
            self._rebuild(groups)
            self._addresses = _addresses(groups)
        if [(grad.stride(), grad.dtype) for grad in grads] != self._layouts:
            grads = [self._in_layout_of(self._weight(i), grad) for i, grad in enumerate(grads)]
        for launch in self._launches:
            launch(groups, grads, grad_scale, found_inf, records=self.records_effective_lr)

    def effective_lr(self, p: Tensor) -> Tensor | None:
        """``||w_t - w_{t-1}|| / ||w_{t-1}||`` of each row of ``p`` in the last recorded step, (R,).

        None when nothing was recorded for ``p``. The next step overwrites the values.
        """
        records = (launch.record_of(p) for launch in self._launches)
        return next((record for record in records if record is not None), None)

    def _rebuild(self, groups: Sequence[FusedGroup]) -> None:
        operands = _operands(groups)
        if is_capturing(operands[0].weight.device):
            raise RuntimeError(
                "the fused step cannot build its tables inside a CUDA graph capture: take one "
                "step with these parameters before capturing"
            )
        for o in operands:
            _follow_strides(o)
        self._layouts = [(o.weight.stride(), o.weight.dtype) for o in operands]
        self._launches = [_Launch(operands, place) for place in _places(groups, operands)]

    def _weight(self, position: int) -> Tensor:
        return next(w for launch in self._launches for w in launch.weights_at(position))

    def _in_layout_of(self, p: Tensor, grad: Tensor) -> Tensor:
        if grad.dtype == p.dtype and same_strides(p, grad):
            return grad
        self.copied_gradients += 1
        return torch.empty_strided(p.shape, p.stride(), dtype=p.dtype, device=p.device).copy_(grad)


def _addresses(groups: Sequence[FusedGroup]) -> list[int]:
    """Of everything but the gradients; the tables hold as long as these do."""
    return [
        tensor.data_ptr()
        for group in groups
        for tensor in chain(group.params, group.exp_avgs, group.exp_avg_sqs, group.steps)
    ]


def _operands(groups: Sequence[FusedGroup]) -> list[Operands]:
    return [
        Operands(*tensors, group.vector_dim)
        for group in groups
        for tensors in zip(
            group.params, group.exp_avgs, group.exp_avg_sqs, group.steps, strict=True
        )
    ]


def _follow_strides(operands: Operands) -> None:
    """Bring state that was made before its parameter changed its strides into the new ones."""
    weight = operands.weight
    like_weight = [operands.exp_avg]
    if operands.vector_dim is None:
        like_weight.append(operands.exp_avg_sq)
    for state in like_weight:
        if not same_strides(weight, state):
            moved = torch.empty_strided(
                weight.shape, weight.stride(), dtype=state.dtype, device=state.device
            )
            state.data = moved.copy_(state)


class _Share(NamedTuple):
    """Neighbours in a launch's table that belong to one group."""

    group: int
    first: int
    number: int


class _Place(NamedTuple):
    """The parameters of one device and type: positions among all, and shares of the groups."""

    positions: list[int]
    shares: list[_Share]


def _places(groups: Sequence[FusedGroup], operands: Sequence[Operands]) -> list[_Place]:
    places: dict[tuple[torch.device, torch.dtype], _Place] = {}
    position = 0
    for index, group in enumerate(groups):
        counts: dict[tuple[torch.device, torch.dtype], int] = {}
        for p in group.params:
            key = (p.device, p.dtype)
            places.setdefault(key, _Place([], [])).positions.append(position)
            counts[key] = counts.get(key, 0) + 1
            position += 1
        for key, count in counts.items():
            first = len(places[key].positions) - count
            places[key].shares.append(_Share(index, first, count))
    return list(places.values())


class _Launch:
    """All parameters of one device and one type."""

    def __init__(self, operands: Sequence[Operands], place: _Place) -> None:
        self._operands = [operands[i] for i in place.positions]
        self._place = place
        self._device = self._operands[0].weight.device
        self._element = _ELEMENT[self._operands[0].weight.dtype]
        self._aligned = Table(self._operands, gradients_aligned=True)
        self._unaligned = Table(self._operands, gradients_aligned=False)
        self._columns = AddressColumns(len(self._operands), self._device)
        self._controls = torch.zeros(
            len(self._operands), kernels.CONTROL_COLUMNS.value, device=self._device
        )
        self._record: Tensor | None = None
        self._compiled: dict[Hashable, Any] = {}

    def __call__(
        self,
        groups: Sequence[FusedGroup],
        grads: Sequence[Tensor],
        grad_scale: Tensor | None,
        found_inf: Tensor | None,
        *,
        records: bool,
    ) -> None:
        addresses = tuple([grads[i].data_ptr() for i in self._place.positions])
        is_aligned = not any(address % ALIGNMENT for address in addresses)
        table = self._aligned if is_aligned else self._unaligned
        if records and self._record is None:
            self._record = torch.zeros(table.recorded_rows, device=self._device)
        with _current(self._device):
            for share in self._place.shares:
                self._advance(share, groups[share.group], grad_scale, found_inf)
            self._run(
                kernels.update,
                kernels.UPDATE_OPTIONS,
                ("update", records),
                len(table.items),
                table.items,
                table.addresses,
                self._columns.column(addresses),
                self._controls,
                self._record if records else None,
                self._element,
            )

    def weights_at(self, position: int) -> list[Tensor]:
        """The weight at a position among all parameters, none if it is in another launch."""
        pairs = zip(self._place.positions, self._operands, strict=True)
        return [o.weight for i, o in pairs if i == position]

    def record_of(self, p: Tensor) -> Tensor | None:
        """What the last recorded step wrote for ``p``."""
        if self._record is None:
            return None
        for o, rows in zip(self._operands, self._aligned.records, strict=True):
            if o.weight is p and o.vector_dim is not None:
                return self._record[rows]
        return None

    def _advance(
        self,
        share: _Share,
        group: FusedGroup,
        grad_scale: Tensor | None,
        found_inf: Tensor | None,
    ) -> None:
        beta1, beta2 = group.betas
        lr = group.lr
        lr_on_device = isinstance(lr, Tensor) and lr.device == self._device
        if not lr_on_device:
            lr = float(lr)
        self._run(
            kernels.advance,
            kernels.ADVANCE_OPTIONS,
            ("advance", *(_type(x) for x in (lr, grad_scale, found_inf))),
            -(-share.number // _ADVANCE_BLOCK),
            self._aligned.addresses,
            self._controls,
            share.first,
            share.number,
            lr,
            1 - beta1,
            1 - beta2,
            _log(beta1),
            _log(beta2),
            float(group.eps),
            float(group.weight_decay),
            -1.0 if group.maximize else 1.0,
            grad_scale,
            found_inf,
            lr_on_device,
            _ADVANCE_BLOCK,
        )

    def _run(
        self, kernel: Any, options: dict[str, int], variant: Hashable, programs: int, *args: object
    ) -> None:
        """Launch a kernel; directly when this variant of it has run before.

        Triton's own look-up, which compares every argument and every global of the kernel, costs
        several times the launch. It is not needed: what it could specialise on is this object's
        own, or in ``variant``.
        """
        compiled = self._compiled.get(variant)
        if compiled is None:
            # None from the interpreter, which compiles nothing.
            compiled = kernel[(programs,)](*args, **options)
            self._compiled[variant] = compiled
        else:
            # Addresses, because of each tensor the launcher would ask the driver where it is.
            addresses = [x.data_ptr() if isinstance(x, Tensor) else x for x in args]
            compiled[(programs, 1, 1)](*addresses)


def _type(x: object) -> torch.dtype | None:
    return x.dtype if isinstance(x, Tensor) else None


def _log(beta: float) -> float:
    return math.log(beta) if beta > 0 else -math.inf


def _current(device: torch.device) -> AbstractContextManager[object]:
    """Triton launches on the current device, which need not be the parameters'."""
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        return torch.cuda.device(device)
    return nullcontext()
