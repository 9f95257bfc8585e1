"""Small specs, and a simulation of a driver without Ray: proposals in, made-up results out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sweeps.records import Kind, Sweep, SweepState, Trial, TrialState
from sweeps.search.protocol import Finished, Proposal, Proposer, Wait
from sweeps.spec.sweep_spec import SweepSpec
from worker.report import Series

BASE = {"dataset": "digits", "depth": 10, "widen_factor": 1, "optimizer": "ndadam", "steps": 100}
SPACE = {
    "alpha_v": {"kind": "float", "low": 0.001, "high": 1.0, "log": True},
    "alpha_s": {"kind": "float", "low": 0.0001, "high": 0.1, "log": True},
}
NOW = datetime(2026, 1, 1, tzinfo=UTC)

Loss = Callable[[Mapping[str, Any], int], float]


def sweep_spec(**fields: Any) -> SweepSpec:
    """A random search of six points over the two rates of ND-Adam."""
    spec = {"name": "small", "base": BASE, "space": SPACE, "num_points": 6, "sampler": "random"}
    return SweepSpec.model_validate(spec | fields)


def stored_sweep(spec: dict[str, Any], kind: Kind = "sweep") -> Sweep:
    """What the store hands out of a spec before any trial has begun."""
    return Sweep(
        id="0" * 12,
        kind=kind,
        name="small",
        state=SweepState.QUEUED,
        reason="",
        requested="none",
        spec=spec,
        tags=(),
        notes="",
        created_at=NOW,
        started_at=None,
        finished_at=None,
        num_trials=None,
        trials={state.value: 0 for state in TrialState},
        best=None,
        result=None,
        mirror=None,
        eta_seconds=None,
    )


class Curves:
    """A ``TrialReader`` over curves made up by number."""

    def __init__(self, curves: Mapping[int, list[tuple[int, float]]] | None = None) -> None:
        self.curves = dict(curves or {})

    def metrics(
        self, number: int, names: Sequence[str] | None = None, max_points: int = 1000
    ) -> Mapping[str, list[tuple[int, float]]]:
        return {name: self.curves.get(number, []) for name in names or ()}

    def series(self, number: int, name: str) -> list[Series]:
        return []


def waiting_trial(number: int, proposal: Proposal) -> Trial:
    """What the store makes of a proposal."""
    return Trial(
        sweep_id="0" * 12,
        number=number,
        point=proposal.point,
        seed=proposal.seed,
        state=TrialState.WAITING,
        params=proposal.params,
        config=proposal.config.stored(),
        config_key=proposal.config.key(),
        role=proposal.role,
        measurement=None,
        objective=None,
        metrics={},
        step=0,
        num_steps=None,
        diverged_at_step=None,
        exit_cause="",
        created_at=NOW,
        started_at=None,
        finished_at=None,
    )


def ended(trial: Trial, objective: float | None, state: str = "complete") -> Trial:
    """The trial at its end."""
    return replace(trial, state=TrialState(state), objective=objective)


def bowl(params: Mapping[str, Any], seed: int) -> float:
    """A loss with its best at alpha_v = 0.05, a little different for each seed."""
    distance = abs(params.get("alpha_v", params.get("lr", 1.0)) - 0.05)
    return distance + 0.001 * seed


def replayed(proposer: Proposer, history: Sequence[Trial]) -> Proposer:
    """Feed a new proposer as a driver that starts does."""
    for trial in history:
        proposer.running(trial)
        if trial.state.is_finished():
            proposer.tell(trial)
    return proposer


def search(
    proposer: Proposer,
    *,
    concurrency: int = 1,
    loss: Loss = bowl,
    history: Sequence[Trial] = (),
    stop_after: int | None = None,
) -> tuple[list[Trial], str]:
    """Run trials ``concurrency`` at a time, oldest ends first; the trials and the last reason.

    With ``stop_after``, this many have ended; those that still ran come back unfinished.
    """
    replayed(proposer, history)
    trials = list(history)
    running = [trial for trial in history if not trial.state.is_finished()]
    count, reason = 0, ""
    while True:
        while len(running) < concurrency and not reason:
            answer = proposer.next()
            if isinstance(answer, Finished):
                reason = answer.reason
            elif isinstance(answer, Proposal):
                trial = waiting_trial(len(trials), answer)
                trials.append(trial)
                running.append(trial)
                proposer.running(trial)
            else:
                assert isinstance(answer, Wait)
                assert running, "waits for nothing"
                break
        if not running or count == stop_after:
            return trials, reason
        trial = running.pop(0)
        done = ended(trial, loss(trial.params, trial.seed))
        trials[trial.number] = done
        proposer.tell(done)
        count += 1


def keys(trials: Sequence[Trial]) -> list[tuple[int, str, int]]:
    """What was tried: point, configuration, seed."""
    return [(trial.point, trial.config_key, trial.seed) for trial in trials]
