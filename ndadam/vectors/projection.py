"""The part of a gradient that turns a weight vector: what is left of it across the vector.

Shapes as in ``turning``: V weight vectors of D elements.
"""

import torch
from torch import Tensor

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
