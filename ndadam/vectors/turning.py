"""ND-Adam's step for weight vectors, as functions of tensors.

Algorithm 1 of arXiv:1709.04546. Shapes: V weight vectors of D elements each. V is one dimension of
a parameter, D spans all others (a filter's C, H, W), so (V, D) means the parameter's own shape and
(V, 1) the same with every dimension of D reduced to size 1. The projection removes from a gradient
its part along the vector; what is left turns the vector.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ndadam.cuda import has_values
from ndadam.vectors.vector_numbers import VectorNumbers

# d/dw of g . w / ||w||, which torch has as one kernel for weight normalisation, is at a unit vector
# the projection g - (g . w) w. It reads each row once and keeps it in the cache.
_PROJECT = torch.ops.aten._weight_norm_interface_backward.default

# Its sums are not cascaded: up to this length they are off by 6 roundings at most, as measured, and
# a gradient parallel to w must leave less than the 16 of ``turning``.
_LONGEST = 8192


def tangents_of(
    grad: Tensor,  # (V, D)
    w: Tensor,  # (V, D) unit vectors
    dims: tuple[int, ...],  # the dimensions that D spans
    ones: Tensor | None = None,  # (V,), where the caller has them
) -> tuple[Tensor, Tensor]:
    """g - (g . w) w and g . w for every vector: (V, D) and (V,)."""
    if _is_one_kernel(grad, w, dims):
        if ones is None:
            ones = w.new_ones(w.shape[0])
        tangent, radial = _PROJECT(grad, w, ones, ones, 0)
        return tangent, radial
    radial = (grad * w).sum(dims, keepdim=True)
    return torch.addcmul(grad, w, radial, value=-1), radial.flatten()


def foreach_tangents_of(
    grads: list[Tensor],
    ws: list[Tensor],
    dims: list[tuple[int, ...]],
    ones: list[Tensor],  # empty on other devices than the CPU
) -> tuple[list[Tensor], list[Tensor]]:
    """The same for many parameters, in few calls."""
    if ones:
        pairs = [tangents_of(*x) for x in zip(grads, ws, dims, ones, strict=True)]
        return [tangent for tangent, _ in pairs], [radial for _, radial in pairs]
    products = torch._foreach_mul(grads, ws)
    radials = [p.sum(d, keepdim=True) for p, d in zip(products, dims, strict=True)]
    # Into the products, which have been read: foreach calls would launch as often, one per tensor.
    tangents = [
        torch.addcmul(grad, w, radial, value=-1, out=product)
        for grad, w, radial, product in zip(grads, ws, radials, products, strict=True)
    ]
    return tangents, [radial.flatten() for radial in radials]


def _is_one_kernel(grad: Tensor, w: Tensor, dims: tuple[int, ...]) -> bool:
    return (
        w.is_cpu
        and not torch.compiler.is_compiling()
        and dims[0] == 1  # vectors along dimension 0
        and w.is_contiguous()
        and grad.is_contiguous()
        and w.numel() <= _LONGEST * w.shape[0]
    )


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
    tangent, radial = tangents_of(grad, w, dims)
    length = torch.linalg.vector_norm(tangent, dim=dims, keepdim=True)
    square = tangent_squares(length, radial.view(length.shape))
    broken = not_finite(square)
    if broken is not None:
        tangent = torch.where(broken, exp_avg, tangent)
        square = torch.where(broken, exp_avg_sq, square)
    exp_avg.lerp_(tangent, rates.lerp1)
    exp_avg_sq.lerp_(square, rates.lerp2)

    rests = resting(exp_avg_sq, broken)
    w.addcmul_(exp_avg, step_factors_(exp_avg_sq.clone(), rests, rates))
    w.mul_(rescaling_(torch.linalg.vector_norm(w, dim=dims, keepdim=True), rests))
    return broken


def foreach_turn_vectors_(
    ws: list[Tensor],
    grads: list[Tensor],
    exp_avgs: list[Tensor],
    exp_avg_sqs: list[Tensor],
    rates: Rates,
    dims: list[tuple[int, ...]],
    numbers: VectorNumbers,  # scratch
) -> list[Tensor] | None:
    """Do the same as ``turn_vectors_`` for many parameters, in few calls.

    What is one number per vector is computed for all parameters at once, as (N,). One buffer of
    that size, of which every parameter has its view, holds one quantity after the other.
    """
    flat, parts = numbers.flat, numbers.parts
    tangents, radials = foreach_tangents_of(grads, ws, dims, numbers.ones)
    squares = tangent_squares(_norms(tangents, dims), torch.cat(radials))
    torch._foreach_copy_(parts, exp_avg_sqs)
    broken, marks = not_finite(squares), None
    if broken is not None:
        split = torch.split(broken, [x.numel() for x in parts])
        marks = [mark.view(x.shape) for mark, x in zip(split, parts, strict=True)]
        for mark, exp_avg, tangent in zip(marks, exp_avgs, tangents, strict=True):
            torch.where(mark, exp_avg, tangent, out=tangent)
        squares = torch.where(broken, flat, squares)
    torch._foreach_lerp_(exp_avgs, tangents, float(rates.lerp1))
    flat.lerp_(squares, rates.lerp2)
    torch._foreach_copy_(exp_avg_sqs, parts)

    rests = resting(flat, broken)
    step_factors_(flat, rests, rates)
    torch._foreach_addcmul_(ws, exp_avgs, parts)
    rescaling_(_norms(ws, dims, out=flat), rests)
    torch._foreach_mul_(ws, parts)
    return marks


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
    if _is_readable(square) and math.isfinite(square.sum().item()):
        return None
    return square.isfinite().logical_not_()


def _is_readable(t: Tensor) -> bool:
    """Whether a number of ``t`` can be looked at here and now."""
    return t.is_cpu and not torch.compiler.is_compiling() and has_values(t)


def resting(exp_avg_sq: Tensor, broken: Tensor | None) -> Tensor | None:
    """Which vectors this step leaves as they are; None when it is known at once that none."""
    if broken is not None:
        return broken.logical_or(exp_avg_sq == 0)
    if _is_readable(exp_avg_sq) and exp_avg_sq.amin().item() > 0:
        return None
    return exp_avg_sq == 0


def step_factors_(exp_avg_sq: Tensor, rests: Tensor | None, rates: Rates) -> Tensor:
    """Put in place what each vector's first moment is multiplied by to get its step.

    It is 0 for those that rest.
    """
    root = exp_avg_sq.div_(rates.correction2).sqrt_().add_(rates.eps)
    factor = root.reciprocal_().mul_(-rates.step_size)
    return factor if rests is None else factor.masked_fill_(rests, 0)


def rescaling_(norm: Tensor, rests: Tensor | None) -> Tensor:
    """Put in place the factor that brings each vector to unit norm; 1 for those that rest.

    A zero vector that does not move (lr = 0) has no direction: any finite factor keeps it zero.
    """
    factor = norm.clamp_min_(torch.finfo(norm.dtype).tiny).reciprocal_()
    return factor if rests is None else factor.masked_fill_(rests, 1)


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


def _norms(tensors: list[Tensor], dims: list[tuple[int, ...]], out: Tensor | None = None) -> Tensor:
    """Norm of every vector of every tensor, (N,)."""
    norms = [torch.linalg.vector_norm(t, dim=d) for t, d in zip(tensors, dims, strict=True)]
    return torch.cat(norms, out=out)
