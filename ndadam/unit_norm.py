"""Brings the weight vectors of a parameter to unit norm: before training, and after loading."""

import warnings

import torch
from torch import Tensor

from ndadam.group_update import other_dims
from ndadam.sharding import local
from ndadam.turning import normalise_vectors_


def normalise_parameter_(name: str, p: Tensor, vector_dim: int) -> None:
    """Give the vectors of ``p`` unit norm; warn when some are zero."""
    if p.numel() == 0:
        return
    with torch.no_grad():
        zeros = int(normalise_vectors_(local(p), other_dims(p.dim(), vector_dim)).sum())
    if zeros:
        warnings.warn(
            f"{zeros} of {p.shape[vector_dim]} weight vectors of {name} are zero and cannot be "
            "normalised: each stays zero until its first step with lr > 0, which gives it unit "
            "norm in the direction opposite to its gradient",
            stacklevel=4,
        )


def renormalise_parameter_(p: Tensor, vector_dim: int) -> None:
    """Give unit norm to the vectors of ``p`` that were loaded with another; others keep their bits.

    Another norm is one that is off by more than rounding, in the precision of ``p``.
    """
    w, dims = local(p), other_dims(p.dim(), vector_dim)
    exact = w if w.dtype in (torch.float32, torch.float64) else w.float()
    error = torch.linalg.vector_norm(exact, dim=dims, keepdim=True) - 1
    is_unit = error.abs() < max(1e-3, 8 * torch.finfo(w.dtype).eps)
    if not is_unit.all():
        normalised = w.clone()
        normalise_vectors_(normalised, dims)
        w.copy_(torch.where(is_unit, w, normalised))
