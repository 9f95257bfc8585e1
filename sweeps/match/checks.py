"""What a match is refused for at submission: it could not end well. Each names field and remedy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ndadam.statistics.blocked_means import FEWEST_BLOCKS
from ndadam.theory.laws import (
    NoStationaryRate,
    OptimizerSetting,
    beta2_equivalent,
    refuse_without_stationary_rate,
)
from ndadam.theory.prediction import or_forget_sooner, settling_steps
from worker.config.train_config import FieldError

if TYPE_CHECKING:
    from sweeps.match.match_spec import MatchSpec


def refuse_unmatchable(spec: MatchSpec) -> None:
    """Raise FieldError where the two sides, or criterion and schedule, have no match."""
    if spec.chosen_criterion() == "stationary" and not spec.is_constant:
        raise FieldError(
            "criterion",
            "stationary needs a constant lr_schedule without warm-up, got "
            f"{spec.source_config.lr_schedule!r}; use least_squares, equal_rotation, equal_mean "
            "or schedule",
        )
    _refuse_target(spec.target_setting)
    if spec.chosen_criterion() == "stationary":
        _refuse_source(spec.source_setting)
    if spec.criterion == "schedule" and spec.target.optimizer != "ndadam":
        raise FieldError(
            "criterion",
            "schedule is measured for ndadam as target, whose norms do not lag; got target "
            f"{spec.target.optimizer!r}",
        )
    if spec.criterion == "schedule" and spec.source_config.warmup_steps:
        raise FieldError(
            "base.warmup_steps",
            "with criterion schedule a warm-up must be part of lr_schedule's points, got "
            f"warmup_steps = {spec.source_config.warmup_steps}",
        )


def _refuse_target(setting: OptimizerSetting) -> None:
    try:
        refuse_without_stationary_rate(setting)
    except NoStationaryRate as error:
        raise FieldError("target.optimizer", str(error)) from error


def _refuse_source(setting: OptimizerSetting) -> None:
    """Only where its stationary rate is wanted: any other curve can be measured and matched."""
    try:
        refuse_without_stationary_rate(setting)
    except NoStationaryRate as error:
        raise FieldError(
            "source.optimizer",
            f"{error}. Its curve as measured can be matched with criterion least_squares, "
            "equal_rotation, equal_mean or schedule",
        ) from error
    try:
        beta2_equivalent(setting)
    except NoStationaryRate as error:
        raise FieldError("source.lr", str(error)) from error


def refuse_short_calibration(spec: MatchSpec) -> None:
    """Raise FieldError where ``calibration_steps`` leave nothing to measure."""
    if spec.calibration_steps is None:
        return
    if spec.chosen_criterion() != "stationary":
        raise FieldError(
            "calibration_steps",
            "calibration_steps must be unset unless the criterion is stationary: a part of a "
            f"schedule says nothing about the whole; got {spec.calibration_steps}",
        )
    least = spec.calibration_window()[0] + FEWEST_BLOCKS * spec.least_block * spec.record_every
    if not least <= spec.calibration_steps <= spec.num_steps:
        raise FieldError(
            "calibration_steps",
            f"calibration_steps must be from {least} (the wait and a measurement) to "
            f"base.steps = {spec.num_steps}, got {spec.calibration_steps}",
        )


def refuse_unchosen_level(spec: MatchSpec) -> None:
    """Raise FieldError where step level and long range differ and none was chosen."""
    source, target = spec.source_setting.averaging, spec.target_setting.averaging
    if spec.level is None and not math.isclose(source, target, abs_tol=1e-9):
        raise FieldError(
            "level",
            "source and target average gradients over different times (momentum or beta1 "
            f"{source:g} and {target:g}): choose step, which makes single steps equally long, "
            "or long_range, which makes many steps go equally far",
        )


def refuse_window(spec: MatchSpec) -> None:
    """Raise FieldError for a window outside the run, too short to judge, or before both settled."""
    start, stop = spec.chosen_window()
    steps = spec.num_steps
    if not 0 <= start < stop <= steps:
        raise FieldError(
            "window",
            f"window must hold 0 <= start < stop <= steps, got ({start}, {stop}) with steps = "
            f"{steps}",
        )
    needed = 2 * FEWEST_BLOCKS * spec.least_block * spec.record_every
    records = -(-stop // spec.record_every) - -(-start // spec.record_every)
    if records < 2 * FEWEST_BLOCKS * spec.least_block:
        raise FieldError(
            "window",
            f"window must span at least {needed} steps for an interval and a drift test, got "
            f"{stop - start}; make the run or the window longer",
        )
    if spec.chosen_criterion() == "stationary":
        _refuse_early_window(spec, start)


def _refuse_early_window(spec: MatchSpec, start: int) -> None:
    waits = settling_steps(spec.source_setting, spec.target_setting, spec.level or "step")
    side = max(waits, key=waits.__getitem__)
    settled = waits[side]
    if start < settled:
        # The default window starts at 7/12 of the run.
        enough = math.ceil(settled * 12 / 7 / 100) * 100
        sooner = or_forget_sooner(spec.source_setting, spec.target_setting, waits, start)
        raise FieldError(
            "base.steps" if spec.window is None else "window",
            f"the {side} is stationary only after about {settled} steps, and the window starts "
            f"at {start}; base.steps = {enough} would do with the default window{sooner}; got "
            f"{spec.num_steps}",
        )
