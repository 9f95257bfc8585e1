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

from ndadam.optimizer_laws import (
    OptimizerSetting,
    lr_of_effective_lr,
    relaxation_per_step,
    stationary_effective_lr,
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
    if num_steps < 1:
        raise ValueError(f"num_steps must be at least 1, got {num_steps}")
    last = num_steps - 1
    count = min(segments, last)
    return tuple(round(i * last / count) for i in range(count + 1)) if count else (0,)


def interpolate(at: Sequence[float], values: Sequence[float], x: float) -> float:
    """Straight lines between points at increasing ``at``; flat outside."""
    right = bisect_right(at, x)
    if right == 0 or right == len(at):
        return values[0] if right == 0 else values[-1]
    share = (x - at[right - 1]) / (at[right] - at[right - 1])
    return values[right - 1] + (values[right] - values[right - 1]) * share


def _relax(h: float, lr: tuple[float, float], x: float, steps: int) -> float:
    """h after ``steps`` steps in which lr goes in a straight line and x stays: exact.

    The recurrence with a linear input has the particular solution lr_t - slope / x.
    """
    slope = (lr[1] - lr[0]) / steps
    if x * steps < 1e-9:  # frozen; the closed form would divide by x
        return h + x * steps * ((lr[0] + lr[1]) / 2 - h)
    return lr[1] - slope / x + (h - lr[0] + slope / x) * (1 - min(x, 1.0)) ** steps


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
    """
    lr = setting.known_lr()
    factors = tuple(factor(step) for step in steps)
    if setting.optimizer == "ndadam":
        return Curve(
            tuple(steps),
            factors,
            tuple(
                stationary_effective_lr(setting, gain, lr=lr * f) if f > 0 else 0.0 for f in factors
            ),
        )
    strength = gradient_strength or (lambda step: 1.0)
    per_lr = relaxation_per_step(setting) / lr
    power = 2 if setting.optimizer == "adamw" else 4
    # A warm-up starts below the full rate with weights that stand at the full rate's norm.
    h = lr * max(factors) * initial_norm**power
    values = []
    for i, step in enumerate(steps):
        rate, gamma = lr * factors[i], strength(step)
        if i:
            span, before = step - steps[i - 1], lr * factors[i - 1]
            x = per_lr * (rate + before) / 2
            ends = (before * strength(steps[i - 1]), rate * gamma)
            h = _relax(h, ends, x, span)
        settled = stationary_effective_lr(setting, lr=rate) if rate > 0 else 0.0
        values.append(settled * math.sqrt(gamma * rate / h))
    return Curve(tuple(steps), factors, tuple(values))


def schedule_of_curve(
    setting: OptimizerSetting, steps: Sequence[int], effective_lr: Sequence[float], gain: float
) -> list[float]:
    """Learning rates with which a setting has the given effective learning rates at ``steps``.

    The norm is followed along: at each step the rate is solved for the norm that the earlier
    rates left behind, from weights that stand at the norm of the largest rate, as in
    ``lag_curve``. A step at which nothing moves, as at the start of a warm-up, gets rate 0.
    """
    if setting.optimizer == "ndadam":
        return [lr_of_effective_lr(setting, e, gain) if e > 0 else 0.0 for e in effective_lr]
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
    rates = [effective_lr[0] * math.sqrt(h / slope)]
    for i in range(1, len(steps)):
        span = steps[i] - steps[i - 1]
        rate = effective_lr[i] * math.sqrt(h / slope)
        for _ in range(3):  # h moves a little within the segment
            x = per_lr * (rate + rates[-1]) / 2
            rate = effective_lr[i] * math.sqrt(_relax(h, (rates[-1], rate), x, span) / slope)
        h = _relax(h, (rates[-1], rate), per_lr * (rate + rates[-1]) / 2, span)
        rates.append(rate)
    return rates


def trusted_until(setting: OptimizerSetting, curve: Curve) -> int:
    """First step from which the curve should not be trusted; one past the last if none.

    Formulas hold while gradients keep their size. Late in a run they collapse, which no formula
    knows beforehand; it happens where the norm of the weights has frozen, so that is the flag.
    """
    if setting.optimizer != "ndadam":
        lr = setting.known_lr()
        peak = curve.factors.index(max(curve.factors))
        for i in range(peak, len(curve.steps)):
            rate = lr * curve.factors[i]
            settled = stationary_effective_lr(setting, lr=rate) if rate > 0 else 0.0
            if rate == 0 or curve.effective_lr[i] < FROZEN * settled:
                return curve.steps[i]
    return curve.steps[-1] + 1
