"""A match as a report: the verdict first, then the evidence."""

from dashboards.match.view import match_values, side
from dashboards.report.blocks import Block, Heading, Listing, Paragraph, Picture
from dashboards.wording.formatting import duration, interval, number, quantity_value, ratio
from dashboards.wording.plain_text import symbol
from sweeps.analysis.formatting import NOTHING, span, with_interval
from sweeps.analysis.table import Table
from sweeps.figures.match import effective_rates, implied_rates, layers_in_order
from sweeps.figures.matplotlib_files import drawing, rows_drawing
from sweeps.figures.quantities import plain, quantity
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
from worker.config.training import IMAGES


def match_blocks(sweep: Sweep) -> list[Block]:
    """The parts of a match's report."""
    values, result = match_values(sweep), result_of(sweep)
    verdict = values["verdict"]
    source, target = (plain(values[which]["title"]) for which in ("source", "target"))
    blocks: list[Block] = [
        Paragraph(f"Source: {source}. Target: {target}."),
        Heading(plain(verdict["headline"])),
        Paragraph(plain(verdict["sentence"])),
        *([Paragraph(verdict["rates"])] if verdict["rates"] else []),
    ]
    if result is None:
        return blocks
    name = symbol(result["rate_name"], IMAGES)
    if result["warnings"]:
        blocks.append(Listing(tuple(result["warnings"])))
    blocks += _criteria(result["criteria"], name)
    if result["curves"] is not None:
        blocks += _curves(sweep, result, result["curves"])
    blocks += _layers(result["layers"], result["rate_name"])
    findings = tuple((label, plain(value)) for label, value in values["findings"])
    if findings:
        blocks += [Heading("What is known about it"), Table(("what", "found"), findings)]
    return blocks + _comparison(sweep, result) + _cost(result["cost"])


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


def _curves(sweep: Sweep, result: MatchResult, curves: Curves) -> list[Block]:
    chart = effective_rates(
        curves,
        tolerance=result["tolerance"],
        verdict=result["verdict"],
        source_name=side(sweep, "source")["optimizer"],
        target_name=side(sweep, "target")["optimizer"],
    )
    caption = (
        f"Effective learning rates over the run. Around the source: ±{100 * result['tolerance']:g} "
        "%. Around the target: its lowest and highest seed."
    )
    if result["verdict"] is not None:
        caption += " Shaded: the window of the verdict."
    return [Heading("Source and target"), Picture(drawing(chart), caption)]


def _layers(layers: list[LayerRow], rate_name: str) -> list[Block]:
    if not layers:
        return []
    ordered = layers_in_order(layers)
    chart = implied_rates(ordered, rate_name, rate=None)
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
    name = symbol(rate_name, IMAGES)
    head = ("layer", "kind", name, "95 % interval", "source over target")
    caption = f"The {name} that each layer alone would ask for, with its interval over seeds."
    return [Heading("Layer by layer"), Picture(rows_drawing(chart), caption), Table(head, rows)]


def _comparison(sweep: Sweep, result: MatchResult) -> list[Block]:
    found = result.get("comparison")
    if not found:
        return []
    metric = quantity(found["metric"], sweep.metrics, sweep.training)
    sides = (
        ("source", found["source"]),
        ("target", found["target"]),
        ("target − source", found["difference"]),
    )
    rows = tuple(
        (name, quantity_value(metric, one["value"]), interval(metric, one["low"], one["high"]))
        for name, one in sides
    )
    head = (metric.name, "mean", "95 % interval")
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
