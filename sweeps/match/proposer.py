"""Drives one match: proposes the trials that its procedure asks for, and feeds it their records.

The procedure is ``ndadam.matching.procedure``: source runs, prediction, calibration with
corrections, fresh verdict runs. Everything is decided from the spec and from what trials recorded,
so a new proposer that is fed the store's trials goes on where an earlier one stopped. The result it
keeps is a ``MatchResult``.

Source and verdict run on the seeds base.seed + k, so that a pair shares its data order. Calibration
runs on later seeds: no run that a verdict uses was used to choose the rate.
"""

from collections.abc import Sequence
from typing import Any

from ndadam.matching.procedure import Procedure, RunRequest
from sweeps.match.findings import build_result
from sweeps.match.match_spec import MatchSpec
from sweeps.match.runs import Ending, MatchRuns, TrialRun
from sweeps.records import Trial, TrialState
from sweeps.search.protocol import Finished, Proposal, TrialReader, Wait
from worker.config.train_config import SchedulePoints
from worker.config.trial_config import TrialConfig
from worker.report import Measurement


def run_proposals(spec: MatchSpec, requests: Sequence[RunRequest]) -> list[Proposal]:
    """The trials that a stage of the procedure asks for, measured step by step and by layer."""
    if not requests:
        return []
    stage, rate, points = requests[0].stage, requests[0].rate, requests[0].points
    betas = spec.plan.shadow_betas if stage == "source" else None
    if rate is None:
        point, params, config = _source(spec)
    else:
        of_role = spec.target_config if stage == "verdict" else spec.calibration_config
        config = of_role(rate, points)
        point, params = 1 + requests[0].rounds, _target_params(spec, rate)
    return [
        Proposal(
            point=point,
            params=params,
            config=_with_seed(config, request.seed),
            role=stage,
            measurement=Measurement(every=spec.record_every, per_layer=True, shadow_betas=betas),
        )
        for request in requests
    ]


def comparison_proposals(
    spec: MatchSpec, rounds: int, rate: float, points: SchedulePoints | None
) -> list[Proposal]:
    """Source and target at the matched rate on fresh seeds, in pairs, without measurement."""
    target = (1 + rounds, _target_params(spec, rate), spec.target_config(rate, points))
    return [
        Proposal(point=point, params=params, config=_with_seed(config, seed), role="comparison")
        for seed in spec.comparison_seeds()
        for point, params, config in (_source(spec), target)
    ]


def _source(spec: MatchSpec) -> tuple[int, dict[str, Any], TrialConfig]:
    """Point, params and config of the source."""
    return 0, {"optimizer": spec.source.optimizer}, spec.source_config


def _target_params(spec: MatchSpec, rate: float) -> dict[str, Any]:
    return {"optimizer": spec.target.optimizer, spec.rate_name: rate}


def _with_seed(config: TrialConfig, seed: int) -> TrialConfig:
    return config.model_copy(update={"seed": seed})


Step = Proposal | Wait | Finished


class MatchProposer:
    """Proposes the trials of a match and says what they showed."""

    def __init__(self, spec: MatchSpec, reader: TrialReader) -> None:
        self._spec = spec
        self._runs = MatchRuns(spec, reader)
        self._match: Procedure[TrialRun] = Procedure(spec.plan)
        self._ending = Ending()

    def running(self, trial: Trial) -> None:
        """Learn that a trial exists and will run."""
        if self._runs.learn(trial):
            self._match = Procedure(self._spec.plan)

    def tell(self, trial: Trial) -> None:
        """Learn how a trial ended."""
        self.running(trial)

    def next(self) -> Step:
        """The next trial of the current stage, or the end."""
        self._ending = Ending()
        try:
            return self._advance()
        except ValueError as error:  # a series that cannot be judged: it says why
            return self._refuse(str(error))

    def result(self) -> dict[str, Any] | None:
        """What is known so far, as a ``MatchResult``."""
        self.next()
        try:
            return self._result()
        except ValueError as error:  # verdict runs are read here, and may not be judged either
            self._refuse(str(error))
            return self._result()

    def _result(self) -> dict[str, Any]:
        return dict(build_result(self._spec, self._runs, self._match, self._ending))

    # --- Stages -------------------------------------------------------------------------------

    def _advance(self) -> Step:
        match = self._match
        while match.stage != "done":
            outcome = self._runs.outcome(run_proposals(self._spec, match.requests()))
            if isinstance(outcome, Finished):
                self._ending.stopped = outcome.reason
            if not isinstance(outcome, list):
                return outcome
            for trial in outcome:
                if trial.state is TrialState.DIVERGED:
                    return self._refuse(self._diverged(trial))
            match.record([TrialRun(trial, self._runs) for trial in outcome])
        return self._compare() if self._spec.compare is not None else Finished("all done")

    def _diverged(self, trial: Trial) -> str:
        spec, rate = self._spec, self._match.rate
        name = "source" if rate is None else f"target at {spec.rate_name} = {rate:g}"
        found = self._runs.runaway_layer(trial)
        where = f", {found[0]} first: its last step was {found[1]:.1f} usual ones" if found else ""
        return (
            f"the {name} diverged at step {trial.diverged_at_step} (trial {trial.number}, seed "
            f"{trial.seed}){where}"
        )

    def _compare(self) -> Step:
        """Train both on fresh seeds. The verdict stands, whatever comes of it."""
        match, ending = self._match, self._ending
        assert match.rate is not None
        pairs = comparison_proposals(self._spec, len(match.rounds), match.rate, match.points)
        outcome = self._runs.outcome(pairs)
        if isinstance(outcome, Finished):
            ending.uncompared = (
                f"There is no comparison, because {outcome.reason}. A retry trains it again."
            )
        if not isinstance(outcome, list):
            return outcome
        diverged = [trial for trial in outcome if trial.state is TrialState.DIVERGED]
        if diverged:
            ending.uncompared = (
                f"There is no comparison: trial {diverged[0].number} "
                f"({diverged[0].params['optimizer']}, seed {diverged[0].seed}) diverged at step "
                f"{diverged[0].diverged_at_step}."
            )
        else:
            ending.compared = outcome
        return Finished("all done")

    def _refuse(self, reason: str) -> Finished:
        self._ending.refused = reason
        return Finished(f"not matchable: {reason}")
