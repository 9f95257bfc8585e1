"""The plots of a trial's page: its metrics, and weight dynamics per layer."""

from collections.abc import Mapping, Sequence
from typing import Any

from dashboards.plots.answers import Plot, Row
from sweeps.figures.axes import spans_decade
from sweeps.figures.chart import STEPS, Axis, Chart, Line
from sweeps.figures.colours import colour, dash, depth_colour
from sweeps.figures.plotly_values import LEGEND_BELOW, figure_of
from sweeps.figures.quantities import layer_order, quantity

Samples = Sequence[tuple[int, float]]


def metric_curves(unit_of: str, metrics: Mapping[str, Samples]) -> Plot:
    """Metrics of one unit over steps; ``unit_of`` is the metric that names the axis."""
    what = quantity(unit_of)
    lines = []
    for index, (key, samples) in enumerate(metrics.items()):
        x, y = _places(key, samples)
        lines.append(Line(quantity(key).name, colour(index), x, y, dash=dash(index)))
    title = "error (%)" if len(metrics) > 1 and what.is_fraction else what.axis
    units = [quantity(key).unit for key in metrics]
    legend = LEGEND_BELOW if len(lines) > 1 else {}
    drawn = _figure(unit_of.replace("/", "-"), title, lines, units, height=320, **legend)
    rows: list[Row] = [(key, *sample) for key, line in metrics.items() for sample in line]
    return Plot(drawn, ("metric", "step", "value"), rows)


def layer_curves(stem: str, layers: Mapping[str, Samples]) -> Plot:
    """One quantity of every layer over steps, coloured by depth from the stem.

    Args:
        stem: ``effective_lr``, ``weight_norm``, …
        layers: Layer ("conv5") to its samples.
    """
    what = quantity(stem)
    names = sorted(layers, key=layer_order)
    lines = []
    for index, name in enumerate(names):
        x, y = _places(stem, layers[name])
        lines.append(Line(name, depth_colour(index, len(names)), x, y))
    units = [what.unit] * len(names)
    drawn = _figure(f"{stem}-by-layer", what.axis, lines, units, height=380, **LEGEND_BELOW)
    rows: list[Row] = [(name, *sample) for name in names for sample in layers[name]]
    return Plot(drawn, ("layer", "step", stem), rows)


def _places(metric: str, samples: Samples) -> tuple[list[float], list[float]]:
    shown = quantity(metric).shown
    return [step for step, _ in samples], [shown(value) for _, value in samples]


def _figure(
    name: str, title: str, lines: Sequence[Line], units: Sequence[str], **layout: Any
) -> dict[str, Any]:
    values = [value for line in lines for value in line.y if value is not None]
    hover = [
        {"hovertemplate": f"{line.name}<br>step %{{x:,}}<br>%{{y:.4g}} {unit}<extra></extra>"}
        for line, unit in zip(lines, units, strict=True)
    ]
    chart = Chart(name, STEPS, Axis(title, is_log=spans_decade(values)), lines)
    return figure_of(chart, hover=hover, **layout)
