"""Compares arms of any finished sweeps: differences with intervals, and what else differs.

What may be assumed was declared before anything ran: pairing and margin come from the sweeps'
specs, never from the question. Every verdict of one comparison is corrected for all of them (Holm).
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from ndadam.statistics.inference import (
    Difference,
    detectable_difference,
    holm,
    mean_interval,
    non_inferiority,
    paired,
    welch,
)
from sweeps.analysis.compared_arms import (
    Arm,
    ArmRef,
    are_pairs,
    cautions,
    collect,
    metric_of,
    not_comparable,
)
from sweeps.spec.model import SpecModel
from sweeps.store.store import Store
from worker.config.train_config import FieldError

#: Arms of one comparison; more pairs than that are a search, not a comparison.
MAX_ARMS = 20

Method = Literal["welch", "paired"]


class ComparisonSpec(SpecModel):
    """What to compare, by what."""

    arms: Annotated[list[ArmRef], Field(min_length=1, max_length=MAX_ARMS)] = Field(
        description="Sweeps, points or trials; at least two arms in all."
    )
    metric: Annotated[str, Field(strict=True, min_length=1, max_length=200)] | None = Field(
        None, description="None = the test error where every arm has it, else the objective."
    )
    baseline: Annotated[int, Field(strict=True, ge=0, lt=MAX_ARMS)] | None = Field(
        None, description="Place in arms of the one that all others are compared with; none = all."
    )


@dataclass(frozen=True)
class Pair:
    """Arm a minus arm b, both by label."""

    a: str
    b: str
    method: Method
    difference: float
    low: float
    high: float
    df: float
    p_value: float
    p_holm: float
    #: Of a against b: "lower", "higher", "not shown".
    verdict: str
    #: Whether a is worse than b by less than the margin; None where none was declared.
    non_inferior: bool | None
    #: The largest amount by which a may be worse, at 95 %.
    worst_case: float | None


def compare(store: Store, asked: ComparisonSpec) -> dict[str, Any]:
    """Compare, as JSON values. Raises FieldError for what cannot be compared."""
    groups = collect(store, asked.arms)
    arms = _relabelled([arm for group in groups for arm in group])
    if not 2 <= len(arms) <= MAX_ARMS:
        raise FieldError(
            "arms", f"a comparison needs 2 to {MAX_ARMS} arms, these references make {len(arms)}"
        )
    baseline = _baseline(groups, arms, asked.baseline)
    metric = _metric(arms, asked.metric)
    maximize = any(
        arm.sweep.objective.is_maximized and metric_of(arm.sweep) == metric for arm in arms
    )
    notes: list[str] = []
    usable = [arm for arm in arms if _is_usable(arm, metric, notes)]
    pairing, margin = _declared(arms, notes)
    pairs, unlike = _sorted_pairs(usable, baseline, metric, pairing=pairing)
    judged = [arm for arm in usable if any(arm in pair for pair in pairs)]
    found = _judged(pairs, metric, pairing=pairing, margin=margin, maximize=maximize)
    return {
        "metric": metric,
        "direction": "maximize" if maximize else "minimize",
        "pairing": pairing,
        "margin": margin,
        "arms": [_arm_row(arm, metric) for arm in arms],
        "differences": [vars(pair) for pair in found],
        "not_comparable": unlike,
        "detectable_difference": _detectable(judged, metric, pairing=pairing),
        "differing_fields": _differing(arms),
        "mixed_provenance": _mixed(arms),
        "notes": notes
        + cautions(pairs, metric)
        + _warnings(arms)
        + _doubts(usable, metric, pairing=pairing),
    }


# --- What is compared by what -------------------------------------------------------------------


def _relabelled(arms: Sequence[Arm]) -> list[Arm]:
    """Two arms never share a label: the id of the sweep goes behind those that would."""
    labels = [arm.label for arm in arms]
    found: list[Arm] = []
    for arm in arms:
        label = arm.label
        if labels.count(label) > 1:
            label = f"{label} {arm.sweep.id}"
        taken = [one.label for one in found]
        if label in taken:
            label = f"{label} ({len(found)})"
        found.append(Arm(**vars(arm) | {"label": label}))
    return found


def _baseline(groups: Sequence[list[Arm]], arms: Sequence[Arm], place: int | None) -> Arm | None:
    if place is None:
        return None
    if place >= len(groups) or len(groups[place]) != 1:
        what = "is not there" if place >= len(groups) else f"makes {len(groups[place])} arms"
        raise FieldError("baseline", f"baseline must be the place of one arm, and {place} {what}")
    return arms[sum(map(len, groups[:place]))]


def _metric(arms: Sequence[Arm], asked: str | None) -> str:
    """The metric that was asked for, or the one that every arm with trials has."""
    trained = [arm for arm in arms if arm.trials]
    objectives = {metric for arm in arms if (metric := metric_of(arm.sweep)) is not None}
    wanted = [asked] if asked else ["test_error", *sorted(objectives)]
    for metric in wanted:
        if trained and all(arm.values(metric) for arm in trained):
            return metric
    raise FieldError(
        "metric",
        f"no arm-wide value of {' or '.join(wanted)}: every complete trial must have reported it",
    )


def _is_usable(arm: Arm, metric: str, notes: list[str]) -> bool:
    """Whether an arm can be compared; a note says why not."""
    if "diverged" in arm.lost or "pruned" in arm.lost:
        lost = ", ".join(f"{count} {state}" for state, count in sorted(arm.lost.items()))
        notes.append(
            f"{arm.label} is not compared: {lost} of its seeds; the mean of those that survived "
            "would flatter it."
        )
        return False
    if len(arm.values(metric)) < 2:
        notes.append(f"{arm.label} is not compared: it has fewer than two seeds with a value.")
        return False
    return True


def _declared(arms: Sequence[Arm], notes: list[str]) -> tuple[bool, float | None]:
    """Pairing and margin, as far as every sweep declared them before it was submitted."""
    declared = [arm.sweep.declared_comparison for arm in arms]
    pairing = all(one.get("pairing") for one in declared)
    margins = {one.get("margin") for one in declared}
    if not pairing and any(one.get("pairing") for one in declared):
        notes.append("Not paired: not every sweep declared pairing before its submission.")
    if len(margins) > 1:
        notes.append("No non-inferiority: the sweeps did not declare the same margin.")
    return pairing, margins.pop() if len(margins) == 1 else None


# --- Differences --------------------------------------------------------------------------------


def _sorted_pairs(
    arms: Sequence[Arm], baseline: Arm | None, metric: str, *, pairing: bool
) -> tuple[list[tuple[Arm, Arm]], list[dict[str, str]]]:
    """The pairs that a verdict can be given on, and the others with the reason by name."""
    pairs, unlike = [], []
    for a, b in itertools.combinations(arms, 2):
        if baseline is not None and a is not baseline and b is not baseline:
            continue
        # The baseline is what others are held against.
        first, second = (b, a) if a is baseline else (a, b)
        reason = not_comparable(first, second, metric, pairing=pairing)
        if reason:
            unlike.append({"a": first.label, "b": second.label, "reason": reason})
        else:
            pairs.append((first, second))
    return pairs, unlike


def _judged(
    pairs: Sequence[tuple[Arm, Arm]],
    metric: str,
    *,
    pairing: bool,
    margin: float | None,
    maximize: bool,
) -> list[Pair]:
    judged = [_difference(a, b, metric, pairing=pairing) for a, b in pairs]
    adjusted = holm([difference.p_value for difference, _ in judged])
    return [
        _pair(a, b, difference, method, p_holm, margin=margin, maximize=maximize)
        for (a, b), (difference, method), p_holm in zip(pairs, judged, adjusted, strict=True)
    ]


def _difference(a: Arm, b: Arm, metric: str, *, pairing: bool) -> tuple[Difference, Method]:
    x, y = a.values(metric), b.values(metric)
    if pairing and are_pairs(a, b):
        return paired(x, y), "paired"
    return welch(x, y), "welch"


def _pair(
    a: Arm,
    b: Arm,
    difference: Difference,
    method: Method,
    p_holm: float,
    *,
    margin: float | None,
    maximize: bool,
) -> Pair:
    judged = (
        None
        if margin is None
        else non_inferiority(difference, margin, lower_is_better=not maximize)
    )
    return Pair(
        a=a.label,
        b=b.label,
        method=method,
        difference=difference.difference,
        low=difference.low,
        high=difference.high,
        df=min(difference.df, 1e9),
        p_value=difference.p_value,
        p_holm=p_holm,
        verdict=difference.direction(p_holm),
        non_inferior=None if judged is None else judged.shown,
        worst_case=None if judged is None else judged.worst_case,
    )


def _detectable(arms: Sequence[Arm], metric: str, *, pairing: bool) -> float | None:
    """Difference that the fewest seeds here show with 80 % chance, at their largest deviation."""
    pairs = list(itertools.combinations(arms, 2))
    if pairing and pairs and all(are_pairs(a, b) for a, b in pairs):
        return _detectable_paired(pairs, metric)
    found = [mean_interval(arm.values(metric)) for arm in arms]
    spreads = [interval.sd for interval in found if interval.sd is not None]
    if not spreads:
        return None
    return detectable_difference(max(spreads), min(interval.n for interval in found))


def _detectable_paired(pairs: Sequence[tuple[Arm, Arm]], metric: str) -> float | None:
    """The same seed by seed: what counts is how far the differences spread."""
    gaps = [
        [x - y for x, y in zip(a.values(metric), b.values(metric), strict=True)] for a, b in pairs
    ]
    spreads = [interval.sd for interval in map(mean_interval, gaps) if interval.sd is not None]
    return detectable_difference(max(spreads), len(gaps[0]), paired=True) if spreads else None


# --- What else there is to see ------------------------------------------------------------------


def _arm_row(arm: Arm, metric: str) -> dict[str, Any]:
    values = arm.values(metric)
    interval = mean_interval(values) if values else None
    return {
        "label": arm.label,
        "sweep": arm.sweep.id,
        "point": arm.point,
        "params": arm.params,
        "selected": arm.selected,
        "chosen_from": arm.chosen_from,
        "n": len(values),
        "mean": interval and interval.mean,
        "sd": interval and interval.sd,
        "low": interval and interval.low,
        "high": interval and interval.high,
        "seeds": arm.seeds if values else [],
        "values": values,
        "trials": [trial.number for trial in arm.trials],
        "lost": arm.lost,
    }


def _differing(arms: Sequence[Arm]) -> list[dict[str, Any]]:
    """Every field of config or search that is not the same in all arms, in alphabetical order."""
    seen = [arm.config | _search(arm) for arm in arms]
    rows = []
    for name in sorted({name for fields in seen for name in fields}):
        values = [fields.get(name, [None]) for fields in seen]
        if any(value != values[0] for value in values):
            shown = {
                arm.label: value[0] if len(value) == 1 else value
                for arm, value in zip(arms, values, strict=True)
            }
            rows.append({"field": name, "values": shown})
    return rows


def _search(arm: Arm) -> dict[str, list[Any]]:
    """How the arm was found: unequal searches make unequal arms."""
    sweep = arm.sweep
    return {
        "search.sampler": [sweep.sampler],
        "search.scheduler": [(sweep.scheduler or {}).get("kind")],
        "search.objective": [metric_of(sweep)],
        "search.points": [arm.chosen_from],
        "search.replicates": [sweep.spec.get("replicates")],
    }


def _mixed(arms: Sequence[Arm]) -> list[dict[str, Any]]:
    """Where the arms, or the trials of one, were not trained alike."""
    rows = []
    for name in sorted({name for arm in arms for name in arm.origins}):
        values = {arm.label: arm.origins.get(name, []) for arm in arms}
        if len({value for found in values.values() for value in found}) > 1:
            rows.append({"what": name, "values": values})
    return rows


def _doubts(arms: Sequence[Arm], metric: str, *, pairing: bool) -> list[str]:
    """Why an interval, or a method, may not be what it looks like."""
    found = []
    for arm in arms:
        points = {trial.point for trial in arm.trials}
        if arm.point is None:
            found.append(
                f"{arm.label} was put together by hand: trials picked by their results flatter it."
            )
        if len(points) > 1:
            found.append(
                f"{arm.label} mixes {len(points)} points: its interval is over points and seeds."
            )
        if len(set(arm.values(metric))) == 1:
            found.append(
                f"{arm.label} has one value for all of its seeds: too few seeds, or too coarse a "
                "metric, to know its spread."
            )
    if pairing and len({tuple(arm.seeds) for arm in arms}) > 1:
        found.append("Not paired where two arms were not trained on the same seeds: Welch there.")
    return found


def _warnings(arms: Sequence[Arm]) -> list[str]:
    found = []
    selected = [arm.label for arm in arms if arm.selected]
    if selected:
        found.append(f"Selected, optimistic until confirmed on fresh seeds: {', '.join(selected)}.")
    if len({arm.chosen_from for arm in arms}) > 1:
        counts = ", ".join(f"{arm.label} of {arm.chosen_from}" for arm in arms)
        found.append(f"Chosen from unequal numbers of points: {counts}.")
    if _mixed(arms):
        found.append("Mixed provenance: not every trial was trained on the same ground.")
    return found
