"""What is computed from trials, as data frames: the analysis of a sweep, and comparisons."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ndsweep.frames import FRACTION, row_frame, unit_of_metric
from service.client.client import Client as Service
from service.client.frames import arm_rows, difference_rows, flat, value_rows
from service.contract.analysis import (
    ArmDifferenceOut,
    ArmOut,
    ConfirmedOut,
    FindingsOut,
    RungOut,
    SensitivityBinOut,
)
from service.contract.outputs import ComparisonOut, DifferenceOut, NotComparableOut, Output

if TYPE_CHECKING:
    import pandas


class NothingToShow(Exception):
    """There is nothing to draw or to choose yet. ``str(error)`` says why."""


@dataclass(frozen=True)
class Analysis:
    """What is computed from a sweep's trials as they are now.

    Means, deviations and ends of intervals are in the metric's own unit (errors are fractions);
    intervals are 95 % intervals over seeds, those of a mean error on the logit scale.
    """

    #: Metric of the objective, and which end is better: "minimize" or "maximize".
    metric: str
    direction: str
    #: What is compared, usually optimizers, a row each, by its best point: ``arm.*``, ``params.*``,
    #: ``objective.mean``, ``.sd``, ``.low``, ``.high``, ``.n``; also of ``test_error``.
    arms: "pandas.DataFrame"
    #: A row for each pair: ``a.*``, ``b.*``, ``metric``, ``difference`` with ``low`` and ``high``,
    #: ``p_value``, ``p_holm`` (Holm's correction over the table), ``verdict`` of a against b.
    comparisons: "pandas.DataFrame"
    #: The objective by field: ``field``, ``value`` or ``low`` to ``high`` of the bin, ``n`` points,
    #: ``mean`` with ``mean_low`` and ``mean_high``, ``diverged`` points.
    sensitivity: "pandas.DataFrame"
    #: Share (0 to 1) by which each field sets the best points apart: ``field``, ``share``,
    #: ``points``, ``branch.*``. Empty until the driver has computed it.
    importance: "pandas.DataFrame"
    #: Points on fresh seeds, in the sweeps that confirm this one.
    confirmed: "pandas.DataFrame"
    #: Rungs of ASHA: ``step``, ``points``, ``spearman``. Empty without ASHA.
    rungs: "pandas.DataFrame"
    #: Deviation between the seeds of a point, pooled; None without replicates.
    seed_deviation: float | None
    #: Difference of two arms that the seeds show with 80 % chance; None without replicates.
    detectable_difference: float | None
    #: What a reader should know.
    notes: list[str]


@dataclass(frozen=True)
class Comparison:
    """Arms compared with each other. Means and values are in the metric's own unit."""

    metric: str
    direction: str
    #: A row for each arm: ``label``, ``sweep``, ``point``, ``mean``, ``sd``, ``low``, ``high``,
    #: ``n``, ``selected`` (the best of several: optimistic), ``params.*``.
    arms: "pandas.DataFrame"
    #: A row for each pair: arm ``a`` minus arm ``b``, ``difference`` with ``low`` and ``high``
    #: (95 %), ``p_value``, ``p_holm``, ``verdict``, ``method`` (welch or paired).
    differences: "pandas.DataFrame"
    #: A row for each seed of each arm: ``arm``, ``sweep``, ``point``, ``seed``, ``value``.
    values: "pandas.DataFrame"
    #: Pairs on which no verdict is given, and why: ``a``, ``b``, ``reason``.
    not_comparable: "pandas.DataFrame"
    #: Difference that the seeds show with 80 % chance; None where it is not known.
    detectable_difference: float | None
    notes: list[str]


def analysis_of(spec: Mapping[str, Any], found: FindingsOut) -> Analysis:
    """The answer of the API as data frames."""
    unit = unit_of_metric(spec, found.metric)
    test = unit_of_metric(spec, "test_error")
    of_arms = {f"objective.{part}": unit for part in ("mean", "sd", "low", "high") if unit}
    of_arms |= {f"test_error.{part}": test for part in ("mean", "sd", "low", "high")}
    bins = [
        {"field": one.field, **flat(row.model_dump())}
        for one in found.sensitivity
        for row in one.bins
    ]
    shares = [
        {"field": field, "share": share, "points": one.points}
        | {f"branch.{name}": value for name, value in one.branch.items()}
        for one in found.importance or ()
        for field, share in one.fields.items()
    ]
    means = {name: unit for name in ("mean", "mean_low", "mean_high") if unit}
    return Analysis(
        metric=found.metric,
        direction=found.direction,
        arms=_rows(ArmOut, found.arms, of_arms),
        comparisons=_rows(ArmDifferenceOut, found.comparisons, {}),
        sensitivity=row_frame(bins, means, ["field", *SensitivityBinOut.model_fields]),
        importance=row_frame(shares, {"share": FRACTION}, ("field", "share", "points")),
        confirmed=_rows(ConfirmedOut, found.confirmed, of_arms),
        rungs=_rows(RungOut, found.rungs or (), {"step": "steps"}),
        seed_deviation=found.seed_deviation,
        detectable_difference=found.detectable_difference,
        notes=found.notes,
    )


def compare(
    service: Service, arms: Sequence[Any], *, metric: str | None, baseline: int | None
) -> Comparison:
    """Ask the service to compare arms: Sweep objects, ids, or the API's references."""
    refs = [_ref(arm) for arm in arms]
    found = service.compare(refs, metric=metric, baseline=baseline)
    return comparison_of(service, found)


def comparison_of(service: Service, found: ComparisonOut) -> Comparison:
    """The answer of the API as data frames."""
    spec = service.get(found.arms[0].sweep).spec
    unit = unit_of_metric(spec, found.metric)
    units = {name: unit for name in ("mean", "sd", "low", "high", "difference", "value") if unit}
    return Comparison(
        metric=found.metric,
        direction=found.direction,
        arms=row_frame(arm_rows(found), units),
        differences=row_frame(difference_rows(found), units, DifferenceOut.model_fields),
        values=row_frame(value_rows(found), units, ("arm", "sweep", "point", "seed", "value")),
        not_comparable=_rows(NotComparableOut, found.not_comparable, {}),
        detectable_difference=found.detectable_difference,
        notes=found.notes,
    )


def _ref(arm: Any) -> dict[str, Any]:
    if isinstance(arm, Mapping):
        return dict(arm)
    return {"sweep": arm if isinstance(arm, str) else arm.id}


def _rows(
    kind: type[Output], rows: Sequence[Output], units: Mapping[str, Any]
) -> "pandas.DataFrame":
    return row_frame([flat(row.model_dump()) for row in rows], units, kind.model_fields)
