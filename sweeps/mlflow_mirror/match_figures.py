"""Figures of a match for MLflow: both curves, their ratio, the rate by criterion and by layer."""

from collections.abc import Sequence
from typing import cast

from sweeps.match.ratio_axis import ratio_axis
from sweeps.match.result import CriterionRow, Curves, Interval, MatchResult, result_of
from sweeps.mlflow_mirror.figures import STEPS, WORDS, Drawing, Line
from sweeps.mlflow_mirror.match import implied
from sweeps.records import Side, Sweep

EFFECTIVE_LR = "effective learning rate ‖Δw‖/‖w‖ (per step)"
#: Part of a curve's peak below which nothing is drawn: a cosine ends at zero.
_LEAST = 2e-3


def match_drawings(sweep: Sweep) -> list[Drawing]:
    """Both curves, their ratio, the rate by criterion and by layer, as far as they are known."""
    result = result_of(sweep)
    if result is None:
        return []
    words = WORDS.get(result["rate_name"], result["rate_name"])
    found = []
    if result["curves"] is not None:
        found += _curve_drawings(sweep, result, result["curves"])
    found.append(_criteria_drawing(result, words))
    if result["layers"]:
        found.append(_layer_drawing(result, words))
    return [one for one in found if one.lines]


def _curve_drawings(sweep: Sweep, result: MatchResult, curves: Curves) -> list[Drawing]:
    steps, source, target = curves["steps"], curves["source"], curves["target"]
    width = 1 + result["tolerance"]
    names = {side: _side(sweep, side) for side in ("source", "target")}
    lines = [
        Line(
            f"source: {names['source']}, ±{100 * result['tolerance']:g} %",
            steps,
            source,
            [value / width for value in source],
            [value * width for value in source],
        )
    ]
    if target:
        name = f"target: {names['target']}, lowest and highest seed"
        lines.append(Line(name, steps, target, curves["target_low"], curves["target_high"]))
    if curves["formula"]:
        lines.append(Line("closed form with lag", steps, curves["formula"], is_dotted=True))
    peak, lowest = max([*source, *target]), min([*source, *target])
    title = f"{sweep.name}: effective learning rates{_judged(result)}"
    ends = (max(_LEAST * peak, lowest / 1.4), 1.4 * peak)
    drawn = [
        Drawing(
            "effective-learning-rates", title, STEPS, EFFECTIVE_LR, lines, log_y=True, y_range=ends
        )
    ]
    both = [(t, s / u) for t, s, u in zip(steps, source, target, strict=False) if s > 0 and u > 0]
    if both:
        drawn.append(_ratio_drawing(sweep, result, both))
    return drawn


def _ratio_drawing(
    sweep: Sweep, result: MatchResult, ratio: Sequence[tuple[float, float]]
) -> Drawing:
    width = 1 + result["tolerance"]
    steps, values = [t for t, _ in ratio], [value for _, value in ratio]
    ends = [steps[0], steps[-1]]
    inside = f"within ±{100 * result['tolerance']:g} %"
    axis = ratio_axis(values)
    lines = [
        Line(f"source over target{axis.told}", steps, values),
        Line(inside, ends, [1.0, 1.0], [1 / width] * 2, [width] * 2, is_dotted=True),
    ]
    title = f"{sweep.name}: source over target{_judged(result)}"
    return Drawing(
        "source-over-target",
        title,
        STEPS,
        "source over target",
        lines,
        log_y=True,
        y_range=(axis.low, axis.high),
        y_ticks=axis.ticks,
    )


def _side(sweep: Sweep, side: Side) -> str:
    return str(sweep.arm_setting(side).get("optimizer") or "recorded")


def _judged(result: MatchResult) -> str:
    verdict = result["verdict"]
    if verdict is None:
        return ""
    start, stop = verdict["window"]
    return f", judged on steps {start} to {stop}"


def _criteria_drawing(result: MatchResult, words: str) -> Drawing:
    lines = []
    if rows := [row for row in result["criteria"] if row["measured"] is not None]:
        found = [row["measured"] for row in rows if row["measured"] is not None]
        lines.append(_marks("measured, 95 % interval", [_place(row) for row in rows], found))
    for key, name in (("predicted", "predicted"), ("closed_form", "closed form")):
        known = [(_place(row), cast("float | None", row.get(key))) for row in result["criteria"]]
        places = [(place, value) for place, value in known if value is not None]
        if places:
            x, y = zip(*places, strict=True)
            lines.append(Line(name, x, y, is_curve=False))
    return Drawing("rate-by-criterion", f"{words} by each criterion", "criterion", words, lines)


def _place(row: CriterionRow) -> str:
    return row["criterion"].replace("_", " ") + (" (chosen)" if row["chosen"] else "")


def _layer_drawing(result: MatchResult, words: str) -> Drawing:
    layers = result["layers"]
    names = [row["layer"] for row in layers]
    found = [implied(row) for row in layers]
    lines = [_marks("asked for by the layer, 95 % interval", names, found)]
    verdict = result["verdict"]
    if verdict is not None and verdict["rate"] is not None:
        lines.append(Line("fresh runs", names, [verdict["rate"]] * len(names), is_dotted=True))
    return Drawing("implied-rates", f"{words} by layer", "layer, from the stem", words, lines)


def _marks(name: str, places: Sequence[str], found: Sequence[Interval]) -> Line:
    """Values with their intervals; one that has none has bars of no length."""
    low = [one["value"] if one["low"] is None else one["low"] for one in found]
    high = [one["value"] if one["high"] is None else one["high"] for one in found]
    return Line(name, places, [one["value"] for one in found], low, high, is_curve=False)
