"""ND-Adam's step for weight vectors, as functions of tensors.

Algorithm 1 of arXiv:1709.04546. Shapes: V weight vectors of D elements each. V is one dimension of
a parameter, D spans all others (a filter's C, H, W), so (V, D) means the parameter's own shape and
(V, 1) the same with every dimension of D reduced to size 1.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

# Tangents shorter than this many rounding errors of the projection are rounding errors.
_PROJECTION_ERRORS = 16


class Rates(NamedTuple):
    """The numbers of one step. Floats, or 0-dim tensors where a compiler must not see the values.

    Tensors have the precision of the moments: ``lerp_`` takes no other.
    """

    lerp1: float | Tensor  # 1 - beta1
    lerp2: float | Tensor  # 1 - beta2
    step_size: float | Tensor  # lr / (1 - beta1^t)
    correction2: float | Tensor  # 1 - beta2^t
    eps: float


def rates_of(step: float, lr: float, betas: tuple[float, float], eps: float) -> Rates:
    """The rates of step number ``step``, which is 1 on the first call."""
    beta1, beta2 = betas
    return Rates(1 - beta1, 1 - beta2, lr / (1 - beta1**step), 1 - beta2**step, eps)


def turn_vectors_(
    w: Tensor,  # (V, D) unit vectors; updated in place
    grad: Tensor,  # (V, D)
    exp_avg: Tensor,  # (V, D) first moment; updated in place
    exp_avg_sq: Tensor,  # (V, 1) second moment, one number per vector; updated in place
    rates: Rates,
    dims: tuple[int, ...],  # the dimensions that D spans
) -> Tensor | None:
    """Take one ND-Adam step for every weight vector of a parameter.

    A vector whose second moment is zero stays as it is, bit for bit: it has seen no tangential
    gradient yet, and with eps = 0 there would be nothing to divide by. So does, with its moments, a
    vector whose gradient is not finite; these are returned, (V, 1), or None when there are none.
    """
    # The radial part of the gradient would only stretch w, and the norm is pinned to 1.
    radial = (grad * w).sum(dims, keepdim=True)
    tangent = torch.addcmul(grad, w, radial, value=-1)
    square = tangent_squares(torch.linalg.vector_norm(tangent, dim=dims, keepdim=True), radial)
    broken = not_finite(square)
    if broken is not None:
        tangent = torch.where(broken, exp_avg, tangent)
        square = torch.where(broken, exp_avg_sq, square)
    exp_avg.lerp_(tangent, rates.lerp1)
    exp_avg_sq.lerp_(square, rates.lerp2)

    rests = resting(exp_avg_sq, broken)
    w.addcmul_(exp_avg, step_factors(exp_avg_sq, rests, rates))
    norm = torch.linalg.vector_norm(w, dim=dims, keepdim=True)
    w.mul_(rescaling(norm, rests))
    return broken


def foreach_turn_vectors_(
    ws: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    rates: Rates,
    dims: Sequence[tuple[int, ...]],
) -> tuple[Tensor, ...] | None:
    """Do the same as ``turn_vectors_`` for many parameters, in few calls.

    What is one number per vector is computed for all parameters at once, as (N,).
    """
    products = torch._foreach_mul(grads, ws)
    radials = [p.sum(d, keepdim=True) for p, d in zip(products, dims, strict=True)]
    tangents = list(torch._foreach_addcmul(grads, ws, radials, value=-1))
    squares = tangent_squares(_norms(tangents, dims), _flat(radials))
    broken = not_finite(squares)
    numbers = _flat(exp_avg_sqs)
    if len(ws) == 1:  # flat is then the moment itself
        numbers = numbers.clone()
    per_tensor = _split_like(numbers, exp_avg_sqs)
    parts = None
    if broken is not None:
        parts = _split_like(broken, exp_avg_sqs)
        tangents = [torch.where(*x) for x in zip(parts, exp_avgs, tangents, strict=True)]
        squares = torch.where(broken, numbers, squares)
    torch._foreach_lerp_(exp_avgs, tangents, float(rates.lerp1))
    numbers.lerp_(squares, rates.lerp2)
    torch._foreach_copy_(exp_avg_sqs, per_tensor)

    # The same buffer, of which every tensor has its view, holds one factor after the other.
    rests = resting(numbers, broken)
    numbers.copy_(step_factors(numbers, rests, rates))
    torch._foreach_addcmul_(ws, exp_avgs, per_tensor)
    numbers.copy_(rescaling(_norms(ws, dims), rests))
    torch._foreach_mul_(ws, per_tensor)
    return parts


def tangent_squares(length: Tensor, radial: Tensor) -> Tensor:
    """||tangent||^2 of each vector, from ||tangent||; 0 where the tangent is what rounding left.

    Without this a gradient parallel to w would turn w at full speed in a random direction, because
    rounding errors would be divided by their own size. ``radial`` is <g, w>.
    """
    noise = _PROJECTION_ERRORS * torch.finfo(length.dtype).eps
    # "<" keeps what has overflown: inf < inf is false.
    return length.square().masked_fill_(length < (noise * radial).abs_(), 0)


def not_finite(square: Tensor) -> Tensor | None:
    """Which vectors' squared tangents are not finite; None when it is known at once that all are.

    Reading that from another device would wait for it.
    """
    if square.is_cpu and not torch.compiler.is_compiling() and math.isfinite(square.sum().item()):
        return None
    return square.isfinite().logical_not_()


def resting(exp_avg_sq: Tensor, broken: Tensor | None) -> Tensor:
    """Which vectors this step leaves as they are."""
    unmoved = exp_avg_sq == 0
    return unmoved if broken is None else unmoved.logical_or_(broken)


def step_factors(exp_avg_sq: Tensor, rests: Tensor, rates: Rates) -> Tensor:
    """What each vector's first moment is multiplied by to get its step; 0 for those that rest."""
    root = (exp_avg_sq / rates.correction2).sqrt_().add_(rates.eps)
    factor: Tensor = root.reciprocal_().mul_(-rates.step_size)
    return factor.masked_fill_(rests, 0)


def rescaling(norm: Tensor, rests: Tensor) -> Tensor:
    """Factor that brings each vector back to unit norm; 1 for those that rest.

    A zero vector that does not move (lr = 0) has no direction: it stays zero.
    """
    return norm.reciprocal().masked_fill_(rests | (norm == 0), 1)


def normalise_vectors_(w: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Give every vector of ``w`` (V, D) unit norm in place; returns which were zero, (V, 1).

    Zero vectors stay zero. Very small and very large vectors are first brought to a size whose
    square can be represented.
    """
    exact = w if w.dtype in (torch.float32, torch.float64) else w.float()
    largest = exact.abs().amax(dims, keepdim=True)
    is_zero = largest == 0
    exact = exact / largest.masked_fill(is_zero, 1)
    norm = torch.linalg.vector_norm(exact, dim=dims, keepdim=True)
    w.copy_(exact / norm.masked_fill_(is_zero, 1))
    return is_zero


def _norms(tensors: list[Tensor] | tuple[Tensor, ...], dims: Sequence[tuple[int, ...]]) -> Tensor:
    """Norm of every vector of every tensor, (N,)."""
    return torch.cat(
        [torch.linalg.vector_norm(t, dim=d) for t, d in zip(tensors, dims, strict=True)]
    )


def _flat(tensors: list[Tensor]) -> Tensor:
    """All elements one after the other, (N,)."""
    flat: Tensor = _flatten_dense_tensors(tensors)  # type: ignore[no-untyped-call]
    return flat


def _split_like(flat: Tensor, tensors: list[Tensor]) -> tuple[Tensor, ...]:
    """Views into ``flat`` (N,) with the shapes of ``tensors``."""
    parts: tuple[Tensor, ...] = _unflatten_dense_tensors(  # type: ignore[no-untyped-call]
        flat, tensors
    )
    return parts
