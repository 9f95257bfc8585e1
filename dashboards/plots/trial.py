"""The plots of a trial's page: its metrics, and weight dynamics per layer."""

from collections.abc import Callable, Mapping, Sequence

from dashboards.plots.figure import (
    LEGEND_BELOW,
    Plot,
    Row,
    colour,
    dash,
    depth_colour,
    figure,
    wide_axis,
)
from dashboards.wording.quantities import layer_order, quantity

Samples = Sequence[tuple[int, float]]


def metric_curves(unit_of: str, metrics: Mapping[str, Samples]) -> Plot:
    """Metrics of one unit over steps; ``unit_of`` is the metric that names the axis."""
    what = quantity(unit_of)
    traces, rows = [], list[Row]()
    for index, (name, samples) in enumerate(metrics.items()):
        mine = quantity(name)
        traces.append(
            _line(
                mine.name,
                samples,
                colour(index),
                dash(index),
                shown=mine.shown,
                unit=mine.unit,
            )
        )
        rows += [(name, step, value) for step, value in samples]
    axis = "error (%)" if len(metrics) > 1 and what.is_fraction else what.axis
    drawn = figure(
        traces,
        x={"title": "step t (optimizer steps)", "rangemode": "tozero"},
        y={"title": axis, **wide_axis(_shown(metrics))},
        name=unit_of.replace("/", "-"),
        **(LEGEND_BELOW if len(traces) > 1 else {}),
    )
    return Plot(drawn, ("metric", "step", "value"), rows)


def layer_curves(stem: str, layers: Mapping[str, Samples]) -> Plot:
    """One quantity of every layer over steps, coloured by depth from the stem.

    Args:
        stem: ``effective_lr``, ``weight_norm``, …
        layers: Layer ("conv5") to its samples.
    """
    what = quantity(stem)
    names = sorted(layers, key=layer_order)
    traces, rows = [], list[Row]()
    for index, layer in enumerate(names):
        samples = layers[layer]
        ink = depth_colour(index, len(names))
        traces.append(_line(layer, samples, ink, "solid", shown=what.shown, unit=what.unit))
        rows += [(layer, step, value) for step, value in samples]
    drawn = figure(
        traces,
        x={"title": "step t (optimizer steps)", "rangemode": "tozero"},
        y={"title": what.axis, **wide_axis(_shown(layers))},
        name=f"{stem}-by-layer",
        height=380,
        **LEGEND_BELOW,
    )
    return Plot(drawn, ("layer", "step", stem), rows)


def _shown(lines: Mapping[str, Samples]) -> list[float]:
    return [quantity(name).shown(value) for name, line in lines.items() for _, value in line]


def _line(
    name: str,
    samples: Samples,
    ink: str,
    style: str,
    *,
    shown: Callable[[float], float],
    unit: str,
) -> dict[str, object]:
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(samples) <= 30 else "lines",
        "name": name,
        "x": [step for step, _ in samples],
        "y": [shown(value) for _, value in samples],
        "line": {"color": ink, "width": 2, "dash": style},
        "marker": {"size": 4},
        "hovertemplate": f"{name}<br>step %{{x:,}}<br>%{{y:.4g}} {unit}<extra></extra>",
    }
