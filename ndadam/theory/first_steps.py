"""How long the first steps of a run are beside the later ones. Imports only ``math``."""

import math

from ndadam.checks import refuse_unless_whole
from ndadam.theory.laws import OptimizerSetting


def start_up(setting: OptimizerSetting, step: int) -> float:
    """Length of step ``step`` (from 0) over that of later ones, for uncorrelated gradients.

    A momentum buffer that starts empty makes the first steps short. Adam and its relatives correct
    the average for that, so their first steps are long: the first is a whole gradient.
    """
    refuse_unless_whole("step", step, 0)
    kept = setting.averaging ** (step + 1)
    if setting.optimizer in ("sgd", "sgdw"):
        return math.sqrt(1 - kept**2)
    return math.sqrt((1 + kept) / (1 - kept))


def start_up_steps(setting: OptimizerSetting) -> int:
    """Steps until ``start_up`` is within 0.1 % of 1."""
    beta = setting.averaging
    return math.ceil(math.log(1e-3) / math.log(beta)) if beta > 0 else 0
