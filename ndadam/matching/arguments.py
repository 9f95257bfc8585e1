"""Arguments of a measured match, validated before any training. Torch-free."""

from numbers import Real

from ndadam.checks import refuse_unless_whole
from ndadam.matching.checks import refuse_criterion, refuse_schedule
from ndadam.matching.plan import (
    MatchPlan,
    default_criterion,
    default_run,
    default_window,
    early_window,
    shortest_window,
)
from ndadam.theory.along_schedule import Factor
from ndadam.theory.laws import Level, OptimizerSetting, refuse_without_stationary_rate
from ndadam.theory.prediction import Criterion, resolve_level
from ndadam.theory.settling import settling_steps

#: Ratios minus 1 beyond which two rates are not comparable in any sense.
_LARGEST_TOLERANCE = 0.5


def checked_plan(
    source: OptimizerSetting,
    target: OptimizerSetting,
    num_steps: int,
    lr_schedule: Factor,
    criterion: Criterion | None,
    level: Level | None,
    tolerance: float,
    seeds: tuple[int, ...],
    window: tuple[int, int] | None,
    max_corrections: int,
) -> MatchPlan:
    """The plan of ``match_rate``, whose arguments these are.

    Raises NoStationaryRate and ValueError for what could not end well, and says what would do.
    """
    source.known_lr()
    refuse_unless_whole("num_steps", num_steps, 1)
    refuse_criterion(criterion)
    if not isinstance(tolerance, Real) or not 0 < float(tolerance) <= _LARGEST_TOLERANCE:
        raise ValueError(
            f"tolerance must be above 0 and at most {_LARGEST_TOLERANCE}, a ratio minus 1 "
            f"(0.05 is 5 %), got {tolerance!r}"
        )
    refuse_schedule(lr_schedule, range(num_steps), num_steps)
    if target.lr is not None:
        raise ValueError(f"target.lr is what the match finds; leave it open, got {target.lr}")
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds must be different numbers, at least one, got {seeds}")
    refuse_without_stationary_rate(target)
    if criterion is None:
        steps = range(0, num_steps, max(1, num_steps // 200))
        criterion = default_criterion(is_constant={lr_schedule(step) for step in steps} == {1.0})
    plan = MatchPlan(
        source=source,
        target=target,
        num_steps=num_steps,
        lr_schedule=lr_schedule,
        criterion=criterion,
        level=resolve_level(source, target, level),
        tolerance=tolerance,
        seeds=seeds,
        window=window or default_window(criterion, num_steps),
        max_corrections=max_corrections,
    )
    _refuse_short_runs(plan)
    refuse_unless_whole("max_corrections", max_corrections, 0)
    return plan


def _refuse_short_runs(plan: MatchPlan) -> None:
    start, stop = plan.window
    needed, settled, early = shortest_window(plan.least_block), 0, None
    if plan.criterion == "stationary":
        refuse_without_stationary_rate(plan.source)
        settled = max(settling_steps(plan.source, plan.target, plan.level).values())
        early = early_window(start, plan.source, plan.target, plan.level)
    enough = default_run(window_steps=needed, settled=settled)
    if not (0 <= start and start + needed <= stop <= plan.num_steps):
        raise ValueError(
            f"window must lie within the run's {plan.num_steps} steps and span at least "
            f"{needed} of them for an interval and a drift test, got {plan.window}; a run of "
            f"{enough} steps would do"
        )
    if early is not None:
        raise ValueError(
            f"num_steps must be larger: the {early.side} is stationary only after about "
            f"{early.settled} steps, and the window starts at {start}; num_steps = {enough} would "
            f"do{early.or_sooner}"
        )
