"""What happens between a valid spec and the store: can it run here, and what would it do."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any, TypeVar

from service.contract.errors import ApiError, refused, refused_field
from service.contract.outputs import BestOut, PageOut, SweepOut
from service.settings import Settings
from service.submission.own_training import (
    of_runner,
    packages_that_workers_lack,
    parts_that_workers_lack,
    rules_that_its_package_has,
    with_package,
)
from sweeps.cluster.capacity import ClusterShape, can_run, no_room
from sweeps.errors import SweepNotFound
from sweeps.match.match_spec import MatchSpec
from sweeps.records import Kind, Page, Runner, Sweep
from sweeps.spec.prior import with_earlier_results
from sweeps.spec.sweep_spec import SweepSpec
from sweeps.store.store import Store
from worker.config.parts import is_registered
from worker.config.train_config import FieldError, TrainConfig
from worker.config.training import EXTERNAL, IMAGES
from worker.data.prepared import DatasetInfo, dataset_info
from worker.data.run_length import check_fits
from worker.errors import DatasetNotFound, DatasetRefused
from worker.process.logs import add_ids

Record = TypeVar("Record")
Out = TypeVar("Out")
AnySpec = SweepSpec | MatchSpec
Spec = TypeVar("Spec", SweepSpec, MatchSpec, SweepSpec | MatchSpec)
#: Of one config: the field to blame and a sentence.
Reasons = Iterator[tuple[str, str]]


def sweep_out(sweep: Sweep) -> SweepOut:
    """A sweep as the API shows it: its best point carries the warning that it was selected."""
    label = "confirmed on fresh seeds" if sweep.confirms else "selected, optimistic"
    if sweep.has_front:
        label = "by the first objective alone"
    best = sweep.best and BestOut.model_validate(sweep.best | {"label": label})
    fields = {name: getattr(sweep, name) for name in SweepOut.model_fields}
    return SweepOut.model_validate(fields | {"best": best})


def page_out(page: Page[Record], convert: Callable[[Record], Out]) -> PageOut[Out]:
    return PageOut(items=[convert(item) for item in page.items], next=page.next)


def stored_spec(spec: AnySpec) -> dict[str, Any]:
    """The spec as JSON values from which the same spec can be read again."""
    values = spec.model_dump(mode="json")
    if isinstance(spec, MatchSpec):
        # What base leaves unset belongs to the two arms; written out, it would be refused there.
        values["base"] = spec.base.model_dump(mode="json", exclude_unset=True)
    return values


def num_trials(spec: AnySpec) -> int | None:
    """Trials in all; None for a match, which decides as it goes."""
    return spec.num_trials() if isinstance(spec, SweepSpec) else None


def get_match(store: Store, match_id: str) -> Sweep:
    """A sweep of kind match; a sweep of another kind is not found here."""
    sweep = store.get_sweep(match_id)
    if sweep.kind != "match":
        raise SweepNotFound(match_id)
    return sweep


def cluster_shape(runners: Sequence[Runner]) -> ClusterShape | None:
    """The machines that the newest runner sees; None while none has reported."""
    for runner in runners:
        if (shape := runner.info.get("cluster")) is not None:
            return ClusterShape.from_json(shape)
    return None


def queue(kind: Kind, spec: AnySpec, key: str | None, store: Store, settings: Settings) -> Sweep:
    """Put a spec into the store, or find the sweep that the same key made of it before.

    A replay answers as the first request did, also when its data set has gone since.
    """
    submitted, whole = stored_spec(spec), spec
    if key is None or not store.has_key(key):
        whole = admitted(spec, store, settings)
    sweep, _ = store.create_sweep(
        kind,
        submitted if whole is spec else stored_spec(whole),
        submitted=submitted,
        name=spec.name,
        tags=spec.tags,
        notes=spec.notes,
        num_trials=num_trials(whole),
        idempotency_key=key,
    )
    add_ids(sweep=sweep.id)
    return sweep


def admitted(spec: Spec, store: Store, settings: Settings) -> Spec:
    """The spec as it would be queued: with the results of the earlier sweep that it names.

    Raises ApiError 422 for what is refused of a valid spec.
    """
    if isinstance(spec, SweepSpec):
        _refuse_own_confirmation(spec)
        spec = _with_prior(spec, store)
    spec = with_package(spec)
    refuse_what_cannot_run(spec, store, settings)
    return spec


def _with_prior(spec: SweepSpec, store: Store) -> SweepSpec:
    if spec.from_sweep is None:
        return spec
    try:
        source = store.get_sweep(spec.from_sweep.sweep)
        return with_earlier_results(spec, source, store.all_points(source.id))
    except SweepNotFound as error:
        raise refused_field(FieldError("from_sweep.sweep", str(error))) from error
    except FieldError as error:
        raise refused_field(error) from error


def _refuse_own_confirmation(spec: SweepSpec) -> None:
    """A sweep that says of itself that it confirms another could have chosen its seeds."""
    if spec.confirms is not None:
        reason = "confirms is set by POST /sweeps/{id}/confirm; remove it"
        raise refused_field(FieldError("confirms", reason))


@dataclass(frozen=True)
class Place:
    """Where trials would run: what decides whether they can."""

    #: None while no runner has reported.
    shape: ClusterShape | None
    #: Facts of a prepared data set by name. Raises DatasetNotFound, DatasetRefused.
    info: Callable[[str], DatasetInfo]
    #: Registered trainings of the workers, by name; None while no runner has reported them.
    trainings: Mapping[str, Mapping[str, str]] | None
    #: The same of registered parts of the built-in training, by group and name.
    parts: Mapping[str, Mapping[str, str]] | None


@dataclass(frozen=True)
class Corner:
    """A config at the ends of what decides whether trials fit, and the part of the spec with it."""

    config: TrainConfig
    path: str


def refuse_what_cannot_run(spec: AnySpec, store: Store, settings: Settings) -> None:
    """Raise ApiError 422 for data sets that are not prepared and resources that never come."""
    home = settings.data_home()
    runners = store.runners()
    place = Place(
        cluster_shape(runners),
        cache(lambda name: dataset_info(name, home)),
        of_runner(runners, "trainings"),
        of_runner(runners, "parts"),
    )
    if isinstance(spec, SweepSpec) and spec.training == EXTERNAL:
        return  # its trials run wherever their agents are
    checks = [_rules_of_its_package, _packages_that_workers_lack, _resources_that_never_come]
    if spec.training == IMAGES:
        checks += [_data_sets_not_prepared, _corners_that_do_not_fit]
    for check in checks:
        for refusal in check(spec, place):
            raise refusal


def _resources_that_never_come(spec: AnySpec, place: Place) -> Iterator[ApiError]:
    refusal = can_run(spec, place.shape)
    if refusal is not None:
        yield refused("ResourcesNeverFit", refusal.field, refusal.reason)


def _rules_of_its_package(spec: AnySpec, place: Place) -> Iterator[ApiError]:
    yield from rules_that_its_package_has(spec, stored_spec(spec))


def _packages_that_workers_lack(spec: AnySpec, place: Place) -> Iterator[ApiError]:
    yield from packages_that_workers_lack(spec, place.trainings)
    yield from parts_that_workers_lack(spec, place.parts)


def _data_sets_not_prepared(spec: AnySpec, place: Place) -> Iterator[ApiError]:
    for name, path in _datasets(spec).items():
        try:
            place.info(name)
        except (DatasetNotFound, DatasetRefused) as error:
            yield refused("DatasetNotPrepared", path, str(error))


def _corners_that_do_not_fit(spec: AnySpec, place: Place) -> Iterator[ApiError]:
    checks = (_not_of_its_data, _other_arithmetic, _too_large, _too_long)
    for corner in _corners(spec):
        if is_registered("dataset", corner.config.dataset):
            continue  # what its examples are is known where they are loaded
        for check in checks:
            for path, reason in check(spec, place, corner):
                yield refused("ConfigDoesNotFit", path, reason)


def _not_of_its_data(spec: AnySpec, place: Place, corner: Corner) -> Reasons:
    try:
        check_fits(corner.config, place.info(corner.config.dataset))
    except FieldError as error:
        yield f"{corner.path}.{error.field}", str(error)


def _other_arithmetic(spec: AnySpec, place: Place, corner: Corner) -> Reasons:
    """A trial without a GPU is trained on the CPU, and would fail when it starts."""
    if spec.resources.gpus == 0 and corner.config.precision == "tf32":
        yield (
            f"{corner.path}.precision",
            "precision must be fp32 or bf16 without a GPU, a CPU has no TF32: set resources.gpus, "
            "or another precision; got 'tf32'",
        )


def _too_large(spec: AnySpec, place: Place, corner: Corner) -> Reasons:
    """Trials that a card cannot hold would all fail, one after the other."""
    info, measured = place.info(corner.config.dataset), isinstance(spec, MatchSpec)
    refusal = no_room(corner.config, info, spec.resources, place.shape, measured=measured)
    if refusal is not None:
        where = "resources" if refusal.field == "trials_per_gpu" else corner.path
        yield f"{where}.{refusal.field}", refusal.reason


def _too_long(spec: AnySpec, place: Place, corner: Corner) -> Reasons:
    """A length in epochs is known only here; every such trial would end at its limit."""
    if isinstance(spec, SweepSpec) and spec.limits.steps is not None:
        steps = check_fits(corner.config, place.info(corner.config.dataset)).num_steps
        if steps > spec.limits.steps:
            most = f"at least the {steps:,} steps of a trial, got {spec.limits.steps:,}"
            yield "limits.steps", f"limits.steps must be {most}"


def run_lengths(spec: SweepSpec, settings: Settings) -> set[int]:
    """The lengths, in steps, of trials at the ends of what decides them.

    Those in epochs over registered data sets are left out: nothing is loaded here.
    """
    infos = {name: dataset_info(name, settings.data_home()) for name in _datasets(spec)}
    found = set()
    for config in (corner.config for corner in _corners(spec)):
        if config.dataset in infos:
            found.add(check_fits(config, infos[config.dataset]).num_steps)
        elif (steps := config.resolved().steps) is not None:
            found.add(steps)
    return found


def _datasets(spec: AnySpec) -> dict[str, str]:
    """Every prepared data set that a trial may train on -> the field that names it."""
    domain = spec.space.get("dataset") if isinstance(spec, SweepSpec) else None
    varied = _extremes(domain) if domain is not None else []
    found = (corner.config.dataset for corner in _corners(spec))
    names = dict.fromkeys(name for name in found if not is_registered("dataset", name))
    return {name: "space.dataset" if name in varied else "base.dataset" for name in names}


#: Fields that decide whether a config fits its data set and a card, and how long its run is.
_SIZES = frozenset(
    {
        "dataset",
        "network",
        "recipe",
        "optimizer",
        "precision",
        "deterministic",
        "depth",
        "widen_factor",
        "shortcut",
        "batch_size",
        "validation_fraction",
        "last_batch",
        "gamma_c",
        "steps",
        "epochs",
    }
)


def _corners(spec: AnySpec) -> list[Corner]:
    if isinstance(spec, MatchSpec):
        return [Corner(TrainConfig.model_validate(spec.source_config), "base")]
    if not _SIZES & spec.space.keys():
        return [Corner(TrainConfig.model_validate(spec.base), "base")]
    base = spec.base.model_dump(exclude_unset=True)
    return [Corner(TrainConfig.model_validate(base | sizes), "space") for sizes in _sizes(spec)]


def _sizes(spec: SweepSpec) -> list[dict[str, Any]]:
    """Values at the ends of the fields that matter, as the space's conditions let them meet."""
    found: dict[str, dict[str, Any]] = {}
    for branch in spec.branches():
        ends = {name: [value] for name, value in branch.fixed.items() if name in _SIZES}
        ends |= {name: _extremes(d) for name, d in branch.free.items() if name in _SIZES}
        for values in product(*ends.values()):
            sizes = dict(zip(ends, values, strict=True))
            found[repr(sizes)] = sizes
    return list(found.values())


def _extremes(domain: Any) -> list[Any]:
    """Both ends of a range or of numbers to choose from; words all of them."""
    if domain.kind != "choice":
        return [domain.low, domain.high]
    numbers = [v for v in domain.values if isinstance(v, int | float) and not isinstance(v, bool)]
    others = [value for value in domain.values if value not in numbers]
    return sorted({min(numbers), max(numbers)}) + others if numbers else others
