"""The paper's comparison as a report: tables, figures, claims, the runs, and what was not run."""

import statistics
from collections.abc import Iterable, Sequence

from dashboards.paper_drawings import figure_1a, figure_1b, figure_2, figure_3
from dashboards.paper_text import point_name, points, signed
from dashboards.report_document import Block, Document, Heading, Listing, Paragraph, Picture, Table
from dashboards.report_drawing import Drawing
from sweeps.paper import (
    ComparedClaim,
    ComparedEntry,
    ComparedTable,
    Measured,
    compared_claims,
    compared_tables,
)
from sweeps.paper_figures import (
    END,
    LAYER,
    MIDDLE,
    TOLERANCE,
    MeasuredRatio,
    balance_by_layer,
    law_note,
    measured_ratios,
)
from sweeps.paper_runs import Arm, PaperRun, PaperRuns
from sweeps.paper_values import paper_values

_SPAN = f"steps {100 * MIDDLE[0]:.0f} to {100 * MIDDLE[1]:.0f} % of the run"


def paper_document(runs: PaperRuns) -> Document:
    """Build the report from whatever runs there are."""
    tables, claims = compared_tables(runs), compared_claims(runs)
    used = _used(runs, tables, claims)
    blocks: list[Block] = [
        *_introduction(used),
        *(block for table in tables for block in _table(table)),
        *_figures(runs),
        *_claims(claims),
        *_runs_table(used),
        *_not_run(runs, tables, claims),
    ]
    return Document("The paper, run again", tuple(blocks))


def _used(
    runs: PaperRuns, tables: Sequence[ComparedTable], claims: Sequence[ComparedClaim]
) -> list[PaperRun]:
    """Every run that a number or a curve of the report comes from, once."""
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
        return [heading, Paragraph(f"Not run. Its preset is {table.table.preset}.")]
    head = ("arm", "paper", "ours", "sd", "95 % interval", "n", "difference", "verdict")
    blocks: list[Block] = [heading, Table(head, tuple(_row(row) for row in table.rows))]
    if table.differences:
        rows = tuple(
            (
                f"{row.over} − {row.under}" + (f", {row.part}" if row.part else ""),
                f"{signed(row.difference)} [{signed(row.low)}, {signed(row.high)}]",
                f"{row.p_value:.2g}",
                row.verdict,
            )
            for row in table.differences
        )
        caption = "Between our arms: Welch, p-values adjusted after Holm within the table."
        blocks.append(Table(("arms", "difference", "p", "verdict"), rows, caption))
    return blocks


def _row(row: ComparedEntry) -> tuple[str, ...]:
    paper = points(row.entry.test_error)
    if row.difference is None:
        return (row.entry.name, paper, "–", "–", "–", "0", "–", row.verdict)
    difference = signed(row.difference)
    if row.low is not None and row.high is not None:
        difference += f" [{signed(row.low)}, {signed(row.high)}]"
    verdict = f"{row.verdict}: {row.because}" if row.because else row.verdict
    ours = row.measured
    return (row.entry.name, paper, *_measured(ours), str(ours.n), difference, verdict)


def _measured(ours: Measured) -> tuple[str, str, str]:
    if ours.mean is None:
        return "–", "–", "–"
    if ours.sd is None or ours.low is None or ours.high is None:
        return points(ours.mean), "–", "–"
    return points(ours.mean), points(ours.sd), f"{points(ours.low)} to {points(ours.high)}"


# --- Figures -------------------------------------------------------------------------------------


def _figures(runs: PaperRuns) -> list[Block]:
    return [
        Heading("Figure 1 (a): weight decay against the gradient's growth of weights"),
        *_drawn(figure_1a(runs), "paper-fig1a", _caption_1a()),
        *_balance(runs),
        Heading("Figure 1 (b): effective learning rates"),
        *_drawn(
            figure_1b(runs),
            "paper-fig1b",
            f"Effective learning rate ‖Δw‖/‖w‖ of {LAYER}, root mean square over its weight "
            "vectors; mean over seeds.",
        ),
        *_ratios(measured_ratios(runs)),
        Paragraph(law_note(runs)),
        Heading("Figure 2: test accuracy while training"),
        *_drawn(
            figure_2(runs),
            "paper-fig2",
            "Test accuracy with trainable scales; mean over seeds, the band from the lowest to "
            "the highest of them.",
        ),
        Heading("Figure 3: magnitude of the logits"),
        *_drawn(
            figure_3(runs),
            "paper-fig3",
            "Root mean square of the logits that enter the softmax; mean over seeds. Dashed: "
            "without scales, with BN-Softmax.",
        ),
        *_final_logits(runs),
    ]


def _drawn(drawing: Drawing | None, preset: str, caption: str) -> list[Block]:
    if drawing is None:
        return [Paragraph(f"Not run. Its preset is {preset}.")]
    return [Picture(drawing, caption)]


def _caption_1a() -> str:
    return (
        f"The gradient's part of SGD's step projected on weight decay's part, at {LAYER} and, "
        "thin, at every other layer. At −1 the two cancel; at 0 weight decay acts alone."
    )


def _balance(runs: PaperRuns) -> list[Block]:
    rows = tuple(
        (row.layer, signed(row.start, 3), signed(row.middle, 3), signed(row.end, 3))
        for row in balance_by_layer(runs)
    )
    if not rows:
        return []
    caption = (
        "Projection ratio per layer. The paper says of the middle of training that the two parts "
        "“almost cancel each other”, and that decay dominates at the start and the end."
    )
    return [
        Table(
            (
                "layer",
                "first report",
                f"mean, {_SPAN}",
                f"mean, {100 * END[0]:.0f} to {100 * END[1]:.0f} %",
            ),
            rows,
            caption,
        )
    ]


def _ratios(ratios: Sequence[MeasuredRatio]) -> list[Block]:
    rows = tuple(_ratio_row(found) for found in ratios)
    head = ("curves", "the paper", "expected", LAYER, "least to most", "within", "laws", "verdict")
    caption = (
        f"Ratios of effective learning rates at {LAYER}: geometric mean over {_SPAN}, with its "
        "95 % interval where two seeds or more have both curves; least and most within it; part of "
        f"the whole run within {100 * TOLERANCE:.0f} % of the expected ratio; and what the laws of "
        "both optimizers give over the same steps for independent gradients, without any run."
    )
    blocks: list[Block] = [Table(head, rows, caption)]
    layers = [row.layer for row in max((found.layers for found in ratios), key=len)]
    if layers:
        columns = tuple(found.ratio.label for found in ratios)
        cells = tuple(
            (layer, *(f"{row.ratio:.3f}" if (row := f.at(layer)) else "–" for f in ratios))
            for layer in layers
        )
        blocks.append(Table(("layer", *columns), cells, f"The same ratios per layer, {_SPAN}."))
    return blocks


def _ratio_row(found: MeasuredRatio) -> tuple[str, ...]:
    ratio, here = found.ratio, found.at(LAYER)
    expected = f"{ratio.expected:g}" if ratio.holds else f"not {ratio.expected:g}"
    law = f"{found.by_law:.3f}"
    if here is None:
        return (ratio.label, ratio.claim, expected, "–", "–", "–", law, found.verdict)
    value = f"{here.ratio:.3f}"
    if found.low is not None and found.high is not None:
        value += f" [{found.low:.3f}, {found.high:.3f}]"
    spread = f"{here.least:.3f} to {here.most:.3f}"
    inside = f"{100 * here.fraction_inside:.0f} %"
    return (ratio.label, ratio.claim, expected, value, spread, inside, law, found.verdict)


def _final_logits(runs: PaperRuns) -> list[Block]:
    rows = []
    for arm in runs.arms("paper-fig3"):
        values = arm.values("logit_rms")
        if values:
            mean = sum(values) / len(values)
            rows.append((point_name(arm.params), f"{mean:.2f}", str(len(values))))
    if not rows:
        return []
    caption = (
        "Logits at the end. The paper: without regularisation those of Adam are “much larger” than "
        "those of ND-Adam and SGD."
    )
    return [Table(("arm", "logit RMS", "n"), tuple(rows), caption)]


# --- Claims, runs, what is missing ---------------------------------------------------------------


def _claims(claims: Sequence[ComparedClaim]) -> list[Block]:
    blocks: list[Block] = []
    for found in claims:
        if not found.num_runs:
            continue
        rows = tuple(
            (point_name(arm.arm.params), *_measured(arm.measured), str(arm.measured.n))
            for arm in found.arms
        )
        head = ("arm", f"{found.metric.replace('_', ' ')} %", "sd", "95 % interval", "n")
        blocks += [
            Heading(found.claim.title, 3),
            Table(head, rows, f"The paper: {found.claim.claim}."),
        ]
    return [Heading("What the text says"), *blocks] if blocks else []


def _runs_table(used: Sequence[PaperRun]) -> list[Block]:
    if not used:
        return []
    rows = sorted(
        (
            _what(run),
            str(run.seed),
            points(100 * run.metrics["test_error"]) if "test_error" in run.metrics else "–",
            f"{run.seconds:,.0f}" if run.seconds is not None else "–",
            str(run.provenance.get("card", "–")),
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
