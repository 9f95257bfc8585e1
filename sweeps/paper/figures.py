"""The numbers behind the paper's figures: curves over seeds, ratios of curves, layer by layer."""

import math
import re
import statistics
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ndadam.statistics.inference import mean_interval
from ndadam.theory.along_schedule import Factor, lag_curve
from ndadam.theory.prediction import predict
from sweeps.match.arms import setting_of
from sweeps.paper.runs import Arm, Curve, PaperRuns
from sweeps.paper.values import PaperRatio, paper_values
from worker.config.schedules import build_schedule
from worker.config.train_config import TrainConfig

#: The layer that the paper plots, the stem being the first convolution.
LAYER = "conv5"
#: The middle of a run, as a part of its steps: without the start's transient and cosine's end.
MIDDLE = (0.25, 0.75)
#: A measured ratio is the expected one within so much of it.
TOLERANCE = 0.10
#: When Figure 2's curves are read, as parts of a run.
MOMENTS = (0.05, 0.25, 0.5, 0.75, 1.0)
#: Steps of a run at which the law is asked.
_LAW_STEPS = 500


@dataclass(frozen=True)
class MeanCurve:
    """One line of a figure: mean over seeds, with the smallest and largest of them."""

    label: str
    optimizer: str
    steps: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    #: Seeds behind it.
    n: int

    def without(self, steps: Container[int]) -> "MeanCurve":
        """The same curve with a gap at these steps."""
        kept = [place for place, step in enumerate(self.steps) if step not in steps]
        return replace(
            self,
            steps=tuple(self.steps[place] for place in kept),
            mean=tuple(self.mean[place] for place in kept),
            low=tuple(self.low[place] for place in kept),
            high=tuple(self.high[place] for place in kept),
        )


@dataclass(frozen=True)
class LayerRatio:
    """The ratio of two arms' effective learning rates at one layer, over the middle of the run."""

    layer: str
    #: Geometric mean over the middle of the run, of the ratio of means over seeds.
    ratio: float
    #: Its smallest and largest there.
    least: float
    most: float
    #: Part of the whole run in which the ratio is the expected one within ``TOLERANCE``.
    fraction_inside: float
    #: Whether the ratio bears out what the paper says of it.
    verdict: Literal["agrees", "differs"]


@dataclass(frozen=True)
class MeasuredRatio:
    """What Figure 1 (b) says of two curves, and what ours do."""

    ratio: PaperRatio
    layers: tuple[LayerRatio, ...]
    #: 95 % interval over seeds of the plotted layer's ratio; None with fewer than two seeds.
    low: float | None
    high: float | None
    #: What the laws of both optimizers give over the same steps, for gradients that are independent
    #: from step to step.
    by_law: float
    #: At the plotted layer.
    verdict: Literal["agrees", "differs", "not run"]

    def at(self, layer: str) -> LayerRatio | None:
        """One layer; None where it was not measured."""
        return next((row for row in self.layers if row.layer == layer), None)

    @property
    def num_agreeing(self) -> int:
        """At how many layers it bears out what the paper says."""
        return sum(row.verdict == "agrees" for row in self.layers)


def mean_curve(label: str, arm: Arm, metric: str, *, scale: float = 1.0) -> MeanCurve | None:
    """An arm's curve at the steps that all of its seeds reported; None without one."""
    curves = arm.curves(metric)
    if not curves:
        return None
    by_step = [dict(curve) for curve in curves]
    steps = sorted(set.intersection(*(set(curve) for curve in by_step)))
    values = [[scale * curve[step] for curve in by_step] for step in steps]
    return MeanCurve(
        label=label,
        optimizer=str(arm.config["optimizer"]),
        steps=tuple(steps),
        mean=tuple(statistics.fmean(row) for row in values),
        low=tuple(min(row) for row in values),
        high=tuple(max(row) for row in values),
        n=len(curves),
    )


@dataclass(frozen=True)
class Progress:
    """Figure 2 in numbers: test errors of one arm, mean over seeds, at each of ``MOMENTS``."""

    arm: Arm
    errors: tuple[float, ...]
    #: Seeds behind them.
    n: int


def progress(runs: PaperRuns) -> list[Progress]:
    """How far each arm of Figure 2 had come at each of ``MOMENTS``: its last report until then."""
    found = []
    for arm in runs.arms("paper-fig2"):
        curve = mean_curve("", arm, "test_error")
        if curve is not None:
            points, last = _points(curve), curve.steps[-1]
            reached = [part_of_run(points, last, (0, part)) or points[:1] for part in MOMENTS]
            found.append(Progress(arm, tuple(until[-1][1] for until in reached), curve.n))
    return found


def measured_ratios(runs: PaperRuns) -> list[MeasuredRatio]:
    """Figure 1 (b): every ratio that the paper speaks of, measured or not."""
    return [_measured(runs, ratio) for ratio in paper_values().ratios]


def measured_layers(ratios: Sequence[MeasuredRatio]) -> list[str]:
    """The layers at which any of the ratios was measured, from the stem on."""
    return [row.layer for row in max((found.layers for found in ratios), key=len)]


def _measured(runs: PaperRuns, ratio: PaperRatio) -> MeasuredRatio:
    over, under = (runs.arm("paper-fig1b", params) for params in (ratio.over, ratio.under))
    layers = [
        row
        for layer in layers_of(over, "effective_lr")
        if (row := _layer_ratio(over, under, layer, ratio)) is not None
    ]
    low, high = _interval(over, under)
    here = next((row for row in layers if row.layer == LAYER), None)
    verdict = "not run" if here is None else here.verdict
    return MeasuredRatio(ratio, tuple(layers), low, high, _ratio_by_law(over, under), verdict)


def law_note(runs: PaperRuns) -> str:
    """Why SGD's curve and ND-Adam's cross rather than overlap, and where their laws put alpha^v."""
    # The last ratio is that of SGD and the ND-Adam that was matched to it.
    matched = paper_values().ratios[-1]
    sgd, ndadam = (
        TrainConfig.model_validate(runs.arm("paper-fig1b", params).config).resolved()
        for params in (matched.over, matched.under)
    )
    num_steps, factor = _schedule(sgd)
    found = predict(
        setting_of(sgd), setting_of(ndadam, open_rate=True), num_steps=num_steps, factor=factor
    )
    return (
        "SGD's effective learning rate goes with the root of αλ, ND-Adam's with α^v. "
        "Under a common cosine the two curves cross; they cannot overlap. Least squares over the "
        f"whole run puts α^v at {found.criteria['least_squares'].rate:.4f} by the laws, where "
        f"the paper found {ndadam.alpha_v:g} by hand."
    )


def _ratio_by_law(over: Arm, under: Arm) -> float:
    """Geometric mean over the middle of the run of the ratio of closed-form curves."""
    curves = [_law(TrainConfig.model_validate(arm.config).resolved()) for arm in (over, under)]
    ratios = _ratio_curve(*curves)
    return _geometric_mean([value for _, value in part_of_run(ratios, curves[0][-1][0], MIDDLE)])


def _law(config: TrainConfig) -> list[tuple[int, float]]:
    """The effective learning rate of a config by the law of its optimizer, without any run."""
    num_steps, factor = _schedule(config)
    steps = range(0, num_steps, max(1, num_steps // _LAW_STEPS))
    curve = lag_curve(setting_of(config), factor, tuple(steps))
    return list(zip(curve.steps, curve.effective_lr, strict=True))


def _schedule(config: TrainConfig) -> tuple[int, Factor]:
    """Length and schedule of a run of Figure 1 (b), which goes by steps and not by epochs."""
    assert config.lr_schedule is not None
    assert config.steps is not None
    factor = build_schedule(config.lr_schedule, num_steps=config.steps, steps_per_epoch=1)
    return config.steps, factor


def _layer_ratio(over: Arm, under: Arm, layer: str, said: PaperRatio) -> LayerRatio | None:
    pair = [mean_curve("", arm, f"effective_lr/{layer}") for arm in (over, under)]
    if pair[0] is None or pair[1] is None:
        return None
    ratios = _ratio_curve(_points(pair[0]), _points(pair[1]))
    if not ratios:
        return None
    middle = [value for _, value in part_of_run(ratios, ratios[-1][0], MIDDLE)]
    if not middle:
        return None
    inside = [_is_near(value, said.expected) for _, value in ratios]
    found = _geometric_mean(middle)
    return LayerRatio(
        layer=layer,
        ratio=found,
        least=min(middle),
        most=max(middle),
        fraction_inside=sum(inside) / len(inside),
        verdict="agrees" if _is_near(found, said.expected) == said.holds else "differs",
    )


def _is_near(value: float, expected: float) -> bool:
    return abs(value / expected - 1) <= TOLERANCE


def _interval(over: Arm, under: Arm) -> tuple[float | None, float | None]:
    """Interval over seeds that both arms have, of the plotted layer's ratio, on a log scale."""
    name = f"effective_lr/{LAYER}"
    curves = [
        {run.seed: curve for run in arm.runs if (curve := run.curves([name]).get(name))}
        for arm in (over, under)
    ]
    logs = []
    for seed in sorted(curves[0].keys() & curves[1].keys()):
        ratios = _ratio_curve(curves[0][seed], curves[1][seed])
        middle = (
            [value for _, value in part_of_run(ratios, ratios[-1][0], MIDDLE)] if ratios else []
        )
        if middle:
            logs.append(math.log(_geometric_mean(middle)))
    if len(logs) < 2:
        return None, None
    found = mean_interval(logs)
    assert found.low is not None
    assert found.high is not None
    return math.exp(found.low), math.exp(found.high)


def _ratio_curve(over: Curve, under: Curve) -> Curve:
    """The ratio at every step that both have and where both moved."""
    below: Mapping[int, float] = dict(under)
    return [(s, v / below[s]) for s, v in over if s in below and v > 0 and below[s] > 0]


def _points(curve: MeanCurve) -> Curve:
    return list(zip(curve.steps, curve.mean, strict=True))


def part_of_run(points: Sequence[tuple[int, float]], last: int, span: tuple[float, float]) -> Curve:
    """The points between two parts of a run of ``last`` steps."""
    return [(s, v) for s, v in points if span[0] * last <= s <= span[1] * last]


def _geometric_mean(values: Iterable[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))


def layers_of(arm: Arm, quantity: str) -> list[str]:
    """The layers of which an arm has a quantity, from the stem on."""
    names: set[str] = set()
    for run in arm.runs[:1]:
        names |= {name for name in run.curves(None) if name.startswith(f"{quantity}/")}
    return sorted((name.partition("/")[2] for name in names), key=_place)


def _place(layer: str) -> tuple[str, int]:
    found = re.fullmatch(r"(\D*)(\d+)", layer)
    return (found[1], int(found[2])) if found else (layer, 0)


def setting_label(config: Mapping[str, Any]) -> str:
    """An arm of the figures in the paper's symbols."""
    if config["optimizer"] == "sgd":
        return f"SGD, α₀ = {config['lr']:g}, λ = {config['weight_decay']:g}"
    if config["optimizer"] == "ndadam":
        return f"ND-Adam, α₀ᵛ = {config['alpha_v']:g}"
    return f"Adam, α₀ = {config['lr']:g}"
