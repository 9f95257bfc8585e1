"""What the API answers with. No field has a default, so clients may rely on every one.

Times are RFC 3339 in UTC; fractions are 0..1; numbers that are not finite are null.
"""

from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from sweeps.records import Direction, Kind, SweepState, TrialState

T = TypeVar("T")


class Output(BaseModel):
    """Built from a record of the store, attribute by attribute."""

    model_config = ConfigDict(from_attributes=True, frozen=True)


class FieldOut(Output):
    """What is wrong with one field of the request."""

    path: str
    reason: str


class ErrorOut(Output):
    """Any error: its name, a sentence for a person, and the fields it is about."""

    error: str
    detail: str
    fields: list[FieldOut]


class PageOut(Output, Generic[T]):
    """Part of a listing; pass ``next`` as ``cursor`` for the following part."""

    items: list[T]
    next: str | None


class BestOut(Output):
    """The point with the best mean so far: chosen among many, so its mean flatters it."""

    point: int
    params: dict[str, Any]
    mean: float
    sd: float | None
    n: int
    #: A confirmation's points were chosen elsewhere, on other seeds.
    label: Literal[
        "selected, optimistic", "confirmed on fresh seeds", "by the first objective alone"
    ]


class MachineUseOut(Output):
    """What was used of machines, as far as it was measured; null = not measured, which is not 0."""

    cpu_hours: float | None
    #: Trials that one process trained together have their share of its hours and energy.
    gpu_hours: float | None
    gpu_utilization_percentage: float | None
    energy_watt_hours: float | None
    #: The largest of a process, in 10^6 bytes: resident, and on a card.
    memory_megabytes: float | None
    gpu_memory_megabytes: float | None
    #: The most trials that one process trained together.
    sharing: int | None


class SweepOut(Output):
    """One sweep or match with the counts of its trials by state."""

    id: str
    kind: Kind
    name: str
    state: SweepState
    reason: str
    requested: Literal["none", "pause", "cancel", "delete"]
    spec: dict[str, Any]
    tags: list[str]
    notes: str
    #: Who submitted it; "" where nobody was asked for a name.
    owner: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    num_trials: int | None
    trials: dict[TrialState, int]
    best: BestOut | None
    result: dict[str, Any] | None
    mirror: dict[str, Any] | None
    eta_seconds: float | None
    #: Of all its trials.
    usage: MachineUseOut


class AttemptOut(Output):
    """One try at a trial."""

    id: int
    number: int
    state: TrialState
    started_at: datetime
    finished_at: datetime | None
    exit_cause: str
    provenance: dict[str, Any]
    mlflow_run_id: str | None
    usage: MachineUseOut


class TrialOut(Output):
    """One configuration trained with one seed."""

    sweep_id: str
    number: int
    point: int
    seed: int
    state: TrialState
    params: dict[str, Any]
    config: dict[str, Any]
    config_key: str
    role: str
    measurement: dict[str, Any] | None
    objective: float | None
    metrics: dict[str, float]
    step: int
    num_steps: int | None
    diverged_at_step: int | None
    exit_cause: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    #: Of all its attempts.
    usage: MachineUseOut
    attempts: list[AttemptOut]


class UsageOut(Output):
    """What a trial used of its machine, in all and over time."""

    total: MachineUseOut
    #: (seconds since the trial's first start, value) by name, as MLflow names its system metrics.
    curves: dict[str, list[tuple[float, float]]]


class SavedViewOut(Output):
    """A view that people saved under a name."""

    #: Null of the page with trials of several sweeps.
    sweep_id: str | None
    name: str
    #: Query of the page's address, without the question mark.
    query: str
    saved_at: datetime
    #: Who saved it; "" where nobody was asked for a name.
    owner: str


class SavedViewsOut(Output):
    """The saved views of one page, by name."""

    items: list[SavedViewOut]


class MetricsOut(Output):
    """(step, value) by metric name, thinned to at most ``max_points`` each."""

    metrics: dict[str, list[tuple[int, float]]]


class ImageOut(Output):
    """An image that notes of its sweep may show."""

    name: str
    width: int
    height: int
    bytes: int
    #: What to write into the notes.
    markdown: str


class PointOut(Output):
    """One configuration of a sweep, its replicates taken together."""

    number: int
    params: dict[str, Any]
    #: Of the objective (of several: the first) over complete replicates, in the metric's own unit;
    #: null without one, and where a replicate diverged.
    mean: float | None
    #: Standard deviation, and ends of the mean's 95 % interval (of an error, on the logit scale);
    #: null for fewer than two seeds.
    sd: float | None
    low: float | None
    high: float | None
    n: int
    #: Of the replicates; running if any runs.
    state: TrialState


class CurveOut(Output):
    """A metric over optimizer steps: as many values as steps, in order."""

    steps: list[int]
    values: list[float]


class TrialCurvesOut(Output):
    """Whole curves of one trial by metric name."""

    number: int
    point: int
    seed: int
    curves: dict[str, CurveOut]


class BestTrialOut(Output):
    """The trial whose final weights are kept: the best single one by the first objective."""

    sweep_id: str
    trial: int
    point: int
    seed: int
    params: dict[str, Any]
    objective: float
    #: Of the file of weights: its length in bytes, its checksum in hexadecimal digits.
    bytes: int
    sha256: str


class RateOut(Output):
    """How long the whole spec takes at the rate of earlier trials of its shape on one card."""

    card: str
    seconds_per_step: float
    #: Trials that were measured.
    trials: int
    #: Hours of all trials one after another, and of GPU that they occupy.
    trial_hours: float
    gpu_hours: float


class ValidationOut(Output):
    """What a spec would do. Nothing was created."""

    kind: Kind
    name: str
    #: None where the spec leaves the number to what is found on the way.
    points: int | None
    replicates: int
    trials: int | None
    #: Optimizer steps of all trials together; None where a run's length depends on its data set.
    steps: int | None
    #: At the rate of the card with the most earlier trials; None = not known, 0 without a GPU.
    gpu_hours: float | None
    #: By card; none where no trial of this shape has been trained.
    rates: list[RateOut]
    #: Difference of two arms' means that this many seeds show with 80 % power at 5 %, in fractions.
    detectable_difference: float | None
    #: The difference that the spec asks for, and the seeds per point that show it.
    difference: float | None
    seeds_needed: int | None
    #: Deviation between seeds that both assume, in fractions, and where it comes from. None where
    #: nothing is known, of a training of one's own.
    assumed_seed_deviation: float | None
    seed_deviation_is: Literal["assumed", "measured"]
    notes: list[str]


class CriterionOut(Output):
    """What one criterion of equality says."""

    criterion: str
    #: The target's learning rate at factor 1.
    rate: float
    formula: str
    gain: float
    #: (step, factor on rate) for the criterion "schedule"; null for the others.
    points: list[tuple[int, float]] | None


class PredictionOut(Output):
    """The closed-form match of two settings. Effective learning rates are fractions of a norm."""

    rate_name: str
    level: str
    num_steps: int
    effective_lr: float
    target_effective_lr: float
    tau_steps: float
    beta2_equivalent: float
    #: The usual one for the schedule: stationary for a constant rate, else least_squares.
    criterion: str
    criteria: list[CriterionOut]
    #: (step, effective learning rate) of the source, thinned.
    curve: list[tuple[int, float]]
    trust_from_step: int
    trust_until_step: int
    warnings: list[str]


class ComparedArmOut(Output):
    """One arm of a comparison. Means and values are in the metric's own unit."""

    label: str
    sweep: str
    point: int | None
    params: dict[str, Any]
    #: The best of several by its own results: optimistic until confirmed.
    selected: bool
    chosen_from: int
    n: int
    mean: float | None
    sd: float | None
    #: Ends of the 95 % t-interval of the mean.
    low: float | None
    high: float | None
    seeds: list[int]
    #: By seed, in the order of ``seeds``.
    values: list[float]
    trials: list[int]
    #: Trials without a value, by state.
    lost: dict[str, int]


class DifferenceOut(Output):
    """Arm a minus arm b with its 95 % interval, and Holm's p over the whole comparison."""

    a: str
    b: str
    method: Literal["welch", "paired"]
    difference: float
    low: float
    high: float
    df: float
    p_value: float
    p_holm: float
    verdict: Literal["lower", "higher", "not shown"]
    #: None where no margin was declared.
    non_inferior: bool | None
    worst_case: float | None


class NotComparableOut(Output):
    """Two arms that no verdict is given on: measured on other images, or without any spread."""

    a: str
    b: str
    #: Where fields are the reason, with their values.
    reason: str


class FieldValuesOut(Output):
    """A field that is not the same in all arms, with the value of each."""

    field: str
    values: dict[str, Any]


class OriginOut(Output):
    """A version, card, commit or checksum that is not one for all trials, by arm."""

    what: str
    values: dict[str, list[str]]


class ComparisonOut(Output):
    """Arms compared with each other, and everything else that tells them apart."""

    metric: str
    direction: Direction
    #: Both as declared by every sweep before its submission.
    pairing: bool
    margin: float | None
    arms: list[ComparedArmOut]
    differences: list[DifferenceOut]
    not_comparable: list[NotComparableOut]
    detectable_difference: float | None
    differing_fields: list[FieldValuesOut]
    mixed_provenance: list[OriginOut]
    notes: list[str]


class PresetOut(Output):
    """A spec that ships with the product."""

    name: str
    kind: Kind
    title: str
    spec: dict[str, Any]


class DatasetOut(Output):
    """A prepared data set. Channel means and deviations are those of pixels, 0..255."""

    name: str
    num_train: int
    num_test: int
    #: Height, width, channels.
    shape: tuple[int, int, int]
    classes: list[str]
    channel_means: list[float]
    channel_deviations: list[float]
    checksum: str
    source: str


class MachineOut(Output):
    """A machine of the cluster, as the runner sees it."""

    #: Host and address; "" from a runner of an older version.
    name: str
    cpus: float
    gpus: float
    #: Memory of its smallest card; null while it is not known, and without a card.
    card_bytes: int | None
    #: Why it gets no trials of any sweep; "" = it may.
    refused: str


class OptimizerOut(Output):
    """An optimizer, the fields it reads, and their published values by recipe."""

    name: str
    fields: list[str]
    published: dict[str, dict[str, Any]]


class DeclaredMetricOut(Output):
    """What is known of a metric before anything is measured."""

    direction: Direction | None
    unit: str
    description: str
    test: bool


class TrainingOut(Output):
    """What a spec may name as its training, and what it then has in base, space and objective."""

    name: str
    #: The distribution that registers it, and its version here; None for trials that run elsewhere.
    package: str | None
    version: str | None
    #: Declared metrics by name.
    metrics: dict[str, DeclaredMetricOut]
    #: JSON schema of its config; {} until it is known.
    config: dict[str, Any]
    #: "loading" while its package is imported; "error" where no spec can name it now.
    state: Literal["ready", "loading", "error"]
    #: Why no spec can name it now; "" if one can, or if that is not known yet.
    error: str


class PartOut(Output):
    """A part of the built-in training that a package registers, and its fields in a spec."""

    #: Field of a config that names it.
    field: str
    name: str
    package: str
    version: str
    #: Its fields by their names in base and space -> JSON schema of each.
    fields: dict[str, Any]
    #: Why no spec can name it now; "" if one can.
    error: str


#: ``down``: the part does not do its work at all.
PartState = Literal["ok", "degraded", "down"]


class HealthOut(Output):
    """The process answers; ``store`` says whether the database does, when that was asked."""

    status: Literal["ok", "degraded", "unavailable"]
    version: str
    store: Literal["ok", "unavailable", "not asked"]


class ServicePartOut(Output):
    """One part of the service, as ``/readyz`` lists it."""

    name: Literal["store", "runner", "ray", "mlflow", "disk"]
    state: PartState
    detail: str


class ReadyOut(HealthOut):
    """Requests can be served; ``status`` is ``degraded`` while a part is not ``ok``."""

    parts: list[ServicePartOut]


class ListOut(Output, Generic[T]):
    """A short listing that always comes whole."""

    items: list[T]


class EventOut(Output):
    """The data of one server-sent event; its id and its event name are the event's own."""

    id: int
    sweep_id: str
    at: datetime
    kind: str
    data: dict[str, Any]
