"""ND-Adam's step for weight vectors, as functions of tensors.

Algorithm 1 of arXiv:1709.04546. Shapes: V weight vectors of D elements each. V is one dimension of
a parameter, D spans all others (a filter's C, H, W), so (V, D) means the parameter's own shape and
(V, 1) the same with every dimension of D reduced to size 1. The projection removes from a gradient
its part along the vector; what is left turns the vector.

A step measures from the direction u = w / |w|, whatever the length |w| that it finds: by the chain
rule the gradient with respect to u is |w| times the one with respect to w. Lengths that are 1 up to
rounding count as 1, so that such a step changes no bit of the paper's.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ndadam.cuda import has_values
from ndadam.vectors.vector_numbers import VectorNumbers

# d/dw of s g . w / ||w||, which torch has as one kernel for weight normalisation, is the projection
# (g - (g . u) u) s / ||w||. It reads each row once and keeps it in the cache.
_PROJECT = torch.ops.aten._weight_norm_interface_backward.default

# Its sums are not cascaded: up to this length they are off by 6 roundings at most, as measured, and
# a gradient parallel to w must leave less than the 16 of ``turning``.
_LONGEST = 8192

# Lengths of unit vectors are off by no more roundings, those of a sum over 9,000 elements included
# (18 as measured).
_LENGTH_ERRORS = 64


def lengths_of(
    w: Tensor,  # (V, D)
    dims: tuple[int, ...],  # the dimensions that D spans
    rounding: float | None = None,  # of a unit vector's length; that of the type of ``w``
) -> Tensor | None:
    """||w|| of every vector, (V, 1); None when it is known at once that all are 1.

    Those that are 1 up to rounding are 1. So are those of vectors that are zero, or whose square
    cannot be represented: they have no direction.
    """
    return rounded_lengths_(torch.linalg.vector_norm(w, dim=dims, keepdim=True), rounding)


def rounded_lengths_(lengths: Tensor, rounding: float | None = None) -> Tensor | None:
    """``lengths_of``, in place of norms in any shape."""
    info = torch.finfo(lengths.dtype)
    rounding = _LENGTH_ERRORS * info.eps if rounding is None else rounding
    if _is_readable(lengths):
        least, largest = (bound.item() for bound in lengths.aminmax())
        if 1 - rounding <= least and largest <= 1 + rounding:
            return None
    counts_as_1 = (lengths - 1).abs_().le(rounding).logical_or_(lengths.square() <= info.tiny)
    return lengths.masked_fill_(counts_as_1, 1)


def tangents_of(
    grad: Tensor,  # (V, D)
    w: Tensor,  # (V, D)
    dims: tuple[int, ...],  # the dimensions that D spans
    ones: Tensor | None = None,  # (V,), where the caller has them
    lengths: Tensor | None = None,  # (V, 1) |w|; None where all are 1
) -> tuple[Tensor, Tensor]:
    """h - (h . u) u and h . u of every vector, for h = |w| g and u = w / |w|: (V, D) and (V,)."""
    if _is_one_kernel(grad, w, dims):
        if lengths is not None:
            n = lengths.flatten()
            tangent, radial = _PROJECT(grad, w, n * n, n, 0)
            return tangent, radial * n
        if ones is None:
            ones = w.new_ones(w.shape[0])
        tangent, radial = _PROJECT(grad, w, ones, ones, 0)
        return tangent, radial
    radial = (grad * w).sum(dims, keepdim=True)  # |w| (g . u), which is h . u
    if lengths is None:
        return torch.addcmul(grad, w, radial, value=-1), radial.flatten()
    return torch.addcmul(grad * lengths, w, radial / lengths, value=-1), radial.flatten()


def foreach_tangents_of(
    grads: list[Tensor],
    ws: list[Tensor],
    dims: list[tuple[int, ...]],
    ones: list[Tensor],  # empty on other devices than the CPU
    lengths: list[Tensor] | None,  # as in ``tangents_of``, one for each parameter
) -> tuple[list[Tensor], list[Tensor]]:
    """The same for many parameters, in few calls."""
    if ones:
        known = [None] * len(ws) if lengths is None else lengths
        pairs = [tangents_of(*x) for x in zip(grads, ws, dims, ones, known, strict=True)]
        return [tangent for tangent, _ in pairs], [radial for _, radial in pairs]
    products = torch._foreach_mul(grads, ws)
    radials = [p.sum(d, keepdim=True) for p, d in zip(products, dims, strict=True)]
    steps = radials
    if lengths is not None:
        steps = list(torch._foreach_div(radials, lengths))
        grads = [torch.mul(*x, out=out) for *x, out in zip(grads, lengths, products, strict=True)]
    # Into the products, which have been read: foreach calls would launch as often, one per tensor.
    tangents = [
        torch.addcmul(grad, w, step, value=-1, out=product)
        for grad, w, step, product in zip(grads, ws, steps, products, strict=True)
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


def projection_error(dtype: torch.dtype) -> float:
    """How long a tangent, over |g . u|, rounding may leave where weights and g are in ``dtype``.

    A gradient parallel to w keeps the roundings of the projection; one that has been rounded to
    half precision is itself off by as much as half of eps.
    """
    info = torch.finfo(dtype)
    return info.eps * (_PROJECTION_ERRORS if info.bits >= 32 else 0.5)


class Rates(NamedTuple):
    """The numbers of one step. Floats, or 0-dim tensors where a compiler must not see the values.

    Tensors have the precision of the moments: ``lerp_`` takes no other.
    """

    lerp1: float | Tensor  # 1 - beta1
    lerp2: float | Tensor  # 1 - beta2
    step_size: float | Tensor  # lr / (1 - beta1^t)
    correction2: float | Tensor  # 1 - beta2^t
    eps: float
    projection_error: float  # of the precision in which weights are kept


def rates_of(
    step: float, lr: float, betas: tuple[float, float], eps: float, dtype: torch.dtype
) -> Rates:
    """The rates of step number ``step``, 1 on the first call, for weights kept in ``dtype``."""
    beta1, beta2 = betas
    step_size, correction2 = lr / (1 - beta1**step), 1 - beta2**step
    return Rates(1 - beta1, 1 - beta2, step_size, correction2, eps, projection_error(dtype))


def turn_vectors_(
    w: Tensor,  # (V, D); updated in place
    grad: Tensor,  # (V, D)
    exp_avg: Tensor,  # (V, D) first moment; updated in place
    exp_avg_sq: Tensor,  # (V, 1) second moment, one number per vector; updated in place
    rates: Rates,
    dims: tuple[int, ...],  # the dimensions that D spans
) -> Tensor | None:
    """Take one ND-Adam step for every weight vector of a parameter, from its direction.

    A vector whose second moment is zero does not turn: it has seen no tangential gradient yet, and
    with eps = 0 there would be nothing to divide by. With unit norm it stays as it is, bit for bit.
    So does, with its moments and with any norm, a vector whose gradient is not finite; these are
    returned, (V, 1), or None when there are none.
    """
    lengths = lengths_of(w, dims)
    # The radial part of the gradient would only stretch w, and the norm is pinned to 1.
    tangent, radial = tangents_of(grad, w, dims, lengths=lengths)
    length = torch.linalg.vector_norm(tangent, dim=dims, keepdim=True)
    square = tangent_squares(length, radial.view(length.shape), rates.projection_error)
    broken = not_finite(square)
    if broken is not None:
        tangent = torch.where(broken, exp_avg, tangent)
        square = torch.where(broken, exp_avg_sq, square)
    exp_avg.lerp_(tangent, rates.lerp1)
    exp_avg_sq.lerp_(square, rates.lerp2)

    rests = resting(exp_avg_sq, broken)
    w.addcmul_(exp_avg, step_factors_(exp_avg_sq.clone(), rests, rates, lengths))
    stays = None if rests is None else staying(rests, broken, lengths)
    w.mul_(rescaling_(torch.linalg.vector_norm(w, dim=dims, keepdim=True), stays))
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
    lengths = rounded_lengths_(_norms(ws, dims))
    each = None if lengths is None else _like(parts, lengths)
    tangents, radials = foreach_tangents_of(grads, ws, dims, numbers.ones, each)
    squares = tangent_squares(_norms(tangents, dims), torch.cat(radials), rates.projection_error)
    torch._foreach_copy_(parts, exp_avg_sqs)
    broken, marks = not_finite(squares), None
    if broken is not None:
        marks = _like(parts, broken)
        for mark, exp_avg, tangent in zip(marks, exp_avgs, tangents, strict=True):
            torch.where(mark, exp_avg, tangent, out=tangent)
        squares = torch.where(broken, flat, squares)
    torch._foreach_lerp_(exp_avgs, tangents, float(rates.lerp1))
    flat.lerp_(squares, rates.lerp2)
    torch._foreach_copy_(exp_avg_sqs, parts)

    rests = resting(flat, broken)
    step_factors_(flat, rests, rates, lengths)
    torch._foreach_addcmul_(ws, exp_avgs, parts)
    stays = None if rests is None else staying(rests, broken, lengths)
    rescaling_(_norms(ws, dims, out=flat), stays)
    torch._foreach_mul_(ws, parts)
    return marks


def tangent_squares(length: Tensor, radial: Tensor, error: float) -> Tensor:
    """||tangent||^2 of each vector, from ||tangent||; 0 where the tangent is what rounding left.

    Without this a gradient parallel to w would turn w at full speed in a random direction, because
    rounding errors would be divided by their own size. ``radial`` is <g, w>, ``error`` what
    ``projection_error`` says.
    """
    # "<" keeps what has overflown: inf < inf is false.
    return length.square().masked_fill_(length < (error * radial).abs_(), 0)


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
    """Which vectors this step does not turn; None when it is known at once that none."""
    if broken is not None:
        return broken.logical_or(exp_avg_sq == 0)
    if _is_readable(exp_avg_sq) and exp_avg_sq.amin().item() > 0:
        return None
    return exp_avg_sq == 0


def staying(rests: Tensor, broken: Tensor | None, lengths: Tensor | None) -> Tensor:
    """Which of the vectors that rest keep their bits: broken ones, and those of unit norm."""
    if lengths is None:
        return rests
    stays = rests.logical_and(lengths == 1)
    return stays if broken is None else stays.logical_or_(broken)


def step_factors_(
    exp_avg_sq: Tensor, rests: Tensor | None, rates: Rates, lengths: Tensor | None
) -> Tensor:
    """Put in place what each vector's first moment is multiplied by to get its step.

    It is 0 for those that rest. A vector of another length than 1 is not brought to 1 before it is
    moved: a step as much longer leads in the same direction.
    """
    root = exp_avg_sq.div_(rates.correction2).sqrt_().add_(rates.eps)
    factor = root.reciprocal_().mul_(-rates.step_size)
    if lengths is not None:
        factor.mul_(lengths)
    return factor if rests is None else factor.masked_fill_(rests, 0)


def rescaling_(norm: Tensor, stays: Tensor | None) -> Tensor:
    """Put in place the factor that brings each vector to unit norm; 1 for those that stay.

    A zero vector that does not move (lr = 0) has no direction: any finite factor keeps it zero.
    """
    factor = norm.clamp_min_(torch.finfo(norm.dtype).tiny).reciprocal_()
    return factor if stays is None else factor.masked_fill_(stays, 1)


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


def _like(parts: list[Tensor], flat: Tensor) -> list[Tensor]:
    """Views into (N,) ``flat`` in the shapes of ``parts``."""
    split = flat.split_with_sizes([x.numel() for x in parts])
    return [part.view(x.shape) for part, x in zip(split, parts, strict=True)]


def _norms(tensors: list[Tensor], dims: list[tuple[int, ...]], out: Tensor | None = None) -> Tensor:
    """Norm of every vector of every tensor, (N,)."""
    norms = [torch.linalg.vector_norm(t, dim=d) for t, d in zip(tensors, dims, strict=True)]
    return torch.cat(norms, out=out)
