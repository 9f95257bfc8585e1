"""Refuses arguments of the laws that are no numbers of their range: by name, rule and value.

Imports only the standard library.
"""

import reprlib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from numbers import Integral, Real
from typing import Any

#: Of a gain or a norm, and as its inverse the largest of any number: fourth powers are numbers.
_LEAST = 1e-50


def refuse_unless_positive(name: str, value: Any) -> None:
    """Raise ValueError unless it is a number above 0 that formulas can hold."""
    if not isinstance(value, Real) or not _LEAST <= float(value) <= 1 / _LEAST:
        raise ValueError(
            f"{name} must be a number > 0, from {_LEAST:g} to {1 / _LEAST:g}, got {value!r}"
        )


def refuse_unless_rate(name: str, value: Any, *, above_zero: bool = False) -> None:
    """Raise ValueError unless it is a number of at least 0, and above it where asked."""
    is_rate = isinstance(value, Real) and 0 <= float(value) <= 1 / _LEAST
    if not is_rate or (above_zero and value == 0):
        sign = ">" if above_zero else ">="
        raise ValueError(
            f"{name} must be a number {sign} 0 and at most {1 / _LEAST:g}, got {value!r}"
        )


def refuse_unless_fraction(name: str, value: Any) -> None:
    """Raise ValueError unless it is a number in [0, 1)."""
    if not isinstance(value, Real) or not 0 <= float(value) < 1:
        raise ValueError(f"{name} must be in [0, 1), got {value!r}")


def refuse_unless_whole(name: str, value: Any, least: int | None = None) -> None:
    """Raise ValueError unless it is a whole number, of at least ``least`` where that is given."""
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or (least is not None and value < least):
        bound = "" if least is None else f" of at least {least}"
        raise ValueError(f"{name} must be a whole number{bound}, got {value!r}")


def refuse_unless_steps(steps: Any) -> tuple[int, ...]:
    """The steps, unless they are not whole numbers that increase: ValueError."""
    known = tuple(steps) if isinstance(steps, Iterable) else ()
    whole = all(isinstance(step, Integral) for step in known)
    if not known or not whole or any(a >= b for a, b in pairwise(known)):
        shown = reprlib.repr(steps)  # there may be thousands
        raise ValueError(f"steps must be whole numbers that increase, at least one, got {shown}")
    return known


def values_of(name: str, function: Any, steps: Sequence[int]) -> tuple[float, ...]:
    """What a function gives at ``steps``. Raises ValueError unless numbers of at least 0."""
    if not callable(function):
        raise ValueError(
            f"{name} must be a function of the step that returns a number, got {function!r}"
        )
    values = tuple(function(step) for step in steps)
    for step, value in zip(steps, values, strict=True):
        if not isinstance(value, Real) or not 0 <= float(value) <= 1 / _LEAST:
            raise ValueError(
                f"{name} must give numbers from 0 to {1 / _LEAST:g}, got {value!r} at step {step}"
            )
    return values
