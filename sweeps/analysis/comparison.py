"""Compares arms of any finished sweeps: differences with intervals, and what else differs.

What may be assumed was declared before anything ran: pairing and margin come from the sweeps'
specs, never from the question. Every verdict of one comparison is corrected for all of them (Holm).
"""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from ndadam.statistics.inference import non_inferiority
from sweeps.analysis.compared_arms import Arm, ArmRef, collect, metric_of
from sweeps.analysis.intervals import mean_over_seeds
from sweeps.analysis.verdicts import (
    Judged,
    Pair,
    Sample,
    Unlike,
    cautions,
    detectable,
    judged,
    sorted_pairs,
)
from sweeps.records import Sweep
from sweeps.spec.model import SpecModel
from sweeps.store.store import Store
from worker.config.train_config import FieldError

#: Arms of one comparison; more pairs than that are a search, not a comparison.
MAX_ARMS = 20


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
    maximize = any(_is_maximized(arm.sweep, metric) for arm in arms)
    notes: list[str] = []
    usable = [arm for arm in arms if _is_usable(arm, metric, notes)]
    pairing, margin = _declared(arms, notes)
    samples = [arm.sample(metric) for arm in usable]
    pairs, unlike = _pairs(samples, baseline, pairing=pairing)
    known = [sample for sample in samples if any(sample in pair for pair in pairs)]
    return {
        "metric": metric,
        "direction": "maximize" if maximize else "minimize",
        "pairing": pairing,
        "margin": margin,
        "arms": [_arm_row(arm, metric) for arm in arms],
        "differences": [
            _row(one, margin, maximize=maximize) for one in judged(pairs, pairing=pairing)
        ],
        "not_comparable": [
            {"a": one.a.label, "b": one.b.label, "reason": one.reason} for one in unlike
        ],
        "detectable_difference": detectable(known, pairing=pairing),
        "differing_fields": _differing(arms),
        "mixed_provenance": _mixed(arms),
        "notes": notes
        + cautions(pairs)
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


def _pairs(
    samples: Sequence[Sample], baseline: Arm | None, *, pairing: bool
) -> tuple[list[Pair], list[Unlike]]:
    """The pairs of what is compared; none where the baseline itself cannot be."""
    if baseline is None:
        return sorted_pairs(samples, pairing=pairing)
    # No two arms share a label.
    found = next((one for one in samples if one.label == baseline.label), None)
    return ([], []) if found is None else sorted_pairs(samples, pairing=pairing, baseline=found)


def _is_maximized(sweep: Sweep, metric: str) -> bool:
    """Whether a larger value of a metric is better: as the objective, or as it is declared."""
    if metric_of(sweep) == metric:
        return sweep.objective.is_maximized
    return bool(sweep.metrics.get(metric, {}).get("direction") == "maximize")


def _row(found: Judged, margin: float | None, *, maximize: bool) -> dict[str, Any]:
    """Arm a minus arm b, and whether a is worse than b by less than the margin, if there is one."""
    difference = found.difference
    judged = (
        None
        if margin is None
        else non_inferiority(difference, margin, lower_is_better=not maximize)
    )
    return {
        "a": found.a.label,
        "b": found.b.label,
        "method": found.method,
        "difference": difference.difference,
        "low": difference.low,
        "high": difference.high,
        "df": min(difference.df, 1e9),
        "p_value": difference.p_value,
        "p_holm": found.p_holm,
        "verdict": found.verdict,
        "non_inferior": None if judged is None else judged.shown,
        "worst_case": None if judged is None else judged.worst_case,
    }


# --- What else there is to see ------------------------------------------------------------------


def _arm_row(arm: Arm, metric: str) -> dict[str, Any]:
    values = arm.values(metric)
    interval = mean_over_seeds(metric, values) if values else None
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
