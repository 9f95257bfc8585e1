"""Refusals of matches that could not end well, at submission. Each names field and remedy."""

import math

from ndadam.matching.plan import default_run, early_window, shortest_window
from ndadam.statistics.blocked_means import FEWEST_BLOCKS
from ndadam.theory.laws import (
    NoStationaryRate,
    OptimizerSetting,
    beta2_equivalent,
    refuse_without_stationary_rate,
)
from ndadam.theory.prediction import Criterion, Level
from worker.config.train_config import FieldError, LrSchedule


def refuse_unmatchable(
    criterion: Criterion,
    lr_schedule: LrSchedule,
    warmup_steps: int,
    source_setting: OptimizerSetting,
    target: OptimizerSetting | None,
) -> None:
    """Raise FieldError if the two sides, or criterion and schedule, have no match.

    ``target``: None where theory knows nothing of it.
    """
    is_constant = lr_schedule == "constant" and not warmup_steps
    if criterion == "stationary" and not is_constant:
        raise FieldError(
            "criterion",
            "stationary needs a constant lr_schedule without warm-up, got "
            f"{lr_schedule!r}; use least_squares, equal_rotation, equal_mean or schedule",
        )
    if target is not None:
        _refuse_target(target)
    if criterion == "stationary":
        _refuse_source(source_setting)
    name = "of a package" if target is None else target.optimizer
    if criterion == "schedule" and name != "ndadam":
        raise FieldError(
            "criterion",
            "schedule is measured for ndadam as target, whose norms do not lag; got target "
            f"{name!r}",
        )
    if criterion == "schedule" and warmup_steps:
        raise FieldError(
            "base.warmup_steps",
            "with criterion schedule a warm-up must be part of lr_schedule's points, got "
            f"warmup_steps = {warmup_steps}",
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


def refuse_short_calibration(
    calibration_steps: int, criterion: Criterion, *, wait: int, records: int, num_steps: int
) -> None:
    """Raise FieldError if ``calibration_steps`` leave nothing to measure.

    ``wait`` and ``records`` are steps: until a calibration run is measured, and of a measurement.
    """
    if criterion != "stationary":
        raise FieldError(
            "calibration_steps",
            "calibration_steps must be unset unless the criterion is stationary: a part of a "
            f"schedule says nothing about the whole; got {calibration_steps}",
        )
    least = wait + FEWEST_BLOCKS * records
    if not least <= calibration_steps <= num_steps:
        raise FieldError(
            "calibration_steps",
            f"calibration_steps must be from {least} (the wait and a measurement) to "
            f"base.steps = {num_steps}, got {calibration_steps}",
        )


def refuse_unchosen_level(level: Level | None, source: float, target: float) -> None:
    """Raise FieldError if step level and long range differ and none was chosen.

    ``source`` and ``target`` are momentum or beta1, over which each averages gradients.
    """
    if level is None and not math.isclose(source, target, abs_tol=1e-9):
        raise FieldError(
            "level",
            "source and target average gradients over different times (momentum or beta1 "
            f"{source:g} and {target:g}): choose step, which makes single steps equally long, "
            "or long_range, which makes many steps go equally far",
        )


def refuse_window(
    window: tuple[int, int], *, least_block: int, record_every: int, num_steps: int
) -> None:
    """Raise FieldError for a window that is outside the run or too short to judge.

    ``least_block`` counts records, all others steps.
    """
    start, stop = window
    if not 0 <= start < stop <= num_steps:
        raise FieldError(
            "window",
            f"window must hold 0 <= start < stop <= steps, got ({start}, {stop}) with steps = "
            f"{num_steps}",
        )
    needed = shortest_window(least_block)
    records = -(-stop // record_every) - -(-start // record_every)
    if records < needed:
        raise FieldError(
            "window",
            f"window must span at least {needed * record_every} steps for an interval and a drift "
            f"test, got {stop - start}; make the run or the window longer",
        )


def refuse_early_window(
    start: int,
    source: OptimizerSetting,
    target: OptimizerSetting,
    level: Level,
    *,
    num_steps: int,
    is_default: bool,
) -> None:
    """Raise FieldError for a stationary match whose window starts before both sides settled."""
    early = early_window(start, source, target, level)
    if early is not None:
        enough = math.ceil(default_run(settled=early.settled) / 100) * 100
        raise FieldError(
            "base.steps" if is_default else "window",
            f"the {early.side} is stationary only after about {early.settled} steps, and the "
            f"window starts at {start}; base.steps = {enough} would do with the default "
            f"window{early.or_sooner}; got {num_steps}. Criterion least_squares compares runs of "
            "any length as they are",
        )
