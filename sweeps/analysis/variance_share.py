"""How much of the objective's spread each field explains by itself. Pure Python, one pass.

The measure is omega squared of the points' means over a field's values or bins: the share of the
variance between points that the field alone accounts for, corrected for what as many random bins
would explain. Interactions count for none of the fields, so the shares need not add up to 1.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ndadam.statistics.inference import t_quantile
from sweeps.records import Point
from sweeps.spec.domains import same

#: Bins of a range, each with as many points.
BINS = 8
#: Fewer points than this per field say nothing.
LEAST_POINTS = 12
#: Parts that are left out in turn for the interval (delete-group jackknife).
GROUPS = 20


@dataclass(frozen=True)
class VarianceShare:
    """One field's share of the variance between points, 0..1, with its 95 % interval."""

    field: str
    share: float
    low: float
    high: float
    #: Points in which the field varied and that have a mean.
    n: int


def variance_shares(space: Mapping[str, Any], points: Sequence[Point]) -> list[VarianceShare]:
    """Return the fields that enough points vary, the most important first.

    Args:
        space: Field -> domain as in the spec.
        points: In the order of their numbers; those without a mean are left out.
    """
    found = []
    for field, domain in space.items():
        rows = [
            (p.params[field], p.mean) for p in points if field in p.params and p.mean is not None
        ]
        if len(rows) < LEAST_POINTS:
            continue
        bins = _bins([value for value, _ in rows], is_choice=domain.get("kind") == "choice")
        if 1 < max(bins) + 1 < len(rows):
            found.append(_share(field, bins, [mean for _, mean in rows]))
    return sorted(found, key=lambda one: (-one.share, one.field))


def _bins(values: Sequence[Any], *, is_choice: bool) -> list[int]:
    """The bin of each value: one per value where there are few, else equally full ranges."""
    place: dict[Any, int] = {}
    for value in values:
        place.setdefault(same(value), len(place))
    if is_choice or len(place) <= BINS:
        return [place[same(value)] for value in values]
    order = sorted(range(len(values)), key=lambda index: (values[index], index))
    bins = [0] * len(values)
    for rank, index in enumerate(order):
        bins[index] = rank * BINS // len(values)
    return bins


def _share(field: str, bins: Sequence[int], means: Sequence[float]) -> VarianceShare:
    centre = math.fsum(means) / len(means)
    groups = min(GROUPS, len(means))
    count = max(bins) + 1
    # (n, sum, sum of squares) per group and bin; leaving a group out is then a subtraction.
    cells = [[[0.0, 0.0, 0.0] for _ in range(count)] for _ in range(groups)]
    for index, (at, mean) in enumerate(zip(bins, means, strict=True)):
        cell, off = cells[index % groups][at], mean - centre
        cell[0] += 1
        cell[1] += off
        cell[2] += off * off
    whole = [[math.fsum(g[b][k] for g in cells) for k in range(3)] for b in range(count)]
    share = _omega_squared(whole)
    without = [
        _omega_squared([[whole[b][k] - part[b][k] for k in range(3)] for b in range(count)])
        for part in cells
    ]
    middle = math.fsum(without) / groups
    spread = math.fsum((value - middle) ** 2 for value in without) * (groups - 1) / groups
    half = t_quantile(0.975, groups - 1) * math.sqrt(spread)
    return VarianceShare(field, share, max(0.0, share - half), min(1.0, share + half), len(means))


def _omega_squared(cells: Sequence[Sequence[float]]) -> float:
    """Share of the variance between bins, from (n, sum, sum of squares) of each bin."""
    full = [cell for cell in cells if cell[0] >= 0.5]
    n, total = math.fsum(c[0] for c in full), math.fsum(c[1] for c in full)
    squares = math.fsum(c[2] for c in full) - total * total / n
    between = math.fsum(c[1] * c[1] / c[0] for c in full) - total * total / n
    inner = n - len(full)
    if inner < 1 or squares <= 0:
        return 0.0
    noise = max(squares - between, 0.0) / inner
    return min(1.0, max(0.0, (between - (len(full) - 1) * noise) / (squares + noise)))
