"""Drives many measured matches at once, without a store: the product's proposer, any trainer.

Every proposer is asked until it waits; what all of them want is trained together, because a noise
model does hundreds of runs in one array and a machine with many cores one on each.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sweeps.match.match_spec import MatchSpec
from sweeps.match.proposer import MatchProposer
from sweeps.records import Attempt, Trial, TrialState
from sweeps.search.protocol import Proposal
from worker.report import Series

_START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class TrainedRun:
    """What a trainer gives back of one proposal."""

    #: Per-step records by name, from step 0 on, one every ``every`` steps.
    series: dict[str, list[float]]
    every: int
    metrics: dict[str, float]
    probe: dict[str, Any]
    seconds: float
    diverged_at_step: int | None = None


#: Trains proposals; (match number, proposal) in, runs in the same order out.
Trainer = Callable[[Sequence[tuple[int, Proposal]]], Sequence[TrainedRun]]


class MatchRecords:
    """One match's trials and what they recorded; the reader of its proposer."""

    def __init__(self) -> None:
        self.trials: list[Trial] = []
        self.runs: dict[int, TrainedRun] = {}

    def metrics(
        self, number: int, names: Sequence[str] | None = None, max_points: int = 1000
    ) -> dict[str, list[tuple[int, float]]]:
        return {}

    def series(self, number: int, name: str) -> list[Series]:
        run = self.runs[number]
        values = run.series.get(name)
        return [Series(start=0, every=run.every, values=values)] if values else []

    def add(self, proposal: Proposal, run: TrainedRun) -> Trial:
        """Take in a finished run as the trial that it would be in the store."""
        number = len(self.trials)
        steps = proposal.config.steps or 0
        state = TrialState.COMPLETE if run.diverged_at_step is None else TrialState.DIVERGED
        end = _START + timedelta(seconds=run.seconds)
        attempt = Attempt(number, 0, state, _START, end, state.value, {"probe": run.probe}, None)
        measurement = proposal.measurement
        trial = Trial(
            sweep_id="benchmark",
            number=number,
            point=proposal.point,
            seed=proposal.seed,
            state=state,
            params=proposal.params,
            config=proposal.config.stored(),
            config_key=proposal.config.key(),
            role=proposal.role,
            measurement=measurement.model_dump(mode="json") if measurement else None,
            objective=None,
            metrics=run.metrics,
            step=steps if run.diverged_at_step is None else run.diverged_at_step,
            num_steps=steps,
            diverged_at_step=run.diverged_at_step,
            exit_cause=state.value,
            created_at=_START,
            started_at=_START,
            finished_at=end,
            attempts=(attempt,),
        )
        self.trials.append(trial)
        self.runs[number] = run
        return trial


@dataclass(frozen=True)
class MatchOutcome:
    """One match, driven to its end."""

    spec: MatchSpec
    result: dict[str, Any]
    records: MatchRecords


def run_matches(specs: Sequence[MatchSpec], train: Trainer) -> list[MatchOutcome]:
    """Drive every match to its end, training together what they want at the same time."""
    records = [MatchRecords() for _ in specs]
    proposers = [MatchProposer(spec, own) for spec, own in zip(specs, records, strict=True)]
    while True:
        wanted = [(i, p) for i, one in enumerate(proposers) for p in _proposals(one)]
        if not wanted:
            break
        for (i, proposal), run in zip(wanted, train(wanted), strict=True):
            proposers[i].tell(records[i].add(proposal, run))
    return [
        MatchOutcome(spec, one.result() or {}, own)
        for spec, one, own in zip(specs, proposers, records, strict=True)
    ]


def _proposals(proposer: MatchProposer) -> list[Proposal]:
    """Everything a match wants now; its proposer must know of each before it names the next."""
    found: list[Proposal] = []
    while isinstance(step := proposer.next(), Proposal):
        found.append(step)
        proposer.running(_waiting(step, len(found)))
    return found


def _waiting(proposal: Proposal, number: int) -> Trial:
    trial = MatchRecords().add(proposal, TrainedRun({}, 1, {}, {}, 0.0))
    return dataclasses.replace(trial, number=-number, state=TrialState.RUNNING, attempts=())
