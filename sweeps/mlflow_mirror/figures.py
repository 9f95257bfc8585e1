"""Figures of a finished sweep or match for MLflow: PNG, and one HTML page that works offline."""

import html
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path

from sweeps.analysis.stored.front import off_the_front, point_means
from sweeps.figures import match as match_figures
from sweeps.figures.chart import Chart
from sweeps.figures.front import front_chart
from sweeps.figures.plotly_values import LEGEND_BELOW, figure_of
from sweeps.figures.quantities import Quantity, quantity
from sweeps.figures.sweep import (
    MAX_SAMPLES,
    Curve,
    is_log,
    learning_curves,
    numeric_settings,
    optimizer_of,
    sensitivity,
)
from sweeps.match.result import MatchResult, result_of
from sweeps.records import Point, Side, Sweep
from sweeps.store.store import Store

#: Points whose curves are drawn.
MOST_CURVES = 6


def sweep_charts(store: Store, sweep: Sweep) -> list[Chart]:
    """The front, learning curves of the best points, and the objective over each numeric field."""
    metric, sign = (
        quantity(sweep.objective.metric, sweep.metrics, sweep.training),
        sweep.objective.sign,
    )
    points = [p for p in store.all_points(sweep.id) if p.mean is not None]
    points.sort(key=lambda p: (sign * (p.mean or 0.0), p.number))
    found = [*_front(store, sweep), _curves(store, sweep, points[:MOST_CURVES], metric)]
    for field, domain in sweep.space.items():
        what = quantity(field, training=sweep.training)
        settings = numeric_settings(sweep, points, field)
        title = f"{metric.name} over {what.short}, mean ± sd over seeds"
        found.append(sensitivity(what, metric, settings, is_log=is_log(domain), title=title))
    return [one for one in found if one.series]


def _front(store: Store, sweep: Sweep) -> list[Chart]:
    front = (sweep.result or {}).get("front")
    if front is None:
        return []
    x, y = (quantity(one.metric, sweep.metrics, sweep.training) for one in sweep.objectives[:2])
    means = off_the_front(front, point_means(sweep.objectives, store.all_trials(sweep.id)))
    title = f"{sweep.name}: {y.name} over {x.name}, 95 % intervals of the points on the front"
    return [front_chart(front, means, x, y, title=title)]


def _curves(store: Store, sweep: Sweep, best: Sequence[Point], metric: Quantity) -> Chart:
    of = {point.number: point for point in best}
    curves = [
        Curve(_label(sweep, of[c.point]), c.steps, c.mean, c.sd, c.n)
        for c in store.point_curves(sweep.id, metric.key, list(of), MAX_SAMPLES)
    ]
    title = f"{sweep.name}: best {len(curves)} points, mean ± sd over seeds"
    return learning_curves(metric, curves, title=title)


def _label(sweep: Sweep, point: Point) -> str:
    parts = [f"point {point.number}: {optimizer_of(sweep, point.params)}"]
    for name in ("alpha_v", "lr"):
        if isinstance(rate := point.params.get(name), int | float):
            parts.append(f"{quantity(name, training=sweep.training).short} {rate:.3g}")
    return ", ".join(parts)


def match_charts(sweep: Sweep) -> list[Chart]:
    """Both curves, their ratio, the rate by criterion and by layer, as far as they are known."""
    result = result_of(sweep)
    if result is None:
        return []
    rate_name, symbol = result["rate_name"], quantity(result["rate_name"]).short
    found = [*_rate_charts(sweep, result)]
    found.append(
        match_figures.criteria(result["criteria"], rate_name, title=f"{symbol} by each criterion")
    )
    verdict = result["verdict"]
    rate = verdict["rate"] if verdict is not None else None
    dashed = "" if rate is None else "; dashed: that of the fresh runs"
    title = f"{symbol} that each layer asks for, 95 % interval{dashed}"
    found.append(match_figures.implied_rates(result["layers"], rate_name, rate=rate, title=title))
    return [one for one in found if one.series]


def _rate_charts(sweep: Sweep, result: MatchResult) -> list[Chart]:
    curves, verdict, tolerance = result["curves"], result["verdict"], result["tolerance"]
    if curves is None:
        return []
    judged = ""
    if verdict is not None:
        start, stop = verdict["window"]
        judged = f", judged on steps {start} to {stop}"
    rates = match_figures.effective_rates(
        curves,
        tolerance=tolerance,
        verdict=verdict,
        source_name=_side(sweep, "source"),
        target_name=f"{_side(sweep, 'target')}, lowest and highest seed",
        title=f"{sweep.name}: effective learning rates{judged}",
    )
    title = f"{sweep.name}: source over target{judged}"
    ratio = match_figures.rate_ratio(curves, tolerance=tolerance, verdict=verdict, title=title)
    return [rates] if ratio is None else [rates, ratio]


def _side(sweep: Sweep, side: Side) -> str:
    return str(sweep.arm_setting(side).get("optimizer") or "recorded")


def write_figures(title: str, charts: Sequence[Chart], folder: Path) -> None:
    """Write each chart as PNG, and all of them as ``interactive.html``, into a new folder."""
    # Loaded when something is drawn: the runner of a sweep that has not ended needs no matplotlib.
    from sweeps.figures.matplotlib_files import drawing

    folder.mkdir()
    for chart in charts:
        (folder / f"{chart.name}.png").write_bytes(drawing(chart).png)
    (folder / "interactive.html").write_text(interactive_page(title, charts), encoding="utf-8")


def interactive_page(title: str, charts: Sequence[Chart]) -> str:
    """Every figure on one page, with plotly's script inside: it opens from disk, without a net."""
    layout = {"height": 460, "margin": {"l": 60, "r": 24, "t": 60, "b": 48}, **LEGEND_BELOW}
    drawn = [figure_of(chart, **layout) for chart in charts]
    # No "<" at all: "<!--" before "<script" would swallow the end of the script.
    figures, heading = json.dumps(drawn).replace("<", "\\u003c"), html.escape(title)
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


def _script() -> str:
    spec = importlib.util.find_spec("plotly")
    if spec is None or spec.origin is None:
        raise RuntimeError("the package plotly is not installed, and figures need its script")
    path = Path(spec.origin).parent / "package_data" / "plotly.min.js"
    return path.read_text("utf-8").replace("</script", "<\\/script")
