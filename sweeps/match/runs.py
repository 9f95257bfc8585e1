"""The trials of one match and what they recorded step by step, as its procedure looks at them.

Kept for as long as the match is driven.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from sweeps.match.match_spec import MatchSpec
from sweeps.records import Trial, TrialState
from sweeps.search.protocol import Finished, Proposal, TrialReader, Wait

EFFECTIVE_LR = "effective_lr"

#: The step that ND-Adam would take at alpha^v = 1 on the gradients of another optimizer.
SHADOW_STEP = "shadow_step"


class IncompleteSeries(ValueError):
    """A trial's series has a gap, another cadence, or ends before the run does."""


def read_series(
    reader: TrialReader, trial: int, name: str, *, every: int, num_steps: int
) -> tuple[float, ...]:
    """A whole run's records of one quantity, at steps 0, every, 2 every, …

    Raises IncompleteSeries, which says where they break off.
    """
    values: list[float] = []
    for piece in reader.series(trial, name):
        expected = len(values) * every
        if piece.every != every or piece.start != expected:
            raise IncompleteSeries(
                f"trial {trial}: {name} should go on at step {expected} with a record every "
                f"{every} steps, but goes on at {piece.start} with one every {piece.every}"
            )
        values.extend(piece.values)
    complete = -(-num_steps // every)
    if len(values) != complete:
        raise IncompleteSeries(
            f"trial {trial}: {name} has {len(values)} records, and a run of {num_steps} steps has "
            f"{complete}"
        )
    return tuple(values)


#: A layer ran away where its last step is this many times its median one, of so many at least.
_RUNAWAY, _FEWEST_RECORDS = 2.0, 10


class MatchRuns:
    """Trials by what they train, and their series, read once."""

    def __init__(self, spec: MatchSpec, reader: TrialReader) -> None:
        self.spec = spec
        self._reader = reader
        self._trials: dict[tuple[str, int], Trial] = {}
        self._series: dict[tuple[int, str], tuple[float, ...]] = {}

    def learn(self, trial: Trial) -> bool:
        """Take in the latest state of a trial; return whether one that had ended is another now."""
        key = trial.config_key, trial.seed
        before, self._trials[key] = self._trials.get(key), trial
        return before is not None and before.state.is_finished() and before != trial

    def all(self) -> list[Trial]:
        """Every trial known, by number."""
        return sorted(self._trials.values(), key=lambda trial: trial.number)

    def outcome(self, proposals: Sequence[Proposal]) -> Proposal | Wait | Finished | list[Trial]:
        """The trials of a stage once all are complete, or what to do until then."""
        found: list[Trial] = []
        for proposal in proposals:
            trial = self._trials.get((proposal.config.key(), proposal.seed))
            if trial is None:
                return proposal
            found.append(trial)
        for trial in found:
            if trial.state in (TrialState.FAILED, TrialState.CANCELLED, TrialState.PRUNED):
                return Finished(f"{trial.role} trial {trial.number} {trial.state.value}")
        unfinished = [trial for trial in found if not trial.state.is_finished()]
        if unfinished:
            return Wait(f"waiting for {len(unfinished)} {proposals[0].role} trials")
        return found

    # --- Series -------------------------------------------------------------------------------

    def series(self, trial: Trial, name: str) -> tuple[float, ...]:
        """A trial's records over its whole run. Raises IncompleteSeries."""
        key = trial.number, name
        if key not in self._series:
            steps = trial.config["steps"]
            self._series[key] = read_series(
                self._reader, trial.number, name, every=self.spec.record_every, num_steps=steps
            )
        return self._series[key]

    def has_series(self, trial: Trial, name: str) -> bool:
        """Whether a trial recorded any of a quantity."""
        return bool(self._reader.series(trial.number, name))

    def runaway_layer(self, trial: Trial) -> tuple[str, float] | None:
        """The layer that ran away most before a run diverged: last step over its usual one.

        None where no layer did, or too little was recorded.
        """
        found = []
        for layer in layers_of(trial):
            pieces = self._reader.series(trial.number, f"{EFFECTIVE_LR}/{layer}")
            values = [value for piece in pieces for value in piece.values]
            usual = median(values) if len(values) >= _FEWEST_RECORDS else 0.0
            if usual > 0 and values[-1] > _RUNAWAY * usual:
                found.append((layer, values[-1] / usual))
        return max(found, key=lambda pair: pair[1], default=None)


@dataclass(frozen=True)
class TrialRun:
    """A complete trial as ``ndadam.matching.procedure`` looks at a run."""

    trial: Trial
    runs: MatchRuns

    @property
    def gain(self) -> float | None:
        return self.trial.metrics.get("gain")

    @property
    def layers(self) -> list[str]:
        return layers_of(self.trial)

    def effective_lr(self, layer: str | None = None) -> tuple[float, ...]:
        return self.runs.series(
            self.trial, EFFECTIVE_LR if layer is None else f"{EFFECTIVE_LR}/{layer}"
        )

    def shadow_step(self) -> tuple[float, ...]:
        is_known = self.runs.has_series(self.trial, SHADOW_STEP)
        return self.runs.series(self.trial, SHADOW_STEP) if is_known else ()


def mean_metric(trials: Sequence[Trial], name: str) -> float | None:
    """A final metric over trials; None where one of them lacks it."""
    values = [trial.metrics.get(name) for trial in trials]
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def layers_of(trial: Trial) -> list[str]:
    """Layers with records of their own, in the order in which the network counts them."""
    prefix = f"{EFFECTIVE_LR}/"
    return [name.removeprefix(prefix) for name in trial.metrics if name.startswith(prefix)]


def probe_of(trials: Sequence[Trial]) -> dict[str, Any]:
    """What the structure probe found: {"counts": …, "layers": …}; empty if nothing is known."""
    for trial in trials:
        for attempt in reversed(trial.attempts):
            if "probe" in attempt.provenance:
                probe: dict[str, Any] = attempt.provenance["probe"]
                return probe
    return {}


@dataclass
class Ending:
    """How a match came to rest. Decided again whenever it is asked for what comes next."""

    #: Complete runs on fresh seeds, source and target in turns; empty until all are.
    compared: Sequence[Trial] = ()
    #: Why there is no comparison, where one was asked for and cannot be made.
    uncompared: str | None = None
    #: Why the match cannot be made, where it cannot.
    refused: str | None = None
    #: Why there is no verdict, where a trial failed; a retry may still lead to one.
    stopped: str | None = None
