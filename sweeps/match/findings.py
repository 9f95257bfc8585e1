"""What a match's trials show so far, put together as its stored result."""

import math
from collections.abc import Mapping, Sequence

from ndadam.matching.plan import MatchPlan
from ndadam.matching.procedure import Procedure
from ndadam.matching.verdict import LogRatio
from ndadam.statistics.blocked_means import rms, smooth
from ndadam.statistics.inference import mean_interval
from ndadam.theory.along_schedule import lag_curve
from ndadam.theory.prediction import (
    CRITERIA,
    FORMULAS,
    Criterion,
    NoStationaryRate,
    Prediction,
    lr_of_effective_lr,
)
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
    LayerRow,
    MatchResult,
    SourceFindings,
    Stage,
    Verdict,
)
from sweeps.match.runs import Ending, MatchRuns, TrialRun, layers_of, mean_metric, probe_of
from sweeps.records import Attempt, Trial

Match = Procedure[TrialRun]

#: Points of a stored curve, at most.
MAX_POINTS = 500


def build_result(spec: MatchSpec, runs: MatchRuns, match: Match, ending: Ending) -> MatchResult:
    """Everything found so far."""
    prediction = spec.plan.closed_form()
    is_refused = ending.refused is not None
    is_judged = match.stage == "done" and not is_refused
    sources = [run.trial for run in match.sources]
    has_curves = match.stage != "source" and not is_refused
    source = _source(match, sources, prediction, has_curves=has_curves)
    probe = probe_of([*sources, *(run.trial for run in match.verdicts)])
    verdict = _verdict(match) if is_judged else _refusal(match, ending) if is_refused else None
    return MatchResult(
        stage=_stage(spec, match, ending),
        progress=_progress(spec, runs, match, ending),
        rate_name=spec.rate_name,
        criterion=spec.chosen_criterion(),
        level=spec.plan.level,
        tolerance=spec.tolerance,
        criteria=[
            CriterionRow(
                criterion=criterion,
                chosen=criterion == spec.chosen_criterion(),
                formula=FORMULAS[criterion],
                closed_form=prediction.criteria[criterion].rate if prediction else None,
                predicted=_predicted(spec, match, criterion, prediction) if has_curves else None,
                measured=_measured_rate(spec, match, criterion) if is_judged else None,
            )
            for criterion in CRITERIA
        ],
        source=source,
        calibration=_calibration_rows(match),
        verdict=verdict,
        layers=_layer_rows(match, probe_of(sources).get("layers", {})) if is_judged else [],
        classes=dict(probe.get("counts", {})),
        curves=_curves(spec, match) if has_curves else None,
        cost=_cost(runs),
        comparison=None if is_refused else _comparison(spec, ending),
        warnings=[
            *(prediction.warnings if prediction else ()),
            *warnings(spec, sources, match.gain, ending, source, probe, verdict),
        ],
    )


def _comparison(spec: MatchSpec, ending: Ending) -> ComparisonFindings | None:
    if spec.compare is None or not ending.compared:
        return None
    return compared(spec.compare, ending.compared[::2], ending.compared[1::2])


def _stage(spec: MatchSpec, match: Match, ending: Ending) -> Stage:
    if ending.refused is not None:
        return "done"
    is_compared = spec.compare is None or ending.compared or ending.uncompared
    return "comparison" if match.stage == "done" and not is_compared else match.stage


def _progress(spec: MatchSpec, runs: MatchRuns, match: Match, ending: Ending) -> float:
    """Steps of ended trials over those planned, one more calibration round until it is over."""
    if _stage(spec, match, ending) == "done":
        return 1.0
    is_calibrated = match.stage in ("verdict", "done")
    rounds = max(len(match.rounds) + (not is_calibrated), min(1, spec.max_corrections))
    calibration = rounds * spec.calibration_replicates
    short = spec.calibration_steps or spec.num_steps
    planned = spec.full_trials() * spec.num_steps + calibration * short
    done = sum(trial.step for trial in runs.all() if trial.state.is_finished())
    return min(1.0, done / planned)


# --- Criteria ------------------------------------------------------------------------------------


def _predicted(
    spec: MatchSpec, match: Match, criterion: Criterion, prediction: Prediction | None
) -> float | None:
    if match.plan.start_rate is not None:
        return None  # nothing predicts the target
    if criterion == "stationary" and not spec.is_constant:
        # No part of a schedule is stationary: e* of the full rate with the measured gain.
        if prediction is None:
            return None
        return lr_of_effective_lr(match.plan.target, prediction.target_effective_lr, match.gain)
    if criterion == "schedule" and spec.target.optimizer != "ndadam":
        return None
    return match.predict(criterion)


def _measured_rate(spec: MatchSpec, match: Match, criterion: Criterion) -> Interval | None:
    """The rate by a criterion; None where the verdict runs cannot tell it.

    A run on a schedule of its own tells nothing about one multiple of the common schedule.
    """
    chosen = spec.chosen_criterion()
    is_told = criterion == chosen if "schedule" in (criterion, chosen) else True
    if not is_told or (criterion == "stationary" and not spec.is_constant):
        return None
    ratio = match.measure(criterion)
    value, low, high = map(match.rate_at, (ratio.value, ratio.low, ratio.high))
    return Interval(value=value, low=low, high=high)


# --- Source, calibration, verdict ----------------------------------------------------------------


def _source(
    match: Match, sources: Sequence[Trial], prediction: Prediction | None, *, has_curves: bool
) -> SourceFindings:
    gains = [trial.metrics["gain"] for trial in sources if "gain" in trial.metrics]
    layers = {
        layer: gain
        for layer in (layers_of(sources[0]) if sources else [])
        if (gain := mean_metric(sources, f"gain/{layer}")) is not None
    }
    return SourceFindings(
        effective_lr=prediction.effective_lr if prediction else None,
        measured=_measured_source(match) if has_curves else None,
        tau_steps=prediction.tau_steps if prediction else None,
        beta2_equivalent=prediction.beta2_equivalent if prediction else None,
        trust_from_step=prediction.trust_from_step if prediction else None,
        trust_until_step=prediction.trust_until_step if prediction else None,
        gain=_over_seeds(gains) if gains else None,
        gain_by_layer=layers,
        kappa=mean_metric(sources, "kappa"),
        balance_residual=mean_metric(sources, "balance_residual"),
    )


def _measured_source(match: Match) -> Interval:
    """Root mean square in the window, over seeds; what it did itself, at whatever level."""
    plan = match.plan
    recorded = plan.recorded
    curves = [recorded] if recorded is not None else [run.effective_lr() for run in match.sources]
    return _over_seeds([rms(plan.in_window(curve)) for curve in curves])


def _over_seeds(values: Sequence[float]) -> Interval:
    found = mean_interval(values)
    return Interval(value=found.mean, low=found.low, high=found.high)


def _calibration_rows(match: Match) -> list[CalibrationRow]:
    return [
        CalibrationRow(
            trial=found.run.trial.number,
            rate=calibration.rate,
            effective_lr=found.effective_lr,
            wanted=found.effective_lr * math.exp(found.log_ratio),
            log_ratio=found.log_ratio,
            slope=calibration.slope,
            next_rate=calibration.next_rate,
        )
        for calibration in match.rounds
        for found in calibration.runs
    ]


def _verdict(match: Match) -> Verdict:
    """The verdict over all seeds, once every fresh run is complete."""
    found = match.judge()
    return Verdict(
        state=found.finding.state,
        sentence=found.finding.sentence,
        rate=match.rate,
        schedule=_points(match),
        log_ratio=_interval(found.ratio),
        interval_from=found.ratio.interval_from,
        window=match.plan.window,
        drift=_interval(found.drift) if found.drift is not None else None,
        fraction_inside=found.inside,
        seeds=[run.trial.seed for run in match.verdicts],
    )


def _refusal(match: Match, ending: Ending) -> Verdict:
    """The verdict of a match that cannot be made."""
    return Verdict(
        state="not matchable",
        sentence=f"Not matchable: {ending.refused}.",
        rate=match.rate,
        schedule=_points(match),
        log_ratio=None,
        interval_from=None,
        window=match.plan.window,
        drift=None,
        fraction_inside=None,
        seeds=[run.trial.seed for run in match.verdicts],
    )


def _points(match: Match) -> list[tuple[int, float]] | None:
    return list(match.points) if match.points is not None else None


def _interval(ratio: LogRatio) -> Interval:
    return Interval(value=ratio.value, low=ratio.low, high=ratio.high)


def _layer_rows(match: Match, kinds: Mapping[str, str]) -> list[LayerRow]:
    return [
        LayerRow(
            layer=layer,
            kind=kinds.get(layer, ""),
            log_ratio=found.log_ratio,
            implied_rate=found.rate,
            implied_low=found.low,
            implied_high=found.high,
        )
        for layer, found in match.layer_rates().items()
    ]


# --- Curves, cost --------------------------------------------------------------------------------


def _curves(spec: MatchSpec, match: Match) -> Curves:
    source = match.wanted()
    width = max(1, math.ceil(len(source) / MAX_POINTS))
    smoothed = smooth(source, width)
    middle = [(i * width + width // 2) * spec.record_every for i in range(len(smoothed))]
    targets = [smooth(run.effective_lr(), width) for run in match.verdicts]
    return Curves(
        steps=middle,
        smoothing_steps=width * spec.record_every,
        source=smoothed,
        target=smooth(match.target(), width),
        target_low=[min(column) for column in zip(*targets, strict=True)],
        target_high=[max(column) for column in zip(*targets, strict=True)],
        formula=_formula(match.plan, middle),
    )


def _formula(plan: MatchPlan, steps: Sequence[int]) -> list[float]:
    """The source's closed-form curve at the chosen level; empty where theory has none."""
    try:
        curve = lag_curve(plan.source, plan.lr_schedule, steps)
        return [plan.level_factor * value for value in curve.effective_lr]
    except NoStationaryRate:
        return []


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
