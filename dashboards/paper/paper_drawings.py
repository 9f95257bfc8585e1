"""Figures 1 (a), 1 (b), 2 and 3 of the paper from our runs."""

from collections.abc import Sequence

from dashboards.plots.figure import OPTIMIZER_COLOURS
from dashboards.report.drawing import Drawing, Line, line_chart
from sweeps.paper.balance import balance_curve
from sweeps.paper.figures import LAYER, MeanCurve, layers_of, mean_curve, setting_label
from sweeps.paper.runs import Arm, PaperRuns

_STEPS = "training step"


def figure_1a(runs: PaperRuns) -> Drawing | None:
    """The projection ratio of the fifth convolution, other layers thin behind it."""
    (arm,) = runs.arms("paper-fig1a")
    lines = []
    for layer in layers_of(arm, "projection_ratio"):
        curve = balance_curve(arm, layer, layer)
        if curve is not None and layer != LAYER:
            lines.append(_line(curve, is_faint=True))
    here = balance_curve(arm, LAYER, f"{LAYER}, {setting_label(arm.config)}")
    if here is None:
        return None
    return line_chart(
        "figure-1a",
        [*lines, _line(here)],
        x_label=_STEPS,
        y_label="projection ratio",
        levels=(0.0, -1.0),
    )


def figure_1b(runs: PaperRuns) -> Drawing | None:
    """Effective learning rates of the five settings."""
    dashes = iter(("solid", "dot", "dash", "solid", "dash"))
    lines = []
    for arm in runs.arms("paper-fig1b"):
        dash = next(dashes)
        curve = mean_curve(setting_label(arm.config), arm, f"effective_lr/{LAYER}")
        if curve is not None:
            lines.append(_line(curve, dash=dash, band=True))
    return _chart("figure-1b", lines, y_label="effective learning rate ‖Δw‖/‖w‖")


def figure_2(runs: PaperRuns) -> Drawing | None:
    """Test accuracy of the three optimizers."""
    lines = []
    for arm in runs.arms("paper-fig2"):
        curve = mean_curve(_optimizer(arm), arm, "test_error", scale=100.0)
        if curve is not None:
            lines.append(_line(_accuracy(curve), band=True))
    return _chart("figure-2", lines, y_label="test accuracy (%)")


def figure_3(runs: PaperRuns) -> Drawing | None:
    """Logits with and without BN-Softmax."""
    lines = []
    for arm in runs.arms("paper-fig3"):
        plain = arm.config["gamma_c"] is None
        label = _optimizer(arm) + ("" if plain else ", BN-Softmax")
        curve = mean_curve(label, arm, "logit_rms")
        if curve is not None:
            lines.append(_line(curve, dash="solid" if plain else "dash"))
    return _chart("figure-3", lines, y_label="RMS of the logits")


def _chart(name: str, lines: Sequence[Line], *, y_label: str) -> Drawing | None:
    if not lines:
        return None
    bottom = 70.0 if name == "figure-2" else None
    if bottom is not None and max(max(line.y) for line in lines) <= bottom:
        bottom = None  # a run this poor is shown whole
    return line_chart(name, lines, x_label=_STEPS, y_label=y_label, y_range=(bottom, None))


def _accuracy(curve: MeanCurve) -> MeanCurve:
    return MeanCurve(
        label=curve.label,
        optimizer=curve.optimizer,
        steps=curve.steps,
        mean=tuple(100 - value for value in curve.mean),
        low=tuple(100 - value for value in curve.high),
        high=tuple(100 - value for value in curve.low),
        n=curve.n,
    )


def _line(
    curve: MeanCurve, *, dash: str = "solid", band: bool = False, is_faint: bool = False
) -> Line:
    shows_band = band and curve.n > 1
    return Line(
        label=f"{curve.label} (n = {curve.n})",
        colour="#8A8F98" if is_faint else OPTIMIZER_COLOURS[curve.optimizer],
        x=curve.steps,
        y=curve.mean,
        low=curve.low if shows_band else (),
        high=curve.high if shows_band else (),
        dash=dash,
        is_faint=is_faint,
    )


def _optimizer(arm: Arm) -> str:
    return {"sgd": "SGD", "adam": "Adam", "ndadam": "ND-Adam"}[str(arm.config["optimizer"])]
