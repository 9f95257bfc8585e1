"""What the store hands out: frozen records, and the states they pass through.

A record is a value: nothing that comes back from the store changes later.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, Literal, TypeVar

from worker.config.training import IMAGES
from worker.report import Report

T = TypeVar("T")


class SweepState(StrEnum):
    """Where a sweep stands. ``reason`` on the record says why."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"

    def is_finished(self) -> bool:
        return self in (SweepState.COMPLETE, SweepState.FAILED, SweepState.CANCELLED)


class TrialState(StrEnum):
    """Where a trial, or one attempt at it, stands."""

    WAITING = "waiting"
    RUNNING = "running"
    COMPLETE = "complete"
    #: Stopped by the scheduler because its point was doing badly.
    PRUNED = "pruned"
    #: Its loss became NaN or infinite.
    DIVERGED = "diverged"
    FAILED = "failed"
    CANCELLED = "cancelled"

    def is_finished(self) -> bool:
        return self not in (TrialState.WAITING, TrialState.RUNNING)


#: How the exit cause of an attempt begins that ended with its worker or its driver.
LOST = "lost: "
#: The same if with their driver or its runner, or on a refused machine: no fault of their worker.
RUNNER_LOST = f"{LOST}the runner stopped"
#: Written by older versions, whoever had stopped.
DRIVER_LOST = f"{LOST}the driver stopped without a word"
SUPERSEDED = f"{LOST}another attempt was started"
MISPLACED = f"{LOST}its machine was refused: "
#: Attempts at a trial whose worker dies under it, in a service and in a batch.
MAX_ATTEMPTS = 3


Kind = Literal["sweep", "match"]
Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")
Direction = Literal["minimize", "maximize"]
#: What a person asked of a sweep and the runner has yet to carry out.
#: ``delete``: cancelled first, then removed by whoever finds it so.
Request = Literal["none", "pause", "cancel", "delete"]


def sign_of(direction: str | None) -> float:
    """Return the factor by which the better of two numbers becomes the smaller: 1 or -1."""
    return -1.0 if direction == "maximize" else 1.0


@dataclass(frozen=True)
class SweepObjective:
    """The metric that a sweep is about, and which end of it is better."""

    metric: str
    direction: Direction
    #: Of one of several: where the hypervolume is measured from, None = the worst point.
    reference: float | None = None

    @property
    def is_maximized(self) -> bool:
        """Whether a larger value is better."""
        return self.direction == "maximize"

    @property
    def sign(self) -> float:
        """Factor by which the better of two values becomes the smaller: 1 or -1."""
        return sign_of(self.direction)

    @property
    def best_first(self) -> str:
        """The ``sort`` of ``Store.points`` that begins with the best mean."""
        return "-mean" if self.is_maximized else "mean"


def objective_of(spec: Mapping[str, Any]) -> SweepObjective:
    """Return a stored spec's objective; where it names none, the validation error, minimized."""
    asked = spec.get("objective") or {}
    return SweepObjective(
        asked.get("metric", "validation_error"), asked.get("direction", "minimize")
    )


def objectives_of(spec: Mapping[str, Any]) -> tuple[SweepObjective, ...]:
    """Return all objectives of a stored spec: one, or several of which the first is its own."""
    several = tuple(
        SweepObjective(one["metric"], one.get("direction", "minimize"), one.get("reference"))
        for one in spec.get("objectives") or ()
    )
    return several or (objective_of(spec),)


@dataclass(frozen=True)
class TrialResources:
    """What one trial occupies."""

    cpus: float
    gpus: float


def resources_of(spec: Mapping[str, Any]) -> TrialResources:
    """Return what a trial of a stored spec occupies: one CPU where it does not say."""
    asked = spec.get("resources") or {}
    return TrialResources(float(asked.get("cpus") or 1.0), float(asked.get("gpus") or 0.0))


#: Of totals of usage (``worker.report.Usage``), those of which the largest counts; others add up.
LARGEST = ("memory_megabytes", "gpu_memory_megabytes", "sharing")


def added_usage(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    """Return what two attempts, or any parts of a sweep, used together."""
    names = dict.fromkeys([*first, *second])
    return {
        name: max(first.get(name, 0.0), second.get(name, 0.0))
        if name in LARGEST
        else first.get(name, 0.0) + second.get(name, 0.0)
        for name in names
    }


@dataclass(frozen=True)
class MachineUse:
    """What a trial or a sweep used of its machines. None = not measured, which is not zero."""

    #: Hours of the processor, and of cards. Trials that one process trains share its hours.
    cpu_hours: float | None
    gpu_hours: float | None
    #: Percent of the cards' time in which any kernel ran, a mean over these hours.
    gpu_utilization_percentage: float | None
    #: Of the cards; divided as the hours are.
    energy_watt_hours: float | None
    #: Largest of the process, in 10^6 bytes: resident, and on a card.
    memory_megabytes: float | None
    gpu_memory_megabytes: float | None
    #: The most trials that one process trained together; its memory is that of all of them.
    sharing: int | None

    @classmethod
    def of(cls, totals: Mapping[str, float]) -> "MachineUse":
        """Read totals of usage, of an attempt or of several."""
        measured = totals.get("gpu_measured_hours")
        return cls(
            cpu_hours=totals.get("cpu_hours"),
            gpu_hours=totals.get("gpu_hours"),
            gpu_utilization_percentage=(
                100 * totals.get("gpu_busy_hours", 0.0) / measured if measured else None
            ),
            energy_watt_hours=totals.get("energy_watt_hours"),
            memory_megabytes=totals.get("memory_megabytes"),
            gpu_memory_megabytes=totals.get("gpu_memory_megabytes"),
            sharing=int(totals["sharing"]) if "sharing" in totals else None,
        )


#: Of what nothing was measured.
NOT_MEASURED = MachineUse.of({})


@dataclass(frozen=True)
class Sweep:
    """One sweep or match, with counts of its trials."""

    id: str
    kind: Kind
    name: str
    state: SweepState
    reason: str
    requested: Request
    #: The spec as submitted, as JSON values (a SweepSpec or a MatchSpec).
    spec: dict[str, Any]
    tags: tuple[str, ...]
    notes: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    #: Trials that the spec asks for in all; None while a match cannot know.
    num_trials: int | None
    #: TrialState -> count, every state present.
    trials: dict[str, int]
    #: Lowest point number with the best mean objective: {"point", "params", "mean", "sd", "n"}.
    best: dict[str, Any] | None
    #: What analysis or matching found, once there is something. JSON values.
    result: dict[str, Any] | None
    #: State of the MLflow mirror: {"experiment_id", "url", "behind_seconds", "error"}.
    mirror: dict[str, Any] | None
    #: Seconds to the end, extrapolated from finished trials; None before the first.
    eta_seconds: float | None
    #: Seconds that ended attempts took, added up over trials: what the sweep has cost.
    trial_seconds: float = 0.0
    #: What its trials used of their machines, as far as it was measured.
    usage: MachineUse = NOT_MEASURED
    #: Who submitted it; "" where nobody was asked for a name.
    owner: str = ""

    # What is read of a spec after it was stored. ``SweepSpec`` and ``MatchSpec`` hold all of it,
    # checked; a spec of an older version may lack what has a default here.

    @property
    def objective(self) -> SweepObjective:
        """What decides which point is best. A match has none; see ``objective_of``."""
        return objective_of(self.spec)

    @property
    def objectives(self) -> tuple[SweepObjective, ...]:
        """All of them, ``objective`` first; one alone unless the search is for a front."""
        return objectives_of(self.spec)

    @property
    def has_front(self) -> bool:
        """Whether there are several objectives, so that no single point is best."""
        return len(self.objectives) > 1

    @property
    def training(self) -> str:
        """What its trials run, by registered name."""
        return self.spec.get("training") or IMAGES

    @property
    def package(self) -> dict[str, str] | None:
        """Name and version of the package that its training comes from; None for images."""
        return self.spec.get("package")

    @property
    def parts(self) -> dict[str, dict[str, str]]:
        """Package of each registered part of the built-in training: ``networks/mine`` and so on."""
        return self.spec.get("parts") or {}

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """Declared metrics by name: direction, unit, description, test; {} for images."""
        return self.spec.get("metrics") or {}

    @property
    def base(self) -> dict[str, Any]:
        """Fields of the training config that every trial shares, as far as they were given."""
        return self.spec.get("base") or {}

    @property
    def space(self) -> dict[str, dict[str, Any]]:
        """Field -> domain of what the sweep varies, in the spec's order."""
        return self.spec.get("space") or {}

    @property
    def replicates(self) -> int:
        """Seeds of each point."""
        return self.spec.get("replicates") or 1

    @property
    def num_points(self) -> int | None:
        """Points in all; None where the space or a list counts them."""
        return self.spec.get("num_points")

    @property
    def sampler(self) -> str | None:
        """What chooses points."""
        return self.spec.get("sampler")

    @property
    def scheduler(self) -> dict[str, Any] | None:
        """What stops points early, by its ``kind``; None if nothing does."""
        return self.spec.get("scheduler")

    @property
    def resources(self) -> TrialResources:
        """What one trial occupies."""
        return resources_of(self.spec)

    @property
    def confirms(self) -> dict[str, Any] | None:
        """Of a confirmation: the sweep and the numbers of the points that it trains again."""
        return self.spec.get("confirms")

    @property
    def declared_comparison(self) -> dict[str, Any]:
        """How its arms are to be compared, declared at submission: pairing, margin."""
        return self.spec.get("comparison") or {}

    def arm_setting(self, side: Side) -> dict[str, Any]:
        """Return the settings of a match's source or target; {} in a sweep."""
        return self.spec.get(side) or {}

    @property
    def criterion(self) -> str | None:
        """What a match makes equal; None while its schedule decides."""
        return self.spec.get("criterion")

    @property
    def tolerance(self) -> float:
        """How far the rates of a match may lie apart and count as equal, as a fraction."""
        return float(self.spec.get("tolerance", 0.05))


@dataclass(frozen=True)
class Point:
    """One configuration of a sweep, its replicates taken together: a row of the leaderboard."""

    sweep_id: str
    number: int
    params: dict[str, Any]
    #: Mean of the objective over finished replicates, its standard deviation (None for n < 2).
    mean: float | None
    sd: float | None
    n: int
    #: Of the replicates; running if any runs.
    state: TrialState


@dataclass(frozen=True)
class Attempt:
    """One try at a trial. A trial has several after a crash, a pause or a retry."""

    id: int
    number: int
    state: TrialState
    started_at: datetime
    finished_at: datetime | None
    #: "" while running; else what ended it: "complete", "diverged at step 12", "killed", …
    exit_cause: str
    #: Host, pid, git commit, versions, card, data checksum, peak memory in bytes.
    provenance: dict[str, Any]
    mlflow_run_id: str | None
    usage: MachineUse = NOT_MEASURED


def losses(ends: Iterable[tuple[TrialState, str]]) -> int:
    """How many workers in a row died under a trial, by state and exit cause of its attempts.

    In order, from any driver. Those that ended with their driver or on a refused machine, were
    stopped or still run do not count; one that settled the trial, so that a person let it wait
    again, starts the count anew.
    """
    count, nobodys = 0, (RUNNER_LOST, DRIVER_LOST, SUPERSEDED, MISPLACED)
    for state, cause in ends:
        if state != TrialState.FAILED or cause.startswith(nobodys):
            continue
        count = (count + 1) % MAX_ATTEMPTS if cause.startswith(LOST) else 0
    return count


@dataclass(frozen=True)
class Trial:
    """One configuration trained once with one seed."""

    sweep_id: str
    number: int
    point: int
    seed: int
    state: TrialState
    #: The sampled values.
    params: dict[str, Any]
    #: The resolved config of the sweep's training, as JSON values without device.
    config: dict[str, Any]
    #: config_key(config); (sweep_id, config_key, seed) is unique.
    config_key: str
    #: What the trial is for in a match: "source", "calibration", "verdict"; "" in a sweep.
    role: str
    #: Measurement as JSON values, or None. See worker.report.
    measurement: dict[str, Any] | None
    #: Last value of the objective, None if it never was finite.
    objective: float | None
    #: Latest value of every scalar metric.
    metrics: dict[str, float]
    step: int
    #: Steps of the whole run, None before the first report.
    num_steps: int | None
    diverged_at_step: int | None
    exit_cause: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    attempts: tuple[Attempt, ...] = field(default=())
    #: Of all attempts together.
    usage: MachineUse = NOT_MEASURED

    def values_of(self, objectives: Sequence[str]) -> tuple[float | None, ...]:
        """Return the last value of each objective, the sweep's own first; None = never finite."""
        return self.objective, *(self.metrics.get(name) for name in objectives[1:])


@dataclass(frozen=True)
class Event:
    """Something that happened to a sweep, in order. ``id`` grows within the whole store."""

    id: int
    sweep_id: str
    at: datetime
    #: "sweep" (state changed), "trial" (state changed), "progress" (a report arrived), "result".
    kind: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Page(Generic[T]):
    """Part of a listing; ``next`` is the cursor of the following part."""

    items: list[T]
    next: str | None


@dataclass(frozen=True)
class Claim:
    """A runner's right to drive one sweep. Writes with an old token are refused."""

    sweep_id: str
    token: int
    owner: str


@dataclass(frozen=True)
class Demand:
    """What a driven sweep has and wants of the cluster."""

    sweep_id: str
    #: Of one trial.
    cpus: float
    gpus: float
    #: Trials at once that its spec asks for; None = as many as fit.
    concurrency: int | None
    waiting: int
    running: int
    #: When a trial of it last started for the first time, microseconds since 1970; 0 = never.
    last_start: int


@dataclass(frozen=True)
class NewTrial:
    """A trial to be added to a sweep. The store gives it its number."""

    point: int
    seed: int
    params: dict[str, Any]
    #: TrialConfig.stored() with this seed.
    config: dict[str, Any]
    config_key: str
    role: str = ""
    measurement: dict[str, Any] | None = None


@dataclass(frozen=True)
class TrialReports:
    """Reports of one attempt at a trial, in the order they arrived."""

    number: int
    attempt_id: int
    reports: list[Report]


@dataclass(frozen=True)
class AttemptEnd:
    """How one attempt ended, and what that means for its trial."""

    number: int
    attempt_id: int
    #: Of the attempt.
    state: TrialState
    trial_state: TrialState
    exit_cause: str


@dataclass(frozen=True)
class PointCurve:
    """One metric of one point over steps: mean, deviation and count over its seeds."""

    point: int
    steps: list[int]
    mean: list[float]
    #: None where fewer than two seeds have reached the step.
    sd: list[float | None]
    n: list[int]


@dataclass(frozen=True)
class TrialCurves:
    """What one trial reported over its steps."""

    number: int
    point: int
    seed: int
    #: (step, value) by metric name, every reported step, in order.
    curves: dict[str, list[tuple[int, float]]]


@dataclass(frozen=True)
class SavedView:
    """What a page shows, under a name that people gave it."""

    #: None: of the page with trials of several sweeps.
    sweep_id: str | None
    name: str
    #: Query of the page's address, without the question mark.
    query: str
    saved_at: datetime
    #: Who saved it; "" where nobody was asked for a name.
    owner: str = ""


@dataclass(frozen=True)
class MetricPoint:
    """One reported value as the mirror sends it; ``at_ms`` never changes, so repeats are alike."""

    seq: int
    name: str
    step: int
    value: float
    at_ms: int


@dataclass(frozen=True)
class PendingAttempt:
    """An attempt with metrics or a state that the mirror has not sent yet."""

    trial: Trial
    attempt: Attempt
    metrics: list[MetricPoint]
    #: Acknowledge with this: the ``seq`` of the last of ``metrics``, or what was sent before.
    upto: int
    #: Metrics beyond ``upto`` wait for the next round.
    more: bool
    #: Samples of its usage, and what to acknowledge them with.
    usage: list[MetricPoint] = field(default_factory=list)
    usage_upto: int | None = None


@dataclass(frozen=True)
class PendingSweep:
    """A sweep that changed since the mirror sent it. Acknowledge with ``revision``."""

    sweep: Sweep
    revision: int


@dataclass(frozen=True)
class DeletedSweep:
    """A sweep that was deleted, until the mirror has ended what MLflow shows of it as running."""

    sweep_id: str
    name: str
    #: None where the store never learnt where it lies in MLflow.
    experiment_id: str | None


@dataclass(frozen=True)
class MirrorWork:
    """What the mirror has yet to send, oldest first."""

    sweeps: list[PendingSweep]
    attempts: list[PendingAttempt]


@dataclass(frozen=True)
class Backlog:
    """How far the mirror is behind."""

    sweeps: int
    attempts: int
    metrics: int


@dataclass(frozen=True)
class Runner:
    """A runner's last sign of life, and what it said about its cluster."""

    owner: str
    at: datetime
    info: dict[str, Any]


@dataclass(frozen=True)
class SweepCount:
    """How many sweeps of one kind are in one state, and how many trials they have by state."""

    kind: Kind
    state: SweepState
    sweeps: int
    trials: dict[str, int]
