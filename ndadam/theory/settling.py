"""How long a run takes until its effective learning rate is stationary. Imports only ``math``.

Also: how long the transient of the first steps lasts.
"""

import math
from collections.abc import Mapping

from ndadam.checks import refuse_unless_whole
from ndadam.theory.laws import (
    Level,
    OptimizerSetting,
    level_factor,
    lr_of_effective_lr,
    relaxation_steps,
    stationary_effective_lr,
)

#: ND-Adam's moments hold the large first gradients until this many 1 / (1 - beta2) have passed,
#: this many 1 / (1 - beta1), and this many steps at least.
_BURN_BETA2, _BURN_BETA1, _BURN_LEAST = 3, 5, 300

#: Norms count as settled after this many relaxation times (e^-4 = 2 %).
SETTLING_TIMES = 4


def settling_steps(
    source: OptimizerSetting, target: OptimizerSetting, level: Level = "step"
) -> dict[str, int]:
    """Steps after which each side's effective learning rate is stationary: "source", "target".

    Norms need ``SETTLING_TIMES`` relaxation times, the target's at the rate that matches; ND-Adam's
    moments need to forget their start.
    """
    e = stationary_effective_lr(source) * level_factor(source, target, level)
    matched = target.with_lr(lr_of_effective_lr(target, e))
    return {
        side: math.ceil(
            (
                burn_in_steps(setting.betas)
                if setting.optimizer == "ndadam"
                else SETTLING_TIMES * relaxation_steps(setting)
            )
            - 1e-6
        )
        for side, setting in (("source", source), ("target", matched))
    }


def or_forget_sooner(
    source: OptimizerSetting, target: OptimizerSetting, waits: Mapping[str, int], start: int
) -> str:
    """ ", or …" after a refusal of what has not settled at ``start``: the beta2 that would do too.

    Empty where no beta2 of ND-Adam's would. ``waits`` are ``settling_steps``.
    """
    late = [side for side, steps in waits.items() if steps > start]
    setting = {"source": source, "target": target}[late[0]]
    if len(late) > 1 or setting.optimizer != "ndadam" or start < _BURN_LEAST:
        return ""
    beta1, beta2 = setting.betas
    enough = math.floor((1 - _BURN_BETA2 / start) * 1e4) / 1e4
    if enough >= beta2 or burn_in_steps((beta1, enough)) > start:
        return ""
    return f", or a beta2 of the {late[0]} of at most {enough:.4f} instead of {beta2:g}"


def burn_in_steps(betas: tuple[float, float]) -> int:
    """Steps to ignore at the start of an ND-Adam run before its rate is stationary."""
    beta1, beta2 = OptimizerSetting("ndadam", betas=betas).betas
    return math.ceil(max(_BURN_BETA2 / (1 - beta2), _BURN_BETA1 / (1 - beta1), _BURN_LEAST) - 1e-6)


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
