"""What packages register, in specs at submission: metrics and packages filled in, workers compared.

That are trainings, and parts of the built-in one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

from service.contract.errors import ApiError, refused, refused_field
from service.contract.outputs import DeclaredMetricOut, PartOut, TrainingOut
from service.submission.training_reader import reader
from sweeps.match.match_spec import MatchSpec
from sweeps.records import Runner
from sweeps.spec.declarations import MetricDeclaration, Package
from sweeps.spec.sweep_spec import SweepSpec
from sweeps.spec.training_fields import parts_named, reported_metrics
from worker.config.parts import GROUPS, Part, find_part, load_part, registered_part_names
from worker.config.registry import registrations
from worker.config.train_config import TrainConfig
from worker.config.training import (
    EXTERNAL,
    FIXED_METRICS,
    IMAGES,
    Metric,
    Training,
    config_class,
    find_training,
    install,
    load_training,
)
from worker.config.trial_config import FieldError

Spec = TypeVar("Spec", SweepSpec, MatchSpec, SweepSpec | MatchSpec)


def is_registered(training: str) -> bool:
    """Whether a training comes from a package that is not ours."""
    return training not in (IMAGES, EXTERNAL)


def described(name: str) -> TrainingOut:
    """Return what a training declares as far as it is known; the reason where it cannot be used.

    Never waits where packages are imported by other processes.
    """
    package = version = None
    metrics: Mapping[str, Metric] = FIXED_METRICS if name == IMAGES else {}
    config: dict[str, Any] = {}
    error = ""
    state: Literal["ready", "loading", "error"] = "ready"
    try:
        if name != EXTERNAL:
            found = find_training(name)
            package, version = found.package, found.version
        training = _looked_at(name) if is_registered(name) else None
        if training is not None:
            metrics = training.metrics
            config = training.config.model_json_schema()
        elif is_registered(name):
            state = "loading"
        else:
            config = config_class(name).model_json_schema()
    except FieldError as refusal:
        state, error = "error", str(refusal)
    return TrainingOut(
        name=name,
        package=package,
        version=version,
        metrics={key: DeclaredMetricOut.model_validate(one) for key, one in metrics.items()},
        config=config,
        state=state,
        error=error,
    )


def described_parts() -> Iterator[PartOut]:
    """Yield every part of the built-in training that a package registers."""
    for field, group in GROUPS.items():
        for name in registered_part_names(field):
            found, fields, error = registrations(group)[name][0], {}, ""
            try:
                part = load_part(field, name)
                schema = part.config.model_json_schema() if part.config is not None else {}
                known = schema.get("properties", {})
                fields = {where: known[own] for own, where in part.fields().items()}
            except FieldError as refusal:
                error = str(refusal)
            yield PartOut(
                field=field,
                name=name,
                package=found.package,
                version=found.version,
                fields=fields,
                error=error,
            )


def _looked_at(name: str) -> Training | None:
    """Return a registered training; None while another process reads it. Raises FieldError."""
    look = reader()
    return load_training(name) if look is None else look.look(find_training(name))


def rules_that_its_package_has(
    spec: SweepSpec | MatchSpec, stored: dict[str, Any]
) -> Iterator[ApiError]:
    """Yield what a package refuses by rules of its own, where another process imports it.

    ``stored``: the spec as JSON values. A spec was held to types and ranges when it was read.
    """
    look = reader()
    if look is None:
        return
    try:
        if is_registered(spec.training):
            asked = [find_training(spec.training)]
        else:
            asked = [find_part(part.field, part.name) for part in parts_of_spec(spec).values()]
        for found in asked:
            for one in look.broken_rules(found, spec, stored):
                yield refused("ValidationError", one["path"], one["reason"])
    except FieldError as error:
        yield refused_field(error)


def with_package(spec: Spec) -> Spec:
    """Fill in a registered training's package, and in a sweep the metrics that it declares.

    Raises ApiError 422 where the spec says something else.
    """
    if isinstance(spec.base, TrainConfig):
        return _with_parts(spec)
    if not is_registered(spec.training):
        return spec
    found = load_training(spec.training)
    package = Package(name=found.package, version=found.version)
    if spec.package is not None and spec.package != package:
        raise refused_field(_other_version(spec.package, package))
    if isinstance(spec, MatchSpec):
        return spec.model_copy(update={"package": package})
    declared = {name: MetricDeclaration.of(metric) for name, metric in found.metrics.items()}
    for name, asked in spec.metrics.items():
        if declared.get(name) != asked:
            raise refused_field(
                FieldError(
                    f"metrics.{name}",
                    f"metrics are those that {package.name} {package.version} declares "
                    f"({', '.join(declared) or 'none'}): leave them out, or write {name} as "
                    "declared",
                )
            )
    return spec.model_copy(update={"metrics": declared, "package": package})


def parts_of_spec(spec: SweepSpec | MatchSpec) -> Mapping[str, Part]:
    """Load the parts of packages that a spec's trials name, by group and name."""
    if not isinstance(spec.base, TrainConfig):
        return {}
    if isinstance(spec, MatchSpec):
        return parts_named(spec.base, {}, (spec.source.optimizer, spec.target.optimizer))
    return parts_named(spec.base, spec.space)


def _with_parts(spec: Spec) -> Spec:
    """Fill in where registered parts come from, and in a sweep the metrics that follow."""
    parts = parts_of_spec(spec)
    found = {key: Package(name=p.package, version=p.version) for key, p in parts.items()}
    for key, asked in spec.parts.items():
        if key not in found:
            raise refused_field(
                FieldError("parts", f"parts has {key}, which no trial of the spec names; remove it")
            )
        if asked != found[key]:
            raise refused_field(_other_version(asked, found[key], f"parts.{key}", parts[key].title))
    if not parts:
        return spec
    if isinstance(spec, MatchSpec):
        return spec.model_copy(update={"parts": found})
    assert isinstance(spec.base, TrainConfig)
    declared = reported_metrics(spec.base, spec.space)
    if spec.metrics and spec.metrics != declared:
        raise refused_field(
            FieldError(
                "metrics",
                f"metrics are those that the parts declare ({', '.join(declared)}): leave them out",
            )
        )
    fixed = {name: MetricDeclaration.of(one) for name, one in FIXED_METRICS.items()}
    return spec.model_copy(
        update={"parts": found, "metrics": {} if declared == fixed else declared}
    )


def of_runner(runners: Sequence[Runner], what: str) -> Mapping[str, Mapping[str, str]] | None:
    """Name -> package and version of the newest runner's workers; None = not known.

    ``what``: "trainings" or "parts".
    """
    for runner in runners:
        found: Mapping[str, Mapping[str, str]] | None = runner.info.get(what)
        if found is not None:
            return found
    return None


def packages_that_workers_lack(
    spec: SweepSpec | MatchSpec, on_workers: Mapping[str, Mapping[str, Any]] | None
) -> Iterator[ApiError]:
    """Yield why no worker could run a spec's training, by the newest runner's report."""
    if not is_registered(spec.training):
        return
    found = load_training(spec.training)
    here = Package(name=found.package, version=found.version)
    wanted = spec.package or here
    if wanted != here:
        yield refused_field(_other_version(wanted, here))
    there = None if on_workers is None else on_workers.get(spec.training)
    if on_workers is None or there == {"package": wanted.name, "version": wanted.version}:
        return
    what = "none" if there is None else f"{there['package']} {there['version']}"
    yield refused(
        "TrainingNotInstalled",
        "training",
        f"training {spec.training!r} needs {wanted.name} {wanted.version} on the workers, which "
        f"have {what}; run {install(wanted.model_dump())} there",
    )


def parts_that_workers_lack(
    spec: SweepSpec | MatchSpec, on_workers: Mapping[str, Mapping[str, str]] | None
) -> Iterator[ApiError]:
    """Yield why no worker could build a spec's parts, by the newest runner's report."""
    for key, part in parts_of_spec(spec).items():
        here = Package(name=part.package, version=part.version)
        wanted = spec.parts.get(key) or here
        if wanted != here:
            yield refused_field(_other_version(wanted, here, f"parts.{key}", part.title))
        there = None if on_workers is None else on_workers.get(key)
        if on_workers is None or there == wanted.model_dump():
            continue
        what = "none" if there is None else f"{there['name']} {there['version']}"
        yield refused(
            "TrainingNotInstalled",
            part.field,
            f"{part.title} needs {wanted.name} {wanted.version} on the workers, which have "
            f"{what}; run {install(wanted.model_dump())} there",
        )


def _other_version(
    asked: Package, found: Package, field: str = "package", what: str = "package"
) -> FieldError:
    return FieldError(
        f"{field}.version" if asked.name == found.name else f"{field}.name",
        f"{what} must be {found.name} {found.version}, which this service has; got {asked.name} "
        f"{asked.version}: run {install(asked.model_dump())} where the service, its runner and the "
        "workers run, or submit a new spec",
    )
