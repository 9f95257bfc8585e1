"""The learning rate that matches another optimizer, measured on anybody's network. No service.

    found = match_alpha_v(model, loss, batches, num_steps=2400, betas=(0.9, 0.99),
                          sgd=dict(lr=0.1, momentum=0.9, weight_decay=1e-3))
    print(found)           # the verdict in a sentence, with its interval and its limits
    found.rate             # alpha_v

The source is trained, the target's rate predicted from what it recorded, corrected with
calibration runs, and judged on fresh runs from which nothing was chosen: what ``ndsweep match run``
does through a service and a cluster.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from ndadam.checks import refuse_unless_rate, refuse_unless_whole
from ndadam.invariance.probe import ProbeResult, probe
from ndadam.matching.answer import MeasuredMatch
from ndadam.matching.question import Question
from ndadam.matching.runs import Batches, Loop, Loss, MeasuredRun, endless
from ndadam.matching.torch_settings import (
    Source,
    refuse_untrainable,
    source_setting,
    target_setting,
)
from ndadam.matching.verdict import (
    Finding,
    LogRatio,
    Pair,
    correct_rate,
    drift,
    fraction_inside,
    judge,
    log_ratio,
    measure,
    rms_log_error,
    smooth,
)
from ndadam.theory.decay_memory import decay_memory
from ndadam.theory.fitted_curve import (
    Points,
    corrected_points,
    factor_of_points,
    points_of_records,
    rate_of_records,
)
from ndadam.theory.lag import Factor
from ndadam.theory.laws import (
    NoStationaryRate,
    OptimizerSetting,
)
from ndadam.theory.prediction import (
    Criterion,
    Level,
    Prediction,
    constant,
    level_factor,
    predict,
)

#: Called with a sentence before each run.
Progress = Callable[[str], None]

#: A correction of at most this multiple of the tolerance needs no calibration run of its own.
CLOSE = 2.0
#: Stretches by which the share of the run inside the tolerance is counted.
_STRETCHES = 100


def match_alpha_v(
    model: nn.Module, loss: Loss, batches: Batches, *, sgd: Source, **settings: Any
) -> MeasuredMatch:
    """Find the alpha_v with which ND-Adam moves weights as fast as an SGD setting does.

    ``sgd`` is a mapping of SGD's fields, a torch optimizer of ``model``, or an
    ``OptimizerSetting`` (of AdamW, say). The rest as ``match_rate`` takes it; the target is ND-Adam
    with ``betas`` (default (0.9, 0.999)).
    """
    target = OptimizerSetting("ndadam", betas=settings.pop("betas", (0.9, 0.999)))
    return match_rate(model, loss, batches, source=sgd, target=target, **settings)


def match_rate(
    model: nn.Module,
    loss: Loss,
    batches: Batches,
    *,
    source: Source,
    target: OptimizerSetting | Mapping[str, Any],
    num_steps: int,
    lr_schedule: Factor = constant,
    criterion: Criterion | None = None,
    level: Level | None = None,
    tolerance: float = 0.05,
    seeds: Sequence[int] = (0, 1, 2),
    max_corrections: int = 2,
    window: tuple[int, int] | None = None,
    alpha_s: float = 1e-3,
    decay_scalars: bool = False,
    progress: Progress | None = None,
) -> MeasuredMatch:
    """Find the target's learning rate by training copies of ``model``, which stays as it is.

    Args:
        model: Where every run starts, on its device.
        loss: ``loss(model, batch)`` returns the scalar to minimise.
        batches: A list or DataLoader, or a function of the seed that returns an iterable. They are
            gone through as often as the run is long.
        source: The setting to be matched, at its full learning rate.
        target: SGD, AdamW or ND-Adam with its learning rate open, as a setting or a mapping of its
            fields, of which ``optimizer`` is one.
        num_steps: The horizon, in optimizer steps: the answer belongs to it.
        lr_schedule: Step -> factor on both learning rates.
        criterion: None: stationary for a constant schedule, else least_squares.
        level: Must be given where momentum and beta1 differ.
        tolerance: Largest ratio, minus 1, that counts as a match.
        seeds: One source and one verdict run each; calibration runs use others.
        max_corrections: Calibration runs at most.
        window: Steps that the verdict looks at; None: the last 5/12 for stationary, else 5 to 95 %.
        alpha_s: ND-Adam's learning rate of scalars.
        decay_scalars: Whether the source's weight decay acts on biases and scales too.
        progress: Called with a sentence before each run.

    Raises:
        NoStationaryRate: A target, or a source under criterion "stationary", without a rate.
        ValueError: What could not end well, before anything is trained: it says what would do.
    """
    setting, open_setting = source_setting(source, model), target_setting(target)
    for side in (setting, open_setting):
        refuse_untrainable(side)
    rule = Question.of(
        setting,
        open_setting,
        num_steps,
        lr_schedule,
        criterion,
        level,
        tolerance,
        _numbers("seeds", seeds),
        None if window is None else _window(window),
    )
    refuse_unless_whole("max_corrections", max_corrections, 0)
    refuse_unless_rate("alpha_s", alpha_s)
    first = next(endless(batches, rule.seeds[0]))
    found = probe(model, first, loss)
    _refuse_without_invariant_vectors(found)
    loop = Loop(model, loss, batches, num_steps, found, alpha_s, decay_scalars, lr_schedule)
    return _Search(rule, loop, max_corrections, progress or (lambda sentence: None)).run()


def _numbers(name: str, values: Sequence[int]) -> tuple[int, ...]:
    if not isinstance(values, Sequence) or not all(isinstance(value, int) for value in values):
        raise ValueError(f"{name} must be a sequence of whole numbers, got {values!r}")
    return tuple(values)


def _window(window: Sequence[int]) -> tuple[int, int]:
    numbers = _numbers("window", window)
    if len(numbers) != 2:
        raise ValueError(f"window must be two steps, its start and its stop, got {window!r}")
    return numbers[0], numbers[1]


def _refuse_without_invariant_vectors(found: ProbeResult) -> None:
    """Where the loss sees every length, turning equally fast is not learning equally fast."""
    if found.sees_every_length():
        raise ValueError(
            "model must have trained weight vectors whose length the loss ignores, as before "
            "batch normalisation (or group or layer normalisation, with bias=False in the layer "
            f"before it), and has none in {', '.join(found.classes)}: there is no effective "
            "learning rate to match. ndadam.probe shows the classes; EffectiveLR measures how fast "
            "they turn all the same"
        )


# --- The procedure -------------------------------------------------------------------------------


class _Failed(Exception):
    """A run that cannot be judged: the match ends as not matchable."""


class _Search:
    """Source runs, prediction, calibration, verdict."""

    def __init__(
        self, rule: Question, loop: Loop, max_corrections: int, progress: Progress
    ) -> None:
        self.rule, self.loop, self.progress = rule, loop, progress
        self.max_corrections = max_corrections
        self.scale = level_factor(rule.source, rule.target, rule.level)
        self.sources: list[MeasuredRun] = []
        self.targets: list[MeasuredRun] = []
        self.gain, self.slope = 1.0, 1.0 if rule.target.optimizer == "ndadam" else 0.5
        self.predicted: float | None = None
        self.rate = 0.0
        self.points: Points | None = None
        self.steps = 0

    def run(self) -> MeasuredMatch:
        try:
            self._measure_source()
            self._calibrate()
            self.targets = [self._target(seed) for seed in self.rule.seeds]
            return self._judge()
        except _Failed as failure:
            return self._result(Finding("not matchable", f"Not matchable: {failure}."))

    def _train(self, name: str, setting: OptimizerSetting, seed: int, **how: Any) -> MeasuredRun:
        self.progress(f"{name}, seed {seed}")
        run = self.loop.train(setting, seed, **how)
        self.steps += len(run.record.steps)
        layers = run.diverged_layers
        if run.diverged_at is not None or layers:
            by = len(run.record.steps) - 1 if run.diverged_at is None else run.diverged_at
            where = f", in {', '.join(layers)}" if layers else ""
            raise _Failed(f"the {name} diverged by step {by} (seed {seed}){where}")
        if not any(self.rule.judged(run.record.effective_lr)):
            raise _Failed(f"the {name} never moved in the window (seed {seed})")
        return run

    def _measure_source(self) -> None:
        rule = self.rule
        shadow = rule.target.betas if rule.target.optimizer == "ndadam" else None
        self.sources = [
            self._train(f"source {rule.source.optimizer}", rule.source, seed, shadow_betas=shadow)
            for seed in rule.seeds
        ]
        gains = [run.gain for run in self.sources if run.gain is not None]
        self.gain = sum(gains) / len(gains) if gains else 1.0
        wanted = self._wanted()
        self.predicted = self.rate = rate_of_records(
            rule.criterion,
            rule.target,
            rule.judged(wanted),
            every=1,
            start=rule.window[0],
            factor=rule.lr_schedule,
            gain=self.gain,
        )
        if rule.criterion == "schedule":
            shadows = [run.record.shadow_step for run in self.sources if run.record.shadow_step]
            self.points = points_of_records(
                rule.target,
                wanted,
                every=1,
                rate=self.rate,
                gain=self.gain,
                shadow=_rms_over(shadows) if shadows else (),
                least=rule.least,
            )

    def _wanted(self) -> list[float]:
        curves = [run.record.effective_lr for run in self.sources]
        return [self.scale * value for value in _rms_over(curves)]

    def _target(self, seed: int) -> MeasuredRun:
        rule = self.rule
        schedule = factor_of_points(self.points) if self.points is not None else None
        name = f"target {rule.target.optimizer} at {self.rate:.4g}"
        return self._train(name, rule.target.with_lr(self.rate), seed, vectors_schedule=schedule)

    def _calibrate(self) -> None:
        rule, history = self.rule, []
        for number in range(self.max_corrections):
            seed = max(rule.seeds) + 1 + number
            values = self._target(seed).record.effective_lr
            pair = Pair(rule.judged(self._wanted()), rule.judged(values))
            gap = log_ratio(rule.criterion, pair, rule.least)
            history.append((self.rate, gap))
            first = 1.0 if rule.target.optimizer == "ndadam" else 0.5
            self.rate, self.slope = correct_rate(history, first_slope=first)
            if self.points is not None and rule.target.optimizer == "ndadam":
                self.points = corrected_points(
                    self.points, self._wanted(), values, every=1, least=rule.least
                )
            if abs(gap) <= CLOSE * math.log1p(rule.tolerance):
                return

    def _judge(self) -> MeasuredMatch:
        rule = self.rule
        whole = [
            Pair([self.scale * v for v in source.record.effective_lr], target.record.effective_lr)
            for source, target in zip(self.sources, self.targets, strict=True)
        ]
        windowed = [pair.part(*rule.window) for pair in whole]
        memory = decay_memory(rule.source, every=1)
        ratio = measure(rule.criterion, windowed, rule.least, memory=memory)
        moved = (
            drift(rule.criterion, windowed, rule.least, memory=memory)
            if rule.criterion == "stationary"
            else None
        )
        source = _rms_over([pair.source for pair in whole])
        target = _rms_over([pair.target for pair in whole])
        width = max(rule.least, rule.num_steps // _STRETCHES)
        a, b = smooth(source, width), smooth(target, width)
        inside = fraction_inside(a, b, rule.tolerance)
        first, end = (round(step / rule.num_steps * len(a)) for step in rule.window)
        finding = judge(
            rule.criterion,
            ratio,
            moved,
            tolerance=rule.tolerance,
            inside=inside,
            num_seeds=len(whole),
            log_error=rms_log_error(a[first:end], b[first:end])
            if rule.criterion == "schedule"
            else None,
        )
        return self._result(finding, ratio, inside)

    def _result(
        self, finding: Finding, ratio: LogRatio | None = None, inside: float | None = None
    ) -> MeasuredMatch:
        rule = self.rule
        ends = (ratio.low, ratio.high) if ratio is not None else None
        interval = (
            (self.rate * math.exp(ends[0] / self.slope), self.rate * math.exp(ends[1] / self.slope))
            if ends is not None
            else None
        )
        return MeasuredMatch(
            source=rule.source,
            target=rule.target,
            criterion=rule.criterion,
            level=rule.level,
            tolerance=rule.tolerance,
            window=rule.window,
            rate=self.rate,
            predicted=self.predicted,
            gain=self.gain,
            interval=interval,
            verdict=finding,
            log_ratio=ratio,
            inside=inside,
            points=self.points,
            closed_form=self._closed_form(),
            probe=self.loop.probe,
            layers=self._layers() if ratio is not None else {},
            source_runs=tuple(self.sources),
            target_runs=tuple(self.targets),
            steps_trained=self.steps,
        )

    def _closed_form(self) -> Prediction | None:
        rule = self.rule
        try:
            return predict(
                rule.source,
                rule.target,
                num_steps=rule.num_steps,
                factor=rule.lr_schedule,
                level=rule.level,
            )
        except NoStationaryRate:
            return None

    def _layers(self) -> dict[str, float]:
        rule, found = self.rule, {}
        for layer in self.sources[0].record.layers:
            source = _rms_over([run.record.layers[layer].effective_lr for run in self.sources])
            target = _rms_over([run.record.layers[layer].effective_lr for run in self.targets])
            a = [self.scale * v for v in rule.judged(source)]
            b = rule.judged(target)
            if any(a) and any(b):
                gap = log_ratio(rule.criterion, Pair(a, b), rule.least)
                found[layer] = self.rate * math.exp(gap / self.slope)
        return found


def _rms_over(curves: Sequence[Sequence[float]]) -> list[float]:
    """Root mean square over runs, step by step."""
    return [
        math.sqrt(sum(v * v for v in column) / len(column)) for column in zip(*curves, strict=True)
    ]
