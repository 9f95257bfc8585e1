"""What a match found, as the JSON that is stored with the sweep (``Sweep.result``).

It is written after every trial that ends, so each part is None or empty until its stage is done.
Rates are the target's learning rate (``rate_name``: "alpha_v" for ndadam, else "lr"). Effective
learning rates are fractions of a weight vector's length per step. Log ratios are natural logs of
source over target: positive means that the target moves too slowly. No value is NaN or infinite.
"""

from typing import Literal, TypedDict, cast

from ndadam.matching.verdict import VerdictState
from sweeps.records import Sweep

Stage = Literal["source", "calibration", "verdict", "comparison", "done"]


class Interval(TypedDict):
    """A value with a 95 % interval; low and high are None where one value has no spread."""

    value: float
    low: float | None
    high: float | None


class CriterionRow(TypedDict):
    """The target's learning rate by one criterion, as it was known at each stage."""

    criterion: str
    #: True for the criterion that the spec chose: the verdict's.
    chosen: bool
    #: What the criterion makes equal, in words.
    formula: str
    #: From the settings alone, with gain 1; None where theory has no answer.
    closed_form: float | None
    #: From the measured source curve and the measured gain (gain 1 where the target has none).
    predicted: float | None
    #: From measured source and measured target, with its interval.
    measured: Interval | None


class SourceFindings(TypedDict):
    """What is known about the source."""

    #: e* in closed form; None where theory has none.
    effective_lr: float | None
    #: Measured in the window, over seeds.
    measured: Interval | None
    tau_steps: float | None
    beta2_equivalent: float | None
    #: Steps between which the closed-form curve is to be trusted.
    trust_from_step: int | None
    trust_until_step: int | None
    #: A from shadow moments, over seeds; by layer.
    gain: Interval | None
    gain_by_layer: dict[str, float]
    #: How far the loss is from ignoring the length of its weights (0 = scale-invariant).
    kappa: float | None
    #: Relative error of the balance law; above 0.01 the measurement itself is suspect.
    balance_residual: float | None


class CalibrationRow(TypedDict):
    """One calibration run and what it changed. Runs of one round share rate and next_rate."""

    trial: int
    rate: float
    #: The target's measured effective learning rate, a root mean square over its window, and that
    #: of a target at which ``log_ratio`` would be 0.
    effective_lr: float
    wanted: float
    #: Source over target by the criterion.
    log_ratio: float
    #: d log e / d log rate used for the correction.
    slope: float
    next_rate: float


class Verdict(TypedDict):
    """The answer, earned on runs that nothing was chosen from."""

    state: VerdictState
    #: A sentence that names criterion, tolerance, interval and reason.
    sentence: str
    #: The learning rate that the fresh runs used.
    rate: float | None
    #: For criterion "schedule": lr_schedule points (step, factor) that any config accepts.
    schedule: list[tuple[int, float]] | None
    #: Log of source over target by the criterion, with its interval.
    log_ratio: Interval | None
    #: Which of the two was wider: "steps" (block bootstrap) or "seeds" (t-interval).
    interval_from: Literal["steps", "seeds"] | None
    #: Steps of the window, fixed in the spec before anything ran: start <= step < stop.
    window: tuple[int, int]
    #: Second half of the window minus first, in log ratio.
    drift: Interval | None
    #: Share of the whole run in which source and target are within the tolerance.
    fraction_inside: float | None
    seeds: list[int]


class LayerRow(TypedDict):
    """What one layer alone would ask for. A refinement, not a need: layers rarely differ much."""

    layer: str
    #: "invariant", "jointly_invariant", "neither", "eps_limited"; "" if not probed.
    kind: str
    log_ratio: float
    implied_rate: float
    #: 95 % t-interval of implied_rate over the verdict's seeds; None for a single seed.
    implied_low: float | None
    implied_high: float | None


class Curves(TypedDict):
    """Effective learning rates over the run, thinned to at most 500 points, smoothed over
    ``smoothing_steps`` (root mean square). ``target`` fields are empty until verdict runs end."""

    steps: list[int]
    smoothing_steps: int
    #: Mean over seeds.
    source: list[float]
    target: list[float]
    #: Smallest and largest seed.
    target_low: list[float]
    target_high: list[float]
    #: The closed form with its lag; empty where theory has none.
    formula: list[float]


class CostRow(TypedDict):
    """What one stage cost."""

    stage: str
    trials: int
    steps: int
    #: Wall time of its attempts, added up over trials.
    seconds: float


class ComparisonFindings(TypedDict):
    """Both optimizers at the matched rate, on seeds that the match did not see."""

    metric: str
    #: In the metric's unit.
    margin: float
    source: Interval
    target: Interval
    #: Target minus source, by Welch, with its 95 % interval.
    difference: Interval
    #: Whether the whole interval lies below the margin.
    non_inferior: bool
    seeds: list[int]
    sentence: str


class MatchResult(TypedDict):
    """Everything a match has found so far."""

    stage: Stage
    #: Steps done over steps planned as far as known, 0..1; moves when a trial ends.
    progress: float
    rate_name: str
    criterion: str
    level: str
    tolerance: float
    criteria: list[CriterionRow]
    source: SourceFindings
    calibration: list[CalibrationRow]
    #: None until the verdict is earned.
    verdict: Verdict | None
    layers: list[LayerRow]
    #: Kind -> number of weight vectors, from the probe: "invariant", "jointly_invariant",
    #: "neither", "eps_limited".
    classes: dict[str, int]
    curves: Curves | None
    #: None until both have been trained on fresh seeds, and where the spec does not ask for it.
    comparison: ComparisonFindings | None
    cost: list[CostRow]
    #: Sentences for the reader.
    warnings: list[str]


def result_of(sweep: Sweep) -> MatchResult | None:
    """What a stored match found so far; None before its first trial ended."""
    return cast("MatchResult | None", sweep.result or None)


def matched_rate(sweep: Sweep) -> float | None:
    """The best estimate of the rate: measured, else the verdict's, else predicted."""
    result = result_of(sweep)
    if result is None:
        return None
    chosen = next((row for row in result["criteria"] if row["chosen"]), None)
    if chosen is not None and chosen["measured"] is not None:
        return chosen["measured"]["value"]
    verdict = result["verdict"]
    if verdict is not None and verdict["rate"] is not None:
        return verdict["rate"]
    return None if chosen is None else chosen["predicted"] or chosen["closed_form"]
