"""Draws figures 1 (a), 1 (b), 2 and 3 of the paper from our runs, for its report, with tables."""

from collections.abc import Sequence
from dataclasses import replace

from dashboards.paper.plots import curve_lines
from dashboards.paper.wording import point_name, points
from dashboards.report.blocks import Block, Heading, Paragraph, Picture
from sweeps.analysis.formatting import BRACKETS, NOTHING, signed, span, with_interval
from sweeps.analysis.table import Table
from sweeps.figures.chart import STEPS, Axis, Chart, Level, Line
from sweeps.figures.colours import GREY
from sweeps.figures.matplotlib_files import Drawing, drawing
from sweeps.paper.balance import END, balance_by_layer, balance_curve, balance_note
from sweeps.paper.figures import (
    LAYER,
    MIDDLE,
    MOMENTS,
    TOLERANCE,
    MeanCurve,
    MeasuredRatio,
    law_note,
    layers_of,
    mean_curve,
    measured_layers,
    measured_ratios,
    progress,
    setting_label,
)
from sweeps.paper.runs import Arm, PaperRuns

#: Percent below which Figure 2 shows nothing.
_LEAST_ACCURACY = 70.0
_BN_SOFTMAX = ", BN-Softmax"


def figure_1a(runs: PaperRuns) -> Drawing | None:
    """The projection ratio of the fifth convolution, other layers thin behind it."""
    (arm,) = runs.arms("paper-fig1a")
    layers = [layer for layer in layers_of(arm, "projection_ratio") if layer != LAYER]
    others = [curve for layer in layers if (curve := balance_curve(arm, layer, layer))]
    here = balance_curve(arm, LAYER, f"{LAYER}, {setting_label(arm.config)}")
    if here is None:
        return None
    faint = [Line(one.label, GREY, one.steps, one.mean, is_faint=True) for one in others]
    lines = [*faint, *_lines([here], has_bands=False)]
    levels = [Level(value, GREY) for value in (0.0, -1.0)]
    return drawing(Chart("figure-1a", STEPS, Axis("projection ratio"), lines, levels=levels))


def figure_1b(runs: PaperRuns) -> Drawing | None:
    """Effective learning rates of the five settings."""
    metric = f"effective_lr/{LAYER}"
    arms = runs.arms("paper-fig1b")
    curves = [mean_curve(setting_label(arm.config), arm, metric) for arm in arms]
    return _drawing("figure-1b", _lines(curves), Axis("effective learning rate ‖Δw‖/‖w‖"))


def figure_2(runs: PaperRuns) -> Drawing | None:
    """Test accuracy of the three optimizers, from 70 % on unless no run reached that."""
    arms = runs.arms("paper-fig2")
    curves = [mean_curve(_optimizer(arm), arm, "test_error", scale=100.0) for arm in arms]
    lines = _lines([_accuracy(curve) for curve in curves if curve is not None])
    best = max((value for line in lines for value in line.y if value is not None), default=0.0)
    ends = (_LEAST_ACCURACY, best + 1) if best > _LEAST_ACCURACY else None
    return _drawing("figure-2", lines, Axis("test accuracy (%)", ends=ends))


def figure_3(runs: PaperRuns) -> Drawing | None:
    """Logits with and without BN-Softmax."""
    curves = []
    for arm in runs.arms("paper-fig3"):
        label = _optimizer(arm) + ("" if arm.config["gamma_c"] is None else _BN_SOFTMAX)
        curves.append(mean_curve(label, arm, "logit_rms"))
    lines = [
        replace(line, dash="dash" if _BN_SOFTMAX in line.name else "solid")
        for line in _lines(curves, has_bands=False)
    ]
    return _drawing("figure-3", lines, Axis("RMS of the logits"))


def _drawing(name: str, lines: Sequence[Line], y: Axis) -> Drawing | None:
    return drawing(Chart(name, STEPS, y, lines)) if lines else None


def _lines(curves: Sequence[MeanCurve | None], *, has_bands: bool = True) -> list[Line]:
    """The curves that exist, each labelled with its number of seeds."""
    named = [replace(one, label=f"{one.label} (n = {one.n})") for one in curves if one is not None]
    return curve_lines(named, float, has_bands=has_bands)


def _accuracy(curve: MeanCurve) -> MeanCurve:
    mean, low, high = (
        tuple(100 - value for value in values) for values in (curve.mean, curve.high, curve.low)
    )
    return replace(curve, mean=mean, low=low, high=high)


def _optimizer(arm: Arm) -> str:
    return {"sgd": "SGD", "adam": "Adam", "ndadam": "ND-Adam"}[str(arm.config["optimizer"])]


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


_digits = "{:.3f}".format


def _layer_cell(found: MeasuredRatio, layer: str) -> str:
    row = found.at(layer)
    return NOTHING if row is None else f"{_digits(row.ratio)} {row.verdict}"


def _agreeing(found: MeasuredRatio) -> str:
    return f"{found.num_agreeing} of {len(found.layers)}" if found.layers else NOTHING


def _ratio_row(found: MeasuredRatio) -> tuple[str, ...]:
    ratio, here = found.ratio, found.at(LAYER)
    expected = f"{ratio.expected:g}" if ratio.holds else f"not {ratio.expected:g}"
    law = _digits(found.by_law)
    if here is None:
        return (ratio.label, ratio.claim, expected, NOTHING, NOTHING, NOTHING, law, found.verdict)
    value = with_interval(_digits, here.ratio, found.low, found.high, BRACKETS)
    spread = span(_digits, here.least, here.most)
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
