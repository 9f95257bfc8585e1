"""One launch of the fused step: the parameters of one device and one type, of all groups.

``places`` sorts parameters into launches; a ``Launch`` keeps the device tables of its own.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from ndadam.cuda import is_capturing
from ndadam.fused import column_kernels, kernels
from ndadam.fused.table import ALIGNMENT, AddressColumns, Operands, Table

ELEMENT_TYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
_ADVANCE_BLOCK = 128


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

    def take_rates(self, group: dict[str, Any]) -> None:
        """Read anew what an optimizer's group may change between steps."""
        self.lr, self.betas, self.eps = group["lr"], group["betas"], group["eps"]
        self.weight_decay, self.maximize = group["weight_decay"], group["maximize"]


class _Share(NamedTuple):
    """Neighbours in a launch's table that belong to one group."""

    group: int
    first: int
    number: int


class Place(NamedTuple):
    """The parameters of one device and type: positions among all, and shares of the groups."""

    positions: list[int]
    shares: list[_Share]


def places(groups: Sequence[FusedGroup], operands: Sequence[Operands]) -> list[Place]:
    """Which parameters share a launch: those of one device and one type."""
    places: dict[tuple[torch.device, torch.dtype], Place] = {}
    position = 0
    for index, group in enumerate(groups):
        counts: dict[tuple[torch.device, torch.dtype], int] = {}
        for p in group.params:
            key = (p.device, p.dtype)
            places.setdefault(key, Place([], [])).positions.append(position)
            counts[key] = counts.get(key, 0) + 1
            position += 1
        for key, count in counts.items():
            first = len(places[key].positions) - count
            places[key].shares.append(_Share(index, first, count))
    return list(places.values())


class DirectLaunches:
    """Launches kernels without Triton's own look-up, where a variant has run before.

    The look-up, which compares every argument and every global of the kernel, costs several times
    the launch. It is not needed: what it could specialise on is the caller's own, or in
    ``variant``.
    """

    def __init__(self) -> None:
        self._launchers: dict[Hashable, Callable[..., object]] = {}

    def run(
        self, kernel: Any, options: dict[str, int], variant: Hashable, programs: int, *args: object
    ) -> None:
        """Launch ``programs`` programs of a kernel."""
        launcher = self._launchers.get((variant, programs))
        if launcher is not None:
            # Addresses, because of each tensor the launcher would ask the driver where it is.
            launcher(*[x.data_ptr() if isinstance(x, Tensor) else x for x in args])
            return
        # None from the interpreter, which compiles nothing.
        compiled = kernel[(programs,)](*args, **options)
        if compiled is not None:
            self._launchers[variant, programs] = compiled[programs, 1, 1]


class Launch:
    """All parameters of one device and one type."""

    def __init__(self, operands: Sequence[Operands], place: Place) -> None:
        self._operands = [operands[i] for i in place.positions]
        self._place = place
        self._device = self._operands[0].weight.device
        self._element = ELEMENT_TYPES[self._operands[0].weight.dtype]
        self._aligned = Table(self._operands, gradients_aligned=True)
        self._unaligned = Table(self._operands, gradients_aligned=False)
        self._columns = AddressColumns(len(self._operands), self._device)
        self._controls = torch.zeros(
            len(self._operands), kernels.CONTROL_COLUMNS.value, device=self._device
        )
        self._record: Tensor | None = None
        self._launches = DirectLaunches()
        self._last_addresses: tuple[int, ...] = ()
        self._last_is_aligned = False
        self._summed: Sequence[tuple[Tensor, int]] | None = None
        self._sums_fit = False

    def __call__(
        self,
        groups: Sequence[FusedGroup],
        grads: Sequence[Tensor],
        grad_scale: Tensor | None,
        found_inf: Tensor | None,
        *,
        records: bool,
        sums: Tensor | None = None,
    ) -> None:
        addresses = tuple([grads[i].data_ptr() for i in self._place.positions])
        if addresses != self._last_addresses:
            self._last_is_aligned = not any([address % ALIGNMENT for address in addresses])
            self._last_addresses = addresses
        table = self._aligned if self._last_is_aligned else self._unaligned
        if records and self._record is None:
            self._record = torch.zeros(table.recorded_rows, device=self._device)
        with on_device(self._device):
            for share in self._place.shares:
                self._advance(share, groups[share.group], grad_scale, found_inf)
            column = self._columns.column(addresses)
            for name, kernel, options, items in (
                ("rows", kernels.update, kernels.UPDATE_OPTIONS, table.items),
                (
                    "columns",
                    column_kernels.update_columns,
                    column_kernels.OPTIONS,
                    table.column_items,
                ),
            ):
                if items is not None:
                    self._launches.run(
                        kernel,
                        options,
                        (name, records, sums is not None),
                        len(items),
                        items,
                        table.addresses,
                        column,
                        self._controls,
                        self._record if records else None,
                        sums,
                        0 if sums is None else sums.shape[-1],
                        self._element,
                    )

    def can_sum(self, params: Sequence[tuple[Tensor, int]]) -> bool:
        """Whether a step can write sums of these: of all vectors here, and of no others.

        Args:
            params: In the order of the sums, with the dimension that indexes the rows of each.
        """
        if params is self._summed:
            return self._sums_fit
        if is_capturing(self._device):
            return False
        starts, at = {}, 0
        for p, dim in params:
            starts[id(p), dim % p.dim()] = at
            at += p.shape[dim]
        kept = [
            None if o.vector_dim is None else (id(o.weight), o.vector_dim % o.weight.dim())
            for o in self._operands
        ]
        self._summed = params
        self._sums_fit = {key for key in kept if key is not None} == starts.keys()
        if self._sums_fit:
            column = [0 if key is None else starts[key] for key in kept]
            self._aligned.set_sums(column)
            self._unaligned.set_sums(column)
        return self._sums_fit

    def weights_at(self, position: int) -> list[Tensor]:
        """The weight at a position among all parameters, none if it is in another launch."""
        pairs = zip(self._place.positions, self._operands, strict=True)
        return [o.weight for i, o in pairs if i == position]

    def skipped(self) -> list[tuple[Tensor, Tensor]]:
        """Each weight with the count of its vectors' skipped steps, a scalar on the device."""
        counts = self._controls[:, kernels.SKIPPED.value]
        return [(o.weight, counts[i]) for i, o in enumerate(self._operands)]

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
        self._launches.run(
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


def _type(x: object) -> torch.dtype | None:
    return x.dtype if isinstance(x, Tensor) else None


def _log(beta: float) -> float:
    return math.log(beta) if beta > 0 else -math.inf


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Triton launches on the current device, which need not be the parameters'."""
    if device.type == "cuda" and device.index != torch.cuda.current_device():
        return torch.cuda.device(device)
    return nullcontext()
