"""A config's class made from the dataclass or pydantic model that a training function takes.

Imports neither torch nor numpy.
"""

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    TypeAdapter,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from worker.config.trial_config import FieldError, Seed, TrialConfig


class UntypedConfig(TypeError):
    """A declared class whose fields a spec cannot hold; the sentence names class and field."""


class DeclaredConfig(TrialConfig):
    """The fields of a class that a package declares, checked as a spec is, and the trial's seed."""

    model_config = ConfigDict(protected_namespaces=())

    #: The class of the package; None where it was described by a process that imported it.
    DECLARED: ClassVar[type | None] = None
    #: Names of its fields.
    NAMES: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="after")
    def _declared_class_agrees(self) -> Self:
        if self.DECLARED is not None:
            self.declared()
        return self

    def declared(self) -> Any:
        """Return an instance of the declared class: what the training function is called with.

        Raises FieldError for values that the class itself refuses.
        """
        assert self.DECLARED is not None
        values = {name: getattr(self, name) for name in self.NAMES}
        try:
            if issubclass(self.DECLARED, BaseModel):
                return self.DECLARED.model_validate(values, by_name=True)
            return self.DECLARED(**values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(map(str, first["loc"]))
            reason = first["msg"].removeprefix("Value error, ")
            raise FieldError(field, f"{reason}, got {first['input']!r:.80}") from error
        except Exception as error:  # the class is not ours
            told = f"{self.DECLARED.__name__} refuses these values: {error or type(error).__name__}"
            raise FieldError("", told) from error

    @classmethod
    def required(cls) -> Iterator[str]:
        return (name for name, field in cls.model_fields.items() if field.is_required())

    @classmethod
    def partial(cls, values: Any) -> Self:
        if not isinstance(values, Mapping) or not set(cls.required()) - values.keys():
            return cls.model_validate(values)
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            others = [e for e in error.errors() if e["type"] != "missing"]
            if others:
                raise
        checked = {n: _adapter(cls.model_fields[n]).validate_python(v) for n, v in values.items()}
        made: Any = cls.model_construct(_fields_set=set(checked), **checked)
        found: Self = made
        return found


def _adapter(field: FieldInfo) -> TypeAdapter[Any]:
    return TypeAdapter(_annotated(field.annotation, field.metadata))


def _annotated(kind: Any, metadata: Sequence[Any]) -> Any:
    return Annotated[(kind, *metadata)] if metadata else kind


def type_of_first(function: Callable[..., Any]) -> Any:
    """Return the type of a function's first argument. Raises UntypedConfig where it has none."""
    first = next(iter(inspect.signature(function).parameters.values()))
    declared = first.annotation
    if declared is inspect.Parameter.empty:
        raise UntypedConfig(f"argument {first.name!r} of the function has no type")
    if isinstance(declared, str):
        # Only this one: the types of other arguments need not be imported.
        try:
            declared = eval(declared, getattr(function, "__globals__", {}))
        except Exception as error:
            raise UntypedConfig(f"the type {declared!r} is not known in its module") from error
    return declared


def config_model(declared: Any) -> type[DeclaredConfig]:
    """Return the config class of a declared class. Raises UntypedConfig."""
    fields: dict[str, tuple[Any, Any]] = dict(_fields(declared))
    for name in fields:
        if name.startswith("_") or hasattr(DeclaredConfig, name):
            raise UntypedConfig(
                f"field {name!r} of {declared.__name__} has a name that configs need themselves; "
                "give it another"
            )
    names = tuple(fields)
    if "seed" in fields and _bare(fields["seed"][0]) is not int:
        raise UntypedConfig(
            f"field 'seed' of {declared.__name__} gets the trial's seed and must be an int, got "
            f"{_bare(fields['seed'][0])!r}"
        )
    default = fields["seed"][1].default if "seed" in fields else 0
    seed = 0 if default is PydanticUndefined else default
    fields["seed"] = (Seed, Field(seed, description="Seed of the trial; replicates vary it."))
    make: Any = create_model  # its overloads know no dictionary of fields
    made = make(
        declared.__name__,
        __base__=DeclaredConfig,
        __doc__=declared.__doc__,
        __module__=declared.__module__,
        **fields,
    )
    made.DECLARED, made.NAMES = declared, names
    found: type[DeclaredConfig] = made
    return found


def _fields(declared: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield name, type and pydantic's field of each field of a declared class."""
    if not isinstance(declared, type):
        raise UntypedConfig(f"it must be a dataclass or a pydantic model, got {declared!r}")
    known = getattr(declared, "__pydantic_fields__", None)
    if known is not None:
        for name, field in known.items():
            kind = _strict(field.annotation, f"field {name!r} of {declared.__name__}")
            yield name, (_annotated(kind, field.metadata), _plain(field))
        return
    if not dataclasses.is_dataclass(declared):
        raise UntypedConfig(
            f"{declared.__name__} must be a dataclass or a pydantic model, with a type for each "
            "field"
        )
    try:
        hints = typing.get_type_hints(declared, include_extras=True)
    except Exception as error:
        raise UntypedConfig(f"the types of {declared.__name__} cannot be read: {error}") from error
    for one in dataclasses.fields(declared):
        if one.init:
            kind = _strict(hints[one.name], f"field {one.name!r} of {declared.__name__}")
            yield one.name, (kind, _of_dataclass(one))


def _of_dataclass(field: "dataclasses.Field[Any]") -> Any:
    # What is written within Annotated stands, unless the field says something else.
    about = field.metadata.get("description")
    described = {} if about is None else {"description": about}
    if field.default_factory is not dataclasses.MISSING:
        return Field(default_factory=field.default_factory, **described)
    default = PydanticUndefined if field.default is dataclasses.MISSING else field.default
    return Field(default, **described)


def _plain(field: FieldInfo) -> Any:
    """Return default and description of a pydantic field, without its aliases."""
    if field.default_factory is not None:
        factory: Any = field.default_factory
        return Field(default_factory=factory, description=field.description)
    return Field(field.default, description=field.description)


_SCALARS = (bool, int, float, str)


def _strict(kind: Any, where: str) -> Any:
    """Return a type that takes no text for a number. Raises UntypedConfig for other types."""
    if kind in _SCALARS:
        return Annotated[kind, Strict()]
    if kind is None or kind is type(None):
        return None
    if isinstance(kind, type) and issubclass(kind, Enum):
        if all(isinstance(member.value, str) for member in kind):
            return kind
        raise UntypedConfig(f"{where} is an Enum whose values are not text: {_name(kind)}")
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return Annotated[(_strict(parts[0], where), *parts[1:])]
    if origin is Literal:
        return kind
    if origin in (Union, types.UnionType):
        return Union[tuple(_strict(part, where) for part in parts)]  # noqa: UP007
    if origin in (tuple, list) and all(_is_number(part) for part in parts):
        return kind
    raise UntypedConfig(
        f"{where} must be bool, int, float, str, a Literal, an Enum of texts, one of these or "
        f"None, or a list or tuple of numbers; got {_name(kind)}"
    )


def _is_number(kind: Any) -> bool:
    """Whether it is a number's type, or that of pairs of numbers."""
    if kind is Ellipsis or _bare(kind) in (int, float):
        return True
    return get_origin(kind) in (tuple, list) and all(
        part is Ellipsis or _bare(part) in (int, float) for part in get_args(kind)
    )


def _bare(kind: Any) -> Any:
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return kind


def _name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)
