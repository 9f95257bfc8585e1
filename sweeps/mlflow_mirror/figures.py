"""Figures of a finished sweep for MLflow: learning curves, and the objective by field.

As PNG, and as one HTML page that works offline.
"""

import importlib.util
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeps.records import Point, Sweep
from sweeps.store.store import Store

#: Okabe and Ito's colours, without those that vanish on white or black.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")

#: Words on an axis, with the paper's symbols.
WORDS = {
    "alpha_v": "α^v (per step)",
    "alpha_s": "α^s (per step)",
    "gamma_c": "γ_C",
    "lambda_c": "λ_C",
    "lr": "α_0 (per step)",
    "weight_decay": "λ",
}

STEPS = "step t (optimizer steps)"

#: Of a curve; with more, they would hide it.
MOST_MARKS = 60


@dataclass(frozen=True)
class Line:
    """One line or cloud of a figure."""

    name: str
    #: Numbers, or the names of places side by side.
    x: Sequence[float] | Sequence[str]
    y: Sequence[float]
    #: Ends of the band around a curve, or of the bars through marks; empty for none.
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    is_curve: bool = True
    is_dotted: bool = False


@dataclass(frozen=True)
class Drawing:
    """A figure before it is drawn. Errors in percent."""

    name: str
    title: str
    x: str
    y: str
    lines: Sequence[Line]
    log_x: bool = False
    log_y: bool = False
    #: Ends of the axis; None = as the values lie. A cosine ends at zero, which no log axis shows.
    y_range: tuple[float, float] | None = None
    #: Where the axis has its numbers; empty = where it likes.
    y_ticks: Sequence[float] = ()


def png(drawing: Drawing) -> bytes:
    """Draw with matplotlib, without a display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    for index, line in enumerate(drawing.lines):
        _draw(axes, line, COLOURS[index % len(COLOURS)])
    if drawing.log_x:
        axes.set_xscale("log")
    if drawing.log_y:
        axes.set_yscale("log")
    if drawing.y_range is not None:
        axes.set_ylim(drawing.y_range)
    if drawing.y_ticks:
        axes.set_yticks(drawing.y_ticks, [f"{value:g}" for value in drawing.y_ticks])
        axes.minorticks_off()
    axes.set_title(drawing.title, fontsize=10)
    axes.set_xlabel(drawing.x)
    axes.set_ylabel(drawing.y)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=150)
    return out.getvalue()


# Any: matplotlib is imported where it draws and not before.
def _draw(axes: Any, line: Line, colour: str) -> None:
    style = ":" if line.is_dotted else "-"
    if line.is_curve:
        axes.plot(line.x, line.y, style, color=colour, label=line.name)
        if line.low:
            axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.2, linewidth=0)
        return
    bars = [_below(line), _above(line)] if line.low else None
    axes.errorbar(line.x, line.y, bars, fmt="o", color=colour, label=line.name)


def _below(line: Line) -> list[float]:
    return [max(0.0, y - low) for y, low in zip(line.y, line.low, strict=True)]


def _above(line: Line) -> list[float]:
    return [max(0.0, high - y) for y, high in zip(line.y, line.high, strict=True)]


def html(title: str, drawn: Sequence[Drawing]) -> str:
    """Every figure on one page, with plotly's script inside: it opens from disk, without a net."""
    figures = json.dumps([_plotly(one) for one in drawn]).replace("</", "<\\/")
    heading = title.replace("&", "&amp;").replace("<", "&lt;")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{heading}</title>
<script>{_script()}</script></head>
<body style="font-family: system-ui, sans-serif; max-width: 1100px; margin: 0 auto; padding: 1rem">
<h1>{heading}</h1><div id="figures"></div>
<script>
for (const figure of {figures}) {{
  const place = document.getElementById("figures").appendChild(document.createElement("div"));
  Plotly.newPlot(place, figure.data, figure.layout, {{responsive: true, displaylogo: false}});
}}
</script></body></html>
"""


def _plotly(drawing: Drawing) -> dict[str, Any]:
    traces = []
    for index, line in enumerate(drawing.lines):
        colour = COLOURS[index % len(COLOURS)]
        if line.is_curve and line.low:
            traces.append(_band(line, colour))
        traces.append(_trace(line, colour))
    layout: dict[str, Any] = {
        "title": {"text": drawing.title, "font": {"size": 14}},
        "xaxis": {"title": {"text": drawing.x}},
        "yaxis": {"title": {"text": drawing.y}, "type": "log" if drawing.log_y else "linear"},
        "showlegend": True,
        "height": 460,
    }
    if drawing.log_x:
        layout["xaxis"]["type"] = "log"
    if drawing.y_range is not None:
        ends = drawing.y_range
        layout["yaxis"]["range"] = [math.log10(e) for e in ends] if drawing.log_y else list(ends)
    if drawing.y_ticks:
        words = [f"{value:g}" for value in drawing.y_ticks]
        layout["yaxis"] |= {"tickvals": list(drawing.y_ticks), "ticktext": words}
    return {"data": traces, "layout": layout}


def _trace(line: Line, colour: str) -> dict[str, Any]:
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": _mode(line),
        "name": line.name,
        "legendgroup": line.name,
        "x": list(line.x),
        "y": list(line.y),
        "line": {"dash": "dot" if line.is_dotted else "solid", "color": colour},
        "marker": {"color": colour, "size": 4 if line.is_curve else 8},
    }
    if line.low and not line.is_curve:
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": _above(line),
            "arrayminus": _below(line),
            "thickness": 1,
        }
    return trace


def _mode(line: Line) -> str:
    if not line.is_curve:
        return "markers"
    return "lines+markers" if len(line.x) <= MOST_MARKS else "lines"


def _band(line: Line, colour: str) -> dict[str, Any]:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [*line.x, *reversed(line.x)],
        "y": [*line.high, *reversed(line.low)],
        "fill": "toself",
        "fillcolor": f"rgba({red},{green},{blue},0.2)",
        "line": {"width": 0},
        "hoverinfo": "skip",
        "legendgroup": line.name,
        "showlegend": False,
    }


def _script() -> str:
    spec = importlib.util.find_spec("plotly")
    if spec is None or spec.origin is None:
        raise RuntimeError("the package plotly is not installed, and figures need its script")
    path = Path(spec.origin).parent / "package_data" / "plotly.min.js"
    return path.read_text("utf-8").replace("</script", "<\\/script")


#: Points whose curves are drawn, and values of each.
CURVES, SAMPLES = 6, 200


def drawings(store: Store, sweep: Sweep) -> list[Drawing]:
    """Learning curves of the best points, and the objective over each numeric field."""
    metric, sign = sweep.objective.metric, sweep.objective.sign
    points = [p for p in store.all_points(sweep.id) if p.mean is not None]
    points.sort(key=lambda p: (sign * (p.mean or 0.0), p.number))
    found = [_curves(store, sweep, points[:CURVES], metric)]
    for field, domain in sweep.space.items():
        drawn = _sensitivity(field, domain, points, metric)
        if drawn.lines:
            found.append(drawn)
    return [one for one in found if one.lines]


def _scale(metric: str) -> float:
    return 100.0 if metric.endswith("_error") else 1.0


def _axis(metric: str) -> str:
    words = metric.replace("_", " ")
    return f"{words} (%)" if metric.endswith("_error") else words


def _curves(store: Store, sweep: Sweep, best: Sequence[Point], metric: str) -> Drawing:
    scale = _scale(metric)
    name_of = {p.number: _label(p) for p in best}
    curves = store.point_curves(sweep.id, metric, list(name_of), SAMPLES)
    lines = [
        Line(
            name_of[c.point],
            [float(step) for step in c.steps],
            [scale * value for value in c.mean],
            low=[scale * (mean - (sd or 0.0)) for mean, sd in zip(c.mean, c.sd, strict=True)],
            high=[scale * (mean + (sd or 0.0)) for mean, sd in zip(c.mean, c.sd, strict=True)],
        )
        for c in curves
    ]
    title = f"{sweep.name}: best {len(lines)} points, mean ± sd over seeds"
    return Drawing("learning-curves", title, STEPS, _axis(metric), lines)


def _label(point: Point) -> str:
    settings = [str(point.params["optimizer"])] if "optimizer" in point.params else []
    for name in ("alpha_v", "lr"):
        if isinstance(rate := point.params.get(name), int | float):
            settings.append(f"{WORDS[name].split()[0]} {rate:.3g}")
    return ": ".join(part for part in (f"point {point.number}", ", ".join(settings)) if part)


def _sensitivity(
    field: str, domain: Mapping[str, Any], points: Sequence[Point], metric: str
) -> Drawing:
    scale = _scale(metric)
    having = [
        p
        for p in points
        if isinstance(p.params.get(field), int | float) and not isinstance(p.params[field], bool)
    ]
    lines = []
    for optimizer in sorted({str(p.params.get("optimizer", "all")) for p in having}):
        mine = [p for p in having if str(p.params.get("optimizer", "all")) == optimizer]
        lines.append(
            Line(
                optimizer,
                [float(p.params[field]) for p in mine],
                [scale * (p.mean or 0.0) for p in mine],
                low=[scale * ((p.mean or 0.0) - (p.sd or 0.0)) for p in mine],
                high=[scale * ((p.mean or 0.0) + (p.sd or 0.0)) for p in mine],
                is_curve=False,
            )
        )
    log_x = bool(domain.get("log")) and all(float(value) > 0 for line in lines for value in line.x)
    words = WORDS.get(field, field)
    title = f"{metric.replace('_', ' ')} over {words}, mean ± sd over seeds"
    return Drawing(f"sensitivity-{field}", title, words, _axis(metric), lines, log_x=log_x)
