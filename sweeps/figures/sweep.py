"""What is drawn of a sweep: learning curves, and the objective over each field."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweeps.figures.axes import spans_decade
from sweeps.figures.chart import STEPS, Axis, Chart, Dash, Line, Marks
from sweeps.figures.colours import DASHES, curve_colours, dash, optimizer_colour
from sweeps.figures.quantities import Quantity, quantity
from sweeps.records import Point, Sweep
from worker.config.training import IMAGES

#: Values per curve; a screen has no pixels for more.
MAX_SAMPLES = 300
#: With more points than this their marks are small and have no bars, which would hide the marks.
MOST_WITH_BARS = 200


@dataclass(frozen=True)
class Curve:
    """A metric over steps, the replicates of one point taken together."""

    label: str
    steps: Sequence[int]
    mean: Sequence[float]
    #: Standard deviation over seeds; None with fewer than two seeds.
    sd: Sequence[float | None]
    #: Seeds that reported at each step.
    n: Sequence[int]
    #: Gives the curve its colour if every curve has another one; "" = not known.
    optimizer: str = ""
    #: Of a group that other curves may share; "" = chosen among the palette's.
    colour: str = ""
    #: What the mean is over.
    members: str = "seeds"
    #: The point, as other plots and tables of the page name it; "" for a group.
    key: str = ""


@dataclass(frozen=True)
class Setting:
    """One point of a sweep, by the value of one field."""

    point: int
    #: A word for a choice of words.
    value: float | str
    mean: float
    sd: float | None
    n: int
    optimizer: str


def is_number(value: Any) -> bool:
    """Whether a sampled value can lie on a numeric axis."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_log(domain: Mapping[str, Any]) -> bool:
    """Whether values of the domain are drawn on a log axis.

    Choices are words of equal standing unless they are positive numbers over a decade or more.
    """
    if domain.get("kind") == "choice":
        numbers = [v for v in domain["values"] if isinstance(v, int | float) and v is not True]
        return len(numbers) == len(domain["values"]) and spans_decade(numbers)
    return bool(domain.get("log"))


def optimizer_of(sweep: Sweep, params: Mapping[str, Any]) -> str:
    """Optimizer of one point: sampled, or the base config's; "" where a training has none."""
    default = "ndadam" if sweep.training == IMAGES else ""
    return str(params.get("optimizer") or sweep.base.get("optimizer") or default)


def numeric_settings(sweep: Sweep, points: Sequence[Point], field: str) -> list[Setting]:
    """The points with a mean in which the field is a number."""
    return [
        Setting(p.number, float(p.params[field]), p.mean, p.sd, p.n, optimizer_of(sweep, p.params))
        for p in points
        if p.mean is not None and is_number(p.params.get(field))
    ]


def learning_curves(
    metric: str | Quantity,
    curves: Sequence[Curve],
    *,
    name: str = "learning-curves",
    title: str = "",
) -> Chart:
    """Mean of a metric over steps, with a band of one standard deviation over seeds."""
    chosen = curve_colours([curve.optimizer for curve in curves])
    colours = [curve.colour or ink for curve, ink in zip(curves, chosen, strict=True)]
    strokes = [
        DASHES[colours[:index].count(colours[index]) % len(DASHES)] if curve.colour else dash(index)
        for index, curve in enumerate(curves)
    ]
    lines = [
        _curve(metric, curve, ink, stroke)
        for curve, ink, stroke in zip(curves, colours, strokes, strict=True)
    ]
    means = [value for line in lines for value in line.y if value is not None]
    y = Axis(quantity(metric).axis, is_log=spans_decade(means))
    return Chart(name, STEPS, y, lines, title)


def _curve(metric: str | Quantity, curve: Curve, ink: str, stroke: Dash) -> Line:
    what = quantity(metric)
    mean = [what.shown(value) for value in curve.mean]
    sd = [0.0 if value is None else what.shown(value) for value in curve.sd]
    if not any(sd):
        return Line(curve.label, ink, curve.steps, mean, dash=stroke)
    # A band that reaches zero would end a log axis; it stops at a tenth of its curve.
    low = [max(m - s, m / 10) if m > 0 else m - s for m, s in zip(mean, sd, strict=True)]
    high = [m + s for m, s in zip(mean, sd, strict=True)]
    return Line(curve.label, ink, curve.steps, mean, low, high, dash=stroke)


def sensitivity(
    field: str | Quantity,
    objective: str | Quantity,
    settings: Sequence[Setting],
    *,
    is_log: bool,
    title: str = "",
    colours: Mapping[str, str] | None = None,
) -> Chart:
    """The objective of every point over one field, mean ± sd, marks of one optimizer in one colour.

    Args:
        field: Of the config.
        objective: Metric that the sweep optimises.
        settings: At least one point.
        is_log: Whether the field is drawn on a log axis; not if a value is 0 or below.
        title: "" beside a caption.
        colours: Of the groups that ``Setting.optimizer`` names, in the order of the legend; None =
            those of the optimizers.
    """
    what = quantity(objective)
    if colours is None:
        names = sorted({setting.optimizer for setting in settings})
        colours = {name: optimizer_colour(name) for name in names}
    with_bars = len(settings) <= MOST_WITH_BARS
    series = []
    for optimizer, ink in colours.items():
        mine = [setting for setting in settings if setting.optimizer == optimizer]
        spread = [what.shown(setting.sd or 0.0) for setting in mine] if with_bars else ()
        series.append(
            Marks(
                optimizer,
                ink,
                [setting.value for setting in mine],
                [what.shown(setting.mean) for setting in mine],
                below=spread,
                above=spread,
                size=8 if with_bars else 5,
            )
        )
    x = _field_axis(field, settings, is_log=is_log)
    y = Axis(what.axis, ends=_ends_of_points(settings, objective))
    return Chart(f"sensitivity-{quantity(field).key}", x, y, series, title)


def _ends_of_points(settings: Sequence[Setting], objective: str | Quantity) -> tuple[float, float]:
    """Fit the axis to the points: an interval from two points may be many times as long."""
    shown = quantity(objective).shown
    low = min((shown(s.mean - (s.sd or 0.0)) for s in settings), default=0.0)
    high = max((shown(s.mean + (s.sd or 0.0)) for s in settings), default=1.0)
    margin = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    return low - margin, high + margin


def _field_axis(field: str | Quantity, settings: Sequence[Setting], *, is_log: bool) -> Axis:
    """A place for each word, or an axis of numbers."""
    title = quantity(field).axis
    words = {setting.value for setting in settings if isinstance(setting.value, str)}
    if words:
        return Axis(title, words=sorted(words, key=_word_order))
    numbers = {float(setting.value) for setting in settings}
    if is_log and min(numbers, default=1.0) > 0:
        return Axis(title, is_log=True)
    if len(numbers) != 1:
        return Axis(title)
    # A renderer would choose ends of its own around a single number.
    [value] = numbers
    half = 0.5 * abs(value) or 1.0
    return Axis(title, ends=(value - half, value + half))


def _word_order(word: str) -> tuple[int, float, str]:
    """What is switched off first, then numbers by size, then words."""
    try:
        return 1, float(word), ""
    except ValueError:
        return (0 if word == "none" else 2), 0.0, word
