"""ND-Adam's step for weight vectors, as functions of tensors.

Algorithm 1 of arXiv:1709.04546. Shapes: V weight vectors of D elements each. V is one dimension of
a parameter, D spans all others (a filter's C, H, W), so (V, D) means the parameter's own shape and
(V, 1) the same with every dimension of D reduced to size 1.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

# Tangents shorter than this many rounding errors of the projection are rounding errors.
_PROJECTION_ERRORS = 16


def turn_vectors_(
    w: Tensor,  # (V, D) unit vectors; updated in place
    grad: Tensor,  # (V, D)
    exp_avg: Tensor,  # (V, D) first moment; updated in place
    exp_avg_sq: Tensor,  # (V, 1) second moment, one number per vector; updated in place
    *,
    step: float,  # 1 on the first call
    lr: float | Tensor,
    betas: tuple[float, float],
    eps: float,
    dims: tuple[int, ...],  # the dimensions that D spans
) -> None:
    """Take one ND-Adam step for every weight vector of a parameter.

    A vector whose second moment is zero stays as it is, bit for bit: it has seen no tangential
    gradient yet, and with eps = 0 there would be nothing to divide by.
    """
    beta1, beta2 = betas

    # The radial part of the gradient would only stretch w, and the norm is pinned to 1.
    radial = (grad * w).sum(dims, keepdim=True)
    tangent = torch.addcmul(grad, w, radial, value=-1)
    exp_avg.lerp_(tangent, 1 - beta1)
    exp_avg_sq.lerp_(_tangent_squares(tangent, radial, dims), 1 - beta2)

    scale = (exp_avg_sq / (1 - beta2**step)).sqrt_().add_(eps).mul_(1 - beta1**step)
    still = exp_avg_sq == 0
    w.addcmul_(exp_avg, (-lr / scale).masked_fill_(still, 0))
    norm = torch.linalg.vector_norm(w, dim=dims, keepdim=True)
    # A zero vector that does not move (lr = 0) has no direction: it stays zero.
    w.div_(norm.masked_fill_(still | (norm == 0), 1))


def foreach_turn_vectors_(
    ws: Sequence[Tensor],
    grads: Sequence[Tensor],
    exp_avgs: Sequence[Tensor],
    exp_avg_sqs: Sequence[Tensor],
    *,
    steps: Sequence[float],
    lr: float | Tensor,
    betas: tuple[float, float],
    eps: float,
    dims: Sequence[tuple[int, ...]],
) -> None:
    """Do the same as ``turn_vectors_`` for many parameters, with few calls: for small ones."""
    beta1, beta2 = betas
    products = torch._foreach_mul(grads, ws)
    radials = [p.sum(d, keepdim=True) for p, d in zip(products, dims, strict=True)]
    tangents = torch._foreach_addcmul(grads, ws, radials, value=-1)
    torch._foreach_lerp_(exp_avgs, tangents, 1 - beta1)
    squares = [_tangent_squares(*args) for args in zip(tangents, radials, dims, strict=True)]
    torch._foreach_lerp_(exp_avg_sqs, squares, 1 - beta2)

    scales = torch._foreach_div(exp_avg_sqs, [1 - beta2**step for step in steps])
    torch._foreach_sqrt_(scales)
    torch._foreach_add_(scales, eps)
    torch._foreach_mul_(scales, [1 - beta1**step for step in steps])
    still = [v == 0 for v in exp_avg_sqs]
    factors = [(-lr / s).masked_fill_(at, 0) for s, at in zip(scales, still, strict=True)]
    torch._foreach_addcmul_(ws, exp_avgs, factors)
    norms = [
        torch.linalg.vector_norm(w, dim=d, keepdim=True) for w, d in zip(ws, dims, strict=True)
    ]
    torch._foreach_div_(
        ws, [n.masked_fill_(at | (n == 0), 1) for n, at in zip(norms, still, strict=True)]
    )


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


def _tangent_squares(tangent: Tensor, radial: Tensor, dims: tuple[int, ...]) -> Tensor:
    """||tangent||^2 of each vector, (V, 1); 0 where the tangent is what rounding left.

    Without this a gradient parallel to w would turn w at full speed in a random direction, because
    rounding errors would be divided by their own size.
    """
    squares = torch.linalg.vector_norm(tangent, dim=dims, keepdim=True).square_()
    noise = _PROJECTION_ERRORS * torch.finfo(tangent.dtype).eps
    return squares.masked_fill_(squares <= (noise * radial).square_(), 0)
