"""Figures 1 to 3 of the paper in its report: each drawn, with its numbers in tables."""

from collections.abc import Sequence

from dashboards.paper.paper_drawings import figure_1a, figure_1b, figure_2, figure_3
from dashboards.paper.wording import point_name, points
from dashboards.report.document import Block, Heading, Paragraph, Picture, Table
from dashboards.report.drawing import Drawing
from dashboards.wording.formatting import signed
from sweeps.paper.balance import END, balance_by_layer, balance_note
from sweeps.paper.figures import (
    LAYER,
    MIDDLE,
    MOMENTS,
    TOLERANCE,
    MeasuredRatio,
    law_note,
    measured_layers,
    measured_ratios,
    progress,
)
from sweeps.paper.runs import PaperRuns

_SPAN = f"steps {100 * MIDDLE[0]:.0f} to {100 * MIDDLE[1]:.0f} % of the run"


def drawn_figures(runs: PaperRuns) -> list[Block]:
    """Each figure under its heading, or that it was not run."""
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
        *_progress(runs),
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
        "thin, at every other layer. At −1 the two cancel; at 0 weight decay acts alone. The last "
        "steps, too short for float32 weights to keep, are left out."
    )


def _balance(runs: PaperRuns) -> list[Block]:
    found = balance_by_layer(runs)
    if not found:
        return []
    rows = tuple(
        (row.layer, signed(row.start, 3), signed(row.middle, 3), signed(row.end, 3))
        for row in found
    )
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
        ),
        *(Paragraph(note) for note in [balance_note(runs, found)] if note),
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
    layers = measured_layers(ratios)
    if layers:
        columns = tuple(found.ratio.label for found in ratios)
        cells = [(layer, *(_layer_cell(found, layer) for found in ratios)) for layer in layers]
        cells.append(("agree", *(_agreeing(found) for found in ratios)))
        caption = f"The same ratios and verdicts per layer, {_SPAN}; below, how many layers agree."
        blocks.append(Table(("layer", *columns), tuple(cells), caption))
    return blocks


def _layer_cell(found: MeasuredRatio, layer: str) -> str:
    row = found.at(layer)
    return "–" if row is None else f"{row.ratio:.3f} {row.verdict}"


def _agreeing(found: MeasuredRatio) -> str:
    return f"{found.num_agreeing} of {len(found.layers)}" if found.layers else "–"


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


def _progress(runs: PaperRuns) -> list[Block]:
    rows = tuple(
        (point_name(row.arm.params), *(points(100 - 100 * e) for e in row.errors), str(row.n))
        for row in progress(runs)
    )
    if not rows:
        return []
    head = ("arm", *(f"{100 * part:.0f} % of the run" for part in MOMENTS), "n")
    caption = (
        "Test accuracy in percent, mean over seeds. The paper: early those of Adam “increase more "
        "rapidly than that of ND-Adam and SGD”; at convergence those of ND-Adam are “significantly "
        "improved upon that of vanilla Adam”, and match those of SGD."
    )
    return [Table(head, rows, caption)]


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
