"""The learning rate that matches another optimizer, measured on your own network and loop.

    found = match_alpha_v(model, loss, batches, num_steps=2400, betas=(0.9, 0.99),
                          sgd=dict(lr=0.1, momentum=0.9, weight_decay=1e-3))
    print(found)           # the verdict in a sentence, with its interval and its limits
    found.rate             # alpha_v

It needs no service: the runs that ``ndadam.matching.procedure`` asks for are trained one after the
other in this process. ``ndsweep match run`` trains them as trials of a sweep.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from ndadam.checks import refuse_unless_rate
from ndadam.invariance.probe import ProbeResult, probe
from ndadam.matching.answer import MeasuredMatch
from ndadam.matching.arguments import checked_plan
from ndadam.matching.plan import MatchPlan
from ndadam.matching.procedure import Judgement, Procedure, RunRequest
from ndadam.matching.runs import Batches, Loop, Loss, MeasuredRun, endless
from ndadam.matching.torch_settings import (
    Source,
    refuse_untrainable,
    source_setting,
    target_setting,
)
from ndadam.matching.verdict import Finding
from ndadam.theory.along_schedule import Factor
from ndadam.theory.fitted_curve import factor_of_points
from ndadam.theory.laws import OptimizerSetting
from ndadam.theory.prediction import Criterion, Level, constant

#: Called with a sentence before each run.
Progress = Callable[[str], None]


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
    plan = checked_plan(
        setting,
        open_setting,
        num_steps,
        lr_schedule,
        criterion,
        level,
        tolerance,
        _numbers("seeds", seeds),
        None if window is None else _window(window),
        max_corrections,
    )
    refuse_unless_rate("alpha_s", alpha_s)
    first = next(endless(batches, plan.seeds[0]))
    found = probe(model, first, loss)
    _refuse_without_invariant_vectors(found)
    loop = Loop(model, loss, batches, num_steps, found, alpha_s, decay_scalars, lr_schedule)
    return _train_and_judge(plan, loop, progress or (lambda sentence: None))


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


# --- Training what the procedure asks for ---------------------------------------------------------


class _Failed(Exception):
    """A run that cannot be judged: the match ends as not matchable."""


def _train_and_judge(plan: MatchPlan, loop: Loop, progress: Progress) -> MeasuredMatch:
    match: Procedure[MeasuredRun] = Procedure(plan)
    steps: list[int] = []

    def train(request: RunRequest) -> MeasuredRun:
        name = _name(plan, request)
        progress(f"{name}, seed {request.seed}")
        run = _train(plan, loop, request)
        steps.append(len(run.record.steps))
        _refuse_unjudgeable(plan, name, run)
        return run

    judgement = None
    try:
        while match.stage != "done":
            match.record([train(request) for request in match.requests()])
        judgement = match.judge()
        finding = judgement.finding
    except _Failed as failure:
        finding = Finding("not matchable", f"Not matchable: {failure}.")
    return _answer(match, loop.probe, finding, judgement, sum(steps))


def _name(plan: MatchPlan, request: RunRequest) -> str:
    if request.stage == "source":
        return f"source {plan.source.optimizer}"
    return f"target {plan.target.optimizer} at {request.rate:.4g}"


def _train(plan: MatchPlan, loop: Loop, request: RunRequest) -> MeasuredRun:
    if request.rate is None:
        return loop.train(plan.source, request.seed, shadow_betas=plan.shadow_betas)
    schedule = factor_of_points(request.points) if request.points is not None else None
    setting = plan.target.with_lr(request.rate)
    return loop.train(setting, request.seed, vectors_schedule=schedule)


def _refuse_unjudgeable(plan: MatchPlan, name: str, run: MeasuredRun) -> None:
    """Raise _Failed for a run that diverged, or that stands still in the window."""
    layers = run.diverged_layers
    if run.diverged_at is not None or layers:
        by = len(run.record.steps) - 1 if run.diverged_at is None else run.diverged_at
        where = f", in {', '.join(layers)}" if layers else ""
        raise _Failed(f"the {name} diverged by step {by} (seed {run.seed}){where}")
    if not any(plan.in_window(run.effective_lr())):
        raise _Failed(f"the {name} never moved in the window (seed {run.seed})")


def _answer(
    match: Procedure[MeasuredRun],
    probed: ProbeResult,
    finding: Finding,
    judgement: Judgement | None,
    steps_trained: int,
) -> MeasuredMatch:
    plan, ratio = match.plan, judgement.ratio if judgement is not None else None
    return MeasuredMatch(
        source=plan.source,
        target=plan.target,
        criterion=plan.criterion,
        level=plan.level,
        tolerance=plan.tolerance,
        window=plan.window,
        rate=match.rate or 0.0,
        predicted=match.predicted,
        gain=match.gain,
        interval=(match.rate_at(ratio.low), match.rate_at(ratio.high)) if ratio else None,
        verdict=finding,
        log_ratio=ratio,
        inside=judgement.inside if judgement is not None else None,
        points=match.points,
        closed_form=plan.closed_form(),
        probe=probed,
        layers={name: row.rate for name, row in match.layer_rates().items()} if ratio else {},
        source_runs=tuple(match.sources),
        target_runs=tuple(match.verdicts),
        steps_trained=steps_trained,
    )
