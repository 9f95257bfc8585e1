"""The step as torch's compiler sees it: tensors in, no Python number that changes between steps.

A learning rate, betas or a step count that were numbers would be compiled in, and each new value
would compile again. They come as one small tensor, so that one graph serves all steps of all
parameters.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ndadam.optimizer.foreach_step import (
    StepOperands,
    other_dims,
    rounding_of_lengths,
    stored_operands,
)
from ndadam.optimizer.skipped_vectors import SkippedVectors
from ndadam.vectors.moments import Pair
from ndadam.vectors.turning import (
    Rates,
    lengths_of,
    normalise_vectors_,
    projection_error,
    staying,
    turn_vectors_,
)


class CompiledBatch(NamedTuple):
    """Parameters of one group on one device; P of them."""

    operands: list[StepOperands]
    counts: list[Tensor]  # of skipped vectors, one tensor for each parameter that has vectors
    rates: Tensor  # (P, 4) float64: 1 - beta1, 1 - beta2, 1 - beta1^t, 1 - beta2^t
    lr: Tensor  # 0-dim float64
    dims: list[tuple[int, ...]]  # that one vector spans, for each parameter; empty for scalars
    eps: float
    weight_decay: float
    maximize: bool


def compiled_batches(
    pairs: list[Pair], group: dict[str, Any], skipped: SkippedVectors
) -> list[CompiledBatch]:
    """Put the numbers of a group's step into tensors. Not to be compiled itself."""
    by_device: dict[torch.device, list[tuple[StepOperands, float]]] = {}
    for p, state in pairs:
        o = stored_operands(p, state)
        if o.w.numel() > 0:  # a process may hold nothing of a sharded parameter
            by_device.setdefault(o.w.device, []).append((o, state["step"].item()))
    return [_batch(device, members, group, skipped) for device, members in by_device.items()]


def _batch(
    device: torch.device,
    members: list[tuple[StepOperands, float]],
    group: dict[str, Any],
    skipped: SkippedVectors,
) -> CompiledBatch:
    beta1, beta2 = group["betas"]
    rates = torch.tensor(
        [[1 - beta1, 1 - beta2, 1 - beta1**t, 1 - beta2**t] for _, t in members],
        dtype=torch.float64,
        device="cpu",
    )
    lr = group["lr"]
    if not isinstance(lr, Tensor):
        lr = torch.tensor(lr, device="cpu", dtype=torch.float64)
    counts, dims, vector_dim = [], [], group["vector_dim"]
    if vector_dim is not None:
        dims = [other_dims(o.w.dim(), vector_dim) for o, _ in members]
        counts = [skipped.counts_of(o.parameter, o.exp_avg_sq) for o, _ in members]
    return CompiledBatch(
        operands=[o for o, _ in members],
        counts=counts,
        rates=rates.to(device, non_blocking=True),
        # A rate on a card waits for its copy if the parameters are on the host.
        lr=lr.detach().reshape(()).to(device, torch.float64, non_blocking=not lr.is_cuda),
        dims=dims,
        eps=float(group["eps"]),
        weight_decay=float(group["weight_decay"]),
        maximize=bool(group["maximize"]),
    )


def take_compiled_step_(batches: list[CompiledBatch]) -> None:
    """Update every parameter; to be traced by the compiler, and the same without it."""
    for batch in batches:
        for i, o in enumerate(batch.operands):
            lerp1, lerp2, correction1, correction2 = batch.rates[i].unbind()
            dtype = o.exp_avg.dtype
            step_size = (batch.lr / correction1).to(dtype)
            rates = Rates(
                lerp1.to(dtype),
                lerp2.to(dtype),
                step_size,
                correction2.to(dtype),
                batch.eps,
                projection_error(o.shard.dtype),
            )
            if batch.dims:
                _turn_(o, rates, batch.dims[i], batch.counts[i], maximize=batch.maximize)
            else:
                _adam_(o, rates, batch)


def _turn_(
    o: StepOperands, rates: Rates, dims: tuple[int, ...], count: Tensor, *, maximize: bool
) -> None:
    w, grad = _in_working_precision(o, maximize)
    lengths = None
    if w is not o.shard:
        lengths = lengths_of(w, dims, rounding_of_lengths(o.shard.dtype))
        normalise_vectors_(w, dims)
        grad = grad if lengths is None else grad * lengths
    broken = turn_vectors_(w, grad, o.exp_avg, o.exp_avg_sq, rates, dims)
    rests = o.exp_avg_sq == 0
    if broken is not None:
        rests = rests | broken
        count.add_(broken)
    if w is not o.shard:
        stays = staying(rests, broken, lengths)
        o.shard.copy_(torch.where(stays, o.shard.to(w.dtype), w))


def _adam_(o: StepOperands, rates: Rates, batch: CompiledBatch) -> None:
    """``adam_`` of one parameter with rates that are tensors."""
    w, grad = _in_working_precision(o, batch.maximize)
    if batch.weight_decay != 0:
        grad = grad.add(w, alpha=batch.weight_decay)
    o.exp_avg.lerp_(grad, rates.lerp1)
    # Not lerp_, which turns an infinite moment into NaN.
    o.exp_avg_sq.mul_(1 - rates.lerp2).add_(grad * grad * rates.lerp2)
    denominator = (o.exp_avg_sq / rates.correction2).sqrt().add(batch.eps)
    if batch.eps == 0:
        denominator = denominator.masked_fill(denominator == 0, 1)
    w.sub_(rates.step_size * o.exp_avg / denominator)
    if w is not o.shard:
        o.shard.copy_(w)


def _in_working_precision(o: StepOperands, maximize: bool) -> tuple[Tensor, Tensor]:
    """Weights, and the gradient to descend along."""
    w, grad = o.shard.to(o.exp_avg.dtype), o.grad.to(o.exp_avg.dtype)
    return w, -grad if maximize else grad
