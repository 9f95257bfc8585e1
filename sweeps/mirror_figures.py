"""Figures of a finished sweep for MLflow: as PNG, and as one page that works without a net."""

import importlib.util
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeps.records import Point, Sweep
from sweeps.store import Store

#: Okabe and Ito's colours, without those that vanish on white or black.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
#: Points whose curves are drawn, and values of each.
CURVES, SAMPLES = 6, 200
#: Words on an axis, with the paper's symbols.
WORDS = {
    "alpha_v": "α^v (per step)",
    "alpha_s": "α^s (per step)",
    "gamma_c": "γ_C",
    "lambda_c": "λ_C",
    "lr": "α_0 (per step)",
    "weight_decay": "λ",
}


@dataclass(frozen=True)
class Line:
    """One line or cloud of a figure."""

    name: str
    x: list[float]
    y: list[float]
    #: Half-lengths of the error bars; empty for none.
    spread: list[float]
    is_curve: bool


@dataclass(frozen=True)
class Drawing:
    """A figure before it is drawn. Errors in percent."""

    name: str
    title: str
    x: str
    y: str
    log_x: bool
    lines: list[Line]


def drawings(store: Store, sweep: Sweep) -> list[Drawing]:
    """Learning curves of the best points, and the objective over each numeric field."""
    objective = sweep.spec.get("objective") or {}
    metric = str(objective.get("metric", "validation_error"))
    points = [p for p in store.all_points(sweep.id) if p.mean is not None]
    sign = -1.0 if objective.get("direction") == "maximize" else 1.0
    points.sort(key=lambda p: (sign * (p.mean or 0.0), p.number))
    found = [_curves(store, sweep, points[:CURVES], metric)]
    for field, domain in (sweep.spec.get("space") or {}).items():
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
            [scale * (sd or 0.0) for sd in c.sd],
            is_curve=True,
        )
        for c in curves
    ]
    title = f"{sweep.name}: best {len(lines)} points, mean ± sd over seeds"
    return Drawing(
        "learning-curves", title, "step t (optimizer steps)", _axis(metric), False, lines
    )


def _label(point: Point) -> str:
    rates = [
        f"{WORDS[n].split()[0]} {point.params[n]:.3g}"
        for n in ("alpha_v", "lr")
        if n in point.params
    ]
    return " ".join([str(point.number), str(point.params.get("optimizer", "")), *rates])


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
                [scale * (p.sd or 0.0) for p in mine],
                is_curve=False,
            )
        )
    log_x = bool(domain.get("log")) and all(value > 0 for line in lines for value in line.x)
    words = WORDS.get(field, field)
    title = f"{metric.replace('_', ' ')} over {words}, mean ± sd over seeds"
    return Drawing(f"sensitivity-{field}", title, words, _axis(metric), log_x, lines)


def png(drawing: Drawing) -> bytes:
    """Draw with matplotlib, without a display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    for index, line in enumerate(drawing.lines):
        colour = COLOURS[index % len(COLOURS)]
        if line.is_curve:
            axes.plot(line.x, line.y, color=colour, label=line.name)
            low = [y - s for y, s in zip(line.y, line.spread, strict=True)]
            high = [y + s for y, s in zip(line.y, line.spread, strict=True)]
            axes.fill_between(line.x, low, high, color=colour, alpha=0.2, linewidth=0)
        else:
            axes.errorbar(line.x, line.y, line.spread, fmt="o", color=colour, label=line.name)
    if drawing.log_x:
        axes.set_xscale("log")
    axes.set_title(drawing.title, fontsize=10)
    axes.set_xlabel(drawing.x)
    axes.set_ylabel(drawing.y)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=150)
    return out.getvalue()


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
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers" if line.is_curve else "markers",
            "name": line.name,
            "x": line.x,
            "y": line.y,
            "error_y": {"type": "data", "array": line.spread, "thickness": 1, "width": 0},
            "marker": {"color": COLOURS[index % len(COLOURS)], "size": 4 if line.is_curve else 8},
        }
        for index, line in enumerate(drawing.lines)
    ]
    layout = {
        "title": {"text": drawing.title, "font": {"size": 14}},
        "xaxis": {"title": {"text": drawing.x}, "type": "log" if drawing.log_x else "linear"},
        "yaxis": {"title": {"text": drawing.y}},
        "height": 460,
    }
    return {"data": traces, "layout": layout}


def _script() -> str:
    spec = importlib.util.find_spec("plotly")
    if spec is None or spec.origin is None:
        raise RuntimeError("the package plotly is not installed, and figures need its script")
    path = Path(spec.origin).parent / "package_data" / "plotly.min.js"
    return path.read_text("utf-8").replace("</script", "<\\/script")
