"""A sweep as a report: what it varied, what it found with intervals, curves, where it ran."""

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dashboards.report.blocks import Block, Document, Heading, Listing, Notes, Paragraph, Picture
from dashboards.report.match import match_blocks
from dashboards.report.sensitivity import sensitivity_blocks
from dashboards.wording.formatting import (
    choice_word,
    config_value,
    difference,
    duration,
    interval,
    number,
    quantity_value,
    upper_first,
    with_unit,
)
from dashboards.wording.pair_note import pair_note
from dashboards.wording.plain_text import settings, symbol
from dashboards.wording.sweep_facts import objective_quantities, objective_quantity
from sweeps.analysis.arms import Analysis, ArmResult, Comparison, Estimate, analysis
from sweeps.analysis.formatting import BRACKETS, NOTHING, with_interval
from sweeps.analysis.stored.front import off_the_front, point_means
from sweeps.analysis.table import Table
from sweeps.figures.chart import Axis, Chart, Marks, bars
from sweeps.figures.colours import OPTIMIZER_COLOURS, PALETTE
from sweeps.figures.front import front_chart
from sweeps.figures.matplotlib_files import drawing, rows_drawing
from sweeps.figures.quantities import Quantity, quantity
from sweeps.figures.sweep import MAX_SAMPLES, Curve, learning_curves, optimizer_of
from sweeps.records import Sweep, sign_of
from sweeps.retention.note_images import images_as_data
from sweeps.store.store import Store

#: Points of the leaderboard that a report lists, and arms whose curves it draws.
TOP_POINTS, MOST_CURVES = 20, 8
#: Trials that are asked where they ran, at most.
ASKED_TRIALS = 50


def report_document(store: Store, sweep_id: str, home: Path | None = None) -> Document:
    """Build the report of a sweep or a match, with the images of its notes that ``home`` has.

    Raises SweepNotFound.
    """
    sweep = store.get_sweep(sweep_id)
    blocks: list[Block] = [Paragraph(_summary(sweep)), *_notes(sweep, home)]
    if sweep.kind == "match":
        blocks += match_blocks(sweep)
    else:
        blocks += _sweep_blocks(store, sweep)
    blocks += _provenance(store, sweep)
    kind = "Match" if sweep.kind == "match" else "Sweep"
    return Document(f"{kind} {sweep.name}", tuple(blocks))


def _summary(sweep: Sweep) -> str:
    counts = ", ".join(f"{count} {state}" for state, count in sweep.trials.items() if count)
    reason = f" ({sweep.reason})" if sweep.reason else ""
    took = ""
    if sweep.started_at is not None:
        began = sweep.started_at.strftime("%Y-%m-%d %H:%M UTC")
        took = f" Started {began}"
        if sweep.finished_at is not None:
            took += f", took {duration((sweep.finished_at - sweep.started_at).total_seconds())}"
        took += "."
    return f"Id {sweep.id}: {sweep.state.value}{reason}. Trials: {counts or 'none'}.{took}"


def _notes(sweep: Sweep, home: Path | None) -> list[Block]:
    images = images_as_data(home, sweep.id, sweep.notes) if home is not None else {}
    blocks: list[Block] = [Notes(sweep.notes, images)] if sweep.notes.strip() else []
    if sweep.tags:
        blocks.append(Paragraph(f"Tags: {', '.join(sweep.tags)}."))
    return blocks


def _sweep_blocks(store: Store, sweep: Sweep) -> list[Block]:
    found = analysis(store, sweep.id)
    return [
        Heading("What was varied"),
        *_space(sweep),
        *_front(store, sweep),
        Heading("Results"),
        *_results(sweep, found),
        *_curves(store, sweep, _ranked(found)),
        *sensitivity_blocks(store, sweep, found),
        *_leaderboard(store, sweep),
    ]


def _space(sweep: Sweep) -> list[Block]:
    rows = [
        (symbol(name, sweep.training), name, _domain(domain))
        for name, domain in sweep.space.items()
    ]
    base = {name: value for name, value in sweep.base.items() if value is not None}
    fixed = ", ".join(f"{name} {config_value(value)}" for name, value in base.items())
    seeds = "1 seed" if sweep.replicates == 1 else f"{sweep.replicates} seeds"
    return [
        Table(("field", "name", "values"), tuple(rows)),
        Paragraph(f"Fixed: {fixed or 'nothing; all else has its published value'}."),
        Paragraph(f"Sampler {sweep.sampler or 'random'}, {seeds} per point."),
    ]


def _domain(domain: dict[str, Any]) -> str:
    if domain["kind"] == "choice":
        text = ", ".join(choice_word(value) for value in domain["values"])
    else:
        text = f"{config_value(domain['low'])} to {config_value(domain['high'])}"
        text += " (log)" if domain.get("log") else ""
    conditions = domain.get("when") or {}
    where = [f"{n} is {' or '.join(map(choice_word, v))}" for n, v in conditions.items()]
    return f"{text}, where {' and '.join(where)}" if where else text


def _results(sweep: Sweep, found: Analysis) -> list[Block]:
    arms = _ranked(found)
    if not arms:
        return [Paragraph("No point has all of its seeds yet.")]
    metric = quantity(found.metric, sweep.metrics, sweep.training)
    shows_test = metric.key != "test_error" and any(arm.test_error for arm in arms)
    head = ["arm", metric.name, "95 % interval", "sd", "n", "points", "chosen"]
    if shows_test:
        head.insert(5, "test error")
    rows = [_arm_row(sweep, arm, metric, shows_test=shows_test) for arm in arms]
    blocks: list[Block] = [Table(tuple(head), tuple(rows)), *_intervals(sweep, arms, metric)]
    if found.comparisons:
        cells = tuple(
            (
                f"{settings(row.a, sweep.training)} − {settings(row.b, sweep.training)}",
                _difference(quantity(row.metric, sweep.metrics, sweep.training), row),
                number(row.p_holm, 2),
                row.verdict,
            )
            for row in found.comparisons
        )
        caption = "Welch, p-values adjusted after Holm; errors in percentage points."
        caption = " ".join(filter(None, (caption, pair_note(len(found.comparisons)))))
        blocks.append(Table(("arms", "difference", "p", "verdict"), cells, caption))
    if found.notes:
        blocks.append(Listing(tuple(found.notes)))
    return blocks


def _front(store: Store, sweep: Sweep) -> list[Block]:
    """The points that no other one beats in every objective; [] with a single objective."""
    front = (sweep.result or {}).get("front")
    if front is None or not front["points"]:
        return []
    objectives = objective_quantities(sweep)
    head = ("point", *(part for one in objectives for part in (one.name, "95 % interval")), "n")
    rows = []
    for point in front["points"]:
        cells = [settings(point["params"], sweep.training)]
        for what in objectives:
            found = point["values"][what.key]
            cells += [quantity_value(what, found["mean"])]
            cells += [interval(what, found["low"], found["high"])]
        rows.append((*cells, str(point["values"][objectives[0].key]["n"])))
    means = point_means(sweep.objectives, store.all_trials(sweep.id))
    chart = front_chart(front, off_the_front(front, means), *objectives[:2])
    caption = f"{upper_first(objectives[1].name)} over {objectives[0].name}, means over seeds."
    return [
        Heading("Front"),
        Picture(drawing(chart), caption),
        Table(head, tuple(rows)),
        Listing(tuple(front["notes"])),
    ]


def _difference(what: Quantity, row: Comparison) -> str:
    text = with_interval(partial(difference, what), row.difference, row.low, row.high, BRACKETS)
    # That errors are in percentage points is said below the table.
    return text if what.is_fraction else with_unit(what, text)


def _ranked(found: Analysis) -> list[ArmResult]:
    sign = sign_of(found.direction)
    arms = [(sign * arm.objective.mean, arm) for arm in found.arms if arm.objective is not None]
    return [arm for _, arm in sorted(arms, key=lambda pair: pair[0])]


def _arm_row(
    sweep: Sweep, arm: ArmResult, metric: Quantity, *, shows_test: bool
) -> tuple[str, ...]:
    assert arm.objective is not None
    objective = arm.objective
    rest = {name: value for name, value in arm.params.items() if name not in arm.arm}
    chosen = settings(rest, sweep.training) if rest else NOTHING
    if arm.selected:
        chosen += " (selected, optimistic)"
    cells = [
        settings(arm.arm, sweep.training),
        quantity_value(metric, objective.mean),
        interval(metric, objective.low, objective.high),
        quantity_value(metric, objective.sd),
        str(objective.n),
        str(arm.points),
        chosen,
    ]
    if shows_test:
        found = arm.test_error
        text = NOTHING if found is None else _with_interval("test_error", found)
        cells.insert(5, text)
    return tuple(cells)


def _with_interval(metric: str, found: Estimate) -> str:
    return with_interval(partial(quantity_value, metric), found.mean, found.low, found.high)


def _intervals(sweep: Sweep, arms: Sequence[ArmResult], what: Quantity) -> list[Block]:
    marks, words = list[Marks](), list[str]()
    for arm in arms[:TOP_POINTS]:
        if (found := arm.objective) is not None:
            mean = what.shown(found.mean)
            low, high = (None if e is None else what.shown(e) for e in (found.low, found.high))
            ink = OPTIMIZER_COLOURS.get(str(arm.params.get("optimizer")), PALETTE[0])
            ends = bars([mean], [low], [high])
            marks.append(Marks("", ink, [len(words)], [mean], **ends, size=10, has_caps=True))
            words.append(settings(arm.arm, sweep.training))
    chart = Chart("results", Axis("arm", words=words), Axis(what.axis), marks)
    whose = _whose(len(arms), TOP_POINTS)
    caption = f"{upper_first(what.name)} of {whose}, 95 % interval over seeds."
    return [Picture(rows_drawing(chart), caption)]


def _whose(arms: int, most: int) -> str:
    """Which points a figure with room for ``most`` arms, the best first, shows."""
    return "each arm's best point" if arms <= most else f"the best points of the best {most} arms"


def _curves(store: Store, sweep: Sweep, arms: Sequence[ArmResult]) -> list[Block]:
    metric = objective_quantity(sweep)
    points = [arm.point for arm in arms if arm.point is not None][:MOST_CURVES]
    named = {arm.point: settings(arm.arm, sweep.training) for arm in arms}
    params = {arm.point: arm.params for arm in arms}
    curves = [
        Curve(named[c.point], c.steps, c.mean, c.sd, c.n, optimizer_of(sweep, params[c.point]))
        for c in store.point_curves(sweep.id, metric.key, points, MAX_SAMPLES)
        if len(c.steps) > 1
    ]
    if not curves:
        return []
    picture = drawing(learning_curves(metric, curves))
    caption = (
        f"{upper_first(metric.name)} of {_whose(len(arms), MOST_CURVES)} while training; "
        "mean and deviation over seeds."
    )
    return [Heading("Learning curves"), Picture(picture, caption)]


def _leaderboard(store: Store, sweep: Sweep) -> list[Block]:
    metric = objective_quantity(sweep)
    page = store.points(sweep.id, sort=sweep.objective.best_first, limit=TOP_POINTS)
    rows = tuple(
        (
            settings(point.params, sweep.training),
            quantity_value(metric, point.mean),
            quantity_value(metric, point.sd),
            str(point.n),
            point.state.value,
        )
        for point in page.items
    )
    if not rows:
        return []
    more = f" The best {len(rows)} points." if page.next else ""
    caption = f"Mean over seeds.{more}"
    head = ("point", metric.name, "sd", "n", "state")
    return [Heading("Points"), Table(head, rows, caption)]


def _provenance(store: Store, sweep: Sweep) -> list[Block]:
    begun = [trial.number for trial in store.all_trials(sweep.id) if trial.started_at is not None]
    found = store.attempts_of(sweep.id, _some(begun))
    notes = [attempts[-1].provenance for attempts in found.values()]
    if not notes:
        return []
    rows = (
        ("card", _listed(note.get("card") for note in notes)),
        ("torch", _listed((note.get("versions") or {}).get("torch") for note in notes)),
        ("commit", _listed(note.get("git_commit") for note in notes)),
        ("data", _listed(_data(note.get("data")) for note in notes)),
    )
    return [Heading("Where it ran"), Table(("what", "found"), rows)]


def _some(trials: Sequence[int]) -> Sequence[int]:
    """Enough trials to tell where a sweep ran: the first, the last and evenly between them."""
    if len(trials) <= ASKED_TRIALS:
        return trials
    return [trials[i * (len(trials) - 1) // (ASKED_TRIALS - 1)] for i in range(ASKED_TRIALS)]


def _data(value: Any) -> str | None:
    if not isinstance(value, dict):
        return None
    return f"{value.get('name', '')} {str(value.get('checksum', ''))[:12]}".strip()


def _listed(values: Iterable[object]) -> str:
    return ", ".join(sorted({str(value) for value in values if value})) or "unknown"
