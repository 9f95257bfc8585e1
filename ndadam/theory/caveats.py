"""What the reader of a predicted match should know before using its numbers. Imports only ``math``.

A formula answers wherever it can be computed. These sentences say where it is not to be believed.
"""

import math

from ndadam.theory.laws import (
    NoStationaryRate,
    OptimizerSetting,
    beta2_equivalent,
    relaxation_steps,
    tangential_factor,
)
from ndadam.theory.settling import SETTLING_TIMES

#: ND-Adam's normalisation is in its law to first order: measured to be right while it undoes less
#: than this of a step (at e = 0.046 and beta1 = 0.9).
_LARGEST_UNDONE = 0.1
#: Of the law of sgdw and adamw, whose decay pulls back part of each step.
_LARGEST_SHORTFALL = 0.01
#: A of gradients outside this range is worth a sentence: oscillation below, strong signal above.
_USUAL_GAIN = (0.7, 1.3)
#: A second moment that remembers more of the run than this holds its large first gradients.
_LONGEST_MEMORY = 1 / 20


def caveats(
    source: OptimizerSetting,
    target: OptimizerSetting,
    *,
    effective_lrs: tuple[float, float],
    num_steps: int,
    until: int,
    target_until: int,
) -> list[str]:
    """Sentences about a match of ``source`` by ``target`` at its rate, each one a reason for doubt.

    ``effective_lrs`` are the stationary ones of both; ``until`` and ``target_until`` the steps up
    to which their curves are to be trusted.
    """
    found = _about_the_start(source, target, num_steps)
    if until < num_steps:
        found.append(
            f"From step {until} on, norms have frozen and gradients usually collapse: the curve "
            "is not to be trusted there."
        )
    if target_until < until:
        found.append(
            f"From step {target_until} on, the target's norms have frozen, and its rate falls "
            "below what any criterion asks for there."
        )
    found += _about_laws(source, target, effective_lrs)
    return found


def beta2_in_words(beta2: float) -> str:
    """With enough digits that 1 - beta2 can be read from it: 0.9960, 0.999960."""
    return f"{beta2:.{max(4, 1 - math.floor(math.log10(1 - beta2)))}f}"


def decay_shortfall(setting: OptimizerSetting) -> float:
    """Share by which sgdw and adamw turn less per step than their law says; 0 for the others.

    The law is that of the update; a whole step has the decay in it too, which points back along
    what momentum still holds of earlier updates. With s = lr * weight_decay and b = beta (1 - s),
    for uncorrelated gradients and a settled norm,

        e^2 = s^2 + (2 s - s^2) (1 - b - 2 s beta) / (1 + b)
    """
    if setting.optimizer not in ("sgdw", "adamw"):
        return 0.0
    shrink, beta = setting.known_lr() * setting.weight_decay, setting.averaging
    b = beta * (1 - shrink)
    whole = shrink**2 + (2 * shrink - shrink**2) * (1 - b - 2 * shrink * beta) / (1 + b)
    law = 2 * shrink * (1 - b) / (1 + b)
    return 1 - math.sqrt(max(0.0, whole / law))


def gain_in_words(gain: float) -> list[str]:
    """What an unusual gain A says of the gradients; nothing for a usual one."""
    low, high = _USUAL_GAIN
    if low <= gain <= high:
        return []
    why = (
        "gradients of successive steps oppose each other, as near the edge of stability or where "
        "few batches come again and again."
        if gain < low
        else "gradients of successive steps agree strongly."
    )
    return [f"The gain A is {gain:.2f}: {why}"]


def _about_the_start(
    source: OptimizerSetting, target: OptimizerSetting, num_steps: int
) -> list[str]:
    found = []
    for side, setting in (("source", source), ("target", target)):
        settled = SETTLING_TIMES * relaxation_steps(setting)
        if setting.optimizer == "ndadam" or num_steps >= settled:
            continue
        found.append(
            f"The run of {num_steps} steps ends before the {side}'s norms have settled, which "
            f"takes about {settled:.0f} steps (4 relaxation times): its curve is that of weights "
            "that begin at their settled length."
        )
    for side, setting in (("source", source), ("target", target)):
        if setting.optimizer == "ndadam" and _memory(setting) > _LONGEST_MEMORY * num_steps:
            found.append(_about_memory(side, source, setting, num_steps))
    return found


def _memory(setting: OptimizerSetting) -> float:
    return 1 / (1 - setting.betas[1])


def _about_memory(
    side: str, source: OptimizerSetting, setting: OptimizerSetting, num_steps: int
) -> str:
    whose = "ND-Adam's" if side == "target" else "The source's"
    sentence = (
        f"{whose} second moment remembers {_memory(setting):.0f} steps, more than a twentieth of "
        "the run: its large first gradients keep it slow."
    )
    as_fast = beta2_equivalent(source)
    if side == "target" and 1 / (1 - as_fast) < _memory(setting) * (1 - 1e-6):
        return f"{sentence} beta2 = {beta2_in_words(as_fast)} forgets as fast as the source does."
    enough = math.ceil(_memory(setting) / _LONGEST_MEMORY - 1e-6)
    return f"{sentence} A run of {enough} steps, or a smaller beta2, would be free of them."


def _about_laws(
    source: OptimizerSetting, target: OptimizerSetting, effective_lrs: tuple[float, float]
) -> list[str]:
    found = []
    if source.nesterov or target.nesterov:
        found.append(
            "Nesterov's formula assumes uncorrelated gradients; correlation moves it by about 10 %."
        )
    for side, setting, e in zip(("source", "target"), (source, target), effective_lrs, strict=True):
        found += _about_law(side, setting, e)
    # A source that does has no equivalent beta2, so it has no prediction at all.
    if _settles_at_once(target):
        found.append(
            f"At {_in_words(target)} the target's norms would settle within a step, which no "
            "training survives."
        )
    return found


def _in_words(setting: OptimizerSetting) -> str:
    return f"lr = {setting.known_lr():.3g} and weight_decay = {setting.weight_decay:.3g}"


def _about_law(side: str, setting: OptimizerSetting, effective_lr: float) -> list[str]:
    found = []
    if setting.optimizer == "ndadam":
        undone = 1 - 1 / tangential_factor(effective_lr, setting.betas[0])
        if undone > _LARGEST_UNDONE:
            found.append(
                f"At {effective_lr:.3g} per step normalisation undoes {100 * undone:.0f} % of the "
                f"{side}'s steps, and ND-Adam's formula was checked up to "
                f"{100 * _LARGEST_UNDONE:.0f} %: measure it."
            )
    if (short := decay_shortfall(setting)) > _LARGEST_SHORTFALL:
        found.append(
            f"At {_in_words(setting)} the {side} turns about {100 * short:.0f} % less per step "
            "than its formula says, because decay pulls back part of each step: measure it."
        )
    return found


def _settles_at_once(setting: OptimizerSetting) -> bool:
    try:
        beta2_equivalent(setting)
    except NoStationaryRate:
        return True
    return False
