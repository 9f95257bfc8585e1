"""Trains both optimizers of a match on fresh seeds, and judges their results against a margin."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from ndadam.statistics.inference import Difference, non_inferiority, welch
from sweeps.analysis.formatting import figures, is_error, signed_figures
from sweeps.analysis.intervals import mean_over_seeds
from sweeps.match.result import ComparisonFindings, Interval
from sweeps.records import Trial
from sweeps.spec.model import SpecModel
from worker.config.train_config import FieldError

Metric = Literal["test_error", "validation_error", "train_loss"]


class Compare(SpecModel):
    """How source and target are compared at the matched rate. Declared before anything runs."""

    margin: Annotated[float, Field(strict=True, gt=0, lt=1)] = Field(
        description="By how much the target may be worse and still count as not inferior, in the "
        "metric's unit (errors are fractions: 0.005 is half a point)."
    )
    replicates: Annotated[int, Field(strict=True, ge=2, le=64)] = Field(
        5, description="Fresh seeds of each side, none of them used by the match."
    )
    metric: Metric = Field("test_error", description="Last value of a run; lower is better.")


def refuse_unmeasured(compare_by: Compare, validation_fraction: float) -> None:
    """Raise FieldError where runs would not have the metric."""
    if compare_by.metric == "validation_error" and validation_fraction == 0:
        raise FieldError(
            "compare.metric",
            "compare.metric validation_error needs base.validation_fraction > 0, got 0.0",
        )


def compared(
    rule: Compare, sources: Sequence[Trial], targets: Sequence[Trial]
) -> ComparisonFindings:
    """The interval of target minus source, and whether the target is non-inferior."""
    a = [trial.metrics[rule.metric] for trial in targets]
    b = [trial.metrics[rule.metric] for trial in sources]
    difference = welch(a, b)
    verdict = non_inferiority(difference, rule.margin)
    return ComparisonFindings(
        metric=rule.metric,
        margin=rule.margin,
        source=_interval(rule.metric, b),
        target=_interval(rule.metric, a),
        difference=Interval(value=difference.difference, low=difference.low, high=difference.high),
        non_inferior=verdict.shown,
        seeds=[trial.seed for trial in targets],
        sentence=_sentence(rule, difference, is_shown=verdict.shown),
    )


def _interval(metric: str, values: Sequence[float]) -> Interval:
    found = mean_over_seeds(metric, values)
    return Interval(value=found.mean, low=found.low, high=found.high)


def _sentence(rule: Compare, difference: Difference, *, is_shown: bool) -> str:
    scale, unit = (100.0, " points") if is_error(rule.metric) else (1.0, "")
    name = rule.metric.replace("_", " ")
    low, value, high = (
        signed_figures(scale * x, 3)
        for x in (difference.low, difference.difference, difference.high)
    )
    verdict = "not inferior" if is_shown else "not shown to be non-inferior"
    margin = f"{figures(scale * rule.margin, 3)}{unit}"
    if margin == "1 points":
        margin = "1 point"
    return (
        f"At the matched rate the target is {verdict} to the source in {name}, by a margin of "
        f"{margin}: target minus source is {value}{unit}, 95 % interval {low} to {high}, over "
        f"{rule.replicates} fresh seeds each."
    )
