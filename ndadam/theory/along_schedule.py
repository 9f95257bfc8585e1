"""The effective learning rate under a schedule: the norm of the weights follows with a lag.

With decay, the equilibrium norm depends on the learning rate, and the norm needs the relaxation
time to get there. Written with h, an average of the learning rate weighted by itself,

    h_{t+1} = h_t + x_t (lr_t - h_t),    e_t = e*(lr_t) sqrt(lr_t / h_t),

x_t being the fraction of its way that the norm covers in a step (``relaxation_per_step``). While
x is fast, e follows sqrt(lr); near the end of a cosine the norm freezes and e follows lr.
Imports only ``math``.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ndadam.checks import (
    refuse_unless_positive,
    refuse_unless_steps,
    refuse_unless_whole,
    values_of,
)
from ndadam.theory.laws import (
    OptimizerSetting,
    lr_law,
    lr_of_effective_lr,
    refuse_no_setting,
    relaxation_per_step,
    stationary_effective_lr,
    stationary_law,
)

#: (step) -> factor on the learning rate.
Factor = Callable[[int], float]

#: Below this share of what its learning rate would give in equilibrium, a curve is not trusted:
#: the norm has frozen. Under a cosine it is reached about
#: (3 (1 - momentum) steps^2 / (pi^2 lr weight_decay))^(1/3) steps before the end.
FROZEN = 0.8
_SETTLING_ROUNDS = 6


@dataclass(frozen=True)
class Curve:
    """Effective learning rate at increasing steps. ``factors`` are those of the schedule."""

    steps: tuple[int, ...]
    factors: tuple[float, ...]
    effective_lr: tuple[float, ...]


def grid(num_steps: int, segments: int) -> tuple[int, ...]:
    """Steps 0 … num_steps - 1 thinned evenly to at most ``segments`` + 1, both ends included."""
    refuse_unless_whole("num_steps", num_steps, 1)
    refuse_unless_whole("segments", segments, 1)
    last = num_steps - 1
    count = min(segments, last)
    return tuple(round(i * last / count) for i in range(count + 1)) if count else (0,)


def interpolate(at: Sequence[float], values: Sequence[float], x: float) -> float:
    """Straight lines between points at increasing ``at``; flat outside."""
    right = bisect_right(at, x)
    if right == 0 or right == len(at):
        return values[0] if right == 0 else values[-1]
    left, rise = values[right - 1], values[right] - values[right - 1]
    return left + rise * (x - at[right - 1]) / (at[right] - at[right - 1])


def _relax(h: float, start: float, end: float, x: float, steps: int) -> float:
    """h after ``steps`` steps in which lr goes in a straight line and x stays: exact.

    The recurrence with a linear input has the particular solution lr_t - slope / x.
    """
    if x * steps < 1e-9:  # frozen; the closed form would divide by x
        return h + x * steps * ((start + end) / 2 - h)
    behind = (end - start) / steps / x
    left = (1 - x) ** steps if x < 1 else 0.0
    return end - behind + (h - start + behind) * left


def lag_curve(
    setting: OptimizerSetting,
    factor: Factor,
    steps: Sequence[int],
    *,
    gain: float = 1.0,
    initial_norm: float = 1.0,
    gradient_strength: Factor | None = None,
) -> Curve:
    """Effective learning rate of a setting under a schedule, at ``steps``.

    Between two of the steps the learning rate is taken as a straight line, so a few hundred of
    them describe a run of any length. ``initial_norm`` is the norm of the weights at the start as
    a multiple of their equilibrium norm; ``gradient_strength`` the mean square of the gradient on
    the unit sphere relative to the start, which moves sgd and sgdw.

    Raises NoStationaryRate for settings without a law, ValueError for the rest.
    """
    refuse_no_setting(setting=setting)
    setting.known_lr()
    steps = refuse_unless_steps(steps)
    factors = values_of("factor", factor, steps)
    refuse_unless_positive("initial_norm", initial_norm)
    if not any(factors):
        raise ValueError(f"factor must be above 0 at some of the steps, got 0 at all {len(steps)}")
    strengths = None
    if gradient_strength is not None:
        strengths = values_of("gradient_strength", gradient_strength, steps)
    return curve_of_factors(setting, steps, factors, gain, initial_norm, strengths)


def curve_of_factors(
    setting: OptimizerSetting,
    steps: tuple[int, ...],
    factors: tuple[float, ...],
    gain: float = 1.0,
    initial_norm: float = 1.0,
    strengths: Sequence[float] | None = None,
) -> Curve:
    """``lag_curve`` of what is known to be right, for many learning rates in turn."""
    lr, law = setting.known_lr(), stationary_law(setting, gain)
    settled = [law(lr * f) if f > 0 else 0.0 for f in factors]
    if setting.optimizer != "ndadam":
        strengths = strengths or [1.0] * len(steps)
        norms = _norms(setting, steps, factors, strengths, initial_norm)
        settled = [
            e * math.sqrt(gamma * lr * f / h)
            for e, gamma, f, h in zip(settled, strengths, factors, norms, strict=True)
        ]
    return Curve(steps, factors, tuple(settled))


def _norms(
    setting: OptimizerSetting,
    steps: Sequence[int],
    factors: Sequence[float],
    strengths: Sequence[float],
    initial_norm: float,
) -> list[float]:
    """h at each of the steps, of an optimizer whose norms relax."""
    lr = setting.known_lr()
    half_per_lr = relaxation_per_step(setting) / lr / 2
    # A warm-up starts below the full rate with weights that stand at the full rate's norm.
    h = lr * max(factors) * initial_norm ** (2 if setting.optimizer == "adamw" else 4)
    norms = [h]
    before, start, at = lr * factors[0], lr * factors[0] * strengths[0], steps[0]
    for step, f, gamma in zip(steps[1:], factors[1:], strengths[1:], strict=True):
        rate = lr * f
        end = rate * gamma
        h = _relax(h, start, end, half_per_lr * (rate + before), step - at)
        before, start, at = rate, end, step
        norms.append(h)
    return norms


def schedule_of_curve(
    setting: OptimizerSetting, steps: Sequence[int], effective_lr: Sequence[float], gain: float
) -> list[float]:
    """Learning rates with which a setting has the given effective learning rates at ``steps``.

    The norm is followed along: at each step the rate is solved for the norm that the earlier
    rates left behind, from weights that stand at the norm of the largest rate, as in
    ``lag_curve``. A step at which nothing moves, as at the start of a warm-up, gets rate 0.
    """
    if setting.optimizer == "ndadam":
        law = lr_law(setting, gain)
        return [law(e) if e > 0 else 0.0 for e in effective_lr]
    largest = lr_of_effective_lr(setting, max(effective_lr), gain)
    rates = _rates_from(setting, steps, effective_lr, largest)
    for _ in range(_SETTLING_ROUNDS):
        # Rates go as the root of the norm that they start from.
        largest = max(rates) ** 2 / largest
        rates = _rates_from(setting, steps, effective_lr, largest)
        if math.isclose(max(rates), largest, rel_tol=1e-9):
            break
    return rates


def _rates_from(
    setting: OptimizerSetting, steps: Sequence[int], effective_lr: Sequence[float], h: float
) -> list[float]:
    """``schedule_of_curve`` from weights at the norm that the rate ``h`` settles to."""
    per_lr = relaxation_per_step(setting.with_lr(h)) / h
    slope = stationary_effective_lr(setting.with_lr(h)) ** 2 / h
    half, root = per_lr / 2, 1 / math.sqrt(slope)
    before = effective_lr[0] * root * math.sqrt(h)
    rates = [before]
    for i in range(1, len(steps)):
        span, wanted = steps[i] - steps[i - 1], effective_lr[i] * root
        rate = wanted * math.sqrt(h)
        for _ in range(3):  # h moves a little within the segment
            x = half * (rate + before)
            rate = wanted * math.sqrt(_relax(h, before, rate, x, span))
        h = _relax(h, before, rate, half * (rate + before), span)
        rates.append(rate)
        before = rate
    return rates


def trusted_until(setting: OptimizerSetting, curve: Curve) -> int:
    """First step from which the curve should not be trusted; one past the last if none.

    Formulas hold while gradients keep their size. Late in a run they collapse, which no formula
    knows beforehand; it happens where the norm of the weights has frozen, so that is the flag.
    """
    if setting.optimizer == "ndadam":
        return curve.steps[-1] + 1
    law, lr = stationary_law(setting), setting.known_lr()
    peak = curve.factors.index(max(curve.factors))
    until = curve.steps[-1] + 1
    # From the end: where the rate drops at once, norms lag behind too, but catch up with it.
    for i in range(len(curve.steps) - 1, peak - 1, -1):
        rate = lr * curve.factors[i]
        if rate > 0 and curve.effective_lr[i] >= FROZEN * law(rate):
            break
        until = curve.steps[i]
    return until
