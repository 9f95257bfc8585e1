"""The measured match as a procedure that asks for runs and is fed what they recorded. Torch-free.

    match = Procedure(plan)
    while match.stage != "done":
        match.record([train(request) for request in match.requests()])
    print(match.judge().finding.sentence)

The source is run, the target's rate predicted from its records and the measured gain, corrected
with calibration runs until one is close, and judged on fresh runs from which nothing was chosen.
Everything follows from the plan and the records, so a new procedure that is fed the same records
stands where an earlier one stood. ``ndadam.match_rate`` trains the runs in the caller's loop;
``sweeps.match`` schedules and stores them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Generic, Literal, Protocol, TypeVar

from ndadam.matching.plan import MatchPlan
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
from ndadam.statistics.blocked_means import rms, rms_over
from ndadam.statistics.inference import mean_interval
from ndadam.theory.fitted_curve import (
    Points,
    corrected_points,
    points_of_records,
    rate_of_records,
)
from ndadam.theory.prediction import Criterion

Stage = Literal["source", "calibration", "verdict", "done"]

#: A calibration run this close to its aim ends calibration, as a multiple of the tolerance: the
#: last correction leaves a few percent of the gap it closes (the slope is known that well).
CLOSE = 2.0
#: The run is cut into about this many stretches to say which part of it is inside the tolerance.
_STRETCHES = 100


class Run(Protocol):
    """What one run recorded over its whole length, at steps 0, every, 2 every, …"""

    @property
    def gain(self) -> float | None:
        """A of the shadow moments; None if the run has none."""

    @property
    def layers(self) -> Sequence[str]:
        """Layers with records of their own."""

    def effective_lr(self, layer: str | None = None) -> Sequence[float]:
        """Effective learning rates: of a layer, or averaged over the network.

        Raises ValueError for records that have a gap or end before the run does.
        """

    def shadow_step(self) -> Sequence[float]:
        """The steps that ND-Adam would take at alpha^v = 1 on these gradients; empty if unknown."""


R = TypeVar("R", bound=Run)


@dataclass(frozen=True)
class RunRequest:
    """A run that the procedure needs next."""

    stage: Literal["source", "calibration", "verdict"]
    seed: int
    #: Calibration rounds that are over.
    rounds: int
    #: The target's learning rate; None for the source, which has its own.
    rate: float | None = None
    #: For criterion "schedule", the (step, factor) points of the target's weight vectors.
    points: Points | None = None


@dataclass(frozen=True)
class CalibrationRun(Generic[R]):
    """A run of a calibration round: its effective learning rate, and the source's over it."""

    run: R
    effective_lr: float
    log_ratio: float


@dataclass(frozen=True)
class CalibrationRound(Generic[R]):
    """Runs of the target at one learning rate, and the rate that follows from them."""

    rate: float
    runs: tuple[CalibrationRun[R], ...]
    #: Mean over the runs.
    log_ratio: float
    #: d log e / d log rate that the correction was made with.
    slope: float
    next_rate: float


@dataclass(frozen=True)
class Judgement:
    """The verdict over all seeds."""

    finding: Finding
    ratio: LogRatio
    #: Second half of the window minus the first; None unless the criterion is "stationary".
    drift: LogRatio | None
    #: Share of the run in which source and target are within the tolerance, 0..1.
    inside: float


@dataclass(frozen=True)
class LayerRate:
    """The learning rate that one layer alone would ask for."""

    log_ratio: float
    rate: float
    #: 95 % t-interval of ``rate`` over seeds; None for a single seed.
    low: float | None
    high: float | None


class Procedure(Generic[R]):
    """One match: which runs it needs next, and what those that it was fed show."""

    def __init__(self, plan: MatchPlan) -> None:
        self.plan = plan
        self.stage: Stage = "source"
        #: Complete source runs, one per seed; empty for a source that was recorded before.
        self.sources: list[R] = []
        #: A, averaged over source runs; 1 if the target has none.
        self.gain = 1.0
        #: The rate by the criterion from the measured source and the gain, or the one with which a
        #: target without a law starts; None until known.
        self.predicted: float | None = None
        #: The rate for the target's next runs, which the verdict's runs have used in the end.
        self.rate: float | None = None
        #: For criterion "schedule", the target's (step, factor) points.
        self.points: Points | None = None
        self.rounds: list[CalibrationRound[R]] = []
        #: Complete verdict runs, one per seed.
        self.verdicts: list[R] = []

    # --- Stages -------------------------------------------------------------------------------

    def requests(self) -> list[RunRequest]:
        """Runs of the current stage, to be recorded together and in this order.

        Empty for a source that was recorded before, and once the procedure is done.
        """
        plan, stage = self.plan, self.stage
        if stage == "done" or (stage == "source" and plan.recorded is not None):
            return []
        number = len(self.rounds)
        seeds = plan.calibration_seeds(number) if stage == "calibration" else plan.seeds
        return [RunRequest(stage, seed, number, self.rate, self.points) for seed in seeds]

    def record(self, runs: Sequence[R]) -> None:
        """Take in the runs that ``requests`` asks for, and go on to the next stage.

        Raises ValueError for runs that cannot be judged, and stays in the stage.
        """
        if self.stage == "source":
            self._take_source(runs)
        elif self.stage == "calibration":
            self._take_round(runs)
        elif self.stage == "verdict":
            self.verdicts, self.stage = list(runs), "done"

    def _take_source(self, runs: Sequence[R]) -> None:
        plan = self.plan
        self.sources = list(runs)
        gains = [run.gain for run in runs]
        known = [gain for gain in gains if gain is not None]
        self.gain = (fmean(known) if known and len(known) == len(gains) else 0.0) or 1.0
        rate = plan.start_rate if plan.start_rate is not None else self.predict(plan.criterion)
        if plan.criterion == "schedule":
            shadows = [run.shadow_step() for run in runs]
            self.points = points_of_records(
                plan.target,
                self.wanted(),
                every=plan.every,
                rate=rate,
                gain=self.gain,
                shadow=rms_over(shadows) if shadows and all(shadows) else (),
                least=plan.least_block,
            )
        self.predicted = self.rate = plan.rounded(rate)
        self.stage = "calibration" if plan.max_corrections else "verdict"

    def _take_round(self, runs: Sequence[R]) -> None:
        """Correct the rate until a run is close enough for one last correction to be safe."""
        plan = self.plan
        assert self.rate is not None
        found = [self._compared(run) for run in runs]
        gap = fmean(run.log_ratio for run in found)
        history = [(earlier.rate, earlier.log_ratio) for earlier in self.rounds]
        rate, slope = correct_rate([*history, (self.rate, gap)], first_slope=plan.first_slope)
        if self.points is not None and plan.target.optimizer == "ndadam":
            self.points = corrected_points(
                self.points,
                self.wanted(),
                rms_over([run.effective_lr() for run in runs]),
                every=plan.every,
                least=plan.least_block,
            )
        self.rounds.append(CalibrationRound(self.rate, tuple(found), gap, slope, rate))
        self.rate = plan.rounded(rate)
        is_close = abs(gap) <= CLOSE * math.log1p(plan.tolerance)
        if is_close or len(self.rounds) == plan.max_corrections:
            self.stage = "verdict"

    def _compared(self, run: R) -> CalibrationRun[R]:
        plan = self.plan
        wanted = plan.in_window(self.wanted())
        values = plan.in_window(run.effective_lr(), plan.short_calibration)
        if plan.short_calibration is None:
            gap = log_ratio(plan.criterion, Pair(wanted, values), plan.least_block)
        else:
            gap = math.log(rms(wanted) / _moving_rms(values))
        return CalibrationRun(run, _moving_rms(values), gap)

    # --- The source ---------------------------------------------------------------------------

    def wanted(self, layer: str | None = None) -> list[float]:
        """What the target should do: the source's records over seeds, at the plan's level."""
        curve = self.plan.recorded
        if curve is None:
            curve = rms_over([run.effective_lr(layer) for run in self.sources])
        return self._at_level(curve)

    def _at_level(self, source: Sequence[float]) -> list[float]:
        factor = self.plan.level_factor
        return [factor * value for value in source]

    def predict(self, criterion: Criterion) -> float:
        """The target's rate by any criterion, from the source's records and the gain."""
        plan = self.plan
        return rate_of_records(
            criterion,
            plan.target,
            plan.in_window(self.wanted()),
            every=plan.every,
            start=plan.window[0],
            factor=plan.lr_schedule,
            gain=self.gain,
        )

    # --- The verdict --------------------------------------------------------------------------

    @property
    def slope(self) -> float:
        """d log e / d log rate, as the last correction found it."""
        return self.rounds[-1].slope if self.rounds else self.plan.first_slope

    def rate_at(self, log_ratio: float) -> float:
        """The rate that matches if source over target has this log at the verdict's rate."""
        assert self.rate is not None
        return self.rate * math.exp(log_ratio / self.slope)

    def target(self, layer: str | None = None) -> list[float]:
        """Records of the verdict runs, over seeds."""
        return rms_over([run.effective_lr(layer) for run in self.verdicts])

    def judge(self) -> Judgement:
        """Judge the verdict runs. Raises ValueError for records that cannot be judged."""
        plan, pairs = self.plan, self._pairs()
        ratio, moved = self.measure(plan.criterion), None
        if plan.criterion == "stationary":
            moved = drift(plan.criterion, pairs, plan.least_block, memory=plan.memory)
        source, target = self._stretches()
        inside = fraction_inside(source, target, plan.tolerance)
        log_error = None
        if plan.criterion == "schedule":
            start, stop = (step / plan.num_steps for step in plan.window)
            first, end = math.ceil(start * len(source)), max(1, int(stop * len(source)))
            log_error = rms_log_error(source[first:end], target[first:end])
        finding = judge(
            plan.criterion,
            ratio,
            moved,
            tolerance=plan.tolerance,
            inside=inside,
            num_seeds=len(pairs),
            log_error=log_error,
            seeds_help=plan.recorded is None,
        )
        return Judgement(finding, ratio, moved, inside)

    def measure(self, criterion: Criterion) -> LogRatio:
        """The log ratio of the verdict runs by any criterion, with its interval over seeds.

        Beside one recorded source the pairs share its noise, which averaging over targets does not
        reduce: the interval over steps is that of the source against all targets taken together.
        """
        plan, pairs = self.plan, self._pairs()
        ratio = measure(criterion, pairs, plan.least_block, memory=plan.memory)
        if plan.recorded is None or len(pairs) == 1:
            return ratio
        together = Pair(pairs[0].source, rms_over([pair.target for pair in pairs]))
        shared = measure(criterion, [together], plan.least_block)
        half = max(ratio.half_width, shared.half_width)
        return replace(
            ratio,
            low=ratio.value - half,
            high=ratio.value + half,
            interval_from="steps" if shared.half_width >= ratio.half_width else ratio.interval_from,
        )

    def layer_rates(self) -> dict[str, LayerRate]:
        """What each layer alone would ask for; layers that never move are left out."""
        plan, found = self.plan, {}
        for layer in self.sources[0].layers if self.sources else ():
            source, target = plan.in_window(self.wanted(layer)), plan.in_window(self.target(layer))
            if not (any(source) and any(target)):
                continue
            gap = log_ratio(plan.criterion, Pair(source, target), plan.least_block)
            half = self._half_width(layer)
            low, high = (
                None if half is None else self.rate_at(gap + sign * half) for sign in (-1, 1)
            )
            found[layer] = LayerRate(gap, self.rate_at(gap), low, high)
        return found

    def _half_width(self, layer: str) -> float | None:
        """Of the t-interval of a layer's log ratio over seeds.

        None for a single seed, and if the layer stands still with one of them: it has no ratio.
        """
        pairs = [tuple(map(self.plan.in_window, runs)) for runs in self._runs(layer)]
        if len(pairs) < 2 or not all(any(source) and any(target) for source, target in pairs):
            return None
        found = mean_interval(
            [log_ratio(self.plan.criterion, Pair(*pair), self.plan.least_block) for pair in pairs]
        )
        return None if found.high is None else found.high - found.mean

    def _pairs(self) -> list[Pair]:
        """The window of each pair of runs, all of whose records are rates."""
        whole = [Pair(source, target) for source, target in self._runs()]
        return [Pair(*map(self.plan.in_window, (pair.source, pair.target))) for pair in whole]

    def _runs(self, layer: str | None = None) -> list[tuple[Sequence[float], Sequence[float]]]:
        """Whole records of source and target with the same seed, at the plan's level.

        A recorded source stands beside every target.
        """
        sources = (
            [self.wanted()] * len(self.verdicts)
            if self.plan.recorded is not None
            else [self._at_level(run.effective_lr(layer)) for run in self.sources]
        )
        targets = [run.effective_lr(layer) for run in self.verdicts]
        return list(zip(sources, targets, strict=True))

    def _stretches(self) -> tuple[list[float], list[float]]:
        """Source and target over the whole run, over seeds, in stretches."""
        source, target = self.wanted(), self.target()
        width = min(len(source), max(self.plan.least_block, len(source) // _STRETCHES))
        return smooth(source, width), smooth(target, width)


def _moving_rms(values: Sequence[float]) -> float:
    found = rms(values)
    if found == 0:
        raise ValueError("the target never moved in the window: its effective lr is 0")
    return found
