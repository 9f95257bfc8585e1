"""Numbers, times and values as a page shows them. Percent exists only here and in the plots."""

import json
import math
from datetime import UTC, datetime
from functools import partial
from typing import Any

from markupsafe import Markup, escape

from sweeps.analysis.formatting import (
    NOTHING,
    Mean,
    log_ratio_percent,
    signed,
    signed_figures,
    span,
    with_interval,
)
from sweeps.figures.quantities import Quantity, quantity


def number(value: float | None, digits: int = 4) -> str:
    """Significant digits without trailing noise: 0.05, 1.2e-06, 48 210."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    if 10 ** (digits - 1) <= abs(value) < 1e5:
        return number(round(value))
    if 1e-4 <= abs(value) < 1e5:
        return f"{value:.{digits}g}"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def quantity_value(key: str | Quantity, value: float | None) -> str:
    """A metric with its unit: percent with two decimals for an error, else ``number``."""
    if value is None or not math.isfinite(value):
        return NOTHING
    what = quantity(key)
    return with_unit(what, _two_decimals(what.shown(value)) if what.is_fraction else number(value))


def with_unit(what: Quantity, text: str) -> str:
    """A value, or a value with its interval, with the unit of values behind it."""
    return f"{text}\N{NARROW NO-BREAK SPACE}{what.value_unit}" if what.value_unit else text


def mean_text(
    key: str | Quantity, mean: float | None, low: float | None, high: float | None
) -> str:
    """A mean with its interval in the unit of ``key``; only the mean where there is no spread.

    Of an error ``5.38 (0.65 to 33.26) %``, since the ends lie unequally far off, else
    ``1.27 ± 0.03``, with the unit that the sweep declares.
    """
    if mean is None or low is None or high is None or not math.isfinite(high - low):
        return quantity_value(key, mean)
    what = quantity(key)
    if what.is_fraction:
        shown = what.shown
        return with_unit(what, with_interval(_two_decimals, shown(mean), shown(low), shown(high)))
    return with_unit(what, f"{number(mean)} ± {number(high - mean, 2)}")


def _two_decimals(value: float) -> str:
    return f"{value:z.2f}"


def estimate(key: str | Quantity, found: Mean | None) -> str:
    """A mean with its interval, in the unit of ``key``."""
    return NOTHING if found is None else mean_text(key, found.mean, found.low, found.high)


def interval(key: str | Quantity, low: float | None, high: float | None) -> str:
    """An interval in the unit of ``key``."""
    return span(partial(quantity_value, key), low, high)


def difference(key: str | Quantity, value: float) -> str:
    """A difference with its sign: percentage points for a fraction, else four digits."""
    what = quantity(key)
    return signed(what.shown(value)) if what.is_fraction else signed_figures(value)


def difference_with_interval(key: str | Quantity, value: float, low: float, high: float) -> str:
    """A difference with its interval and its unit."""
    what = quantity(key)
    if what.is_fraction:
        shown = with_interval(signed, what.shown(value), what.shown(low), what.shown(high))
        return f"{shown}\N{NARROW NO-BREAK SPACE}points"
    text = with_interval(number, value, low, high).replace("-", "\N{MINUS SIGN}")
    return with_unit(what, text)


def ratio(log_ratio: float) -> str:
    """A logarithm of a ratio as a signed percentage: +2.0 %."""
    return log_ratio_percent(log_ratio, "\N{NARROW NO-BREAK SPACE}")


def config_value(value: Any) -> str:
    """A value of a spec or a config in one line, whole numbers as they are typed."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else number(value, 6)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return value
    if (
        isinstance(value, list | tuple)
        and len(value) <= 4
        and not any(isinstance(part, list | tuple | dict) for part in value)
    ):
        return ", ".join(config_value(part) for part in value)
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}…"


def choice_word(value: Any) -> str:
    """A choice as it was typed, which tells it from the others; a word for what is switched off."""
    return "none" if value is None else config_value(value)


def sampled_value(value: Any) -> str:
    """A value of a point in a table or plot: four digits, and a word for what is switched off."""
    return number(value) if isinstance(value, float) else choice_word(value)


def shortened(text: str, most: int) -> str:
    """A name in at most ``most`` characters: its beginning and its end, which tell it apart."""
    if len(text) <= most:
        return text
    end = most // 3
    return f"{text[: most - 1 - end]}…{text[-end:]}"


def duration(seconds: float | None) -> str:
    """Two units at most: 42 s, 3 min 20 s, 5 h 12 min, 2 d 3 h."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    if 0 < seconds < 10:
        return f"{seconds:.1f} s"
    left = round(seconds)
    parts = []
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {name}")
        elif parts:
            break
    return " ".join(parts[:2]) or "0 s"


def moment(at: datetime | None) -> Markup:
    """A ``<time>`` in UTC, to the second."""
    if at is None:
        return Markup(NOTHING)
    utc = at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    return Markup('<time datetime="{}">{}</time>').format(
        utc.isoformat(timespec="seconds"), utc.strftime("%Y-%m-%d %H:%M:%S UTC")
    )


def short_moment(at: datetime | None) -> Markup:
    """A ``<time>`` for a table: the date, and hours and minutes in UTC below it."""
    if at is None:
        return Markup(NOTHING)
    utc = at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    return Markup('<time datetime="{}" class="nowrap">{}<small>{}</small></time>').format(
        utc.isoformat(timespec="seconds"), utc.strftime("%Y-%m-%d"), utc.strftime("%H:%M UTC")
    )


def symbol(key: str | Quantity) -> Markup:
    """The paper's symbol of a field or metric, or its name."""
    what = quantity(key)
    # Symbols are this package's own markup; a name can come from a plugin and is escaped.
    return Markup(what.symbol) if what.symbol else escape(what.name)


def named_symbol(key: str | Quantity) -> Markup:
    """The symbol with its name on hovering, or the name alone."""
    what = quantity(key)
    if not what.symbol:
        return escape(what.name)
    return Markup('<abbr title="{}">{}</abbr>').format(what.name, Markup(what.symbol))


def upper_first(text: str) -> str:
    """Begin a heading; the rest keeps its capitals."""
    return text[:1].upper() + text[1:]


def caption(key: str | Quantity) -> Markup:
    """Heading of a plot: the quantity's name, and its symbol where it has one."""
    what = quantity(key)
    words = escape(upper_first(what.name))
    return Markup("{} {}").format(words, symbol(what)) if what.symbol else Markup(words)


def percent(fraction: float | None) -> str:
    """A fraction as whole percent, for progress and parts of a run."""
    if fraction is None or not math.isfinite(fraction):
        return NOTHING
    return f"{100 * fraction:.0f}\N{NARROW NO-BREAK SPACE}%"
