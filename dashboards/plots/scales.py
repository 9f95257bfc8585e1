"""Places of sampled values on an axis from 0 to 1: linear, logarithmic, or one place per word."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dashboards.wording.formatting import choice_word
from sweeps.figures.sweep import is_number


@dataclass(frozen=True)
class Scale:
    """An axis of one field."""

    field: str
    #: Words in their order for a scale of words, else empty.
    words: tuple[str, ...]
    low: float
    high: float
    log: bool

    def place(self, value: Any) -> float | None:
        """Place of a value, 0..1; None if the axis does not contain it."""
        if self.words:
            word = choice_word(value)
            count = len(self.words)
            return (self.words.index(word) + 0.5) / count if word in self.words else None
        if not is_number(value) or (self.log and value <= 0):
            return None
        if self.high == self.low:
            return 0.5
        return (self._on_axis(value) - self._on_axis(self.low)) / (
            self._on_axis(self.high) - self._on_axis(self.low)
        )

    def value(self, place: float) -> float:
        """The number at a place of a numeric axis."""
        low, high = self._on_axis(self.low), self._on_axis(self.high)
        at = low + place * (high - low)
        return math.exp(at) if self.log else at

    def _on_axis(self, value: float) -> float:
        return math.log(value) if self.log else float(value)


def scale_of(field: str, values: Sequence[Any], *, log: bool) -> Scale:
    """The axis that holds ``values``: numeric if all of them are numbers, else of words."""
    numbers = [value for value in values if is_number(value)]
    if len(numbers) == len(values) and numbers:
        log = log and min(numbers) > 0
        return Scale(field, (), float(min(numbers)), float(max(numbers)), log)
    # Unset first, then numbers by size, then words.
    order = sorted(
        {choice_word(value): value for value in values}.items(),
        key=lambda item: (item[1] is not None, isinstance(item[1], str), *_size(item[1])),
    )
    return Scale(field, tuple(word for word, _ in order), 0.0, 1.0, log=False)


def _size(value: Any) -> tuple[float, str]:
    return (float(value), "") if is_number(value) else (0.0, str(value))
