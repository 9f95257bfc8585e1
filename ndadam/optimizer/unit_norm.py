"""Brings the weight vectors of a parameter to unit norm: before training, and after loading."""

import math
import statistics
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
        self._spreads: list[float] = []  # of what has been normalised since it was last judged

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
            if not only_extremes and not bool((keeps | is_zero).all()):
                self._spreads += spread_of_norms(w.movedim(vector_dim, 0).flatten(1))
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

    def warn_of_trained(self, *, stacklevel: int) -> None:
        """Warn if the norms of what has just been normalised are those of a trained network."""
        spreads, self._spreads = self._spreads, []
        if spreads and statistics.median(spreads) > _LARGEST_SPREAD:
            trained = sum(spread > _LARGEST_SPREAD for spread in spreads)
            warnings.warn(
                f"{trained} of {len(spreads)} weights look trained, not newly initialised: the "
                f"norms of their vectors differ {statistics.median(spreads):.1f} times as much as "
                "those of random numbers. NDAdam gives them unit norm, which changes what layers "
                "compute that no normalisation follows; ndadam.prepare(model), before the "
                "optimizer is made, keeps it. describe_groups(model) says which layers these are",
                stacklevel=stacklevel,
            )


_FEWEST_VECTORS = 32  # of which a spread is good to 12 %
_MOST_VECTORS = 256
#: New networks have 0.7 to 1.2, whatever draws their weights; a perceptron trained for 50 steps of
#: SGD or 300 of AdamW has 2 and more.
_LARGEST_SPREAD = 1.5


def spread_of_norms(rows: Tensor) -> list[float]:
    """How much the norms of rows (V, D) differ, over what independent elements would give.

    These have norms with a coefficient of variation of sqrt((k - 1) / 4 D), where k is the kurtosis
    of the elements about 0. Empty where too few rows say anything; the first 256 are looked at.
    """
    rows = rows[:_MOST_VECTORS].float()
    norms = torch.linalg.vector_norm(rows, dim=1)
    rows, norms = rows[norms > 0], norms[norms > 0]
    if len(rows) < _FEWEST_VECTORS:
        return []
    squares = (rows / norms.mean()).square()
    kurtosis = squares.square().mean() / squares.mean().square()
    expected = ((kurtosis - 1) / (4 * rows.shape[1])).sqrt()
    spread = float(norms.std() / norms.mean() / expected)
    return [spread] if math.isfinite(spread) else []


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
