"""Refuses schedules and criteria that no run can have, by name and value."""

import math
from collections.abc import Iterable
from numbers import Real
from typing import Any

from ndadam.theory.prediction import CRITERIA


def refuse_criterion(criterion: Any) -> None:
    """Raise ValueError unless ``criterion`` is None or one of ``CRITERIA``."""
    if criterion is not None and criterion not in CRITERIA:
        raise ValueError(f"criterion must be one of {', '.join(CRITERIA)}, got {criterion!r}")


def refuse_schedule(lr_schedule: Any, steps: Iterable[int], num_steps: int) -> None:
    """Raise ValueError unless it gives each of ``steps`` a factor, above 0 at some of them."""
    if not callable(lr_schedule):
        raise ValueError(
            "lr_schedule must be a function of the step that returns a factor on the learning "
            f"rate, got {lr_schedule!r}; leave it out for a constant rate"
        )
    factors = {step: lr_schedule(step) for step in steps}
    for step, factor in factors.items():
        if not isinstance(factor, Real) or not 0 <= float(factor) < math.inf:
            raise ValueError(
                f"lr_schedule must give factors that are finite and >= 0, got {factor!r} at step "
                f"{step}"
            )
    if not any(factors.values()):
        raise ValueError(f"lr_schedule must be above 0 at some of the {num_steps} steps, got 0")
