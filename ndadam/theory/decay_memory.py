"""What weight decay leaves of chance in a long mean of effective learning rates. Pure Python.

Under decay and scale-invariant gradients the squared norm R of a weight vector obeys

    d log R = (e^2 / e*^2 - 1) / (p tau) dt,   e^2 = e*^2 xi / R^p

with e* the stationary rate, xi the chance in gradients, mean 1, R in units of its stationary
value, and p = 2 for SGD, whose updates shrink with the norm, 1 for AdamW. A step that is large by
chance lengthens the vector, and the next ones are smaller until decay has undone it, within tau =
``relaxation_steps``. With x = e^2 / e*^2 - 1 and y = p log R, to first order,

    x = xi - 1 - y,   dy = x / tau dt

so the mean of x over n steps is tau (y_n - y_0) / n: chance enters through the norms at both ends
alone. Where xi has variance S / n in a mean over n steps and is forgotten much sooner than tau, y
has the stationary variance S / (2 tau), and

* the mean of x over n steps has (S / n) (tau / n) (1 - exp(-n / tau));
* the difference of its means over neighbouring windows of h steps has twice
  (S / h) (tau / (2 h)) (1 - r) (3 - r) with r = exp(-h / tau).

Blocks of steps shorter than tau do not see that: they take S / n for the first. S is what blocks
say of xi - 1 = x + y, and y is a running sum of x (``undo_decay``). A target whose norms do not
move keeps all of its own scatter V_t. What it shares with the source, from data that both see, has
the same share as the source's scatter, so that the log ratio has

    V_t + share * (V - V_t)

where V is what blocks say of (x + y of the source) - (x of the target). Where xi itself is
remembered for longer than blocks can be, all of this errs downwards as blocks do, and only
runs with other seeds show it.
"""

import math
from collections.abc import Sequence
from itertools import accumulate

from ndadam.statistics.blocked_means import MeanError
from ndadam.theory.laws import NoStationaryRate, OptimizerSetting, relaxation_steps


def decay_memory(setting: OptimizerSetting, every: int) -> float:
    """Records, one each ``every`` steps, within which decay undoes what a norm did by chance.

    Infinite for ndadam, whose norms do not move, without decay, and where steps are left out:
    chance in those that happen to be recorded is never undone.
    """
    if setting.optimizer == "ndadam" or every > 1:
        return math.inf
    try:
        return relaxation_steps(setting)
    except NoStationaryRate:
        return math.inf


def undo_decay(values: Sequence[float], memory: float) -> list[float]:
    """Deviations of e^2 from their mean, as they were without the norm's response to them."""
    responses = accumulate((value / memory for value in values), initial=0.0)
    return [value + response for value, response in zip(values, responses, strict=False)]


def share_in_mean(steps: int, memory: float) -> float:
    """Variance of a mean over ``steps``, of what it were without the norm's response; (0, 1]."""
    if math.isinf(memory):
        return 1.0
    return -memory / steps * math.expm1(-steps / memory)


def share_in_difference(steps: int, memory: float) -> float:
    """The same for the difference of means over two neighbouring windows of ``steps`` each."""
    if math.isinf(memory):
        return 1.0
    r = math.exp(-steps / memory)
    return memory / (2 * steps) * -math.expm1(-steps / memory) * (3 - r)


def error_under_decay(undone: MeanError, target: MeanError, share: float) -> MeanError:
    """Of a log ratio, from that without the source's response and the target's own.

    Both come from the same steps and are far from independent, so the degrees of freedom are those
    of the poorer one.
    """
    variance = share * undone.standard_error**2 + (1 - share) * target.standard_error**2
    return MeanError(math.sqrt(variance), min(undone.df, target.df))
