"""Brings the weight vectors of a parameter to unit norm: before training, and after loading."""

import warnings

import torch
from torch import Tensor

from ndadam.cuda import has_values
from ndadam.optimizer.foreach_step import other_dims
from ndadam.vectors.sharding import local
from ndadam.vectors.turning import normalise_vectors_

_FULL = (torch.float32, torch.float64)


class UnitNorms:
    """Brings parameters of one optimizer to unit norm, and warns once of vectors that are zero."""

    def __init__(self) -> None:
        self._warned: dict[Tensor, int] = {}

    def normalise_(self, name: str, p: Tensor, vector_dim: int) -> None:
        """Give the vectors of ``p`` unit norm; warn when some are zero.

        Those that have it, up to rounding, keep their bits: weights from a checkpoint train on as
        they were, whether they are loaded before the optimizer is made or after it.
        """
        if p.numel() == 0 or not has_values(p):
            return
        w, dims = local(p), other_dims(p.dim(), vector_dim)
        with torch.no_grad():
            normalised = w.clone()
            is_zero = normalise_vectors_(normalised, dims)
            w.copy_(torch.where(_norm_error(w, dims) <= _rounding(w.dtype), w, normalised))
            zeros = int(is_zero.sum())
        if zeros and self._warned.get(p) != zeros:
            self._warned[p] = zeros
            warnings.warn(
                f"{zeros} of {p.shape[vector_dim]} weight vectors of {name} are zero and cannot "
                "be normalised: each stays zero until its first gradient and lr > 0, which give "
                "it unit norm in the direction opposite to that gradient",
                stacklevel=4,
            )


def renormalise_parameter_(p: Tensor, vector_dim: int) -> None:
    """Give unit norm to the vectors of ``p`` that were loaded with another; others keep their bits.

    Another norm is one that is off by more than rounding, in the precision of ``p``.
    """
    if not has_values(p):
        return
    w, dims = local(p), other_dims(p.dim(), vector_dim)
    is_unit = _norm_error(w, dims) < max(1e-3, 8 * torch.finfo(w.dtype).eps)
    if not is_unit.all():
        normalised = w.clone()
        normalise_vectors_(normalised, dims)
        w.copy_(torch.where(is_unit, w, normalised))


def _norm_error(w: Tensor, dims: tuple[int, ...]) -> Tensor:
    """How far the norm of each vector is from 1, (V, 1)."""
    exact = w if w.dtype in _FULL else w.float()
    norm: Tensor = torch.linalg.vector_norm(exact, dim=dims, keepdim=True)
    return (norm - 1).abs_()


def _rounding(dtype: torch.dtype) -> float:
    """The largest error of the norm of a unit vector that has been rounded to ``dtype``.

    Half of eps; where norms are computed in ``dtype`` itself, room for the errors of the sum.
    """
    return torch.finfo(dtype).eps * (8 if dtype in _FULL else 0.5)
