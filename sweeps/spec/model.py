"""Base of every part of a spec: a strict, frozen model and its types of numbers."""

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from sweeps.spec.domains import Finite

#: Largest number of trials of one sweep.
MAX_TRIALS = 10_000_000

Count = Annotated[int, Field(strict=True, ge=1, le=MAX_TRIALS)]
Positive = Annotated[Finite, Field(gt=0)]
#: Optimizer steps: of one run at most a thousand million, of a whole sweep many times that.
Steps = Annotated[int, Field(strict=True, ge=1, le=10**15)]
SweepRef = Annotated[str, Field(strict=True, pattern=r"^[0-9a-f]{12}$")]


class SpecModel(BaseModel):
    """Frozen model that refuses unknown fields, NaN and infinities."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


Words = TypeVar("Words", str, list[str], str | list[str])


def printable(value: Words) -> Words:
    """Return text that a page and a terminal can show. Raises ValueError for other text."""
    for text in [value] if isinstance(value, str) else value:
        if not all(c.isprintable() or c in "\n\t" for c in text):
            raise ValueError("must be printable text")
    if isinstance(value, str) and value and not value.strip():
        raise ValueError("must be more than spaces")
    return value
