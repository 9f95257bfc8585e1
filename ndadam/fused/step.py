"""The fused step: every parameter of every group in one launch, on CUDA.

``FusedStep`` keeps the device tables between steps. A step compares addresses, refreshes what has
moved, and launches: one small kernel per group (step count, bias corrections) and one kernel that
reads each weight, gradient and moment once and writes weight and moment once. Nothing is read back,
so a step can be captured in a CUDA graph: every number that changes from step to step (the count,
a learning rate given as a tensor, the loss scale) is read on the device.

What it does at the edges: a row whose new norm is 0, or whose gradient or new norm is not finite,
is left as it was with its moments; a unit row that has seen no tangential gradient keeps its bits,
also with eps = 0; a row of another length is stepped from its direction; no row touches another;
gradients are never written.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from ndadam.cuda import is_capturing, runs_kernels
from ndadam.fused.launch import ELEMENT_TYPES, FusedGroup, Launch, places
from ndadam.fused.table import Operands, rows_of, same_strides
from ndadam.vectors.sharding import is_distributed


def fits_fused_step(p: Tensor, vector_dim: int | None) -> bool:
    """Whether the fused step can update ``p`` in place: its type, and rows that are dense runs."""
    if is_distributed(p):
        return False
    return p.dtype in ELEMENT_TYPES and p.numel() > 0 and rows_of(p, vector_dim) is not None


@dataclass(slots=True)
class SumsRequest:
    """What ``EffectiveLR`` wants of a step: sums that the step has at hand anyway.

    Attributes:
        params: What is summed, in the order of the sums, with the dimension of the vectors.
        out: (4, N) float32, as ``row_sums`` has them; g . w is of the gradients as they are.
        decline: Called before anything is updated by a step that does not write the sums.
        is_written: Whether the step has written them.
    """

    params: Sequence[tuple[Tensor, int]]
    out: Tensor
    decline: Callable[[], None]
    is_written: bool = False


class FusedStep:
    """Takes the steps of one optimizer, with device tables kept between them.

    Attributes:
        copied_gradients: Gradients that had to be copied into their parameter's layout so far.
        records_effective_lr: Whether each step also records the length of every row's step.
    """

    def __init__(self) -> None:
        self.copied_gradients = 0
        self.records_effective_lr = False
        self._launches: list[Launch] = []
        self._addresses: list[int] = []
        self._layouts: list[tuple[tuple[int, ...], torch.dtype]] = []
        self._taken: dict[int, tuple[Tensor, int, int | None, bool]] = {}
        self._skipped: list[tuple[Tensor, Tensor]] = []  # counts of tables that were replaced

    def takes(self, p: Tensor, vector_dim: int | None) -> bool:
        """Whether this step can update ``p``; remembered while ``p`` stays in its place."""
        known = self._taken.get(id(p))
        if known is not None and known[0] is p:
            _, address, dim, fits = known
            if address == p.data_ptr() and dim == vector_dim:
                return fits
        fits = runs_kernels(p) and fits_fused_step(p, vector_dim)
        self._taken[id(p)] = (p, p.data_ptr(), vector_dim, fits)
        return fits

    def __call__(
        self,
        groups: Sequence[FusedGroup],
        *,
        grad_scale: Tensor | None = None,
        found_inf: Tensor | None = None,
        addresses: list[int] | None = None,
        request: SumsRequest | None = None,
    ) -> None:
        """Update every parameter.

        Args:
            groups: What to update.
            addresses: Of everything but the gradients, where the caller knows them.
            grad_scale: Device scalar the gradients are divided by.
            found_inf: Device scalar; when it is not 0 nothing is changed, steps included.
            request: Sums to write, or to decline.

        Raises:
            RuntimeError: A first step, or one after parameters have moved, inside a capture.
            ValueError: A parameter whose rows are not dense runs of memory.
        """
        grads = [grad for group in groups for grad in group.grads]
        if not grads:
            return
        if addresses is None:
            addresses = _addresses(groups)
        if addresses is not self._addresses and addresses != self._addresses:
            self._rebuild(groups)
            # Strides of state may have followed those of a parameter, to another place.
            self._addresses = _addresses(groups)
        if [(grad.stride(), grad.dtype) for grad in grads] != self._layouts:
            grads = [self._in_layout_of(self._weight(i), grad) for i, grad in enumerate(grads)]
        sums = None if request is None else self._granted(request, found_inf)
        for launch in self._launches:
            launch(
                groups, grads, grad_scale, found_inf, records=self.records_effective_lr, sums=sums
            )

    def _granted(self, request: SumsRequest, found_inf: Tensor | None) -> Tensor | None:
        """Where to write the sums; None if they are declined.

        A step that may be skipped on the device would leave the sums of another one.
        """
        if found_inf is None and len(self._launches) == 1:
            if self._launches[0].can_sum(request.params):
                request.is_written = True
                return request.out
        request.decline()
        return None

    def effective_lr(self, p: Tensor) -> Tensor | None:
        """``||w_t - w_{t-1}|| / ||w_{t-1}||`` of each row of ``p`` in the last recorded step, (R,).

        Of a row that had another length than 1, between its directions. None when nothing was
        recorded for ``p``. The next step overwrites the values.
        """
        records = (launch.record_of(p) for launch in self._launches)
        return next((record for record in records if record is not None), None)

    def skipped_vectors(self, p: Tensor) -> int:
        """Steps that vectors of ``p`` sat out so far; waits for the device."""
        counts = [*self._skipped, *(c for launch in self._launches for c in launch.skipped())]
        return int(sum(count.item() for weight, count in counts if weight is p))

    def _rebuild(self, groups: Sequence[FusedGroup]) -> None:
        operands = _operands(groups)
        if is_capturing(operands[0].weight.device):
            raise RuntimeError(
                "the fused step cannot build its tables inside a CUDA graph capture: take one "
                "step with these parameters before capturing"
            )
        for o in operands:
            _follow_strides(o)
        self._keep_counts()
        self._layouts = [(o.weight.stride(), o.weight.dtype) for o in operands]
        self._launches = [Launch(operands, place) for place in places(groups, operands)]

    def _keep_counts(self) -> None:
        """Add the counts of the tables to those of earlier ones, on the device."""
        for launch in self._launches:
            for weight, count in launch.skipped():
                known = next((c for w, c in self._skipped if w is weight), None)
                if known is None:
                    self._skipped.append((weight, count.clone()))
                else:
                    known += count

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
