"""The plots of a match: both curves with the tolerance, and what each layer asks for."""

import math
from collections.abc import Sequence
from typing import Any

from dashboards.plots.answers import Plot, Row
from sweeps.analysis.formatting import signed
from sweeps.figures import match as figures
from sweeps.figures.plotly_values import LEGEND_BELOW, axis_of, figure_of, titled, traces_of
from sweeps.figures.quantities import quantity
from sweeps.match.result import Curves, LayerRow, Verdict

#: Parts of the figure's height: the curves above, their ratio below.
_ABOVE, _BELOW = [0.36, 1], [0, 0.28]


def match_curves(
    curves: Curves,
    *,
    tolerance: float,
    verdict: Verdict | None,
    source_name: str,
    target_name: str,
) -> Plot:
    """Effective learning rates of both runs, and below them their ratio with the tolerance.

    Args:
        curves: From the match's result; ``target`` may still be empty.
        tolerance: Half-width of the tolerance as a fraction of the source.
        verdict: Gives the window that was judged; None while there is no verdict.
        source_name: The source's optimizer, for the legend.
        target_name: The target's optimizer, for the legend.
    """
    rates = figures.effective_rates(
        curves,
        tolerance=tolerance,
        verdict=verdict,
        source_name=source_name,
        target_name=target_name,
    )
    ratio = figures.rate_ratio(curves, tolerance=tolerance, verdict=verdict)
    drawn = figure_of(
        rates,
        hover=[_hover(f"{one.name}<br>", "‖Δw‖/‖w‖ %{y:.4g}") for one in rates.series],
        height=380 if ratio is None else 520,
        **LEGEND_BELOW,
    )
    # The panel below comes with the target's first curve.
    drawn["layout"]["yaxis"]["domain"] = [0, 1] if ratio is None else _ABOVE
    if ratio is not None:
        words = _hover("", "source over target %{y:.3f}")
        below = traces_of(ratio, [words] * len(ratio.series))
        drawn["data"] += [trace | {"yaxis": "y2"} for trace in below]
        axes = drawn["layout"]
        axes["xaxis"]["anchor"] = "y2"
        axes["yaxis2"] = titled(axis_of(ratio.y, ratio.values())) | {"domain": _BELOW}
    columns = ("step", "source", "target", "target_low", "target_high", "formula")
    return Plot(drawn, columns, _rows(curves))


def _hover(name: str, words: str) -> dict[str, str]:
    return {"hovertemplate": f"{name}step %{{x:,}}<br>{words}<extra></extra>"}


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
    chart = figures.implied_rates(layers, rate_name, rate=rate)
    row_of = {row["layer"]: row for row in layers}
    hover: list[dict[str, Any]] = [
        {
            "customdata": [_layer_words(row_of[str(layer)]) for layer in one.x],
            "hovertemplate": (
                f"%{{x}}<br>{quantity(rate_name).short} %{{y:.4g}} %{{customdata[1]}}<br>"
                "source over target %{customdata[0]} %<extra></extra>"
            ),
        }
        for one in chart.series
    ]
    drawn = figure_of(chart, hover=hover, **LEGEND_BELOW)
    rows = [
        (
            row["layer"],
            row["kind"],
            row["implied_rate"],
            row.get("implied_low"),
            row.get("implied_high"),
            row["log_ratio"],
        )
        for row in figures.layers_in_order(layers)
    ]
    columns = ("layer", "kind", f"implied_{rate_name}", "low", "high", "log_ratio")
    return Plot(drawn, columns, rows)


def _layer_words(row: LayerRow) -> list[str]:
    """Source over target in percent, and the interval of the implied rate."""
    low, high = row.get("implied_low"), row.get("implied_high")
    interval = "" if low is None or high is None else f"({low:.4g} to {high:.4g})"
    return [signed(100 * math.expm1(row["log_ratio"]), 1), interval]
