"""What is drawn of a match: effective learning rates and their ratio, the rate it looks for."""

import math
from collections.abc import Sequence

from sweeps.figures.axes import ratio_axis, readable_ends, spans_decade
from sweeps.figures.chart import STEPS, Axis, Chart, Level, Line, Marks, Symbol, bars
from sweeps.figures.colours import GREY, PALETTE
from sweeps.figures.quantities import layer_order, quantity
from sweeps.match.result import CriterionRow, Curves, LayerRow, Verdict

SOURCE, TARGET, INSIDE = PALETTE[1], PALETTE[0], PALETTE[2]
#: Colour and symbol of each class of weight vector.
_CLASSES: dict[str, tuple[str, Symbol]] = {
    "invariant": (PALETTE[0], "circle"),
    "jointly_invariant": (PALETTE[2], "square"),
    "eps_limited": (PALETTE[4], "diamond"),
    "neither": (PALETTE[1], "x"),
}
_NOT_PROBED: tuple[str, Symbol] = (GREY, "circle-open")


def effective_rates(
    curves: Curves,
    *,
    tolerance: float,
    verdict: Verdict | None,
    source_name: str,
    target_name: str,
    title: str = "",
) -> Chart:
    """Effective learning rates of both runs over their steps.

    Args:
        curves: From the match's result; ``target`` may still be empty.
        tolerance: Half-width of the tolerance as a fraction of the source.
        verdict: Gives the window that was judged; None while there is no verdict.
        source_name: The source's optimizer, for the legend.
        target_name: The target's optimizer, for the legend.
        title: "" beside a caption.
    """
    steps, source, target = curves["steps"], curves["source"], curves["target"]
    series = [
        Line(
            f"source: {source_name}",
            SOURCE,
            steps,
            source,
            [value / (1 + tolerance) for value in source],
            [value * (1 + tolerance) for value in source],
            width=2.5,
            band_name=f"{source_name} ± {100 * tolerance:g} %",
        )
    ]
    if curves["formula"]:
        closed = curves["formula"]
        series.append(Line("closed form with lag", GREY, steps, closed, dash="dot", width=1.5))
    if target:
        low, high = curves["target_low"], curves["target_high"]
        series.append(Line(f"target: {target_name}", TARGET, steps, target, low, high, width=2.5))
    y = Axis("‖Δw‖/‖w‖ (per step)", is_log=True, ends=readable_ends([*source, *target]))
    window = None if verdict is None else verdict["window"]
    return Chart("effective-learning-rates", STEPS, y, series, title, window=window)


def is_inside(source: float, target: float, tolerance: float) -> bool:
    """Whether the two differ by at most the tolerance, as a log ratio."""
    if source <= 0 or target <= 0:
        return False
    return abs(math.log(source / target)) <= math.log1p(tolerance)


def rate_ratio(
    curves: Curves, *, tolerance: float, verdict: Verdict | None, title: str = ""
) -> Chart | None:
    """Source over target, thick and green inside the tolerance; None before the target ran."""
    steps = curves["steps"]
    pairs = list(zip(curves["source"], curves["target"], strict=False))
    ratio = [s / t if s > 0 and t > 0 else None for s, t in pairs]
    known = [value for value in ratio if value is not None]
    if not known:
        return None
    y, beyond = ratio_axis(known, "source / target")
    inside = [r if r is not None and is_inside(r, 1.0, tolerance) else None for r in ratio]
    low, high = ([edge] * len(steps) for edge in (1 / (1 + tolerance), 1 + tolerance))
    words = f"within ±{100 * tolerance:g} %"
    series = [
        Line(f"source over target{beyond}", GREY, steps, ratio, width=1.5),
        Line(words, INSIDE, steps, inside, low, high, width=5),
    ]
    window = None if verdict is None else verdict["window"]
    return Chart("source-over-target", STEPS, y, series, title, window=window)


def criteria(rows: Sequence[CriterionRow], rate_name: str, *, title: str = "") -> Chart:
    """The rate by each criterion: measured with its interval, predicted, and in closed form."""
    places = {row["criterion"]: _place(row) for row in rows}
    series = []
    found = [(row, row["measured"]) for row in rows]
    if measured := [(places[row["criterion"]], one) for row, one in found if one is not None]:
        values = [one["value"] for _, one in measured]
        low = [one["low"] for _, one in measured]
        high = [one["high"] for _, one in measured]
        series.append(
            Marks(
                "measured, 95 % interval",
                PALETTE[0],
                [place for place, _ in measured],
                values,
                **bars(values, low, high),
                has_caps=True,
            )
        )
    predicted = [(row, row["predicted"]) for row in rows]
    closed = [(row, row["closed_form"]) for row in rows]
    for name, ink, pairs in (
        ("predicted", PALETTE[1], predicted),
        ("closed form", PALETTE[2], closed),
    ):
        known = [(places[row["criterion"]], value) for row, value in pairs if value is not None]
        if known:
            series.append(Marks(name, ink, [p for p, _ in known], [v for _, v in known]))
    x_axis = Axis("criterion", words=list(places.values()))
    return Chart("rate-by-criterion", x_axis, Axis(quantity(rate_name).axis), series, title)


def _place(row: CriterionRow) -> str:
    return row["criterion"].replace("_", " ") + (" (chosen)" if row["chosen"] else "")


def implied_rates(
    layers: Sequence[LayerRow], rate_name: str, *, rate: float | None, title: str = ""
) -> Chart:
    """The rate that each layer alone would ask for, by class; a level at ``rate``, the match's."""
    what = quantity(rate_name)
    ordered = layers_in_order(layers)
    series = []
    for kind in dict.fromkeys(row["kind"] for row in ordered):
        mine = [row for row in ordered if row["kind"] == kind]
        ink, symbol = _CLASSES.get(kind, _NOT_PROBED)
        values = [row["implied_rate"] for row in mine]
        # Results of earlier versions lack the interval.
        low = [row.get("implied_low") for row in mine]
        high = [row.get("implied_high") for row in mine]
        series.append(
            Marks(
                kind.replace("_", " ") or "not probed",
                ink,
                [row["layer"] for row in mine],
                values,
                **bars(values, low, high),
                symbol=symbol,
                size=10,
                has_caps=True,
            )
        )
    all_rates = [row["implied_rate"] for row in ordered]
    y = Axis(f"implied {what.symbol or what.name} (per step)", is_log=spans_decade(all_rates))
    x = Axis("layer, from the stem", words=[row["layer"] for row in ordered])
    levels = [] if rate is None else [Level(rate, TARGET)]
    return Chart("implied-rates", x, y, series, title, levels)


def layers_in_order(layers: Sequence[LayerRow]) -> list[LayerRow]:
    """Layers from the stem on."""
    return sorted(layers, key=lambda row: layer_order(row["layer"]))
