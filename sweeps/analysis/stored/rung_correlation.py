"""Do early results foretell the end? Rank correlation between each rung and the final objective.

Only points that went on to the end have both, and they are the better ones: among all points the
correlation would be higher. A low one says that the scheduler stopped points by chance.
"""

from collections.abc import Sequence
from typing import Any

from sweeps.records import Point, Sweep, TrialState
from sweeps.search.early_stopping import rungs_until
from sweeps.store.store import Store

#: Fewer points have no ranks worth correlating.
FEWEST_POINTS = 4
#: Points whose curves are read, at most: the first ones by number.
MOST_POINTS = 500


def rung_correlations(
    store: Store, sweep: Sweep, points: Sequence[Point]
) -> list[dict[str, Any]] | None:
    """A row for each rung of a sweep with ASHA; None without it.

    ``spearman`` is None where fewer than four points have both values, or all values are alike.
    """
    scheduler = sweep.scheduler or {}
    if scheduler.get("kind") != "asha":
        return None
    ended = [p for p in points if p.state == TrialState.COMPLETE and p.mean is not None]
    ended = ended[:MOST_POINTS]
    metric = sweep.objective.metric
    curves = store.point_curves(sweep.id, metric, [p.number for p in ended], 10_000)
    by_point = {curve.point: curve for curve in curves}
    last = max((curve.steps[-1] for curve in curves if curve.steps), default=0)
    rows = []
    for rung in rungs_until(scheduler["min_steps"], scheduler["reduction_factor"], last):
        pairs = []
        for point in ended:
            curve = by_point.get(point.number)
            at = _at(curve.steps, curve.mean, rung) if curve else None
            if at is not None and point.mean is not None:
                pairs.append((at, point.mean))
        rows.append({"step": rung, "points": len(pairs), "spearman": spearman(pairs)})
    return rows


def _at(steps: Sequence[int], values: Sequence[float], step: int) -> float | None:
    """The first value at or behind a step, as the scheduler judged it."""
    return next((v for s, v in zip(steps, values, strict=True) if s >= step), None)


def spearman(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Correlation of the ranks; equal values share the mean of their ranks."""
    if len(pairs) < FEWEST_POINTS:
        return None
    early, late = zip(*pairs, strict=True)
    if len(set(early)) < 2 or len(set(late)) < 2:
        return None
    from scipy.stats import spearmanr  # here alone: it loads for a second

    return float(spearmanr(early, late).statistic)
