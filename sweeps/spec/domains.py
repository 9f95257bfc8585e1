"""Domains of a space's fields: float ranges, int ranges and choices."""

import json
import math
from collections.abc import Sequence
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from worker.config.trial_config import FieldError, Finite, Value, Whole

__all__ = ["Choice", "Domain", "Finite", "FloatRange", "IntRange", "Value", "Whole", "same"]

#: Fields that a space may have.
MAX_FIELDS = 50


def _few(when: Any) -> Any:
    # Pydantic counts after it has refused every one.
    if isinstance(when, dict) and len(when) > MAX_FIELDS:
        raise ValueError(f"when must name at most {MAX_FIELDS} fields, got {len(when):,}")
    return when


#: Field of the space -> its values under which this domain is active.
When = Annotated[
    dict[str, Annotated[list[Value], Field(fail_fast=True, min_length=1, max_length=1000)]],
    BeforeValidator(_few),
]

#: Golden section: a range is also tried at this fraction, which lies on no regular grid.
_INSIDE = 0.6180339887498949
#: Largest count that a double represents exactly.
_MOST_STEPS = 2**53


class _Conditional(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    when: When | None = Field(
        None,
        description="Choice field -> values: the field varies only if all of these hold.",
    )


class FloatRange(_Conditional):
    """Numbers from ``low`` to ``high``, both included; with ``step`` only low + k x step."""

    kind: Literal["float"]
    low: Finite = Field(description="Smallest value.")
    high: Finite = Field(description="Largest value.")
    log: bool = Field(False, strict=True, description="Spread evenly in the logarithm.")
    step: Annotated[Finite, Field(gt=0)] | None = Field(
        None, description="Distance of neighbouring values; none = continuous."
    )

    @model_validator(mode="after")
    def _bounds_are_usable(self) -> Self:
        _check_bounds(self.low, self.high, log=self.log, least_log="above 0", positive=self.low > 0)
        if self.step is not None:
            if self.log:
                raise FieldError(
                    "step", f"step cannot be combined with log; remove one, got step = {self.step}"
                )
            _check_step(self.low, self.high, self.step)
        return self

    def size(self) -> int | None:
        """How many values there are; None if continuous."""
        return None if self.step is None else _steps(self.low, self.high, self.step) + 1

    def value(self, index: int) -> float:
        """The value at a place of the grid, counted from 0."""
        if self.step is None:
            raise ValueError("a continuous range has no grid")
        if index == _steps(self.low, self.high, self.step):
            return self.high
        # In decimals of what was typed: the third of 0.1, 0.2, … is 0.3, in every sampler.
        exact = Decimal(repr(self.low)) + index * Decimal(repr(self.step))
        return float(exact) + 0.0

    def index(self, value: float) -> int:
        """Return the index of the grid point nearest to a value."""
        if self.step is None:
            raise ValueError("a continuous range has no grid")
        last = _steps(self.low, self.high, self.step)
        return min(max(round((value - self.low) / self.step), 0), last)

    def canonical(self, value: float) -> float:
        """Return the value as this range writes it: on its grid, within its ends."""
        if self.step is not None:
            return self.value(self.index(value))
        return min(max(float(value), self.low), self.high) + 0.0

    def corners(self) -> list[Value]:
        """Return the values most likely to be refused: both ends and one between them."""
        if self.step is not None:
            return [self.low, self.value(1), self.high]
        if self.log:
            # By logarithms, because the ratio of the ends may overflow a double.
            near, far = math.log(self.low), math.log(self.high)
            inside = math.exp(near + (far - near) * _INSIDE)
        else:
            inside = self.low + (self.high - self.low) * _INSIDE
        return [self.low, inside, self.high]

    def holds(self, value: Any) -> bool:
        """Whether a value lies in the range, and on its grid."""
        if not _is_number(value) or not self.low <= value <= self.high:
            return False
        if self.step is None:
            return True
        place = (value - self.low) / self.step
        return bool(abs(place - round(place)) <= 1e-6)


class IntRange(_Conditional):
    """Whole numbers from ``low`` to ``high``, both included, ``step`` apart."""

    kind: Literal["int"]
    low: Whole = Field(description="Smallest value.")
    high: Whole = Field(description="Largest value.")
    log: bool = Field(False, strict=True, description="Spread evenly in the logarithm.")
    step: Annotated[Whole, Field(ge=1)] = Field(1, description="Distance of neighbouring values.")

    @model_validator(mode="after")
    def _bounds_are_usable(self) -> Self:
        _check_bounds(
            self.low, self.high, log=self.log, least_log="at least 1", positive=self.low >= 1
        )
        if self.step != 1:
            if self.log:
                raise FieldError(
                    "step", f"step cannot be combined with log; remove one, got step = {self.step}"
                )
            _check_step(self.low, self.high, self.step)
        return self

    def size(self) -> int:
        """How many values there are."""
        return (self.high - self.low) // self.step + 1

    def value(self, index: int) -> int:
        """The value at a place of the grid, counted from 0."""
        return self.low + index * self.step

    def canonical(self, value: int) -> int:
        """Return the value unchanged: a whole number has one way of writing."""
        return value

    def corners(self) -> list[Value]:
        """Return the values most likely to be refused: both ends and the neighbour of the first."""
        return [self.low, self.low + self.step, self.high]

    def holds(self, value: Any) -> bool:
        """Whether a value lies in the range, and on its grid."""
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole and self.low <= value <= self.high and (value - self.low) % self.step == 0


class Choice(_Conditional):
    """One of several values, unordered."""

    kind: Literal["choice"]
    values: Annotated[list[Value], Field(min_length=1, max_length=1000)] = Field(
        description="The values, each once."
    )

    @model_validator(mode="after")
    def _values_differ(self) -> Self:
        seen: set[str] = set()
        for index, value in enumerate(self.values):
            if same(value) in seen:
                raise FieldError(f"values.{index}", f"values must differ, got {value!r} twice")
            seen.add(same(value))
        return self

    def size(self) -> int:
        """How many values there are."""
        return len(self.values)

    def value(self, index: int) -> Value:
        """The value at a place of the list, counted from 0."""
        return self.values[index]

    def index(self, value: Value) -> int:
        """Return the index of a value in the list. Raises ValueError if it is not in the list."""
        place = self._places.get(same(value))
        if place is None:
            raise ValueError(f"{value!r} is not one of the values")
        return place

    @cached_property
    def _places(self) -> dict[str, int]:
        # Kept: a search asks for the place of each value of each of its points.
        return {same(value): place for place, value in enumerate(self.values)}

    def canonical(self, value: Value) -> Value:
        """Return the value as the spec lists it, however it was written: 1 for 1.0."""
        return self.values[self.index(value)]

    def corners(self) -> list[Value]:
        """Return every value: any may be refused."""
        return list(self.values)

    def holds(self, value: Any) -> bool:
        """Whether it is one of the values."""
        return same(value) in self._places


Domain = Annotated[FloatRange | IntRange | Choice, Field(discriminator="kind")]


def same(value: Any) -> str:
    """Return a text equal for equal values: 1 and 1.0, 0.0 and -0.0, but not 1 and true."""
    if type(value) is float and math.isfinite(value):
        # The result of the line below, faster: pages call this for every point of a sweep.
        return repr(value + 0.0)
    return json.dumps(_floats(value))


def _floats(value: Any) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_floats(item) for item in value]
    return float(value) + 0.0 if _is_number(value) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_bounds(low: float, high: float, *, log: bool, least_log: str, positive: bool) -> None:
    if not low < high:
        raise FieldError("low", f"low must be below high, got low = {low} and high = {high}")
    if not math.isfinite(high - low):
        raise FieldError("high", f"high - low must be finite, got low = {low} and high = {high}")
    if log and not positive:
        raise FieldError("low", f"a log range needs low {least_log}, got low = {low}")


def _check_step(low: float, high: float, step: float) -> None:
    """Refuse a step that does not reach ``high``, which would silently be left out."""
    if (high - low) / step > _MOST_STEPS:
        raise FieldError(
            "step",
            f"step must be large enough that at most 2^53 of them lie between low and high, got "
            f"step = {step} from {low} to {high}",
        )
    steps = _steps(low, high, step)
    if steps < 1:
        raise FieldError("step", f"step must be at most high - low = {high - low}, got {step}")
    if abs(low + steps * step - high) > 1e-6 * step:
        raise FieldError(
            "step",
            f"step must divide high - low: from {low} in steps of {step} the last value is "
            f"{low + steps * step:.15g}, not {high}",
        )


def _steps(low: float, high: float, step: float) -> int:
    # A step of 0.1 from 0 to 0.3 makes three steps, in spite of rounding in binary.
    return math.floor((high - low) / step + 1e-6)
