"""The trials of one match: what they recorded step by step, and what its proposer has decided.

Kept for as long as the match is driven.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from ndadam.matching.verdict import Pair
from ndadam.theory.prediction import level_factor
from sweeps.match.match_spec import MatchSpec
from sweeps.records import Trial, TrialState
from sweeps.search.protocol import Finished, Proposal, TrialReader, Wait
from worker.config.train_config import SchedulePoints

HEADLINE = "effective_lr"

#: The step that ND-Adam would take at alpha^v = 1 on the gradients of another optimizer.
SHADOW = "shadow_step"


class IncompleteSeries(ValueError):
    """A trial's series has a gap, another cadence, or ends before the run does."""


@dataclass(frozen=True)
class Recorded:
    """One quantity of a run at steps 0, every, 2 every, …"""

    every: int
    values: tuple[float, ...]

    def window(self, start: int, stop: int) -> "Recorded":
        """Records of the steps start <= step < stop."""
        first, end = -(-start // self.every), -(-stop // self.every)
        return Recorded(self.every, self.values[first:end])


def read_series(
    reader: TrialReader, trial: int, name: str, *, every: int, num_steps: int
) -> Recorded:
    """A whole run's records. Raises IncompleteSeries, which says where they break off."""
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
    return Recorded(every, tuple(values))


def rms_over(runs: Sequence[Recorded]) -> Recorded:
    """Root mean square over runs, step by step."""
    columns = zip(*(run.values for run in runs), strict=True)
    return Recorded(runs[0].every, tuple(fmean(v * v for v in column) ** 0.5 for column in columns))


#: A layer ran away where its last step is this many times its median one, of so many at least.
_RUNAWAY, _FEWEST_RECORDS = 2.0, 10


class MatchRuns:
    """Trials by what they train, and their series, read once."""

    def __init__(self, spec: MatchSpec, reader: TrialReader) -> None:
        self.spec = spec
        self._reader = reader
        self._trials: dict[tuple[str, int], Trial] = {}
        self._series: dict[tuple[int, str], Recorded] = {}

    def learn(self, trial: Trial) -> None:
        """Take in the latest state of a trial."""
        self._trials[trial.config_key, trial.seed] = trial

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

    def series(self, trial: Trial, name: str = HEADLINE) -> Recorded:
        """A trial's records over its whole run. Raises IncompleteSeries."""
        key = trial.number, name
        if key not in self._series:
            steps = trial.config["steps"]
            self._series[key] = read_series(
                self._reader, trial.number, name, every=self.spec.record_every, num_steps=steps
            )
        return self._series[key]

    def wanted(self, trials: Sequence[Trial], name: str = HEADLINE) -> Recorded:
        """What the target should do: the source's curve over seeds, at the chosen level."""
        spec = self.spec
        scale = level_factor(spec.source_setting, spec.target_setting, spec.level or "step")
        mean = self.recorded() or rms_over([self.series(trial, name) for trial in trials])
        return Recorded(mean.every, tuple(scale * value for value in mean.values))

    def recorded(self) -> Recorded | None:
        """The source's curve where it was recorded before the match; None where it is trained."""
        curve = self.spec.source.curve
        if curve is None:
            return None
        records = -(-self.spec.num_steps // curve.every)
        return Recorded(curve.every, curve.values[:records])

    def shadow(self, trials: Sequence[Trial]) -> tuple[float, ...]:
        """ND-Adam's steps at alpha^v = 1 on the source's gradients; empty where not recorded."""
        if not trials or not all(self._reader.series(t.number, SHADOW) for t in trials):
            return ()
        return rms_over([self.series(trial, SHADOW) for trial in trials]).values

    def runaway_layer(self, trial: Trial) -> tuple[str, float] | None:
        """The layer that ran away most before a run diverged: last step over its usual one.

        None where no layer did, or too little was recorded.
        """
        found = []
        for layer in layers_of(trial):
            pieces = self._reader.series(trial.number, f"{HEADLINE}/{layer}")
            values = [value for piece in pieces for value in piece.values]
            usual = median(values) if len(values) >= _FEWEST_RECORDS else 0.0
            if usual > 0 and values[-1] > _RUNAWAY * usual:
                found.append((layer, values[-1] / usual))
        return max(found, key=lambda pair: pair[1], default=None)

    def pairs(
        self, sources: Sequence[Trial], targets: Sequence[Trial], name: str = HEADLINE
    ) -> list[Pair]:
        """Whole runs of source and target with the same seed, at the chosen level.

        A recorded source stands beside every target.
        """
        if self.spec.source.curve is not None:
            wanted = self.wanted([], name).values
            return [Pair(wanted, self.series(target, name).values) for target in targets]
        return [
            Pair(self.wanted([source], name).values, self.series(target, name).values)
            for source, target in zip(sources, targets, strict=True)
        ]


def mean_metric(trials: Sequence[Trial], name: str) -> float | None:
    """A final metric over trials; None where one of them lacks it."""
    values = [trial.metrics.get(name) for trial in trials]
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def layers_of(trial: Trial) -> list[str]:
    """Layers with records of their own, in the order in which the network counts them."""
    prefix = f"{HEADLINE}/"
    return [name.removeprefix(prefix) for name in trial.metrics if name.startswith(prefix)]


def probe_of(trials: Sequence[Trial]) -> dict[str, Any]:
    """What the structure probe found: {"counts": …, "layers": …}; empty if nothing is known."""
    for trial in trials:
        for attempt in reversed(trial.attempts):
            if "probe" in attempt.provenance:
                probe: dict[str, Any] = attempt.provenance["probe"]
                return probe
    return {}


@dataclass(frozen=True)
class CalibrationRun:
    """One calibration run: what it did and what was wanted."""

    trial: int
    effective_lr: float
    log_ratio: float


@dataclass(frozen=True)
class Round:
    """One calibration round: its runs at one rate, and the rate that follows."""

    rate: float
    runs: tuple[CalibrationRun, ...]
    #: Mean over runs.
    log_ratio: float
    slope: float
    next_rate: float


@dataclass
class MatchState:
    """Decisions in the order in which they are made. Rebuilt from the trials whenever asked."""

    #: Complete source runs, one per seed; empty until all are.
    sources: list[Trial] = field(default_factory=list)
    #: Whether the source is known: its runs are complete, or it was recorded before.
    has_source: bool = False
    #: A, averaged over sources; 1 where the target has none.
    gain: float = 1.0
    #: The rate by the chosen criterion from measured sources and gain.
    predicted: float | None = None
    #: For criterion schedule, the target's lr_schedule.
    points: SchedulePoints | None = None
    rounds: list[Round] = field(default_factory=list)
    #: Whether calibration has ended, so that ``rate`` is the one that the verdict tests.
    is_calibrated: bool = False
    rate: float | None = None
    #: Complete verdict runs, in the order of ``sources``; empty until all are.
    verdicts: list[Trial] = field(default_factory=list)
    #: Complete runs on fresh seeds, source and target in turns; empty until all are.
    compared: list[Trial] = field(default_factory=list)
    #: Why there is no comparison, where one was asked for and cannot be made.
    uncompared: str | None = None
    #: Why the match cannot be made, where it cannot.
    refused: str | None = None
    #: Why there is no verdict, where a trial failed; a retry may still lead to one.
    stopped: str | None = None
