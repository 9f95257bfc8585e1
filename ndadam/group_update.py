"""One optimizer step for parameters of a group that have taken equally many steps.

Chooses how the mathematics in ``turning`` and ``adam`` is called: many small parameters per call,
large ones in pieces that fit a cache, half-precision ones through a float32 copy.
"""

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ndadam.adam import adam_
from ndadam.turning import foreach_turn_vectors_, normalise_vectors_, turn_vectors_

# On the CPU parameters of up to this many elements share foreach calls; larger ones are updated in
# pieces, whose operands stay in the cache from one operation to the next.
_SHARED_ELEMENTS = 1 << 18
_PIECE_ELEMENTS = 1 << 17


class Operands(NamedTuple):
    """Tensors of one parameter's step, in the precision that it is computed in."""

    parameter: Tensor
    w: Tensor  # the parameter itself, or a copy in float32
    grad: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor


def operands(p: Tensor, state: dict[str, Tensor], maximize: bool) -> Operands:
    """Collect the operands of a step of ``p``; its gradient is not changed."""
    exp_avg = state["exp_avg"]
    w, grad = p, p.grad
    assert grad is not None  # parameters without a gradient have been left out
    if p.dtype != exp_avg.dtype:
        w, grad = p.to(exp_avg.dtype), grad.to(exp_avg.dtype)
    return Operands(p, w, -grad if maximize else grad, exp_avg, state["exp_avg_sq"])


def update_scalars_(batch: list[Operands], group: dict[str, Any], step: float) -> None:
    """Take Adam's step for every parameter of ``batch``."""
    parameters, ws, grads, exp_avgs, exp_avg_sqs = map(list, zip(*batch, strict=True))
    adam_(
        ws,
        grads,
        exp_avgs,
        exp_avg_sqs,
        step=step,
        lr=float(group["lr"]),
        betas=group["betas"],
        eps=group["eps"],
        weight_decay=group["weight_decay"],
    )
    for p, w in zip(parameters, ws, strict=True):
        if w is not p:
            p.copy_(w)


def update_vectors_(batch: list[Operands], group: dict[str, Any], step: float) -> None:
    """Take ND-Adam's step for every parameter of ``batch``."""
    vector_dim = group["vector_dim"]
    for o in batch:
        if o.w is not o.parameter:
            # Rounding to half precision has moved the norm: project with exact unit vectors.
            normalise_vectors_(o.w, other_dims(o.w.dim(), vector_dim))
    settings = {"lr": float(group["lr"]), "betas": group["betas"], "eps": group["eps"]}
    together = [o for o in batch if _shares_calls(o.w, group["foreach"])]
    if together:
        _, ws, grads, exp_avgs, exp_avg_sqs = map(list, zip(*together, strict=True))
        dims = [other_dims(w.dim(), vector_dim) for w in ws]
        foreach_turn_vectors_(ws, grads, exp_avgs, exp_avg_sqs, step=step, dims=dims, **settings)
    for o in batch:
        if not _shares_calls(o.w, group["foreach"]):
            _turn_in_pieces_(o, vector_dim, step, settings)
    for o in batch:
        if o.w is not o.parameter:
            # A vector that rests keeps its bits.
            o.parameter.copy_(torch.where(o.exp_avg_sq == 0, o.parameter.to(o.w.dtype), o.w))


@functools.cache
def other_dims(num_dims: int, vector_dim: int) -> tuple[int, ...]:
    """The dimensions that one vector spans."""
    return tuple(d for d in range(num_dims) if d != vector_dim % num_dims)


def _shares_calls(w: Tensor, foreach: bool | None) -> bool:
    if foreach is None:
        return w.device.type != "cpu" or w.numel() <= _SHARED_ELEMENTS
    return foreach


def _turn_in_pieces_(o: Operands, vector_dim: int, step: float, settings: dict[str, Any]) -> None:
    """Update runs of vectors one after the other."""
    count = o.w.shape[vector_dim]
    length = o.w.numel() // count
    rows = max(_PIECE_ELEMENTS // length, 1) if o.w.device.type == "cpu" else count
    dims = other_dims(o.w.dim(), vector_dim)
    pieces = (torch.split(x, rows, vector_dim) for x in o[1:])
    for w, grad, exp_avg, exp_avg_sq in zip(*pieces, strict=True):
        turn_vectors_(w, grad, exp_avg, exp_avg_sq, step=step, dims=dims, **settings)
