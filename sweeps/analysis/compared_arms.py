"""Arms of finished sweeps to compare: their trials, values by seed, and origins."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from sweeps.analysis.arms import ArmResult, analysis, complete_trials, config_values
from sweeps.analysis.verdicts import Sample
from sweeps.errors import SweepStateConflict
from sweeps.records import Sweep, Trial, TrialState
from sweeps.spec.model import Label, SpecModel, SweepRef
from sweeps.store.store import Store
from worker.config.train_config import FieldError

Number = Annotated[int, Field(strict=True, ge=0, lt=2**31)]

#: What of an attempt's provenance may make two numbers incomparable.
_ORIGINS = ("git_commit", "device", "card", "threads")
_CHECKSUM = "data checksum"


class ArmRef(SpecModel):
    """One arm, or with ``sweep`` alone every arm of a sweep: the best point of each optimizer."""

    sweep: SweepRef = Field(description="Id of a finished sweep or match.")
    point: Number | None = Field(None, description="One point of it.")
    trials: Annotated[list[Number], Field(min_length=1, max_length=1000)] | None = Field(
        None, description="These trials of it, whatever their point."
    )
    label: Label | None = Field(None, description="What tables call it.")

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        if self.point is not None and self.trials is not None:
            raise FieldError("point", "point and trials exclude each other; give one of them")
        return self


@dataclass(frozen=True)
class Arm:
    """One side of a comparison."""

    label: str
    sweep: Sweep
    point: int | None
    params: dict[str, Any]
    #: Whether it is the best of several by its own results: optimistic until confirmed.
    selected: bool
    #: Points that it is the best of.
    chosen_from: int
    #: Complete trials, in the order of their seeds.
    trials: list[Trial]
    #: Trials of it that have no value, by state.
    lost: dict[str, int]
    #: Field -> every value that its trials have, as far as they can be compared.
    config: dict[str, list[Any]]
    #: Source of difference (card, version, commit, data) -> every value that its attempts had.
    origins: dict[str, list[str]]

    @property
    def seeds(self) -> list[int]:
        """The seed of each trial; trials that were named one by one may share one."""
        return [trial.seed for trial in self.trials]

    def values(self, metric: str) -> list[float]:
        """The value of each trial; [] unless every one has it."""
        found = [value_of(trial, self.sweep, metric) for trial in self.trials]
        known = [value for value in found if value is not None]
        return known if len(known) == len(self.trials) else []

    def sample(self, metric: str) -> Sample:
        """What is judged of it."""
        checksums = self.origins.get(_CHECKSUM, [])
        return Sample(self.label, metric, self.values(metric), self.seeds, self.config, checksums)


def value_of(trial: Trial, sweep: Sweep, metric: str) -> float | None:
    """The last value of a metric that a trial reported."""
    if metric == metric_of(sweep) and trial.objective is not None:
        return trial.objective
    return trial.metrics.get(metric)


def metric_of(sweep: Sweep) -> str | None:
    """The metric that a sweep is about; None for a match."""
    return sweep.objective.metric if sweep.kind == "sweep" else None


def collect(store: Store, refs: Sequence[ArmRef]) -> list[list[Arm]]:
    """The arms of each reference. Raises NotFound, SweepStateConflict, FieldError."""
    groups = [list(_arms(store, ref, f"arms.{index}")) for index, ref in enumerate(refs)]
    _refuse_shared_trials(groups)
    return groups


def _refuse_shared_trials(groups: Sequence[list[Arm]]) -> None:
    """A trial on both sides makes them alike: no test of two samples holds then."""
    seen: set[tuple[str, int]] = set()
    for index, arms in enumerate(groups):
        for arm in arms:
            for trial in arm.trials:
                key = (arm.sweep.id, trial.number)
                if key in seen:
                    raise FieldError(
                        f"arms.{index}",
                        f"trial {trial.number} of sweep {arm.sweep.id} is in two arms; each needs "
                        "trials of its own",
                    )
                seen.add(key)


def _arms(store: Store, ref: ArmRef, path: str) -> Iterator[Arm]:
    sweep = store.get_sweep(ref.sweep)
    if not sweep.state.is_finished():
        raise SweepStateConflict(
            f"cannot compare sweep {sweep.id}: it is {sweep.state.value}, not finished",
            field=f"{path}.sweep",
        )
    found = analysis(store, sweep.id) if sweep.kind == "sweep" else None
    best = {arm.point: arm for arm in found.arms if arm.point is not None} if found else {}
    if ref.trials is not None:
        trials = [store.trial(sweep.id, number) for number in dict.fromkeys(ref.trials)]
        # Named one by one, the trials of a selected point are as optimistic as the point.
        of = [best[trial.point] for trial in trials if trial.point in best]
        picked = next((arm for arm in of if arm.selected), None)
        yield _arm(store, sweep, trials, ref.label, None, _chosen(picked))
        return
    numbers = list(best) if ref.point is None else [ref.point]
    if not numbers:
        raise FieldError(f"{path}.sweep", f"sweep {sweep.id} has no point with a mean")
    for number in numbers:
        trials = list(store.all_trials(sweep.id, point=number))
        if not trials:
            raise FieldError(f"{path}.point", f"sweep {sweep.id} has no point {number}")
        label = ref.label if len(numbers) == 1 else None
        yield _arm(store, sweep, trials, label, number, _chosen(best.get(number)))


def _chosen(arm: ArmResult | None) -> tuple[bool, int]:
    """Whether a point was selected, and from how many."""
    return (arm.selected, arm.points) if arm else (False, 1)


def _arm(
    store: Store,
    sweep: Sweep,
    trials: Sequence[Trial],
    label: str | None,
    point: int | None,
    chosen: tuple[bool, int],
) -> Arm:
    complete = complete_trials(trials)
    lost: dict[str, int] = {}
    for trial in trials:
        if trial.state != TrialState.COMPLETE:
            lost[trial.state.value] = lost.get(trial.state.value, 0) + 1
    params = trials[0].params if point is not None else {}
    return Arm(
        label=label or _label(sweep, point, params),
        sweep=sweep,
        point=point,
        params=params,
        selected=chosen[0],
        chosen_from=chosen[1],
        trials=complete,
        lost=lost,
        config=config_values(complete or trials),
        origins=_origins(store, sweep.id, complete),
    )


def _label(sweep: Sweep, point: int | None, params: Mapping[str, Any]) -> str:
    optimizer = params.get("optimizer")
    name = f"{sweep.name} {optimizer}" if optimizer else sweep.name
    return f"{name} #{point}" if point is not None else f"{name} (trials)"


def _origins(store: Store, sweep_id: str, trials: Sequence[Trial]) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for tries in store.attempts_of(sweep_id, [trial.number for trial in trials]).values():
        for attempt in tries:
            for name, value in _flat(attempt.provenance):
                found.setdefault(name, set()).add(str(value))
    return {name: sorted(values) for name, values in sorted(found.items())}


def _flat(provenance: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name in _ORIGINS:
        if provenance.get(name) is not None:
            yield name, provenance[name]
    for package, version in (provenance.get("versions") or {}).items():
        yield f"version of {package}", version
    checksum = (provenance.get("data") or {}).get("checksum")
    if checksum is not None:
        yield _CHECKSUM, checksum
