"""Effects of varied fields on the objective, for a report: figures, means, importance."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from dashboards.report.blocks import Block, Heading, Listing, Picture
from dashboards.wording.formatting import choice_word, interval, number, quantity_value, upper_first
from dashboards.wording.importance_notes import branch_name, importance_notes
from dashboards.wording.plain_text import symbol
from dashboards.wording.sweep_facts import objective_quantity
from sweeps.analysis.arms import Analysis
from sweeps.analysis.formatting import span
from sweeps.analysis.sensitivity import SensitivityBin
from sweeps.analysis.table import Table
from sweeps.figures.axes import spans_decade
from sweeps.figures.matplotlib_files import drawing
from sweeps.figures.quantities import Quantity, plain, quantity
from sweeps.figures.sweep import MOST_WITH_BARS, is_log, numeric_settings, sensitivity
from sweeps.records import Point, Sweep
from sweeps.store.queries.thinning import thin
from sweeps.store.store import Store

#: Points of one figure, spread evenly: each adds shapes to the file.
MOST_POINTS = 400


def sensitivity_blocks(store: Store, sweep: Sweep, found: Analysis) -> list[Block]:
    """A figure for each numeric field, and its means if the design allows them."""
    points = [point for point in store.all_points(sweep.id) if point.mean is not None]
    means = {one.field: one.bins for one in found.sensitivity}
    metric = quantity(found.metric, sweep.metrics, sweep.training)
    blocks: list[Block] = []
    for field in sweep.space:
        blocks += _figure(sweep, field, points)
        rows = [row for row in (_bin_row(b, metric) for b in means.get(field, [])) if row]
        if len(rows) > 1:
            what = quantity(field, training=sweep.training)
            head = (plain(what.short), metric.name, "95 % interval", "points")
            words = f"Mean over whatever the other fields were, by {what.name}."
            blocks.append(Table(head, tuple(rows), words))
    heading: list[Block] = [Heading("Sensitivity"), *blocks] if blocks else []
    return heading + importance_blocks(sweep)


def _figure(sweep: Sweep, field: str, points: Sequence[Point]) -> list[Block]:
    having = numeric_settings(sweep, points, field)
    if len({setting.value for setting in having}) < 2:
        return []
    drawn = thin(having, MOST_POINTS)
    metric = objective_quantity(sweep)
    what = quantity(field, training=sweep.training)
    chart = sensitivity(what, metric, drawn, is_log=is_log(sweep.space[field]))
    if spans_decade(chart.values()):
        chart = replace(chart, y=replace(chart.y, is_log=True, ends=None))
    caption = f"{upper_first(metric.name)} over {what.name}"
    spread = "mean ± sd" if len(drawn) <= MOST_WITH_BARS else "its mean"
    marks = f"each mark is a point, {spread} over seeds"
    if len(drawn) < len(having):
        marks += f"; {number(len(drawn))} of {number(len(having))} points, evenly taken"
    return [Picture(drawing(chart), f"{caption}: {marks}.")]


def _bin_row(part: SensitivityBin, metric: Quantity) -> tuple[str, ...] | None:
    if part.mean is None:
        return None
    where = (
        choice_word(part.value)
        if part.low is None or part.high is None
        else span(partial(number, digits=3), part.low, part.high)
    )
    spread = interval(metric, part.mean_low, part.mean_high)
    return where, quantity_value(metric, part.mean), spread, str(part.n)


def importance_blocks(sweep: Sweep) -> list[Block]:
    """PED-ANOVA by branch, as the driver stored it; [] if there is none."""
    rows = tuple(
        (
            branch_name(row["branch"], sweep.training),
            symbol(field, sweep.training),
            f"{100 * share:.0f} %",
            str(row["points"]),
        )
        for row in (sweep.result or {}).get("importance") or []
        for field, share in sorted(row["fields"].items(), key=lambda item: -item[1])
    )
    if not rows:
        return []
    notes = tuple(plain(note) for note in importance_notes(sweep))
    head = ("branch", "field", "importance", "points")
    caption = "PED-ANOVA: how much each field sets the best tenth of the points apart."
    listing: list[Block] = [Listing(notes)] if notes else []
    return [Heading("Importance"), Table(head, rows, caption), *listing]
