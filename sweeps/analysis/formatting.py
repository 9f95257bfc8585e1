"""Numbers, intervals and values as text, for terminals, tables, sentences and pages.

``dashboards.wording.formatting`` adds what pages know: symbols, units and thin spaces.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from worker.config.training import FRACTIONS

#: Shown where there is no value.
NOTHING = "–"
#: Forms of a number with its interval.
TO, BRACKETS = "{} ({} to {})", "{} [{}, {}]"

Write = Callable[[float], str]


class Mean(Protocol):
    """A mean with its interval; ends are None where there is no interval."""

    @property
    def mean(self) -> float: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


def figures(value: float | None, digits: int = 4) -> str:
    """A number with so many significant digits."""
    return NOTHING if value is None else f"{value:.{digits}g}"


def signed(value: float, digits: int = 2) -> str:
    """A difference with its sign and so many decimals; what rounds to nothing is +0.00."""
    return _with_minus(f"{value:+z.{digits}f}")


def signed_figures(value: float, digits: int = 4) -> str:
    """A difference with its sign and so many significant digits."""
    return _with_minus(f"{value:+z.{digits}g}")


def _with_minus(text: str) -> str:
    """A minus sign in front, which the hyphen of an exponent is not."""
    return f"\N{MINUS SIGN}{text[1:]}" if text[0] == "-" else text


def log_ratio_percent(log_ratio: float, space: str = " ") -> str:
    """A logarithm of a ratio as what the ratio is above 1: +2.0 %."""
    return f"{signed(100 * math.expm1(log_ratio), 1)}{space}%"


def with_interval(
    write: Write, value: float | None, low: float | None, high: float | None, form: str = TO
) -> str:
    """A number with its interval, by itself where there is none."""
    if value is None:
        return NOTHING
    if low is None or high is None:
        return write(value)
    return form.format(write(value), write(low), write(high))


def span(write: Write, low: float | None, high: float | None) -> str:
    """The ends of an interval or a range."""
    return NOTHING if low is None or high is None else f"{write(low)} to {write(high)}"


def is_error(metric: str) -> bool:
    """Whether a metric is a fraction of the data, which people read in percent."""
    return metric in FRACTIONS


def declared_unit(declared: Mapping[str, Mapping[str, Any]], metric: str) -> str:
    """The unit that a sweep declares for a metric (``Sweep.metrics``); "" of errors and others."""
    return "" if is_error(metric) else str(declared.get(metric, {}).get("unit") or "")


def metric_title(metric: str, unit: str = "") -> str:
    """Head of a metric's column: "test error %", or with the unit that the sweep declares."""
    unit = "%" if is_error(metric) else unit
    return metric.replace("_", " ") + (f" {unit}" if unit else "")


def metric_value(metric: str, value: float) -> str:
    """A metric in the unit of its title: percent with two decimals for an error."""
    return f"{100 * value:.2f}" if is_error(metric) else figures(value)


def metric_with_unit(metric: str, value: float, unit: str = "") -> str:
    """A metric without its title: "4.14 %", or with the unit that its sweep declares."""
    unit = "%" if is_error(metric) else unit
    return metric_value(metric, value) + (f" {unit}" if unit else "")


def estimate_text(metric: str, found: Mean | None) -> str:
    """A mean with its 95 % interval in the unit of the metric's title.

    An error has both ends, "4.14 (3.85 to 4.45)": they lie unequally far off. Other metrics have
    half of the interval, "1.27 ± 0.03".
    """
    if found is None:
        return NOTHING
    write = partial(metric_value, metric)
    if is_error(metric) or found.low is None or found.high is None:
        return with_interval(write, found.mean, found.low, found.high)
    return f"{write(found.mean)} ± {write(found.high - found.mean)}"


def word(value: Any, digits: int = 4) -> str:
    """A field's value: significant digits of a number, "none" for what is switched off."""
    if value is None:
        return "none"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " ".join(word(part, digits) for part in value)
    return figures(value, digits) if isinstance(value, float) else str(value)


def settings_words(params: Mapping[str, Any], digits: int = 4) -> str:
    """Fields with their values: "lr 0.1, gamma_c none"."""
    return ", ".join(f"{name} {word(value, digits)}" for name, value in params.items())


def arm_name(arm: Mapping[str, Any]) -> str:
    """The values that tell an arm from the others; "all" where there is one arm."""
    return " ".join(word(value, 6) for value in arm.values()) or "all"
