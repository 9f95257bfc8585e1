"""Drives one match: source runs, prediction, calibration with corrections, fresh verdict runs.

Everything is decided from the spec and from what trials recorded, so a new proposer that is fed
the store's trials goes on where an earlier one stopped. The result it keeps is a ``MatchResult``.
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
from sweeps.match.match_plan import (
    calibration_proposals,
    comparison_proposals,
    rounded,
    source_proposals,
    verdict_proposals,
)
from sweeps.match.match_spec import MatchSpec
from sweeps.match.match_state import MatchState, Round
from sweeps.match.runs import MatchRuns, mean_metric
from sweeps.records import Trial, TrialState
from sweeps.search.protocol import Finished, Proposal, TrialReader, Wait
from worker.config.train_config import SchedulePoints

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
