"""The fields of a spec that say what is trained: ``training``, ``base`` by its class, its parts."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainValidator, SerializeAsAny, ValidationInfo

from sweeps.spec.declarations import MetricDeclaration, Package
from sweeps.spec.domains import Choice, Domain
from worker.config.part_declarations import METRIC_FIELDS, metrics_of
from worker.config.parts import GROUPS, Part, is_registered, load_part
from worker.config.registry import look_again
from worker.config.train_config import TrainConfig
from worker.config.training import EXTERNAL, IMAGES, config_class
from worker.config.trial_config import FieldError, TrialConfig

#: Name of a training.
Training = Annotated[str, Field(strict=True, min_length=1, max_length=100)]
#: Parts that a spec names at most.
MAX_PARTS = 200


def _few_parts(parts: Any) -> Any:
    # Pydantic counts after it has refused every one.
    if isinstance(parts, dict) and len(parts) > MAX_PARTS:
        raise ValueError(f"parts must be at most {MAX_PARTS}, got {len(parts):,}")
    for name, one in parts.items() if isinstance(parts, dict) else ():
        if isinstance(one, dict) and len(one) > 2 * len(Package.model_fields):
            raise ValueError(f"parts.{name[:80]} has {len(one):,} fields, none has so many")
    return parts


#: Group and name of a part (``networks/mine``) -> the package that it comes from.
PartPackages = Annotated[dict[str, Package], BeforeValidator(_few_parts)]


def known_training(training: str) -> str:
    """Return the name. Raises FieldError, for a validator of the field, if it is none."""
    try:
        config_class(training)
    except FieldError as error:
        raise FieldError("", str(error)) from error
    return training


def _config_of_training(values: Any, info: ValidationInfo) -> TrialConfig:
    """Validate ``base`` by the class of the training, which stands before it."""
    # Where the training itself is refused, one sentence about it is enough.
    training = info.data.get("training", EXTERNAL)
    if training == IMAGES:
        for group in GROUPS.values():
            look_again(group)
    return config_class(training).partial(values)


#: Of the class of the spec's training; the schema shows that of the built-in one.
BaseConfig = Annotated[
    SerializeAsAny[TrialConfig],
    PlainValidator(_config_of_training, json_schema_input_type=TrainConfig),
]


def without_unset_training(values: dict[str, Any]) -> dict[str, Any]:
    """Leave out of a dumped spec what older specs lack: they stay the same."""
    added: dict[str, Any] = {"training": IMAGES, "metrics": {}, "package": None}
    for name, default in (added | {"parts": {}, "objectives": []}).items():
        if values.get(name) == default:
            values.pop(name, None)
    return values


def has_parts(base: TrialConfig, space: Mapping[str, Domain]) -> bool:
    """Whether a trial may have a part of a package. Imports none."""
    if not isinstance(base, TrainConfig):
        return False
    return any(
        field in ("metrics", "loss", "augmentation") or is_registered(field, value)
        for field in GROUPS
        for value in _values(base, space, field)
    )


def parts_named(
    base: TrainConfig, space: Mapping[str, Domain], optimizers: tuple[str, ...] = ()
) -> dict[str, Part]:
    """Load every part of packages that a trial may have, by its key. Raises FieldError.

    ``optimizers``: of a match, beside those of ``base``.
    """
    found: dict[str, Part] = {}
    for field in GROUPS:
        names = [*_values(base, space, field), *(optimizers if field == "optimizer" else ())]
        for value in names:
            for name in value if field == "metrics" else (value,):
                if field in ("metrics", "loss", "augmentation") or is_registered(field, name):
                    part = load_part(field, name)
                    found[part.key] = part
    return found


def reported_metrics(
    base: TrainConfig, space: Mapping[str, Domain]
) -> dict[str, MetricDeclaration]:
    """Return the metrics that every trial reports at its end, as its parts declare them."""
    values = [_values(base, space, field) or [None] for field in METRIC_FIELDS]
    found: dict[str, MetricDeclaration] | None = None
    for chosen in product(*values):
        named = dict(zip(METRIC_FIELDS, chosen, strict=True))
        config = TrainConfig.model_validate({k: v for k, v in named.items() if v is not None})
        mine = {name: MetricDeclaration.of(one) for name, one in metrics_of(config).items()}
        if found is None:
            found = mine
        found = {name: one for name, one in found.items() if mine.get(name) == one}
    return found or {}


def _values(base: TrainConfig, space: Mapping[str, Domain], field: str) -> list[Any]:
    """Return what a field may be in a trial; none is left out."""
    return [value for value in _possible(base, space, field) if value is not None]


def _possible(base: TrainConfig, space: Mapping[str, Domain], field: str) -> Iterator[Any]:
    domain = space.get(field)
    if domain is None or domain.when:
        yield getattr(base, field)
    if isinstance(domain, Choice):
        yield from domain.values
