"""How fast each optimizer moves scale-invariant weights once their norm has settled.

The effective learning rate of a step is e_t = ||w_t - w_{t-1}|| / ||w_{t-1}||, as a root mean
square over steps. For weights whose loss ignores their norm (a layer before batch normalisation),
weight decay shrinks the norm and the updates, being orthogonal to w, stretch it; where the two
balance, e_t settles at a value e* that follows from the hyperparameters alone.

Sources: Wan et al., "Spherical Motion Dynamics", arXiv:2006.08419, and Kosson et al., "Rotational
Equilibrium", arXiv:2305.17212. Heavy-ball SGD needs no assumption about the gradients beyond scale
invariance; the other laws assume that successive gradients are uncorrelated. Imports only ``math``.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Literal, get_args

from ndadam.checks import (
    refuse_unless_fraction,
    refuse_unless_positive,
    refuse_unless_rate,
    refuse_unless_whole,
)

OptimizerName = Literal["sgd", "sgdw", "adam", "adamw", "ndadam"]
RateName = Literal["alpha_v", "lr"]
#: What is made equal: single steps, or how far many steps go.
Level = Literal["step", "long_range"]

#: Of a weight decay or of ND-Adam's rate, and as its inverse the largest: what formulas make of
#: them are numbers.
_LEAST = 1e-50
#: Of lr * weight_decay: below, 1 minus what a step does to the norm is 1.
_LEAST_PRODUCT = 1e-15


def rate_name(optimizer: str) -> RateName:
    """Name of the learning rate that moves an optimizer's weight vectors, as configs have it."""
    return "alpha_v" if optimizer == "ndadam" else "lr"


class NoStationaryRate(ValueError):
    """The setting has no effective learning rate that follows from its hyperparameters."""


@dataclass(frozen=True)
class OptimizerSetting:
    """An optimizer with its hyperparameters, as far as they move weight vectors.

    ``lr`` is alpha^v for ndadam, and None where it is what a match has to find. ``sgdw`` is SGD
    whose decay is decoupled and multiplied by lr, as in torch's AdamW. Raises ValueError with the
    field, the rule and the value.
    """

    optimizer: OptimizerName
    lr: float | None = None
    weight_decay: float = 0.0
    #: sgd and sgdw only.
    momentum: float = 0.0
    #: sgd only.
    dampening: float = 0.0
    #: sgd only.
    nesterov: bool = False
    #: adam, adamw and ndadam only.
    betas: tuple[float, float] = (0.9, 0.999)

    def __post_init__(self) -> None:
        known = get_args(OptimizerName)
        if self.optimizer not in known:
            raise ValueError(f"optimizer must be one of {', '.join(known)}, got {self.optimizer!r}")
        self._keep_plain_numbers()
        if self.lr is not None and not (math.isfinite(self.lr) and self.lr > 0):
            raise ValueError(f"lr must be finite and > 0, got {self.lr}")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise ValueError(f"weight_decay must be finite and >= 0, got {self.weight_decay}")
        fractions = {
            "momentum": self.momentum,
            "dampening": self.dampening,
            "betas[0]": self.betas[0],
            "betas[1]": self.betas[1],
        }
        for name, value in fractions.items():
            if not 0 <= value < 1:
                raise ValueError(f"{name} must be in [0, 1), got {value}")
        if self.nesterov and (self.momentum == 0 or self.dampening != 0):
            raise ValueError(
                "nesterov needs momentum > 0 and dampening = 0, got momentum = "
                f"{self.momentum}, dampening = {self.dampening}"
            )
        if self.optimizer == "sgdw" and (self.nesterov or self.dampening):
            raise ValueError(
                "nesterov and dampening must be unset for sgdw, got nesterov = "
                f"{self.nesterov}, dampening = {self.dampening}"
            )

    def _keep_plain_numbers(self) -> None:
        """Refuse what is no number; what other libraries count with becomes a float."""
        for name in ("lr", "weight_decay", "momentum", "dampening"):
            value = getattr(self, name)
            if isinstance(value, Real):
                object.__setattr__(self, name, float(value))
            elif name != "lr" or value is not None:
                raise ValueError(f"{name} must be a number, got {value!r}")
        betas = self.betas
        are_two = isinstance(betas, Sequence) and len(betas) == 2
        if not (are_two and all(isinstance(beta, Real) for beta in betas)):
            raise ValueError(f"betas must be two numbers, got {betas!r}")
        object.__setattr__(self, "betas", (float(betas[0]), float(betas[1])))

    @property
    def averaging(self) -> float:
        """Decay rate of the running average of gradients: momentum, or beta1."""
        return self.momentum if self.optimizer in ("sgd", "sgdw") else self.betas[0]

    def with_lr(self, lr: float) -> "OptimizerSetting":
        """The same setting at another learning rate."""
        return replace(self, lr=lr)

    def known_lr(self) -> float:
        """``lr``, refusing a setting that leaves it open."""
        if self.lr is None:
            raise ValueError(f"lr of {self.optimizer} must be set here, got None")
        return self.lr


def refuse_no_setting(**settings: OptimizerSetting) -> None:
    """Raise ValueError unless each argument is a setting."""
    for name, setting in settings.items():
        if not isinstance(setting, OptimizerSetting):
            raise ValueError(f"{name} must be an OptimizerSetting, got {setting!r}")


def refuse_without_stationary_rate(setting: OptimizerSetting) -> None:
    """Raise NoStationaryRate, saying what there is instead, where theory has no e*."""
    refuse_no_setting(setting=setting)
    name = setting.optimizer
    if name == "ndadam":
        _refuse_beyond_numbers("lr", setting)
        return
    if name == "adam" and setting.weight_decay > 0:
        raise NoStationaryRate(
            "adam with weight decay in its gradient (L2) has an effective learning rate that "
            "depends on the size of the gradients, so no formula gives it; measure a run, or use "
            "adamw, which has one"
        )
    if setting.weight_decay == 0:
        instead = (
            "lr sqrt(d (1 - beta1) / (1 + beta1)) / ||w_t|| for a vector of d elements, whose "
            "||w_t||^2 grows by d lr^2 a step (ndadam.theory.adam_without_decay computes it); use "
            "adamw with weight decay, or measure a run"
            if name in ("adam", "adamw")
            else "like one over the root of the steps done, as strong as the gradients make it; "
            "set weight_decay above 0, or measure a run"
        )
        raise NoStationaryRate(
            f"{name} without weight decay has no stationary effective learning rate: nothing "
            "shrinks the weights, so their norm grows for ever. What it has instead is a rate that "
            f"falls with time, {instead}"
        )
    _refuse_beyond_numbers("weight_decay", setting)
    if setting.lr is not None and setting.lr * setting.weight_decay < _LEAST_PRODUCT:
        raise NoStationaryRate(
            f"lr * weight_decay of {name} is so small that norms never settle: it must be at least "
            f"{_LEAST_PRODUCT:g} for a stationary rate, got lr = {setting.lr:g} and weight_decay = "
            f"{setting.weight_decay:g}"
        )


def _refuse_beyond_numbers(field: str, setting: OptimizerSetting) -> None:
    value = getattr(setting, field)
    if value is not None and not _LEAST <= value <= 1 / _LEAST:
        raise NoStationaryRate(
            f"{field} of {setting.optimizer} must be from {_LEAST:g} to {1 / _LEAST:g} for a rate "
            f"that numbers can hold, got {value:g}"
        )


def stationary_effective_lr(
    setting: OptimizerSetting, gain: float = 1.0, *, lr: float | None = None
) -> float:
    """e* of a setting: RMS of ||w_t - w_{t-1}|| / ||w_{t-1}|| once norms have settled.

    ``lr`` replaces the setting's own. ``gain`` is A, the factor by which correlation of successive
    gradients changes the mean square of their running average (1 = uncorrelated). It enters for
    ndadam alone, which divides by the size of single gradients; decay balances whatever the update
    is.
    """
    law = stationary_law(setting, gain)
    if lr is None:
        return law(setting.known_lr())
    refuse_unless_rate("lr", lr)
    return law(lr)


def stationary_law(setting: OptimizerSetting, gain: float = 1.0) -> Callable[[float], float]:
    """e* of a setting as a function of its learning rate, for many of them."""
    refuse_without_stationary_rate(setting)
    refuse_unless_positive("gain", gain)
    decay, beta = setting.weight_decay, setting.averaging
    if setting.optimizer == "ndadam":
        return lambda lr: _ndadam_effective_lr(lr, beta, gain)
    if setting.optimizer == "sgd":
        slope = _sgd_slope(setting)
        return lambda lr: math.sqrt(lr * slope)

    def decoupled(lr: float) -> float:
        shrink = lr * decay
        b = beta * (1 - shrink)
        return math.sqrt(2 * shrink * (1 - b) / (1 + b))

    return decoupled


def lr_of_effective_lr(setting: OptimizerSetting, effective_lr: float, gain: float = 1.0) -> float:
    """The learning rate at which a setting's e* is ``effective_lr``; inverts the function above."""
    refuse_unless_rate("effective_lr", effective_lr, above_zero=True)
    return lr_law(setting, gain)(effective_lr)


def lr_law(setting: OptimizerSetting, gain: float = 1.0) -> Callable[[float], float]:
    """The learning rate of a setting as a function of its e*, for many of them."""
    refuse_without_stationary_rate(setting)
    refuse_unless_positive("gain", gain)
    if setting.optimizer == "ndadam":
        beta1 = setting.betas[0]
        ratio = step_ratio(beta1, gain)
        return lambda e: e / ratio * _tangential_factor(e, beta1)
    if setting.optimizer == "sgd":
        slope = _sgd_slope(setting)
        return lambda e: e**2 / slope
    beta = setting.averaging

    def decoupled(e: float) -> float:
        # 2 s (1 - b) = e^2 (1 + b) with b = beta (1 - s), solved for s = lr * weight_decay.
        square = e**2
        half_linear = (2 * (1 - beta) + square * beta) / 2
        constant = square * (1 + beta)
        shrink = constant / (half_linear + math.sqrt(half_linear**2 + 2 * beta * constant))
        return shrink / setting.weight_decay

    return decoupled


def _sgd_slope(setting: OptimizerSetting) -> float:
    """e*^2 / lr of SGD with L2 in its gradient."""
    mu, decay = setting.momentum, setting.weight_decay
    if setting.nesterov:  # for uncorrelated gradients
        return 2 * decay * (1 - mu) * ((1 + mu) ** 2 + mu**4 / (1 - mu**2))
    return 2 * decay * (1 - setting.dampening) / (1 + mu)


def refuse_level(level: Level) -> None:
    """Raise ValueError unless it is one of the two."""
    if level not in get_args(Level):
        raise ValueError(f"level must be {' or '.join(get_args(Level))}, got {level!r}")


def level_factor(source: OptimizerSetting, target: OptimizerSetting, level: Level) -> float:
    """The target's effective learning rate over the source's.

    Long range, each gradient moves a weight by its step times the length of the average it enters,
    and steps that share gradients add up: a step e with averaging b goes sqrt((1+b)/(1-b)) as far.
    """
    refuse_no_setting(source=source, target=target)
    refuse_level(level)
    if level == "step":
        return 1.0
    mu, beta = source.averaging, target.averaging
    return math.sqrt((1 + mu) * (1 - beta) / ((1 - mu) * (1 + beta)))


# --- ND-Adam -------------------------------------------------------------------------------------


def step_ratio(beta1: float, gain: float = 1.0) -> float:
    """e / alpha^v before normalisation: the RMS of m over that of single gradients."""
    refuse_unless_fraction("beta1", beta1)
    refuse_unless_positive("gain", gain)
    return math.sqrt((1 - beta1) / (1 + beta1) * gain)


def tangential_factor(effective_lr: float, beta1: float) -> float:
    """How much larger alpha^v must be because normalisation undoes part of each step.

    Momentum lags behind the turning vector, so the update is not quite orthogonal to it. First
    order in e^2: +0.5 % at e = 0.01 with beta1 = 0.9, +9 % at 0.042.
    """
    refuse_unless_rate("effective_lr", effective_lr)
    refuse_unless_fraction("beta1", beta1)
    return _tangential_factor(effective_lr, beta1)


def _tangential_factor(effective_lr: float, beta1: float) -> float:
    """Without the questions, for the values of a curve."""
    return 1 + effective_lr**2 / (2 * (1 - beta1) ** 2)


def _ndadam_effective_lr(alpha_v: float, beta1: float, gain: float) -> float:
    """Solve e * tangential_factor(e) = alpha^v * step_ratio for e, by Newton's method."""
    target = alpha_v * step_ratio(beta1, gain)
    c = 1 / (2 * (1 - beta1) ** 2)
    e = target
    for _ in range(60):
        step = (e + c * e**3 - target) / (1 + 3 * c * e * e)
        e -= step
        if abs(step) <= 1e-16 * e:
            break
    return e


# --- Time constants ------------------------------------------------------------------------------


def relaxation_per_step(setting: OptimizerSetting) -> float:
    """Fraction of its distance to equilibrium that the norm covers in a step at ``setting.lr``.

    Of ||w||^4 for sgd and sgdw, whose updates shrink as 1/||w||; of ||w||^2 for adamw. Raises for
    ndadam, whose norms do not move.
    """
    refuse_without_stationary_rate(setting)
    shrink = setting.known_lr() * setting.weight_decay
    if setting.optimizer == "sgd":
        return 4 * shrink * (1 - setting.dampening) / (1 - setting.momentum)
    if setting.optimizer == "sgdw":
        return 4 * shrink
    if setting.optimizer == "adamw":
        return 2 * shrink
    raise ValueError(f"{setting.optimizer} pins the norms, so none relaxes")


def relaxation_steps(setting: OptimizerSetting) -> float:
    """tau: steps in which the distance of e^2 from equilibrium falls to 1/e.

    For ndadam the memory of its second moment, 1 / (1 - beta2).
    """
    refuse_no_setting(setting=setting)
    if setting.optimizer == "ndadam":
        return 1 / (1 - setting.betas[1])
    return 1 / relaxation_per_step(setting)


def beta2_equivalent(setting: OptimizerSetting) -> float:
    """The beta2 with which ND-Adam forgets gradient sizes as fast as the setting does.

    SGD with L2 averages them through the norm of its weights; optimizers with a second moment
    have a beta2 of their own, which is the answer.
    """
    refuse_no_setting(setting=setting)
    if setting.optimizer in ("adamw", "ndadam"):
        return setting.betas[1]
    per_step = relaxation_per_step(setting)
    if per_step >= 1:
        shrink = setting.known_lr() * setting.weight_decay
        raise NoStationaryRate(
            "lr * weight_decay is so large that norms settle within a step, which no training "
            f"survives: it must be below {shrink / per_step:.3g}, got lr = {setting.lr} and "
            f"weight_decay = {setting.weight_decay}"
        )
    return 1 - per_step


def gain_without_replacement(num_batches: int, beta1: float) -> float:
    """A of pure minibatch noise when each epoch visits ``num_batches`` batches once, reshuffled."""
    refuse_unless_whole("num_batches", num_batches, 2)
    refuse_unless_fraction("beta1", beta1)
    terms = (beta1**k * (1 - k / num_batches) for k in range(1, num_batches))
    return 1 - 2 / (num_batches - 1) * math.fsum(terms)


def gain_autoregressive(beta1: float, rho: float) -> float:
    """A of gradients whose autocorrelation at lag k is ``rho ** k``."""
    refuse_unless_fraction("beta1", beta1)
    if not isinstance(rho, Real) or not -1 < rho < 1:
        raise ValueError(f"rho must be a number above -1 and below 1, got {rho!r}")
    return (1 + beta1 * rho) / (1 - beta1 * rho)


def adam_without_decay(
    lr: float, betas: tuple[float, float], elements: int, norm: float, step: int
) -> float:
    """Effective learning rate of Adam without decay after ``step`` steps: it falls for ever.

    ``elements`` of one weight vector that started with length ``norm``; the squared length grows
    by lr^2 * elements a step. For uncorrelated gradients.
    """
    setting = OptimizerSetting("adam", betas=betas)
    refuse_unless_positive("lr", lr)
    refuse_unless_whole("elements", elements, 1)
    refuse_unless_positive("norm", norm)
    refuse_unless_whole("step", step, 0)
    squared_norm = norm**2 + step * lr**2 * elements
    return lr * math.sqrt(elements / squared_norm) * step_ratio(setting.betas[0])
