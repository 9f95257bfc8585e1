"""The verdict of a match: measured source against fresh runs of the target, in a fixed window."""

import dataclasses
import math
from collections.abc import Sequence

from ndadam.matching.verdict import (
    LogRatio,
    Pair,
    drift,
    fraction_inside,
    judge,
    log_ratio,
    measure,
    rms_log_error,
    smooth,
)
from ndadam.statistics.inference import mean_interval
from ndadam.theory.prediction import CRITERIA, Criterion
from sweeps.match.calibration import first_slope
from sweeps.match.match_spec import MatchSpec
from sweeps.match.result import Interval, LayerRow, Verdict
from sweeps.match.runs import (
    HEADLINE,
    MatchRuns,
    MatchState,
    Recorded,
    layers_of,
    probe_of,
    rms_over,
)

#: The run is cut into about this many stretches to say which part of it is inside the tolerance.
_STRETCHES = 100


def refusal(spec: MatchSpec, state: MatchState) -> Verdict:
    """The verdict of a match that cannot be made."""
    return Verdict(
        state="not matchable",
        sentence=f"Not matchable: {state.refused}.",
        rate=state.rate,
        schedule=_points(state),
        log_ratio=None,
        interval_from=None,
        window=spec.chosen_window(),
        drift=None,
        fraction_inside=None,
        seeds=[trial.seed for trial in state.verdicts],
    )


def earned(spec: MatchSpec, runs: MatchRuns, state: MatchState) -> Verdict:
    """The verdict over all seeds, once every fresh run is complete."""
    criterion = spec.chosen_criterion()
    windowed = _windowed(spec, runs, state)
    ratio = _measured(spec, windowed, criterion)
    moved = (
        drift(criterion, windowed, spec.least_block, memory=spec.source_memory)
        if criterion == "stationary"
        else None
    )
    source, target = _smoothed(spec, runs, state)
    inside = fraction_inside(source, target, spec.tolerance)
    finding = judge(
        criterion,
        ratio,
        moved,
        tolerance=spec.tolerance,
        inside=inside,
        num_seeds=len(state.verdicts),
        log_error=_log_error(spec, source, target) if criterion == "schedule" else None,
        seeds_help=spec.source.curve is None,
    )
    return Verdict(
        state=finding.state,
        sentence=finding.sentence,
        rate=state.rate,
        schedule=_points(state),
        log_ratio=_interval(ratio),
        interval_from=ratio.interval_from,
        window=spec.chosen_window(),
        drift=_interval(moved) if moved is not None else None,
        fraction_inside=inside,
        seeds=[trial.seed for trial in state.verdicts],
    )


def measured_rates(
    spec: MatchSpec, runs: MatchRuns, state: MatchState
) -> dict[Criterion, Interval]:
    """The rate by each criterion that the verdict runs can tell, with its interval."""
    assert state.rate is not None
    slope = state.rounds[-1].slope if state.rounds else first_slope(spec)
    windowed = _windowed(spec, runs, state)
    rates: dict[Criterion, Interval] = {}
    for criterion in _measurable(spec):
        ratio = _measured(spec, windowed, criterion)
        value, low, high = (
            state.rate * math.exp(x / slope) for x in (ratio.value, ratio.low, ratio.high)
        )
        rates[criterion] = Interval(value=value, low=low, high=high)
    return rates


def _measurable(spec: MatchSpec) -> list[Criterion]:
    """A run on a schedule of its own tells nothing about one multiple of the common schedule."""
    if spec.chosen_criterion() == "schedule":
        return ["schedule"]
    return [c for c in CRITERIA if c != "schedule" and (c != "stationary" or spec.is_constant)]


def layer_rows(spec: MatchSpec, runs: MatchRuns, state: MatchState) -> list[LayerRow]:
    """What each layer alone would ask for; layers that never move are left out."""
    assert state.rate is not None
    criterion = spec.chosen_criterion()
    slope = state.rounds[-1].slope if state.rounds else first_slope(spec)
    kinds = probe_of(state.sources).get("layers", {})
    rows: list[LayerRow] = []
    for layer in layers_of(state.sources[0]) if state.sources else []:
        name = f"{HEADLINE}/{layer}"
        source = runs.wanted(state.sources, name).window(*spec.chosen_window())
        target = rms_over([runs.series(trial, name) for trial in state.verdicts])
        moving = target.window(*spec.chosen_window())
        if not (any(source.values) and any(moving.values)):
            continue
        gap = log_ratio(criterion, Pair(source.values, moving.values), spec.least_block)
        half = _half_width(spec, criterion, _windowed(spec, runs, state, name))
        low, high = (
            None if half is None else state.rate * math.exp((gap + sign * half) / slope)
            for sign in (-1.0, 1.0)
        )
        rows.append(
            LayerRow(
                layer=layer,
                kind=kinds.get(layer, ""),
                log_ratio=gap,
                implied_rate=state.rate * math.exp(gap / slope),
                implied_low=low,
                implied_high=high,
            )
        )
    return rows


def _half_width(spec: MatchSpec, criterion: Criterion, pairs: Sequence[Pair]) -> float | None:
    """Of the t-interval of a layer's log ratio over seeds; None for a single seed.

    Also None where a seed's layer stands still, and has no ratio.
    """
    if len(pairs) < 2 or not all(any(p.source) and any(p.target) for p in pairs):
        return None
    found = mean_interval([log_ratio(criterion, pair, spec.least_block) for pair in pairs])
    return None if found.high is None else found.high - found.mean


def _measured(spec: MatchSpec, pairs: list[Pair], criterion: Criterion) -> LogRatio:
    """The log ratio over seeds with its interval.

    Beside one recorded source the pairs share its noise, which averaging over targets does not
    reduce: the interval over steps is that of the source against all targets taken together.
    """
    ratio = measure(criterion, pairs, spec.least_block, memory=spec.source_memory)
    if spec.source.curve is None or len(pairs) == 1:
        return ratio
    every = spec.record_every
    together = rms_over([Recorded(every, tuple(pair.target)) for pair in pairs]).values
    shared = measure(criterion, [Pair(pairs[0].source, together)], spec.least_block)
    half = max(ratio.half_width, shared.half_width)
    return dataclasses.replace(
        ratio,
        low=ratio.value - half,
        high=ratio.value + half,
        interval_from="steps" if shared.half_width >= ratio.half_width else ratio.interval_from,
    )


def _windowed(
    spec: MatchSpec, runs: MatchRuns, state: MatchState, name: str = HEADLINE
) -> list[Pair]:
    start, stop = (-(-step // spec.record_every) for step in spec.chosen_window())
    return [pair.part(start, stop) for pair in runs.pairs(state.sources, state.verdicts, name)]


def _smoothed(
    spec: MatchSpec, runs: MatchRuns, state: MatchState
) -> tuple[list[float], list[float]]:
    """Source and target over the whole run, over seeds, in stretches."""
    source = runs.wanted(state.sources).values
    target = rms_over([runs.series(trial) for trial in state.verdicts]).values
    width = min(len(source), max(spec.least_block, len(source) // _STRETCHES))
    return smooth(source, width), smooth(target, width)


def _log_error(spec: MatchSpec, source: Sequence[float], target: Sequence[float]) -> float:
    """RMS log error over the window's share of the stretches."""
    start, stop = (step / spec.num_steps for step in spec.chosen_window())
    first, end = math.ceil(start * len(source)), max(1, int(stop * len(source)))
    return rms_log_error(source[first:end], target[first:end])


def _points(state: MatchState) -> list[tuple[int, float]] | None:
    return list(state.points) if state.points is not None else None


def _interval(ratio: LogRatio) -> Interval:
    return Interval(value=ratio.value, low=ratio.low, high=ratio.high)
