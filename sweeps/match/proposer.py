"""Drives one match: source runs, prediction, calibration with corrections, fresh verdict runs.

Everything is decided from the spec and from what trials recorded, so a new proposer that is fed
the store's trials goes on where an earlier one stopped. The result it keeps is a ``MatchResult``.

Source and verdict run on the seeds base.seed + k, so that a pair shares its data order. Calibration
runs on later seeds: no run that a verdict uses was used to choose the rate.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from sweeps.match.calibration import (
    is_close,
    judge_round,
    next_points,
    predicted_points,
    predicted_rate,
)
from sweeps.match.findings import build_result
from sweeps.match.match_spec import MatchSpec
from sweeps.match.runs import MatchRuns, MatchState, Round, mean_metric
from sweeps.records import Trial, TrialState
from sweeps.search.protocol import Finished, Proposal, TrialReader, Wait
from worker.config.train_config import SchedulePoints, TrainConfig
from worker.report import Measurement

#: Significant digits of a proposed rate: far below any tolerance, and equal after any replay.
_DIGITS = 5


def rounded(rate: float) -> float:
    """A rate as it is proposed and stored."""
    return float(f"{rate:.{_DIGITS}g}")


def source_proposals(spec: MatchSpec) -> list[Proposal]:
    """One run of the source per seed, with shadow moments where the target is ndadam.

    None where its curve was recorded before.
    """
    if spec.source.curve is not None:
        return []
    shadow = spec.target_setting.betas if spec.target.optimizer == "ndadam" else None
    return [
        Proposal(
            point=0,
            params={"optimizer": spec.source.optimizer},
            config=_with_seed(spec.source_config, seed),
            role="source",
            measurement=_measurement(spec, shadow),
        )
        for seed in spec.seeds()
    ]


def calibration_proposals(
    spec: MatchSpec, number: int, rate: float, points: SchedulePoints | None
) -> list[Proposal]:
    """Calibration round ``number`` (from 0), on seeds that no other run has."""
    config = spec.calibration_config(rate, points)
    first = spec.seeds()[-1] + 1 + number * spec.calibration_replicates
    return [
        Proposal(
            point=1 + number,
            params=_params(spec, rate),
            config=_with_seed(config, first + k),
            role="calibration",
            measurement=_measurement(spec, None),
        )
        for k in range(spec.calibration_replicates)
    ]


def verdict_proposals(
    spec: MatchSpec, rounds: int, rate: float, points: SchedulePoints | None
) -> list[Proposal]:
    """Fresh runs at the final rate, after ``rounds`` calibration rounds."""
    config = spec.target_config(rate, points)
    return [
        Proposal(
            point=1 + rounds,
            params=_params(spec, rate),
            config=_with_seed(config, seed),
            role="verdict",
            measurement=_measurement(spec, None),
        )
        for seed in spec.seeds()
    ]


def comparison_proposals(
    spec: MatchSpec, rounds: int, rate: float, points: SchedulePoints | None
) -> list[Proposal]:
    """Source and target at the matched rate on fresh seeds, in pairs, without measurement."""
    source = (0, {"optimizer": spec.source.optimizer}, spec.source_config)
    target = (1 + rounds, _params(spec, rate), spec.target_config(rate, points))
    return [
        Proposal(point=point, params=params, config=_with_seed(config, seed), role="comparison")
        for seed in spec.comparison_seeds()
        for point, params, config in (source, target)
    ]


def _params(spec: MatchSpec, rate: float) -> dict[str, Any]:
    return {"optimizer": spec.target.optimizer, spec.rate_name: rate}


def _with_seed(config: TrainConfig, seed: int) -> TrainConfig:
    return config.model_copy(update={"seed": seed})


def _measurement(spec: MatchSpec, shadow: tuple[float, float] | None) -> Measurement:
    return Measurement(every=spec.record_every, per_layer=True, shadow_betas=shadow)


T = TypeVar("T")

Step = Proposal | Wait | Finished


class MatchProposer:
    """Proposes the trials of a match and says what they showed."""

    def __init__(self, spec: MatchSpec, reader: TrialReader) -> None:
        self._spec = spec
        self._runs = MatchRuns(spec, reader)
        self._now = MatchState()
        # What was computed from which trials: asking again costs nothing.
        self._memo: dict[tuple[object, ...], Any] = {}

    def running(self, trial: Trial) -> None:
        """Learn that a trial exists and will run."""
        self._runs.learn(trial)

    def tell(self, trial: Trial) -> None:
        """Learn how a trial ended."""
        self._runs.learn(trial)

    def next(self) -> Step:
        """The next trial of the current stage, or the end."""
        self._now = MatchState()
        try:
            return self._advance(self._now)
        except ValueError as error:  # a series that cannot be judged: it says why
            return self._refuse(str(error))

    def result(self) -> dict[str, Any] | None:
        """What is known so far, as a ``MatchResult``."""
        self.next()
        try:
            return dict(build_result(self._spec, self._runs, self._now))
        except ValueError as error:  # verdict runs are read here, and may not be judged either
            self._refuse(str(error))
            return dict(build_result(self._spec, self._runs, self._now))

    # --- Stages -------------------------------------------------------------------------------

    def _advance(self, now: MatchState) -> Step:
        spec, runs = self._spec, self._runs
        sources = self._stage(source_proposals(spec), "source")
        if not isinstance(sources, list):
            return sources
        now.sources, now.has_source = sources, True
        now.gain = mean_metric(sources, "gain") or 1.0
        criterion = spec.chosen_criterion()
        now.points = self._once(
            ("points",), sources, lambda: predicted_points(spec, runs, sources, now.gain)
        )
        now.predicted = self._once(
            ("rate",),
            sources,
            lambda: rounded(predicted_rate(spec, runs, sources, criterion, now.gain)),
        )
        step = self._calibrate(now)
        if step is not None:
            return step
        assert now.rate is not None
        proposals = verdict_proposals(spec, len(now.rounds), now.rate, now.points)
        verdicts = self._stage(proposals, f"target at {spec.rate_name} = {now.rate:g}")
        if not isinstance(verdicts, list):
            return verdicts
        now.verdicts = verdicts
        return self._compare(now) if spec.compare is not None else Finished("all done")

    def _compare(self, now: MatchState) -> Step:
        """Train both on fresh seeds. The verdict stands, whatever comes of it."""
        assert now.rate is not None
        pairs = comparison_proposals(self._spec, len(now.rounds), now.rate, now.points)
        outcome = self._runs.outcome(pairs)
        if isinstance(outcome, Finished):
            now.uncompared = (
                f"There is no comparison, because {outcome.reason}. A retry trains it again."
            )
        if not isinstance(outcome, list):
            return outcome
        diverged = [trial for trial in outcome if trial.state is TrialState.DIVERGED]
        if diverged:
            now.uncompared = (
                f"There is no comparison: trial {diverged[0].number} "
                f"({diverged[0].params['optimizer']}, seed {diverged[0].seed}) diverged at step "
                f"{diverged[0].diverged_at_step}."
            )
        else:
            now.compared = outcome
        return Finished("all done")

    def _calibrate(self, now: MatchState) -> Step | None:
        """Correct the rate until a run is close enough for one last correction to be safe."""
        spec = self._spec
        now.rate = now.predicted
        for number in range(spec.max_corrections):
            assert now.rate is not None
            proposals = calibration_proposals(spec, number, now.rate, now.points)
            trials = self._stage(proposals, f"target at {spec.rate_name} = {now.rate:g}")
            if not isinstance(trials, list):
                return trials
            now.rounds.append(self._judged(now, trials))
            found = now.rounds[-1]
            now.rate = rounded(found.next_rate)
            now.points = self._corrected(now, trials)
            if is_close(found, spec.tolerance):
                break
        now.is_calibrated = True
        return None

    def _judged(self, now: MatchState, trials: list[Trial]) -> Round:
        rate, rounds = now.rate, list(now.rounds)
        assert rate is not None
        return self._once(
            ("round", rate),
            trials,
            lambda: judge_round(self._spec, self._runs, now.sources, rate, trials, rounds),
        )

    def _corrected(self, now: MatchState, trials: list[Trial]) -> SchedulePoints | None:
        points = now.points
        if points is None:
            return None
        return self._once(
            ("points", len(now.rounds)),
            trials,
            lambda: next_points(self._runs, now.sources, trials, points),
        )

    def _once(self, what: tuple[object, ...], trials: list[Trial], compute: Callable[[], T]) -> T:
        key = (*what, *(trial.number for trial in trials))
        if key not in self._memo:
            self._memo[key] = compute()
        value: T = self._memo[key]
        return value

    def _stage(self, proposals: list[Proposal], name: str) -> Step | list[Trial]:
        outcome = self._runs.outcome(proposals)
        if isinstance(outcome, Finished):
            self._now.stopped = outcome.reason
        if isinstance(outcome, list):
            for trial in outcome:
                if trial.state is TrialState.DIVERGED:
                    return self._refuse(
                        f"the {name} diverged at step {trial.diverged_at_step} (trial "
                        f"{trial.number}, seed {trial.seed}){self._where(trial)}"
                    )
        return outcome

    def _where(self, trial: Trial) -> str:
        found = self._runs.runaway_layer(trial)
        return f", {found[0]} first: its last step was {found[1]:.1f} usual ones" if found else ""

    def _refuse(self, reason: str) -> Finished:
        self._now.refused = reason
        return Finished(f"not matchable: {reason}")
