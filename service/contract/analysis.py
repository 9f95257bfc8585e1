"""What ``GET /sweeps/{id}/analysis`` answers with: tables, comparisons, sensitivity, importance."""

from typing import Any, Literal

from service.contract.outputs import Output
from sweeps.records import Direction


class EstimateOut(Output):
    """A mean over seeds with its 95 % t-interval; no spread and no interval from a single seed."""

    mean: float
    sd: float | None
    n: int
    low: float | None
    high: float | None


class ArmOut(Output):
    """What is compared, usually an optimizer, by its best point."""

    #: The fields that tell arms apart, with this arm's values; {} where there is one arm.
    arm: dict[str, Any]
    #: Points of the arm: all, with a mean, with a diverged replicate.
    points: int
    points_with_mean: int
    points_diverged: int
    #: The point that stands for the arm, the best by mean objective; null if none has a mean.
    point: int | None
    params: dict[str, Any]
    #: The best of several by this sweep's own results: optimistic until it is confirmed.
    selected: bool
    objective: EstimateOut | None
    test_error: EstimateOut | None
    #: Values by seed, in the order of the seeds.
    objective_values: list[float]
    test_error_values: list[float]


class ArmDifferenceOut(Output):
    """Mean of arm a minus mean of arm b, by Welch's t, with Holm's correction over the table."""

    a: dict[str, Any]
    b: dict[str, Any]
    metric: str
    difference: float
    low: float
    high: float
    p_value: float
    p_holm: float
    #: Of a against b.
    verdict: Literal["lower", "higher", "not shown"]


class SensitivityBinOut(Output):
    """Points whose value of a field lies in one bin."""

    #: The value where a bin holds one; else null, and the bin reaches from ``low`` to ``high``.
    value: Any
    low: int | float | None
    high: int | float | None
    #: Points with a mean, and their mean with a 95 % t-interval.
    n: int
    mean: float | None
    mean_low: float | None
    mean_high: float | None
    #: Points that have no mean because a replicate diverged.
    diverged: int


class SensitivityOut(Output):
    """The objective over one field, averaged over whatever the other fields were."""

    field: str
    #: Whether the field's axis is logarithmic.
    log: bool
    bins: list[SensitivityBinOut]


class ConfirmedOut(Output):
    """A point on fresh seeds, in the sweep that confirms it."""

    sweep: str
    state: str
    #: Its number in the sweep in which it was selected.
    point: int | None
    params: dict[str, Any]
    metric: str
    objective: EstimateOut | None
    test_error: EstimateOut | None
    #: Of complete trials.
    seeds: list[int]
    diverged: int


class ConfirmsOut(Output):
    """The sweep whose points a confirmation trains again, and their numbers there."""

    sweep: str
    points: list[int]


class ImportanceOut(Output):
    """How much each field of a branch of the space sets its best points apart."""

    #: The choices that the branch is reached by; {} where the space has one branch.
    branch: dict[str, Any]
    points: int
    method: str
    #: Share of the points that count as good.
    quantile: float
    #: Field -> its share, 0..1.
    fields: dict[str, float]


class RungOut(Output):
    """How well results at a rung of ASHA foretold the end."""

    step: int
    #: Points that reached it and went on to the end.
    points: int
    #: Rank correlation; null for fewer than four points or where all values are alike.
    spearman: float | None


class FrontObjectiveOut(Output):
    """One of several objectives; its declared reference, or null."""

    metric: str
    direction: Direction
    reference: float | None


class FrontPointOut(Output):
    """A point that no other one beats, by means over seeds."""

    point: int
    params: dict[str, Any]
    #: Metric of each objective -> mean with its interval.
    values: dict[str, EstimateOut]
    #: Whether it is shown to differ from every other point of the front in some objective; null
    #: with a single seed of a point, and on a front of more than 30.
    is_distinct: bool | None


class FrontOut(Output):
    """The Pareto front of a sweep with several objectives, along the first of them."""

    objectives: list[FrontObjectiveOut]
    points: list[FrontPointOut]
    #: Points with a mean of every objective.
    num_points: int
    #: Between the front and ``reference``, in the product of the metrics' own units.
    hypervolume: float | None
    #: Metric -> where the hypervolume is measured from: declared, or the worst mean of any point.
    reference: dict[str, float]
    #: Points of the front with ``is_distinct``; null where that is.
    num_distinct: int | None
    #: Points off the front whose 95 % intervals reach beyond it.
    num_reaching: int
    #: What the front does not show.
    notes: list[str]


class FindingsOut(Output):
    """Everything that is computed from a sweep's trials. Errors are fractions."""

    metric: str
    direction: Direction
    arm_fields: list[str]
    arms: list[ArmOut]
    comparisons: list[ArmDifferenceOut]
    #: Deviation between the seeds of a point, pooled over points; null without replicates.
    seed_deviation: float | None
    #: Difference of two arms that the sweep's seeds show with 80 % chance, at that deviation.
    detectable_difference: float | None
    sensitivity: list[SensitivityOut]
    notes: list[str]
    #: What confirmations of this sweep found, best first.
    confirmed: list[ConfirmedOut]
    #: Null unless this sweep is a confirmation.
    confirms: ConfirmsOut | None
    #: Computed by the driver; null before.
    importance: list[ImportanceOut] | None
    #: Computed by the driver; null before, and without ASHA.
    rungs: list[RungOut] | None
    #: Computed by the driver; null before, and with a single objective.
    front: FrontOut | None


class AnalysisOut(Output):
    """Tables over the finished trials, recomputed on every request."""

    sweep_id: str
    analysis: FindingsOut
