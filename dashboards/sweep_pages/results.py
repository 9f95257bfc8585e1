"""Results of a sweep for its page: arms, comparisons, and trends over one field."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from dashboards.plots.sweep import Trend
from dashboards.web.point_cache import kept
from dashboards.wording.differing_fields import Differing, differing_fields
from dashboards.wording.formatting import (
    choice_word,
    difference_with_interval,
    estimate,
    mean_text,
    number,
)
from dashboards.wording.pair_note import pair_note
from dashboards.wording.sweep_facts import objective_quantity, settings_text
from sweeps.analysis.arms import MAX_COMPARED, ArmResult, Comparison, analysis
from sweeps.analysis.intervals import ends_of_mean
from sweeps.analysis.sensitivity import SensitivityBin, sensitivity
from sweeps.figures.quantities import quantity
from sweeps.figures.sweep import Setting, is_number, optimizer_of
from sweeps.records import Point, Sweep
from sweeps.store.queries.thinning import thin
from sweeps.store.store import Store

#: Up to this many points, each may be an arm of its own (a table of the paper); beyond it only
#: optimizers are.
MOST_ARMS = 40
#: More marks than this in one plot hide each other; its means are over all points.
MAX_SETTINGS = 600
#: Bins of a range that hold two points or more; with fewer, a line would only show the bins' edges.
LEAST_BINS = 3


@dataclass(frozen=True)
class ArmRow:
    """The best point of one arm."""

    name: str
    objective: str
    test_error: str
    seeds: int
    points: int
    diverged: int
    point: int
    #: "selected", "provisional", or "" where the arm has a single point.
    standing: str
    settings: Markup


@dataclass(frozen=True)
class ComparisonRow:
    """Two arms, their difference and the verdict."""

    arms: str
    metric: str
    difference: str
    p_value: str
    verdict: str


def best_text(sweep: Sweep, best: Mapping[str, Any]) -> str:
    """The mean of a sweep's best point with its interval."""
    metric = objective_quantity(sweep)
    ends = ends_of_mean(metric.key, best["mean"], best["sd"], best["n"])
    return mean_text(metric, best["mean"], *ends)


def standing_of_best(sweep: Sweep) -> str:
    """How far the best point is to be trusted.

    "provisional" while some of its seeds have yet to end, "in one objective" where there are
    several, "on fresh seeds" in a confirmation, whose points were chosen elsewhere, else
    "selected": by the very numbers that it shows.
    """
    n = (sweep.best or {}).get("n", 0)
    if sweep.has_front:
        return _standing(sweep, n, "in one objective")
    return _standing(sweep, n, "on fresh seeds" if sweep.confirms else "selected")


def _standing(sweep: Sweep, n: int, whole: str) -> str:
    """``whole`` for a point with all of its seeds, or of a sweep that trains no more of them."""
    return "provisional" if n < sweep.replicates and not sweep.state.is_finished() else whole


def result_values(store: Store, sweep: Sweep) -> dict[str, Any]:
    """What ``sweep/results.html`` shows."""
    many = sum(sweep.trials.values()) > MOST_ARMS * sweep.replicates
    optimizer = ["optimizer"] if "optimizer" in sweep.space else []
    found = kept(
        store,
        sweep,
        "analysis",
        lambda: analysis(store, sweep.id, optimizer if many else None),
    )
    sign = sweep.objective.sign
    arms = [arm for arm in found.arms if arm.objective is not None]
    arms.sort(key=lambda arm: sign * arm.objective.mean if arm.objective else math.inf)
    return {
        "arms": [_arm_row(sweep, arm) for arm in arms],
        "shows_test_error": any(arm.test_error for arm in arms) and found.metric != "test_error",
        "comparisons": [_comparison_row(sweep, row) for row in found.comparisons],
        "pair_note": pair_note(len(found.comparisons)),
        "notes": found.notes if arms else [],
        "differing": kept(store, sweep, "differing", lambda: _differing(store, sweep, arms)),
    }


def _differing(store: Store, sweep: Sweep, arms: Sequence[ArmResult]) -> Differing | None:
    """The resolved fields in which the compared points differ; None if there is one arm."""
    if not 1 < len(arms) <= MAX_COMPARED:
        return None
    named = {_arm_name(arm.arm) or str(arm.point): arm.point for arm in arms}
    configs = {}
    for name, point in named.items():
        trials = store.trials(sweep.id, point=point, limit=1).items
        if trials:
            configs[name] = trials[0].config
    return differing_fields(configs, sweep.training)


def _arm_row(sweep: Sweep, arm: ArmResult) -> ArmRow:
    assert arm.objective is not None
    assert arm.point is not None
    rest = {name: value for name, value in arm.params.items() if name not in arm.arm}
    return ArmRow(
        name=_arm_name(arm.arm) or optimizer_of(sweep, arm.params),
        objective=estimate(objective_quantity(sweep), arm.objective),
        test_error=estimate("test_error", arm.test_error),
        seeds=arm.objective.n,
        points=arm.points,
        diverged=arm.points_diverged,
        point=arm.point,
        standing=_standing(sweep, arm.objective.n, "selected" if arm.selected else ""),
        settings=settings_text(rest, sweep.training),
    )


def _arm_name(arm: dict[str, Any]) -> str:
    return ", ".join(
        choice_word(value) if name == "optimizer" else f"{name} {choice_word(value)}"
        for name, value in arm.items()
    )


def _comparison_row(sweep: Sweep, row: Comparison) -> ComparisonRow:
    metric = quantity(row.metric, sweep.metrics, sweep.training)
    return ComparisonRow(
        arms=f"{_arm_name(row.a)} − {_arm_name(row.b)}",
        metric=metric.name,
        difference=difference_with_interval(metric, row.difference, row.low, row.high),
        p_value=number(row.p_holm, 2),
        verdict=row.verdict,
    )


def settings(sweep: Sweep, points: Sequence[Point], param: str) -> list[Setting]:
    """The points of a sensitivity plot, at most ``MAX_SETTINGS``: the best, and an even part."""
    place = _place(sweep.space[param])
    found = [
        Setting(p.number, place(p.params[param]), p.mean, p.sd, p.n, optimizer_of(sweep, p.params))
        for p in points
        if p.mean is not None and param in p.params
    ]
    best = (sweep.best or {}).get("point")
    kept_points = {s.point for s in thin(found, MAX_SETTINGS)} | {best}
    return [s for s in found if s.point in kept_points]


def trend(sweep: Sweep, points: Sequence[Point], param: str) -> list[Trend]:
    """Mean objective over one field; [] if the design or the number of points does not allow it."""
    found = next(iter(sensitivity(sweep, points, param)), None)
    if found is None:
        return []
    place = _place(sweep.space[param])
    ranges = [part for part in found.bins if part.low is not None and part.n >= 2]
    values = [part for part in found.bins if part.low is None and part.n]
    if ranges:
        enough = len(ranges) >= LEAST_BINS
        return [_trend(part, _middle(part, log=found.log)) for part in ranges] if enough else []
    # If every value was tried once, the means are the points themselves.
    if not any(part.n > 1 for part in values):
        return []
    return [_trend(part, place(part.value)) for part in values]


def _trend(part: SensitivityBin, at: float | str) -> Trend:
    assert part.mean is not None
    return Trend(at, part.mean, part.mean_low, part.mean_high, part.n)


def _middle(part: SensitivityBin, *, log: bool) -> float:
    assert part.low is not None
    assert part.high is not None
    return math.sqrt(part.low * part.high) if log else (part.low + part.high) / 2


def _place(domain: Mapping[str, Any]) -> Callable[[Any], float | str]:
    """Where values of a domain lie on an axis: numbers as they are, choices with words as words."""
    if all(is_number(value) for value in domain.get("values", ())):
        return float
    return choice_word
