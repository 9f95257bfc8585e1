"""A match as a report: the verdict first, then what it rests on."""

from dashboards.match.plots import SOURCE, TARGET
from dashboards.match.view import match_values
from dashboards.plots.figure import PALETTE
from dashboards.report.blocks import Block, Heading, Listing, Paragraph, Picture
from dashboards.report.drawing import Line, Mark, interval_chart, line_chart
from dashboards.wording.formatting import duration, interval, number, quantity_value, ratio
from dashboards.wording.plain_text import plain, symbol
from dashboards.wording.quantities import layer_order, quantity
from sweeps.analysis.formatting import NOTHING, span, with_interval
from sweeps.analysis.table import Table
from sweeps.match.result import (
    CostRow,
    CriterionRow,
    Curves,
    Interval,
    LayerRow,
    MatchResult,
    result_of,
)
from sweeps.records import Sweep


def match_blocks(sweep: Sweep) -> list[Block]:
    """The parts of a match's report."""
    values, result = match_values(sweep), result_of(sweep)
    verdict = values["verdict"]
    source, target = (plain(values[which]["title"]) for which in ("source", "target"))
    blocks: list[Block] = [
        Paragraph(f"Source: {source}. Target: {target}."),
        Heading(plain(verdict["headline"])),
        Paragraph(plain(verdict["sentence"])),
    ]
    if result is None:
        return blocks
    name = symbol(result["rate_name"])
    if result["warnings"]:
        blocks.append(Listing(tuple(result["warnings"])))
    blocks += _criteria(result["criteria"], name)
    if result["curves"] is not None:
        blocks += _curves(result["curves"], result["tolerance"], source, target)
    blocks += _layers(result["layers"], name)
    findings = tuple((label, plain(value)) for label, value in values["findings"])
    if findings:
        blocks += [Heading("What is known about it"), Table(("what", "found"), findings)]
    return blocks + _comparison(result) + _cost(result["cost"])


def _criteria(rows: list[CriterionRow], name: str) -> list[Block]:
    cells = tuple(
        (
            row["criterion"].replace("_", " ") + (" (chosen)" if row["chosen"] else ""),
            row["formula"],
            number(row["closed_form"]),
            number(row["predicted"]),
            _interval(row["measured"]),
        )
        for row in rows
    )
    head = ("criterion", "makes equal", "closed form", "predicted", "measured")
    return [Heading(f"{name} by each criterion"), Table(head, cells)]


def _interval(found: Interval | None) -> str:
    return NOTHING if found is None else with_interval(number, **found)


def _curves(curves: Curves, tolerance: float, source: str, target: str) -> list[Block]:
    steps, values = curves["steps"], curves["source"]
    lines = [
        Line(
            f"source: {source}",
            SOURCE,
            steps,
            values,
            low=[value / (1 + tolerance) for value in values],
            high=[value * (1 + tolerance) for value in values],
        )
    ]
    if curves["formula"]:
        lines.append(Line("closed form with lag", "#8A8F98", steps, curves["formula"], dash="dot"))
    if curves["target"]:
        low, high = curves["target_low"], curves["target_high"]
        lines.append(Line(f"target: {target}", TARGET, steps, curves["target"], low, high))
    peak = max([*values, *curves["target"]])
    drawing = line_chart(
        "effective-learning-rates",
        lines,
        x_label="training step",
        y_label="effective learning rate ‖Δw‖/‖w‖",
        log_y=True,
        # A cosine ends at zero, and its last steps would fill the figure.
        y_range=(2e-3 * peak, 1.4 * peak),
    )
    caption = (
        f"Effective learning rates over the run. Around the source: ±{100 * tolerance:g} %. Around "
        "the target: its lowest and highest seed."
    )
    return [Heading("Source and target"), Picture(drawing, caption)]


def _layers(layers: list[LayerRow], name: str) -> list[Block]:
    if not layers:
        return []
    ordered = sorted(layers, key=lambda row: layer_order(row["layer"]))
    marks = [_mark(row) for row in ordered]
    drawing = interval_chart("implied-rates", marks, x_label=f"{name} that the layer asks for")
    rows = tuple(
        (
            row["layer"],
            row["kind"].replace("_", " ") or "not probed",
            number(row["implied_rate"]),
            span(number, row.get("implied_low"), row.get("implied_high")),
            ratio(row["log_ratio"]),
        )
        for row in ordered
    )
    head = ("layer", "kind", name, "95 % interval", "source over target")
    caption = f"The {name} that each layer alone would ask for, with its interval over seeds."
    return [Heading("Layer by layer"), Picture(drawing, caption), Table(head, rows)]


def _mark(row: LayerRow) -> Mark:
    low, high = row.get("implied_low"), row.get("implied_high")
    return Mark(row["layer"], PALETTE[0], row["implied_rate"], low, high)


def _comparison(result: MatchResult) -> list[Block]:
    found = result.get("comparison")
    if not found:
        return []
    metric = found["metric"]
    sides = (
        ("source", found["source"]),
        ("target", found["target"]),
        ("target − source", found["difference"]),
    )
    rows = tuple(
        (name, quantity_value(metric, one["value"]), interval(metric, one["low"], one["high"]))
        for name, one in sides
    )
    head = (quantity(metric).name, "mean", "95 % interval")
    return [
        Heading("Both at the matched rate, on fresh seeds"),
        Paragraph(found["sentence"]),
        Table(head, rows),
    ]


def _cost(cost: list[CostRow]) -> list[Block]:
    if not cost:
        return []
    rows = tuple(
        (row["stage"], str(row["trials"]), f"{row['steps']:,}", duration(row["seconds"]))
        for row in cost
    )
    return [Heading("What it cost"), Table(("stage", "trials", "steps", "time"), rows)]
