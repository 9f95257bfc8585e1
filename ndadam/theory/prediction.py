"""Which learning rate of one optimizer moves weights as fast as another's, in closed form.

``predict`` answers for SGD (heavy ball, Nesterov, dampening), SGDW, AdamW and ND-Adam as source or
target, under a schedule, by every criterion at once. Adam without decay has no stationary rate and
is refused; ``adam_without_decay`` gives the falling one it has. Imports only ``math``, and answers
in milliseconds.

    >>> from ndadam.theory import OptimizerSetting, predict
    >>> sgd = OptimizerSetting("sgd", lr=0.1, momentum=0.9, weight_decay=0.001)
    >>> answer = predict(sgd, OptimizerSetting("ndadam"), num_steps=6000)
    >>> round(answer.criteria["stationary"].rate, 4)
    0.045
"""

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ndadam.theory.along_schedule import (
    Curve,
    Factor,
    curve_of_factors,
    grid,
    interpolate,
    lag_curve,
    schedule_of_curve,
    trusted_until,
)
from ndadam.theory.caveats import caveats
from ndadam.theory.laws import (
    Level,
    NoStationaryRate,
    OptimizerName,
    OptimizerSetting,
    adam_without_decay,
    beta2_equivalent,
    gain_autoregressive,
    gain_without_replacement,
    level_factor,
    lr_of_effective_lr,
    refuse_level,
    refuse_no_setting,
    refuse_without_stationary_rate,
    relaxation_steps,
    stationary_effective_lr,
    step_ratio,
    tangential_factor,
)
from ndadam.theory.settling import (
    SETTLING_TIMES,
    burn_in_steps,
    or_forget_sooner,
    settling_steps,
    start_up,
    start_up_steps,
)

__all__ = [
    "CRITERIA",
    "SETTLING_TIMES",
    "Answer",
    "Criterion",
    "Curve",
    "Level",
    "NoStationaryRate",
    "OptimizerName",
    "OptimizerSetting",
    "Prediction",
    "adam_without_decay",
    "beta2_equivalent",
    "burn_in_steps",
    "fit_rate",
    "gain_autoregressive",
    "gain_without_replacement",
    "grid",
    "lag_curve",
    "level_factor",
    "lr_of_effective_lr",
    "or_forget_sooner",
    "predict",
    "rate_of_curve",
    "relaxation_steps",
    "resolve_level",
    "schedule_answer",
    "settling_steps",
    "stationary_effective_lr",
    "step_ratio",
    "tangential_factor",
]

Criterion = Literal["stationary", "least_squares", "equal_rotation", "equal_mean", "schedule"]
#: In the order in which they are shown.
CRITERIA: tuple[Criterion, ...] = (
    "stationary",
    "least_squares",
    "equal_rotation",
    "equal_mean",
    "schedule",
)

#: What each criterion makes equal, for the person who reads the answer. e is the source's curve,
#: f the target's.
FORMULAS: dict[Criterion, str] = {
    "stationary": "e* of both equal at the full learning rate",
    "least_squares": "minimises the sum over steps of (e - f)^2",
    "equal_rotation": "equal sums over steps of e^2 and f^2",
    "equal_mean": "equal means over steps of e and f",
    "schedule": "a schedule with f = e at every step",
}

#: Segments of a closed-form curve. With 500, SGD (0.1, 0.001, 0.9) under a whole cosine is within
#: 5e-4 of the recurrence taken step by step: 3.9e-4 at the end of 1,000 steps, and the closer the
#: longer the run, 1.8e-4 in 6,000 steps, 6e-6 in 80,000. Fewer where the target's own lag must be
#: solved for again and again.
SEGMENTS = 500
_SOLVER_SEGMENTS = 120
#: Points of a schedule, straight lines between them.
MAX_POINTS = 500
#: Steps at which a schedule has points of its own while momentum builds up.
_EARLY_STEPS = (*range(12), *range(12, 30, 3), *range(30, 100, 10), *range(100, 1000, 100))


@dataclass(frozen=True)
class Answer:
    """What one criterion says."""

    criterion: Criterion
    #: The target's learning rate at factor 1: alpha^v for ndadam, lr for the others.
    rate: float
    formula: str
    #: The gain A that went in.
    gain: float
    #: For "schedule": (step, factor on ``rate``) with straight lines between; else None.
    points: tuple[tuple[int, float], ...] | None = None


@dataclass(frozen=True)
class Prediction:
    """Everything the closed form says about a source and a target."""

    source: OptimizerSetting
    target: OptimizerSetting
    num_steps: int
    level: Level
    #: Stationary effective learning rate of the source.
    effective_lr: float
    #: The one the target must have, which differs where the level is long_range.
    target_effective_lr: float
    #: Relaxation time of the source, in steps.
    tau_steps: float
    #: ND-Adam forgets gradient sizes as fast as the source does with this beta2.
    beta2_equivalent: float
    criteria: dict[Criterion, Answer]
    #: The source's effective learning rate over the run.
    curve: Curve
    #: Steps between which the curve is to be trusted: norms have settled, and have not frozen.
    trust_from_step: int
    trust_until_step: int
    #: What the reader should know, a sentence each.
    warnings: tuple[str, ...]


def constant(step: int) -> float:
    """The schedule that never changes the learning rate."""
    return 1.0


def predict(
    source: OptimizerSetting,
    target: OptimizerSetting,
    *,
    num_steps: int,
    factor: Factor = constant,
    level: Level | None = None,
    gain: float = 1.0,
) -> Prediction:
    """The target's learning rate under every criterion, from settings alone.

    ``factor`` is the schedule of the source, and of the target except under the criterion
    "schedule". ``gain`` is A where ND-Adam is on one side, measured or assumed; 1 for
    uncorrelated gradients. ``level`` must be given where source and target average gradients
    over different times. Raises NoStationaryRate for settings that have no answer, ValueError for
    the rest.
    """
    refuse_no_setting(source=source, target=target)
    for setting in (source, target):
        refuse_without_stationary_rate(setting)
    level = resolve_level(source, target, level)
    steps = grid(num_steps, SEGMENTS)
    curve = lag_curve(source, factor, steps, gain=gain)
    scale = level_factor(source, target, level)
    wanted = Curve(steps, curve.factors, tuple(e * scale for e in curve.effective_lr))
    stationary = stationary_effective_lr(source, gain)
    rates = {c: rate_of_curve(c, target, wanted, gain) for c in CRITERIA[1:4]}
    rates["stationary"] = lr_of_effective_lr(target, stationary * scale, gain)
    criteria = {c: Answer(c, rates[c], FORMULAS[c], gain) for c in CRITERIA if c in rates}
    criteria["schedule"] = schedule_answer(target, wanted, gain, source=source)
    matched = target.with_lr(rates["stationary"])
    until = min(trusted_until(source, curve), num_steps)
    return Prediction(
        source=source,
        target=target,
        num_steps=num_steps,
        level=level,
        effective_lr=stationary,
        target_effective_lr=stationary * scale,
        tau_steps=relaxation_steps(source),
        beta2_equivalent=beta2_equivalent(source),
        criteria=criteria,
        curve=curve,
        trust_from_step=round(SETTLING_TIMES * relaxation_steps(source)),
        trust_until_step=until,
        warnings=tuple(
            caveats(
                source,
                matched,
                effective_lrs=(stationary, stationary * scale),
                num_steps=num_steps,
                until=until,
                target_until=min(_trusted_until(matched, wanted), num_steps),
            )
        ),
    )


def _trusted_until(target: OptimizerSetting, wanted: Curve) -> int:
    """As ``trusted_until``, of the target under the schedule that it shares with the source."""
    if target.optimizer == "ndadam":
        return wanted.steps[-1] + 1
    return trusted_until(target, curve_of_factors(target, wanted.steps, wanted.factors))


# --- Step level and long range -------------------------------------------------------------------


def resolve_level(source: OptimizerSetting, target: OptimizerSetting, level: Level | None) -> Level:
    """The level, which is open only where both average gradients over the same time."""
    refuse_no_setting(source=source, target=target)
    if level is not None:
        refuse_level(level)
    if level is None and not math.isclose(source.averaging, target.averaging, abs_tol=1e-9):
        raise ValueError(
            "level must be given, because source and target average gradients over different "
            f"times ({source.averaging:g} and {target.averaging:g}): step makes single steps "
            "equally long, as the paper does; long_range makes many steps go equally far"
        )
    return level or "step"


# --- Criteria ------------------------------------------------------------------------------------


def fit_rate(
    criterion: Criterion,
    weights: Sequence[float],
    effective_lr: Sequence[float],
    unit: Sequence[float],
) -> float:
    """The multiple of ``unit`` that matches ``effective_lr`` by a criterion over steps.

    ``weights`` counts the steps that each value stands for; ``unit`` is the target's curve at
    rate 1. Measured curves go through the same formulas as predicted ones.
    """
    if not len(weights) == len(effective_lr) == len(unit):
        raise ValueError(
            "weights, effective_lr and unit must be equally long, got "
            f"{len(weights)}, {len(effective_lr)} and {len(unit)} values"
        )
    if not any(map(operator.mul, weights, unit)):
        raise ValueError(
            f"unit must be above 0 at a step that counts, got 0 at each of them (of {len(unit)})"
        )
    if criterion == "least_squares":
        above = _sum(weights, effective_lr, unit)
        return above / _sum(weights, unit, unit)
    if criterion == "equal_rotation":
        return math.sqrt(_sum(weights, effective_lr, effective_lr) / _sum(weights, unit, unit))
    if criterion == "equal_mean":
        ones = [1.0] * len(unit)
        return _sum(weights, effective_lr, ones) / _sum(weights, unit, ones)
    sums = ", ".join(CRITERIA[1:4])
    raise ValueError(f"criterion must be a sum over steps, one of {sums}, got {criterion!r}")


def _refuse_no_curve(wanted: Curve) -> None:
    if not isinstance(wanted, Curve):
        raise ValueError(f"wanted must be a Curve, got {wanted!r}")


def _sum(weights: Sequence[float], a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(w * x * y for w, x, y in zip(weights, a, b, strict=True))


def _trapezoid(steps: Sequence[int]) -> list[float]:
    """How many steps each thinned step stands for."""
    if len(steps) == 1:
        return [1.0]
    gaps = [b - a for a, b in itertools.pairwise(steps)]
    inner = [(a + b) / 2 for a, b in itertools.pairwise(gaps)]
    return [(gaps[0] + 1) / 2, *inner, (gaps[-1] + 1) / 2]


def rate_of_curve(
    criterion: Criterion, target: OptimizerSetting, wanted: Curve, gain: float
) -> float:
    """The rate at which the target's own curve, lag included, matches a curve by a criterion.

    ``wanted`` may be predicted or measured; its ``factors`` are the target's schedule.
    """
    refuse_no_setting(target=target)
    _refuse_no_curve(wanted)
    thin = max(1, (len(wanted.steps) - 1) // _SOLVER_SEGMENTS)
    keep = sorted({*range(0, len(wanted.steps), thin), len(wanted.steps) - 1})
    steps = tuple(wanted.steps[i] for i in keep)
    factors = tuple(wanted.factors[i] for i in keep)
    values = [wanted.effective_lr[i] for i in keep]
    weights = _trapezoid(steps)

    def at(rate: float) -> Sequence[float]:
        return curve_of_factors(target.with_lr(rate), steps, factors, gain).effective_lr

    # Near the answer a curve scales almost as a power of its rate: 1 without a lag, 1/2 for every
    # optimizer with decay. Secant steps in logs learn the rest.
    power = 1.0 if target.optimizer == "ndadam" else 2.0
    rate, before, last = lr_of_effective_lr(target, max(values), gain), 0.0, 0.0
    for _ in range(12):
        lacking = math.log(fit_rate(criterion, weights, values, at(rate)))
        if abs(lacking) < 1e-9:
            break
        if last and abs(before - lacking) > abs(before) / 4:
            power = last / (before - lacking)
        before, last = lacking, power * lacking
        rate *= math.exp(last)
    return _refine(at, rate, weights, values) if criterion == "least_squares" else rate


def _refine(
    at: Callable[[float], Sequence[float]],
    rate: float,
    weights: Sequence[float],
    wanted: Sequence[float],
) -> float:
    """Least squares where the curve changes shape with its rate: Newton steps in logs."""

    def loss(log_rate: float) -> float:
        gaps = [a - b for a, b in zip(wanted, at(math.exp(log_rate)), strict=True)]
        return _sum(weights, gaps, gaps)

    x, width = math.log(rate), 0.05
    for _ in range(3):
        below, here, above = loss(x - width), loss(x), loss(x + width)
        curvature = below - 2 * here + above
        if curvature <= 0:
            break
        x += width * min(1.0, max(-1.0, (below - above) / (2 * curvature)))
        width /= 4
    return math.exp(x)


def schedule_answer(
    target: OptimizerSetting,
    wanted: Curve,
    gain: float,
    rate: float | None = None,
    *,
    source: OptimizerSetting | None = None,
) -> Answer:
    """The schedule with which the target follows a curve, predicted or measured.

    Its factors are relative to ``rate``, by default the largest rate that the curve needs. A
    predicted curve leaves out how momentum builds up in the first steps, which needs ``source``; a
    measured one has it in it.
    """
    refuse_no_setting(target=target)
    _refuse_no_curve(wanted)
    steps = wanted.steps
    rates = schedule_of_curve(target, steps, wanted.effective_lr, gain)
    unit = max(rates) if rate is None else rate
    every = max(1, math.ceil(len(steps) / MAX_POINTS))
    keep = sorted({*range(0, len(steps), every), len(steps) - 1})
    points = [(steps[i], rates[i] / unit) for i in keep]
    if target.optimizer == "ndadam":
        points = _with_start_up(points, target, source)
    return Answer("schedule", unit, FORMULAS["schedule"], gain, tuple(points))


def _with_start_up(
    points: list[tuple[int, float]], target: OptimizerSetting, source: OptimizerSetting | None
) -> list[tuple[int, float]]:
    """Points that undo the target's long first steps, and repeat the source's short ones.

    From sgd with momentum = beta1 that is 1 - beta1^t, which is what bias correction divides by.
    """
    until = min(start_up_steps(target), points[-1][0])
    early = {step for step in _EARLY_STEPS if step <= until}
    at, values = [step for step, _ in points], [value for _, value in points]
    steps = sorted({*at, *early})
    found = []
    for step in steps:
        value = interpolate(at, values, step)
        if step <= until:
            value *= (1.0 if source is None else start_up(source, step)) / start_up(target, step)
        found.append((step, value))
    return found
