"""How the objective depends on each field by itself: binned means over the points of a sweep.

Only where the sampler did not look at results: a search that follows good results visits a field's
values together with good values of the others, and the bins would show that instead.
"""

import bisect
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweeps.analysis.intervals import mean_over_seeds
from sweeps.records import Point, Sweep, TrialState
from sweeps.spec.domains import same

#: Bins of a range with more values than this.
BINS = 6
_INDEPENDENT = ("grid", "random", "qmc")


@dataclass(frozen=True)
class SensitivityBin:
    """Points whose value lies in one bin."""

    #: The value where a bin holds one; else None, and the bin reaches from ``low`` to ``high``.
    value: Any
    low: float | None
    high: float | None
    #: Points with a mean, and their mean with a 95 % t-interval (None below two points).
    n: int
    mean: float | None
    mean_low: float | None
    mean_high: float | None
    #: Points that have no mean because a replicate diverged.
    diverged: int


@dataclass(frozen=True)
class Sensitivity:
    """The objective over one field, averaged over whatever the other fields were."""

    field: str
    #: Whether the field's axis is logarithmic.
    log: bool
    bins: list[SensitivityBin]


def sensitivity(
    sweep: Sweep, points: Sequence[Point], only: str | None = None
) -> list[Sensitivity]:
    """Return a sensitivity per field of the space, or of one; [] if the design allows none."""
    if sweep.sampler not in _INDEPENDENT or sweep.scheduler is not None:
        return []
    found = []
    for field, domain in sweep.space.items():
        members = [point for point in points if field in point.params]
        if members and only in (None, field):
            log = bool(domain.get("log", False))
            bins = _bins(sweep.objective.metric, field, domain, members, log=log)
            found.append(Sensitivity(field, log, bins))
    return found


def _bins(
    metric: str, field: str, domain: Mapping[str, Any], points: Sequence[Point], *, log: bool
) -> list[SensitivityBin]:
    at_value: dict[str, list[Point]] = {}
    for point in points:
        at_value.setdefault(same(point.params[field]), []).append(point)
    if domain["kind"] == "choice" or len(at_value) <= BINS + 2:
        groups = [(members[-1].params[field], members) for members in at_value.values()]
        if domain["kind"] == "choice":
            place = {same(value): i for i, value in enumerate(domain["values"])}
            groups.sort(key=lambda group: place.get(same(group[0]), len(place)))
        else:
            groups.sort(key=lambda group: group[0])
        return [_bin(metric, members, value=value) for value, members in groups]
    edges = _edges(domain["low"], domain["high"], log=log)
    bins: list[list[Point]] = [[] for _ in range(BINS)]
    for point in points:
        value = point.params[field]
        if edges[0] <= value <= edges[-1]:
            bins[min(bisect.bisect_right(edges, value) - 1, BINS - 1)].append(point)
    return [
        _bin(metric, members, low=low, high=high)
        for members, (low, high) in zip(bins, itertools.pairwise(edges), strict=True)
    ]


def _edges(low: float, high: float, *, log: bool) -> list[float]:
    """Ends of equally wide bins on the field's own axis."""
    if log:
        a, b = math.log(low), math.log(high)
        inner = [math.exp(a + (b - a) * i / BINS) for i in range(1, BINS)]
    else:
        inner = [low + (high - low) * i / BINS for i in range(1, BINS)]
    return [low, *inner, high]


def _bin(
    metric: str,
    points: Sequence[Point],
    *,
    value: Any = None,
    low: float | None = None,
    high: float | None = None,
) -> SensitivityBin:
    means = [point.mean for point in points if point.mean is not None]
    interval = mean_over_seeds(metric, means) if means else None
    return SensitivityBin(
        value=value,
        low=low,
        high=high,
        n=len(means),
        mean=None if interval is None else interval.mean,
        mean_low=None if interval is None else interval.low,
        mean_high=None if interval is None else interval.high,
        diverged=sum(point.state == TrialState.DIVERGED for point in points),
    )
