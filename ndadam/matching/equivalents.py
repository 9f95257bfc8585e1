"""What one training setting equals in the other optimizers, in a sentence a person can act on.

dynamics = EffectiveLR(model, optimizer, shadow_betas=(0.9, 0.999), probe=found)
...                                                    # the loop, unchanged, a few hundred steps
print(equivalents(optimizer, model, num_steps=6000, dynamics=dynamics, probe=found))
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import nn
from torch.optim import Optimizer

from ndadam.checks import refuse_unless_whole
from ndadam.dynamics.effective_lr import EffectiveLR
from ndadam.invariance.probe import ProbeResult
from ndadam.matching.checks import refuse_criterion, refuse_schedule
from ndadam.matching.torch_settings import setting_of_optimizer
from ndadam.theory.along_schedule import Factor
from ndadam.theory.laws import (
    OptimizerSetting,
    lr_of_effective_lr,
    refuse_without_stationary_rate,
)
from ndadam.theory.prediction import (
    Criterion,
    Level,
    Prediction,
    beta2_equivalent,
    constant,
    predict,
)

#: Weight decay of the optimizers whose product lr * weight_decay is what matters.
_UNIT_DECAY = 1.0


@dataclass(frozen=True)
class Equivalents:
    """One setting in the terms of the others; ``str`` gives the sentence.

    Attributes:
        source: The setting, as it trains weight vectors.
        effective_lr: Its stationary effective learning rate.
        gain: A, measured or 1.
        sgd_product: lr * weight_decay of heavy-ball SGD with the source's averaging that equals it.
        adamw_product: lr * weight_decay of AdamW that does.
        alpha_v: ND-Adam's learning rate that does, by ``criterion``.
        beta2_equivalent: With this beta2 ND-Adam forgets gradient sizes as fast as the source does.
        criterion: What alpha_v makes equal over the run.
        trust_from_step: Before it, norms have not settled.
        trust_until_step: From it on, norms have frozen; the length of the run if they do not.
        not_these_layers: Layers most of whose vectors have no effective learning rate, because the
            loss sees how long they are.
        warnings: Sentences.
        layers: In words, for which layers all this holds.
        limited_by_eps: Layers whose length the loss sees only through the eps of a normalisation.
    """

    source: OptimizerSetting
    effective_lr: float
    gain: float
    sgd_product: float
    adamw_product: float
    alpha_v: float
    beta2_equivalent: float
    criterion: Criterion
    num_steps: int
    trust_from_step: int
    trust_until_step: int
    not_these_layers: tuple[str, ...]
    warnings: tuple[str, ...]
    limited_by_eps: tuple[str, ...] = ()
    layers: str = "for every layer"

    def __str__(self) -> str:
        own, momentum = self.source.optimizer, self.source.averaging
        equals = {
            "sgd": f"SGD lr x weight_decay = {self.sgd_product:.4g} (momentum {momentum:g})",
            "adamw": f"AdamW lr x weight_decay = {self.adamw_product:.4g}",
            "ndadam": f"ND-Adam alpha_v = {self.alpha_v:.4g}",
        }
        equals.pop(own, None)
        where = f"to be trusted from step {self.trust_from_step} until step {self.trust_until_step}"
        if self.trust_from_step >= self.trust_until_step:
            where = (
                f"not to be trusted within {self.num_steps} steps, of which norms need "
                f"{self.trust_from_step} to settle"
            )
        said = ", ".join(equals.values())
        return f"Your {_words(self.source)} equals {said}; {where}; {self.layers}."


def equivalents(
    optimizer: Optimizer | OptimizerSetting,
    model: nn.Module | None = None,
    *,
    num_steps: int,
    lr_schedule: Factor = constant,
    betas: tuple[float, float] | None = None,
    dynamics: EffectiveLR | None = None,
    probe: ProbeResult | None = None,
    criterion: Criterion | None = None,
    level: Level | None = None,
) -> Equivalents:
    """Say what an optimizer's setting equals in SGD, AdamW and ND-Adam.

    Args:
        optimizer: A torch optimizer with its ``model``; or a setting. Of an optimizer with a torch
            scheduler the full learning rate counts, wherever the schedule is.
        model: Whose weight vectors it trains.
        num_steps: Length of the run that the answer is for.
        lr_schedule: Step -> factor on the learning rate of the run.
        betas: Of ND-Adam; None: beta1 is the source's momentum (or beta1), beta2 the equivalent.
        dynamics: Has been attached with ``shadow_betas``: its gain A enters alpha_v.
        probe: Names the layers that the answer does not hold for.
        criterion: None: stationary for a constant schedule, else least_squares.
        level: Must be given where ``betas`` averages gradients over another time than the source.

    Raises:
        NoStationaryRate: For settings that have no answer; says what they have instead.
        ValueError: For the rest.
    """
    refuse_unless_whole("num_steps", num_steps, 1)
    refuse_criterion(criterion)
    steps = range(0, num_steps, max(1, num_steps // 50))
    refuse_schedule(lr_schedule, steps, num_steps)
    source = optimizer
    if isinstance(source, Optimizer):
        if model is None:
            raise ValueError("model must be given with an optimizer, got None")
        source = setting_of_optimizer(source, model)
    refuse_without_stationary_rate(source)
    gain = _gain(dynamics)
    is_constant = all(lr_schedule(step) == 1 for step in steps)
    criterion = criterion or ("stationary" if is_constant else "least_squares")
    target = OptimizerSetting("ndadam", betas=_betas(source) if betas is None else betas)
    found = predict(source, target, num_steps=num_steps, factor=lr_schedule, level=level, gain=gain)
    return Equivalents(
        source=source,
        effective_lr=found.effective_lr,
        gain=gain,
        sgd_product=_product("sgd", found),
        adamw_product=_product("adamw", found),
        alpha_v=found.criteria[criterion].rate,
        beta2_equivalent=found.beta2_equivalent,
        criterion=criterion,
        num_steps=num_steps,
        trust_from_step=found.trust_from_step,
        trust_until_step=found.trust_until_step,
        not_these_layers=layers_without_rate(probe),
        warnings=found.warnings,
        limited_by_eps=probe.limited_by_eps if probe is not None else (),
        layers=_which_layers(probe),
    )


def _which_layers(probe: ProbeResult | None) -> str:
    if probe is None:
        return "for layers whose length the loss ignores"
    if probe.sees_every_length():
        return (
            "but this holds for no layer here: the loss sees the length of every weight vector, as "
            "it does without a normalisation behind the layer"
        )
    words = layers_in_words(layers_without_rate(probe), probe.limited_by_eps)
    return words or "for every layer"


def layers_without_rate(probe: ProbeResult | None) -> tuple[str, ...]:
    """Trained layers of which most vectors are "neither": the loss sees how long they are."""
    if probe is None:
        return ()
    kinds = probe.layer_classes()
    return tuple(
        layer for layer, kind in kinds.items() if kind == "neither" and layer not in probe.frozen
    )


def layers_in_words(without_rate: Sequence[str], limited_by_eps: Sequence[str]) -> str:
    """Which layers an answer is not for, and why; empty where there are none."""
    others = [layer for layer in without_rate if layer not in limited_by_eps]
    found = []
    if others:
        found.append(f"not for {', '.join(others)}, whose length the loss sees")
    if limited_by_eps:
        found.append(
            f"not exactly for {', '.join(limited_by_eps)}, whose length the loss sees through the "
            "eps of a normalisation"
        )
    return "; ".join(found)


def product_of_decay(setting: OptimizerSetting, effective_lr: float) -> float:
    """lr * weight_decay of a setting with decay at which it has an effective learning rate."""
    return lr_of_effective_lr(replace(setting, weight_decay=_UNIT_DECAY), effective_lr)


def _product(name: str, found: Prediction) -> float:
    averaging = found.source.averaging
    setting = (
        OptimizerSetting("sgd", momentum=averaging)
        if name == "sgd"
        else OptimizerSetting("adamw", betas=(averaging, 0.999))
    )
    return product_of_decay(setting, found.effective_lr)


def _betas(source: OptimizerSetting) -> tuple[float, float]:
    return (source.averaging, beta2_equivalent(source))


def _gain(dynamics: EffectiveLR | None) -> float:
    measured = dynamics.gain() if dynamics is not None else None
    if measured is None or not math.isfinite(measured.overall):
        return 1.0
    return measured.overall


def _words(setting: OptimizerSetting) -> str:
    names = {"sgd": "SGD", "sgdw": "SGDW", "adamw": "AdamW", "adam": "Adam", "ndadam": "ND-Adam"}
    name = names[setting.optimizer]
    if setting.optimizer == "ndadam":
        return f"{name} (alpha_v {setting.lr:g})"
    momentum = f"momentum {setting.momentum:g}, " if setting.optimizer in ("sgd", "sgdw") else ""
    return f"{name} (lr {setting.lr:g}, {momentum}weight_decay {setting.weight_decay:g})"
