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

    def normalise_(
        self, name: str, p: Tensor, vector_dim: int, *, only_extremes: bool = False
    ) -> None:
        """Give the vectors of ``p`` unit norm; warn when some are zero.

        Those that have it, up to rounding, keep their bits: weights from a checkpoint train on as
        they were, whether they are loaded before the optimizer is made or after it. With
        ``only_extremes`` all do whose squared norm is within the range of its type.
        """
        if p.numel() == 0 or not has_values(p):
            return
        w, dims = local(p), other_dims(p.dim(), vector_dim)
        with torch.no_grad():
            normalised = w.clone()
            is_zero = normalise_vectors_(normalised, dims)
            norm = _norms(w, dims)
            keeps = (norm - 1).abs() <= _rounding(w.dtype)
            if only_extremes:
                keeps |= norm.isfinite() & (norm.square() > torch.finfo(norm.dtype).tiny)
            w.copy_(torch.where(keeps, w, normalised))
            zeros = int(is_zero.sum())
        if zeros and self._warned.get(p) != zeros:
            self._warned[p] = zeros
            warnings.warn(
                f"{zeros} of {p.shape[vector_dim]} weight vectors of {name} are zero and cannot "
                "be normalised: each stays zero until its first gradient and lr > 0, which give "
                "it unit norm in the direction opposite to that gradient",
                stacklevel=4,
            )


def _norms(w: Tensor, dims: tuple[int, ...]) -> Tensor:
    """The norm of each vector, (V, 1)."""
    exact = w if w.dtype in _FULL else w.float()
    norm: Tensor = torch.linalg.vector_norm(exact, dim=dims, keepdim=True)
    return norm


def _rounding(dtype: torch.dtype) -> float:
    """The largest error of the norm of a unit vector that has been rounded to ``dtype``.

    Half of eps; where norms are computed in ``dtype`` itself, room for the errors of the sum.
    """
    return torch.finfo(dtype).eps * (8 if dtype in _FULL else 0.5)
