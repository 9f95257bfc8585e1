"""The plots of a trial's page: its metrics, and weight dynamics per layer."""

from collections.abc import Mapping, Sequence
from typing import Any

from dashboards.plots.answers import Plot, Row
from dashboards.plots.views import Places, View, viewed
from sweeps.figures.axes import spans_decade
from sweeps.figures.chart import STEPS, Axis, Chart, Line
from sweeps.figures.colours import colour, dash, depth_colour
from sweeps.figures.plotly_values import LEGEND_BELOW, axis_of, figure_of, traces_of
from sweeps.figures.quantities import layer_order, quantity
from worker.config.training import IMAGES

Samples = Sequence[tuple[int, float]]

VIEW = View()

#: A layer whose values span so many times those of the middle one flattens the others.
FLAT = 8.0
#: Small plots side by side, two of which a phone has room for, and pixels of each in height.
COLUMNS, PANEL = 2, 105


def metric_curves(
    unit_of: str,
    metrics: Mapping[str, Samples],
    view: View = VIEW,
    places: Places | None = None,
    declared: Mapping[str, Mapping[str, Any]] | None = None,
    training: str = IMAGES,
) -> Plot:
    """Metrics of one unit over steps; ``unit_of`` is the metric that names the axis.

    ``places``: where the curves lie if ``view`` asks for another x axis than steps.
    ``declared``: ``Sweep.metrics``; ``training``: ``Sweep.training``.
    """
    what = quantity(unit_of, declared, training)
    lines = []
    for index, (key, samples) in enumerate(metrics.items()):
        x, y = _places(key, samples)
        lines.append(
            Line(quantity(key, declared, training).name, colour(index), x, y, dash=dash(index))
        )
    title = "error (%)" if len(metrics) > 1 and what.is_fraction else what.axis
    units = [quantity(key, declared, training).unit_markup for key in metrics]
    legend = LEGEND_BELOW if len(lines) > 1 else {}
    chart, hover = _chart(unit_of.replace("/", "-"), title, lines, units)
    chart, words = viewed(chart, hover, view, places)
    drawn = figure_of(chart, hover=words, height=320, **legend)
    rows: list[Row] = [(key, *sample) for key, line in metrics.items() for sample in line]
    return Plot(drawn, ("metric", "step", "value"), rows)


def layer_curves(stem: str, layers: Mapping[str, Samples], arrangement: str = "") -> Plot:
    """One quantity of every layer over steps, coloured by depth from the stem.

    Args:
        stem: ``effective_lr``, ``weight_norm``, …
        layers: Layer ("conv5") to its samples.
        arrangement: "together" on one pair of axes, "apart" on a pair for each layer, "" = together
            unless one layer would flatten the others.
    """
    what = quantity(stem)
    names = sorted(layers, key=layer_order)
    lines = []
    for index, name in enumerate(names):
        x, y = _places(stem, layers[name])
        lines.append(Line(name, depth_colour(index, len(names)), x, y))
    units = [what.unit] * len(names)
    is_apart = arrangement == "apart" or (arrangement != "together" and _is_flattened(lines))
    if is_apart and len(lines) > 1:
        drawn = _small_multiples(f"{stem}-by-layer", what.axis, lines, units)
    else:
        chart, hover = _chart(f"{stem}-by-layer", what.axis, lines, units)
        drawn = figure_of(chart, hover=hover, height=380, **LEGEND_BELOW)
    rows: list[Row] = [(name, *sample) for name in names for sample in layers[name]]
    return Plot(drawn, ("layer", "step", stem), rows)


def _is_flattened(lines: Sequence[Line]) -> bool:
    """Whether most layers would lie flat beside the largest one; not on a log axis."""
    values = [value for line in lines for value in line.y if value is not None]
    if spans_decade(values):
        return False
    spans = sorted(max(line.y) - min(line.y) for line in lines if line.y)  # type: ignore[type-var, operator]
    return len(spans) > 1 and spans[-1] > FLAT * spans[len(spans) // 2]


def _small_multiples(
    name: str, title: str, lines: Sequence[Line], units: Sequence[str]
) -> dict[str, Any]:
    """A pair of axes for each line, in rows of ``COLUMNS``, each with its own scale."""
    rows = -(-len(lines) // COLUMNS)
    charts = [Chart(name, STEPS, Axis(""), [line]) for line in lines]
    drawn = figure_of(charts[0], hover=[_hover(lines[0], units[0])], height=80 + PANEL * rows)
    layout = drawn["layout"]
    layout["grid"] = {"rows": rows, "columns": COLUMNS, "pattern": "independent", "ygap": 0.45}
    words = f"{title} over steps, a scale for each layer"
    layout["title"] = {"text": words, "font": {"size": 12.5}}
    layout["margin"] |= {"t": 56, "b": 28}
    layout["annotations"] = []
    x, y = layout["xaxis"] | {"title": ""}, layout["yaxis"]
    drawn["data"] = []
    for at, (line, unit, chart) in enumerate(zip(lines, units, charts, strict=True)):
        n = "" if at == 0 else str(at + 1)
        [trace] = traces_of(chart, [_hover(line, unit)])
        drawn["data"].append(trace | {"xaxis": f"x{n}", "yaxis": f"y{n}"})
        layout[f"xaxis{n}"] = dict(x)
        layout[f"yaxis{n}"] = y | axis_of(chart.y, chart.values()) | {"title": "", "nticks": 4}
        layout["annotations"].append(
            {
                "text": line.name,
                "xref": f"x{n} domain",
                "yref": f"y{n} domain",
                "x": 0,
                "y": 1,
                "xanchor": "left",
                "yanchor": "bottom",
                "showarrow": False,
                "font": {"size": 11.5, "color": line.colour},
            }
        )
    return drawn


def _places(metric: str, samples: Samples) -> tuple[list[float], list[float]]:
    shown = quantity(metric).shown
    return [step for step, _ in samples], [shown(value) for _, value in samples]


def _chart(
    name: str, title: str, lines: Sequence[Line], units: Sequence[str]
) -> tuple[Chart, list[dict[str, str]]]:
    values = [value for line in lines for value in line.y if value is not None]
    hover = [_hover(line, unit) for line, unit in zip(lines, units, strict=True)]
    return Chart(name, STEPS, Axis(title, is_log=spans_decade(values)), lines), hover


def _hover(line: Line, unit: str) -> dict[str, str]:
    return {"hovertemplate": f"{line.name}<br>step %{{x:,}}<br>%{{y:.4g}} {unit}<extra></extra>"}
