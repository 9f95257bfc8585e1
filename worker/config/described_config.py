"""A registered training as data: what one process reads of its package, another can check with.

Importing a package may take a gigabyte and half a minute. A process that only checks specs has a
training described elsewhere: the JSON schema of its config, from which an equal class is made, and
its metrics. Rules that are code of the package stay behind, and are asked for there.
"""

import dataclasses
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel, Field, Strict, TypeAdapter, create_model
from pydantic.fields import FieldInfo

from worker.config.declared_config import DeclaredConfig
from worker.config.parts import Part
from worker.config.registry import Registered
from worker.config.train_config import TrainConfig
from worker.config.training import Metric, Training
from worker.config.trial_config import TrialConfig


def describe(training: Training) -> dict[str, Any]:
    """Return a training as JSON values, for ``described``."""
    config = training.config
    return {
        **_as_data(config),
        "metrics": {name: dataclasses.asdict(one) for name, one in training.metrics.items()},
        "is_images": config is TrainConfig,
        "has_rules": config is not TrainConfig and _has_rules(config),
    }


def _as_data(config: type[TrialConfig]) -> dict[str, Any]:
    made = {
        name: field.get_default(call_default_factory=True)
        for name, field in config.model_fields.items()
        if field.default_factory is not None
    }
    whole = config.model_construct(**made).model_dump(mode="json", include=set(made))
    return {"config": config.model_json_schema(), "made": whole}


def describe_part(part: Part) -> dict[str, Any]:
    """Return a part as JSON values, for ``described_part``."""
    metric = part.declared.get("metric")
    return {
        **({} if part.config is None else _as_data(part.config)),
        "takes_whole_config": part.takes_whole_config,
        "declared": {name: one for name, one in part.declared.items() if name != "metric"},
        "metric": None if metric is None else dataclasses.asdict(metric),
        "has_rules": part.config is not None and _has_rules(part.config),
    }


def described_part(field: str, found: Registered, description: Mapping[str, Any]) -> Part:
    """Return a part from what ``describe_part`` said of it. Its function cannot be called."""
    config = None
    if "config" in description:
        config = _model(description["config"], description["made"])
        config.NAMES = tuple(config.model_fields)
    metric = description["metric"]
    declared = dict(description["declared"])
    if metric is not None:
        declared["metric"] = Metric(**metric)
    return Part(
        field,
        found.entry.name,
        _elsewhere(found),
        config,
        description["takes_whole_config"],
        declared,
        package=found.package,
        version=found.version,
    )


def _elsewhere(found: Registered) -> Callable[..., Any]:
    def elsewhere(*_: Any) -> None:
        raise RuntimeError(f"{found.entry.name!r} was described, not imported")

    return elsewhere


def described(found: Registered, description: Mapping[str, Any]) -> Training:
    """Return a training from what ``describe`` said of it. Its function cannot be called."""
    schema = description["config"]
    config = TrainConfig if description["is_images"] else _model(schema, description["made"])
    metrics = {name: Metric(**one) for name, one in description["metrics"].items()}
    return Training(
        found.entry.name,
        _elsewhere(found),
        config,
        metrics,
        package=found.package,
        version=found.version,
    )


def _model(schema: Mapping[str, Any], made: Mapping[str, Any]) -> type[DeclaredConfig]:
    required = schema.get("required", ())
    fields: dict[str, Any] = {}
    for name, one in schema["properties"].items():
        kind = _kind(one, schema.get("$defs", {}), Strict())
        default = ... if name in required else one.get("default", made.get(name))
        if isinstance(default, list):  # a tuple, as the case may be
            default = TypeAdapter(kind).validate_python(default)
        about = Field(default, title=one.get("title"), description=one.get("description"))
        fields[name] = (kind, about)
    make: Any = create_model  # its overloads know no dictionary of fields
    made_class: type[DeclaredConfig] = make(
        schema["title"], __base__=DeclaredConfig, __doc__=schema.get("description"), **fields
    )
    return made_class


_PLAIN = {"boolean": bool, "integer": int, "number": float, "string": str, "null": None}
#: Of JSON schema -> of pydantic.
_BOUNDS = {
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
    "minLength": "min_length",
    "maxLength": "max_length",
    "minItems": "min_length",
    "maxItems": "max_length",
    "pattern": "pattern",
}


def _kind(schema: Mapping[str, Any], defs: Mapping[str, Any], *strict: Strict) -> Any:
    """Return the type that a schema describes; ``strict`` outside of lists, as it was declared."""
    if "$ref" in schema:
        return _kind(defs[schema["$ref"].rpartition("/")[2]], defs, *strict)
    if "anyOf" in schema:
        return Union[tuple(_kind(one, defs, *strict) for one in schema["anyOf"])]  # noqa: UP007
    if "const" in schema:
        return Literal[schema["const"]]
    if "enum" in schema:
        return Literal[tuple(schema["enum"])]
    bounds = {ours: schema[name] for name, ours in _BOUNDS.items() if name in schema}
    if schema["type"] != "array":
        kind = _PLAIN[schema["type"]]
        metadata = [*([Field(**bounds)] if bounds else []), *(strict if kind is not None else ())]
        return Annotated[(kind, *metadata)] if metadata else kind
    if "prefixItems" in schema:
        return tuple[tuple(_kind(one, defs) for one in schema["prefixItems"])]  # type: ignore[misc]
    items: Any = list[_kind(schema.get("items", {"type": "number"}), defs)]  # type: ignore[misc]
    return Annotated[items, Field(**bounds)] if bounds else items


# --- Rules that are code -------------------------------------------------------------------------


def _has_rules(config: Any) -> bool:
    """Whether a config is checked by more than a schema says."""
    declared = getattr(config, "DECLARED", None)
    if declared is None:
        return True
    if issubclass(declared, BaseModel):
        code: Any = declared.__pydantic_decorators__
        names = [one.name for one in dataclasses.fields(code)]
        has_code = declared.model_post_init is not BaseModel.model_post_init
        is_plain = not has_code and not any(getattr(code, name) for name in names)
    else:
        is_plain = not hasattr(declared, "__post_init__") and not hasattr(
            declared, "__pydantic_fields__"
        )
    return not is_plain or any(
        not _is_bound(one)
        for name in config.NAMES
        for one in (
            *config.model_fields[name].metadata,
            *_metadata(config.model_fields[name].annotation),
        )
    )


def _metadata(kind: Any) -> Iterator[Any]:
    if get_origin(kind) is Annotated:
        yield from kind.__metadata__
    if get_origin(kind) in (Annotated, Union, types.UnionType, tuple, list):
        for part in get_args(kind):
            yield from _metadata(part)


def _is_bound(one: Any) -> bool:
    """Whether a schema has what a part of an annotation asks for."""
    if isinstance(one, FieldInfo):
        return all(_is_bound(part) for part in one.metadata)
    if isinstance(one, annotated_types.Interval):
        return True
    bounds = ("Gt", "Ge", "Lt", "Le", "MultipleOf", "MinLen", "MaxLen", "Strict", "Len")
    if type(one).__name__ in bounds:
        return True
    # pydantic's own bag of the others: a pattern is in the schema, what changes a text is not.
    return type(one).__name__ == "_PydanticGeneralMetadata" and set(vars(one)) <= {"pattern"}
