"""The paper's comparison as a report: tables, figures, claims, the runs, and what was not run."""

import statistics
from collections.abc import Iterable, Sequence

from dashboards.paper.document_figures import drawn_figures
from dashboards.paper.wording import point_name, points
from dashboards.report.blocks import Block, Document, Heading, Listing, Paragraph
from sweeps.analysis.formatting import BRACKETS, NOTHING, signed, span, with_interval
from sweeps.analysis.table import Table
from sweeps.paper.comparison import (
    ArmDifference,
    ComparedClaim,
    ComparedEntry,
    ComparedTable,
    Measured,
    compared_claims,
    compared_tables,
)
from sweeps.paper.runs import Arm, PaperRun, PaperRuns
from sweeps.paper.values import paper_values


def paper_document(runs: PaperRuns) -> Document:
    """Build the report from all finished runs."""
    tables, claims = compared_tables(runs), compared_claims(runs)
    used = _used(runs, tables, claims)
    blocks: list[Block] = [
        *_introduction(used),
        *(block for table in tables for block in _table(table)),
        *drawn_figures(runs),
        *_claims(claims),
        *_runs_table(used),
        *_not_run(runs, tables, claims),
    ]
    return Document("The paper, run again", tuple(blocks))


def _used(
    runs: PaperRuns, tables: Sequence[ComparedTable], claims: Sequence[ComparedClaim]
) -> list[PaperRun]:
    """Every run behind a number or a curve of the report, once."""
    found: dict[int, PaperRun] = {}
    groups = [row.runs for table in tables for row in table.rows]
    groups += [arm.arm.runs for claim in claims for arm in claim.arms]
    groups += [arm.runs for name in _FIGURES for arm in runs.arms(name)]
    for group in groups:
        found |= {id(run): run for run in group}
    return list(found.values())


_FIGURES = ("paper-fig1a", "paper-fig1b", "paper-fig2", "paper-fig3")


def _introduction(used: Sequence[PaperRun]) -> list[Block]:
    paper = paper_values()
    found = f"Compared with {paper.source}. {len(used)} finished runs were found."
    if not used:
        return [Paragraph(found)]
    cards = _listed(run.provenance.get("card") for run in used)
    torch = _listed((run.provenance.get("versions") or {}).get("torch") for run in used)
    commits = _listed(str(run.provenance.get("git_commit") or "unknown")[:12] for run in used)
    precisions = _listed(run.precision for run in used)
    took = [run.seconds for run in used if run.seconds is not None]
    middle = f"; the median run took {statistics.median(took):,.0f} s" if took else ""
    return [
        Paragraph(
            f"{found} Trained on {cards} with torch {torch} in {precisions} at commit "
            f"{commits}{middle}."
        ),
        Paragraph(
            "Errors are those at the end of training, in percent; nothing was chosen from them. "
            "Ours are means over seeds with the 95 % t-interval. The paper gives means of "
            f"{paper.runs} runs and no spread, so the interval of a difference takes the spread of "
            "our runs for theirs. “Agrees” means that the difference is within "
            f"{paper.margin:g} points or that its interval contains 0."
        ),
    ]


def _listed(values: Iterable[object]) -> str:
    return ", ".join(sorted({str(value) for value in values if value})) or "unknown"


# --- Tables --------------------------------------------------------------------------------------


def _table(table: ComparedTable) -> list[Block]:
    heading = Heading(table.table.title)
    if not table.num_runs:
        values = "; ".join(f"{row.name} {points(row.test_error)}" for row in table.table.rows)
        not_run = f"Not run. Its preset is {table.table.preset}."
        return [heading, Paragraph(f"{not_run} The paper's errors: {values}.")]
    head = ("arm", "paper", "ours", "sd", "95 % interval", "n", "difference", "verdict")
    blocks: list[Block] = [heading, Table(head, tuple(_row(row) for row in table.rows))]
    test = "Welch, p-values adjusted after Holm within the table."
    if table.differences:
        blocks.append(_compared(table.differences, f"Between our arms: {test}"))
    if table.gains:
        caption = (
            "What the second part brings each method. The paper: the improvement is “most "
            f"prominent for Adam, and is relatively small for SGD”. {test}"
        )
        blocks.append(_compared(table.gains, caption))
    return blocks


def _compared(differences: Sequence[ArmDifference], caption: str) -> Table:
    rows = tuple(
        (
            (f"{row.of}: " if row.of else "") + f"{row.over} − {row.under}",
            with_interval(signed, row.difference, row.low, row.high, BRACKETS),
            f"{row.p_value:.2g}",
            row.verdict,
        )
        for row in differences
    )
    return Table(("arms", "difference", "p", "verdict"), rows, caption)


def _row(row: ComparedEntry) -> tuple[str, ...]:
    paper = points(row.entry.test_error)
    if row.difference is None:
        return (row.entry.name, paper, NOTHING, NOTHING, NOTHING, "0", NOTHING, row.verdict)
    difference = with_interval(signed, row.difference, row.low, row.high, BRACKETS)
    verdict = f"{row.verdict}: {row.because}" if row.because else row.verdict
    ours = row.measured
    return (row.entry.name, paper, *_measured(ours), str(ours.n), difference, verdict)


def _measured(ours: Measured) -> tuple[str, str, str]:
    if ours.mean is None:
        return NOTHING, NOTHING, NOTHING
    if ours.sd is None or ours.low is None or ours.high is None:
        return points(ours.mean), NOTHING, NOTHING
    return points(ours.mean), points(ours.sd), span(points, ours.low, ours.high)


# --- Claims, runs, what is missing ---------------------------------------------------------------


def _claims(claims: Sequence[ComparedClaim]) -> list[Block]:
    blocks: list[Block] = []
    for found in claims:
        heading, said = Heading(found.claim.title, 3), f"The paper: {found.claim.claim}."
        if not found.num_runs:
            blocks += [heading, Paragraph(f"{said} Not run. Its preset is {found.claim.preset}.")]
            continue
        rows = tuple(
            (point_name(arm.arm.params), *_measured(arm.measured), str(arm.measured.n))
            for arm in found.arms
        )
        head = ("arm", f"{found.metric.replace('_', ' ')} %", "sd", "95 % interval", "n")
        blocks += [heading, Table(head, rows, said)]
    return [Heading("What the text says"), *blocks]


def _runs_table(used: Sequence[PaperRun]) -> list[Block]:
    if not used:
        return []
    rows = sorted(
        (
            _what(run),
            str(run.seed),
            points(100 * run.metrics["test_error"]) if "test_error" in run.metrics else NOTHING,
            f"{run.seconds:,.0f}" if run.seconds is not None else NOTHING,
            str(run.provenance.get("card", NOTHING)),
            run.where,
        )
        for run in used
    )
    head = ("run", "seed", "test error %", "seconds", "card", "record")
    return [Heading("The runs"), Table(head, tuple(rows))]


def _what(run: PaperRun) -> str:
    config = run.config
    network = f"WRN-{config['depth']}-{config['widen_factor']:g}"
    names = ("optimizer", "lr", "alpha_v", "weight_decay", "bn_scale", "gamma_c", "lambda_c")
    fields = {name: config[name] for name in names if config.get(name) is not None}
    return f"{config['dataset']} {network} {point_name(fields)} {config['precision']}"


def _not_run(
    runs: PaperRuns, tables: Sequence[ComparedTable], claims: Sequence[ComparedClaim]
) -> list[Block]:
    presets = {table.table.preset for table in tables} | {found.claim.preset for found in claims}
    items = []
    for preset in sorted(presets | set(_FIGURES)):
        arms = runs.arms(preset)
        missing = [_missing(arm) for arm in arms if len(arm.runs) < arm.replicates]
        if not any(arm.runs for arm in arms):
            items.append(f"{preset}: nothing of it")
        elif missing:
            items.append(f"{preset}: {'; '.join(missing)}")
    if not items:
        return []
    return [Heading("Not run"), Listing(tuple(items))]


def _missing(arm: Arm) -> str:
    name = point_name(arm.params)
    return f"{name} ({len(arm.runs)} of {arm.replicates} seeds)" if arm.runs else name
