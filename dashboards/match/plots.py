"""The plots of a match: both curves with the tolerance, and what each layer asks for."""

import math
from collections.abc import Sequence
from typing import Literal

from dashboards.plots.figure import (
    LEGEND_BELOW,
    PALETTE,
    Plot,
    Row,
    band,
    figure,
    readable_axis,
    wide_axis,
)
from dashboards.wording.quantities import layer_order, quantity
from sweeps.analysis.formatting import signed
from sweeps.match.ratio_axis import RatioAxis, ratio_axis
from sweeps.match.result import Curves, LayerRow, Verdict

SOURCE, TARGET, INSIDE, FORMULA = PALETTE[1], PALETTE[0], PALETTE[2], "#8A8F98"
#: Colour and marker per class of weight vector.
KINDS = {
    "invariant": (PALETTE[0], "circle"),
    "jointly_invariant": (PALETTE[2], "square"),
    "eps_limited": (PALETTE[4], "diamond"),
    "neither": (PALETTE[1], "x"),
}


def match_curves(
    curves: Curves,
    *,
    tolerance: float,
    verdict: Verdict | None,
    source_name: str,
    target_name: str,
) -> Plot:
    """Effective learning rate of both runs, and below it their ratio with the tolerance.

    Args:
        curves: From the match's result; ``target`` may still be empty.
        tolerance: Half-width of the tolerance as a fraction of the source.
        verdict: Gives the window that was judged; None while there is no verdict.
        source_name: The source's optimizer, for the legend.
        target_name: The target's optimizer, for the legend.
    """
    steps, source, target = curves["steps"], curves["source"], curves["target"]
    traces = [
        _tolerance_band(steps, source, tolerance, source_name),
        _curve(f"source: {source_name}", steps, source, SOURCE, width=2.5),
    ]
    if curves["formula"]:
        dotted = {"width": 1.5, "dash": "dot"}
        traces.append(_curve("closed form with lag", steps, curves["formula"], FORMULA, **dotted))
    if target:
        low, high = curves["target_low"], curves["target_high"]
        traces.append(band(steps, low, high, TARGET, group="target"))
        traces.append(_curve(f"target: {target_name}", steps, target, TARGET, width=2.5))
        ratio = [s / t if s > 0 and t > 0 else None for s, t in zip(source, target, strict=True)]
        below = ratio_axis([value for value in ratio if value is not None] or [1.0])
        traces += _ratio_traces(steps, ratio, tolerance, below.told)
    drawn = figure(
        traces,
        x={
            "title": "step t (optimizer steps)",
            "rangemode": "tozero",
            **({"anchor": "y2"} if target else {}),
        },
        y={
            "title": "‖Δw‖/‖w‖ (per step)",
            "domain": [0.36 if target else 0, 1],
            **readable_axis([*source, *target]),
        },
        name="match-curves",
        height=520 if target else 380,
        shapes=_window(verdict),
        # The panel below comes with the target's first curve.
        **({"yaxis2": _ratio_axis(below)} if target else {}),
        **LEGEND_BELOW,
    )
    columns = ("step", "source", "target", "target_low", "target_high", "formula")
    return Plot(drawn, columns, _rows(curves))


def _tolerance_band(
    steps: Sequence[int], source: Sequence[float], tolerance: float, name: str
) -> dict[str, object]:
    low = [value / (1 + tolerance) for value in source]
    high = [value * (1 + tolerance) for value in source]
    words = f"{name} ± {100 * tolerance:g} %"
    return band(steps, low, high, SOURCE, group="source", name=words, legend=True)


def _curve(
    name: str, steps: Sequence[int], values: Sequence[float], ink: str, **line: object
) -> dict[str, object]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": list(steps),
        "y": list(values),
        "line": {"color": ink, **line},
        "hovertemplate": f"{name}<br>step %{{x:,}}<br>‖Δw‖/‖w‖ %{{y:.4g}}<extra></extra>",
    }


def is_inside(source: float, target: float, tolerance: float) -> bool:
    """Whether the two differ by at most the tolerance, as a log ratio."""
    if source <= 0 or target <= 0:
        return False
    return abs(math.log(source / target)) <= math.log1p(tolerance)


def _ratio_traces(
    steps: Sequence[int], ratio: Sequence[float | None], tolerance: float, told: str
) -> list[dict[str, object]]:
    """Source over target in a panel of its own, thick and green where it is inside.

    ``told`` says in the legend what lies beyond the axis.
    """
    inside = [
        value if value is not None and is_inside(value, 1.0, tolerance) else None for value in ratio
    ]
    shared = {"type": "scatter", "mode": "lines", "x": list(steps), "yaxis": "y2"}
    hover = "step %{x:,}<br>source over target %{y:.3f}<extra></extra>"
    edges = ([1 / (1 + tolerance)] * 2, [1 + tolerance] * 2)
    strip = band([steps[0], steps[-1]], *edges, INSIDE, group="inside")
    return [
        {**strip, "yaxis": "y2"},
        {
            **shared,
            "name": f"source over target{told}",
            "y": ratio,
            "line": {"color": FORMULA, "width": 1.5},
            "hovertemplate": hover,
        },
        {
            **shared,
            "name": f"within ±{100 * tolerance:g} %",
            "y": inside,
            "line": {"color": INSIDE, "width": 5},
            "hovertemplate": hover,
        },
    ]


def _ratio_axis(axis: RatioAxis) -> dict[str, object]:
    return {
        "title": {"text": "source / target", "standoff": 8, "font": {"size": 12.5}},
        "domain": [0, 0.28],
        "type": "log",
        "range": [math.log10(axis.low), math.log10(axis.high)],
        "tickvals": list(axis.ticks),
        "ticktext": [f"{value:g}" for value in axis.ticks],
        "zeroline": False,
        "automargin": True,
    }


def _window(verdict: Verdict | None) -> list[dict[str, object]]:
    """Shade the steps that the verdict was judged on."""
    if verdict is None:
        return []
    start, stop = verdict["window"]
    words = {"text": "window of the verdict", "textposition": "bottom left", "font": {"size": 11}}
    return [
        {
            "type": "rect",
            "xref": "x",
            "yref": "paper",
            "x0": start,
            "x1": stop,
            "y0": 0,
            "y1": 1,
            "line": {"width": 0},
            "fillcolor": "rgba(138,143,152,0.10)",
            "layer": "below",
            "label": words,
        }
    ]


def _rows(curves: Curves) -> list[Row]:
    def at(values: Sequence[float], index: int) -> float | None:
        return values[index] if index < len(values) else None

    columns = (
        curves["source"],
        curves["target"],
        curves["target_low"],
        curves["target_high"],
        curves["formula"],
    )
    return [
        (step, *(at(column, index) for column in columns))
        for index, step in enumerate(curves["steps"])
    ]


def implied_rates(layers: Sequence[LayerRow], *, rate_name: str, rate: float | None) -> Plot:
    """The learning rate that each layer alone would ask for, beside the one of the match."""
    what = quantity(rate_name)
    ordered = sorted(layers, key=lambda row: layer_order(row["layer"]))
    traces = []
    for kind in dict.fromkeys(row["kind"] for row in ordered):
        mine = [row for row in ordered if row["kind"] == kind]
        ink, marker = KINDS.get(kind, (FORMULA, "circle-open"))
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": kind.replace("_", " ") or "not probed",
                "x": [row["layer"] for row in mine],
                "y": [row["implied_rate"] for row in mine],
                "error_y": {
                    "type": "data",
                    "array": [_reach(row, "implied_high") for row in mine],
                    "arrayminus": [_reach(row, "implied_low") for row in mine],
                    "symmetric": False,
                    "thickness": 1.5,
                    "width": 5,
                    "color": ink,
                },
                "customdata": [
                    [signed(100 * math.expm1(row["log_ratio"]), 1), _interval_words(row)]
                    for row in mine
                ],
                "marker": {"color": ink, "symbol": marker, "size": 10},
                "hovertemplate": (
                    f"%{{x}}<br>{what.short} %{{y:.4g}} %{{customdata[1]}}<br>"
                    "source over target %{customdata[0]} %<extra></extra>"
                ),
            }
        )
    drawn = figure(
        traces,
        x={
            "title": "layer, from the stem",
            "type": "category",
            "categoryorder": "array",
            "categoryarray": [row["layer"] for row in ordered],
        },
        y={
            "title": f"implied {what.symbol or what.name} (per step)",
            **wide_axis([row["implied_rate"] for row in ordered]),
        },
        name=f"implied-{rate_name}-by-layer",
        height=320,
        **LEGEND_BELOW,
        shapes=_rate_line(rate),
    )
    rows = [(r["layer"], r["kind"], r["implied_rate"], *_ends(r), r["log_ratio"]) for r in ordered]
    columns = ("layer", "kind", f"implied_{rate_name}", "low", "high", "log_ratio")
    return Plot(drawn, columns, rows)


def _ends(row: LayerRow) -> tuple[float | None, float | None]:
    """The interval; results of before layers had one lack it."""
    return row.get("implied_low"), row.get("implied_high")


def _reach(row: LayerRow, end: Literal["implied_low", "implied_high"]) -> float:
    value = row.get(end)
    return 0.0 if value is None else abs(value - row["implied_rate"])


def _interval_words(row: LayerRow) -> str:
    low, high = _ends(row)
    return "" if low is None or high is None else f"({low:.4g} to {high:.4g})"


def _rate_line(rate: float | None) -> list[dict[str, object]]:
    if rate is None:
        return []
    line = {"color": TARGET, "width": 1.5, "dash": "dash"}
    return [
        {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": rate, "y1": rate, "line": line}
    ]
