"""What a match's trials show so far, put together as its stored result."""

import math
from collections.abc import Sequence
from statistics import fmean

from ndadam.statistics.blocked_means import smooth
from ndadam.statistics.inference import mean_interval
from ndadam.theory.lag import lag_curve
from ndadam.theory.prediction import (
    CRITERIA,
    FORMULAS,
    Criterion,
    NoStationaryRate,
    Prediction,
    level_factor,
    lr_of_effective_lr,
    predict,
)
from sweeps.match.calibration import predicted_rate
from sweeps.match.caveats import warnings
from sweeps.match.comparison import compared
from sweeps.match.match_spec import MatchSpec
from sweeps.match.result import (
    CalibrationRow,
    ComparisonFindings,
    CostRow,
    CriterionRow,
    Curves,
    Interval,
    MatchResult,
    SourceFindings,
    Stage,
)
from sweeps.match.runs import MatchRuns, MatchState, layers_of, mean_metric, probe_of, rms_over
from sweeps.match.verdict import earned, layer_rows, measured_rates, refusal
from sweeps.records import Attempt, Trial

#: Points of a stored curve, at most.
MAX_POINTS = 500


def build_result(spec: MatchSpec, runs: MatchRuns, state: MatchState) -> MatchResult:
    """Everything found so far."""
    prediction = closed_form(spec)
    source = _source(spec, runs, state, prediction)
    probe = probe_of([*state.sources, *state.verdicts])
    is_judged = bool(state.verdicts) and state.refused is None
    verdict = earned(spec, runs, state) if is_judged else None
    if state.refused is not None:
        verdict = refusal(spec, state)
    return MatchResult(
        stage=_stage(spec, state),
        progress=_progress(spec, runs, state),
        rate_name=spec.rate_name,
        criterion=spec.chosen_criterion(),
        level=spec.level or "step",
        tolerance=spec.tolerance,
        criteria=_criteria(spec, runs, state, prediction),
        source=source,
        calibration=_calibration_rows(state),
        verdict=verdict,
        layers=layer_rows(spec, runs, state) if is_judged else [],
        classes=dict(probe.get("counts", {})),
        curves=_curves(spec, runs, state) if _has_curves(state) else None,
        cost=_cost(runs),
        comparison=_comparison(spec, state),
        warnings=[
            *(prediction.warnings if prediction else ()),
            *warnings(spec, state, source, probe, verdict),
        ],
    )


def closed_form(spec: MatchSpec) -> Prediction | None:
    """What settings alone say; None where theory has no answer."""
    try:
        return predicted(spec)
    except NoStationaryRate:
        return None


def predicted(spec: MatchSpec) -> Prediction:
    """What settings alone say. Raises as ``predict`` does: NoStationaryRate, ValueError."""
    return predict(
        spec.source_setting,
        spec.target_setting,
        num_steps=spec.num_steps,
        factor=spec.factor(),
        level=spec.level,
    )


def _has_curves(state: MatchState) -> bool:
    return state.has_source and state.refused is None


def _comparison(spec: MatchSpec, state: MatchState) -> ComparisonFindings | None:
    if spec.compare is None or not state.compared or state.refused is not None:
        return None
    return compared(spec.compare, state.compared[::2], state.compared[1::2])


def _stage(spec: MatchSpec, state: MatchState) -> Stage:
    if state.refused is not None:
        return "done"
    if state.verdicts:
        is_compared = spec.compare is None or state.compared or state.uncompared
        return "done" if is_compared else "comparison"
    if not state.has_source:
        return "source"
    return "verdict" if state.is_calibrated else "calibration"


def _progress(spec: MatchSpec, runs: MatchRuns, state: MatchState) -> float:
    """Steps of ended trials over those planned, one more calibration round until it is over."""
    if _stage(spec, state) == "done":
        return 1.0
    rounds = max(len(state.rounds) + (not state.is_calibrated), min(1, spec.max_corrections))
    calibration = rounds * spec.calibration_replicates
    short = spec.calibration_steps or spec.num_steps
    planned = spec.full_trials() * spec.num_steps + calibration * short
    done = sum(trial.step for trial in runs.all() if trial.state.is_finished())
    return min(1.0, done / planned)


# --- Criteria ------------------------------------------------------------------------------------


def _criteria(
    spec: MatchSpec, runs: MatchRuns, state: MatchState, prediction: Prediction | None
) -> list[CriterionRow]:
    is_judged = bool(state.verdicts) and state.refused is None
    measured = measured_rates(spec, runs, state) if is_judged else {}
    return [
        CriterionRow(
            criterion=criterion,
            chosen=criterion == spec.chosen_criterion(),
            formula=FORMULAS[criterion],
            closed_form=prediction.criteria[criterion].rate if prediction else None,
            predicted=_predicted(spec, runs, state, criterion, prediction),
            measured=measured.get(criterion),
        )
        for criterion in CRITERIA
    ]


def _predicted(
    spec: MatchSpec,
    runs: MatchRuns,
    state: MatchState,
    criterion: Criterion,
    prediction: Prediction | None,
) -> float | None:
    if not _has_curves(state):
        return None
    if criterion == "stationary" and not spec.is_constant:
        # No part of a schedule is stationary: e* of the full rate with the measured gain.
        if prediction is None:
            return None
        wanted = prediction.target_effective_lr
        return lr_of_effective_lr(spec.target_setting, wanted, state.gain)
    if criterion == "schedule" and spec.target.optimizer != "ndadam":
        return None
    return predicted_rate(spec, runs, state.sources, criterion, state.gain)


# --- Source, calibration -------------------------------------------------------------------------


def _source(
    spec: MatchSpec, runs: MatchRuns, state: MatchState, prediction: Prediction | None
) -> SourceFindings:
    sources = state.sources
    gains = [trial.metrics["gain"] for trial in sources if "gain" in trial.metrics]
    layers = {
        layer: gain
        for layer in (layers_of(sources[0]) if sources else [])
        if (gain := mean_metric(sources, f"gain/{layer}")) is not None
    }
    return SourceFindings(
        effective_lr=prediction.effective_lr if prediction else None,
        measured=_measured_source(spec, runs, state) if _has_curves(state) else None,
        tau_steps=prediction.tau_steps if prediction else None,
        beta2_equivalent=prediction.beta2_equivalent if prediction else None,
        trust_from_step=prediction.trust_from_step if prediction else None,
        trust_until_step=prediction.trust_until_step if prediction else None,
        gain=_over_seeds(gains) if gains else None,
        gain_by_layer=layers,
        kappa=mean_metric(sources, "kappa"),
        balance_residual=mean_metric(sources, "balance_residual"),
    )


def _measured_source(spec: MatchSpec, runs: MatchRuns, state: MatchState) -> Interval:
    """Root mean square in the window, over seeds; what it did itself, at whatever level."""
    recorded = runs.recorded()
    curves = [runs.series(trial) for trial in state.sources] if recorded is None else [recorded]
    windows = [curve.window(*spec.chosen_window()).values for curve in curves]
    return _over_seeds([math.sqrt(fmean(v * v for v in window)) for window in windows])


def _over_seeds(values: Sequence[float]) -> Interval:
    found = mean_interval(values)
    return Interval(value=found.mean, low=found.low, high=found.high)


def _calibration_rows(state: MatchState) -> list[CalibrationRow]:
    return [
        CalibrationRow(
            trial=run.trial,
            rate=found.rate,
            effective_lr=run.effective_lr,
            wanted=run.effective_lr * math.exp(run.log_ratio),
            log_ratio=run.log_ratio,
            slope=found.slope,
            next_rate=found.next_rate,
        )
        for found in state.rounds
        for run in found.runs
    ]


# --- Curves, cost --------------------------------------------------------------------------------


def _curves(spec: MatchSpec, runs: MatchRuns, state: MatchState) -> Curves:
    source = runs.wanted(state.sources).values
    width = max(1, math.ceil(len(source) / MAX_POINTS))
    smoothed = smooth(source, width)
    middle = [(i * width + width // 2) * spec.record_every for i in range(len(smoothed))]
    targets = [smooth(runs.series(trial).values, width) for trial in state.verdicts]
    mean = rms_over([runs.series(t) for t in state.verdicts]).values if targets else ()
    return Curves(
        steps=middle,
        smoothing_steps=width * spec.record_every,
        source=smoothed,
        target=smooth(mean, width),
        target_low=[min(column) for column in zip(*targets, strict=True)],
        target_high=[max(column) for column in zip(*targets, strict=True)],
        formula=_formula(spec, middle),
    )


def _formula(spec: MatchSpec, steps: Sequence[int]) -> list[float]:
    """The source's closed-form curve at the chosen level; empty where theory has none."""
    try:
        scale = level_factor(spec.source_setting, spec.target_setting, spec.level or "step")
        curve = lag_curve(spec.source_setting, spec.factor(), steps)
    except NoStationaryRate:
        return []
    return [scale * value for value in curve.effective_lr]


def _cost(runs: MatchRuns) -> list[CostRow]:
    rows = []
    for role in ("source", "calibration", "verdict", "comparison"):
        trials = [trial for trial in runs.all() if trial.role == role]
        if trials:
            rows.append(
                CostRow(
                    stage=role,
                    trials=len(trials),
                    steps=sum(trial.step for trial in trials),
                    seconds=sum(map(seconds_of, trials)),
                )
            )
    return rows


def seconds_of(trial: Trial) -> float:
    """Wall time of a trial's attempts that have ended."""
    spans: Sequence[Trial | Attempt] = trial.attempts or [trial]
    return sum(
        (span.finished_at - span.started_at).total_seconds()
        for span in spans
        if span.started_at is not None and span.finished_at is not None
    )
