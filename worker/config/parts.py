"""Parts of the built-in training that packages register: networks, data, optimizers, losses, ….

A part is a function. The type of its first argument, a dataclass or a pydantic model, declares its
hyperparameters. In a config they stand as ``network.hidden``, after the field that names the part;
those in ``SHARED`` are the fields that the config has anyway (``lr``, ``depth``), with the type,
range and default that the part gives them. Imports no torch, and a package only if a config names
it.
"""

import dataclasses
import inspect
import re
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from worker.config.declared_config import (
    DeclaredConfig,
    UntypedConfig,
    config_model,
    type_of_first,
)
from worker.config.registry import (
    OWN,
    Registered,
    find,
    imported,
    look_again,
    only_one,
    registrations,
)
from worker.config.trial_config import FieldError, TrialConfig
from worker.errors import PackageMismatch

#: Field of the config -> group of the entry points that it names one of.
GROUPS = {
    "network": "networks",
    "dataset": "datasets",
    "optimizer": "optimizers",
    "augmentation": "augmentations",
    "loss": "losses",
    "metrics": "metrics",
}
#: In sentences.
_WORDS = {"dataset": "data set", "metrics": "metric"}
#: Built in, so that nobody else's part has such a name: optimizers, and sets that are prepared.
BUILT_IN = {
    "optimizer": ("sgd", "adam", "adamw", "ndadam"),
    "dataset": ("digits", "cifar10", "cifar100"),
}
#: Fields of a part that are the config's own where it declares them.
SHARED: Mapping[str, frozenset[str]] = {
    "network": frozenset({"depth", "widen_factor"}),
    "optimizer": frozenset(
        {
            "lr",
            "momentum",
            "nesterov",
            "betas",
            "eps",
            "weight_decay",
            "decay_on",
            "lr_schedule",
            "warmup_steps",
        }
    ),
}
#: A part's own field in a config.
PART_FIELD = re.compile(r"(?:network|dataset|optimizer|augmentation|loss)\.[A-Za-z]\w{0,79}")
#: Arguments of each function, with its config.
_ARGUMENTS = {"dataset": 1, "network": 2, "optimizer": 2, "augmentation": 2, "loss": 2}
#: Attribute of a function under which its declaration lies.
DECLARED = "__ndsweep_part__"


@dataclasses.dataclass(frozen=True)
class Part:
    """A registered part: its function, the class of its fields, and where it comes from."""

    #: Field of the config that names it.
    field: str
    name: str
    function: Callable[..., Any]
    #: None: it has no fields of its own.
    config: type[DeclaredConfig] | None
    #: Whether it is a network of the first form, ``build(config, num_classes, in_channels)``.
    takes_whole_config: bool
    #: What its decorator declares.
    declared: Mapping[str, Any]
    package: str
    version: str

    @property
    def key(self) -> str:
        """What identifies it among all parts: ``networks/mine``."""
        return f"{GROUPS[self.field]}/{self.name}"

    @property
    def title(self) -> str:
        """What it is called in sentences."""
        return f"{_word(self.field)} {self.name!r}"

    def fields(self) -> dict[str, str]:
        """Return the names of its fields, each with the name that it has in a config."""
        names = self.config.NAMES if self.config is not None else ()
        shared = SHARED.get(self.field, frozenset())
        return {n: n if n in shared else f"{self.field}.{n}" for n in names if n != "seed"}

    def values(self, config: TrialConfig) -> DeclaredConfig | None:
        """Check its fields in a config; None without fields. Raises FieldError."""
        if self.config is None:
            return None
        fields, extra = self.fields(), config.__pydantic_extra__ or {}
        values: dict[str, Any] = {"seed": config.seed}
        for name, where in fields.items():
            if where in extra:
                values[name] = extra[where]
            elif where in config.model_fields_set and getattr(config, where) is not None:
                values[name] = getattr(config, where)
        try:
            return self.config.model_validate(values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            cause = first.get("ctx", {}).get("error")
            if isinstance(cause, FieldError):
                where, reason = fields.get(cause.field, self.field), str(cause)
            else:
                where = fields.get(str(first["loc"][0]), str(first["loc"][0]))
                rule = first["msg"].removeprefix("Value error, ").replace("Input ", f"{where} ")
                reason = f"{rule}, got {first['input']!r:.80}"
            raise FieldError(where, f"{reason} ({self.title})") from error

    def call(self, config: TrialConfig, *arguments: Any) -> Any:
        """Call its function with its fields, if it has any, and ``arguments``."""
        values = self.values(config)
        return self.function(*arguments if values is None else (values.declared(), *arguments))


def part_key(key: str) -> tuple[str, str] | None:
    """Return field and name of a part's key, ``networks/mine``; None where it is none."""
    group, slash, name = key.partition("/")
    fields = [field for field, known in GROUPS.items() if slash and known == group]
    return (fields[0], name) if fields else None


def declaration(function: Any) -> Mapping[str, Any]:
    """Return what a function's decorator declares; {} without one."""
    found: Mapping[str, Any] = getattr(function, DECLARED, {})
    return found


def registered_part_names(field: str) -> list[str]:
    """Return the names of packages' parts for a field, sorted; those built in are not listed."""
    look_again(GROUPS[field])
    found = registrations(GROUPS[field])
    return sorted(name for name in found if _is_others(field, name))


def is_registered(field: str, name: str) -> bool:
    """Whether a package other than ours registers a name for a field. Imports nothing."""
    return _is_others(field, name)


def _is_others(field: str, name: str) -> bool:
    found = registrations(GROUPS[field]).get(name, [])
    return bool(found) and found[0].package != OWN and name not in BUILT_IN.get(field, ())


_loaded: dict[tuple[str, str], Part] = {}
#: Reads a registered part without importing its package here; None = it is imported.
_reader: Callable[[str, Registered], Part] | None = None


def read_parts_with(reader: Callable[[str, Registered], Part] | None) -> None:
    """Have packages read elsewhere from now on; see ``training.read_trainings_with``."""
    global _reader
    _reader = reader


def find_part(field: str, name: str) -> Registered:
    """Return the entry point of a part without importing it. Raises FieldError."""
    found = find(GROUPS[field], name)
    if not found:
        raise _unknown(field, name)
    return only_one(found, field, _word(field))


def load_part(field: str, name: str) -> Part:
    """Import the part that a config's field names, or have it read where a process says so.

    Raises FieldError with one sentence: for a name that nobody or several packages register, for an
    entry point that cannot be imported, for a function that is none.
    """
    if _reader is not None:
        return _reader(field, find_part(field, name))
    if (field, name) not in _loaded:
        _loaded[field, name] = _load(field, find_part(field, name))
    return _loaded[field, name]


def _unknown(field: str, name: str) -> FieldError:
    known = [*BUILT_IN.get(field, ()), *sorted(registrations(GROUPS[field]))]
    return FieldError(
        field,
        f"{field} must be one of {', '.join(known) or 'none, for none is registered'}, got "
        f"{name!r}; if a package registers it, install the package where the service runs",
    )


def _load(field: str, found: Registered) -> Part:
    function = imported(found, field, _word(field))
    if not callable(function):
        raise FieldError(
            field, f"{_word(field)} {found.entry.name!r} names {found.where}, which is no function"
        )
    made, takes_whole_config = None, False
    try:
        if field != "metrics":
            made, takes_whole_config = _config_of(field, function)
    except UntypedConfig as error:
        raise FieldError(
            field, f"{_word(field)} {found.entry.name!r}: the config of {found.where}: {error}"
        ) from error
    return Part(
        field,
        found.entry.name,
        function,
        made,
        takes_whole_config,
        declaration(function),
        package=found.package,
        version=found.version,
    )


def _config_of(
    field: str, function: Callable[..., Any]
) -> tuple[type[DeclaredConfig] | None, bool]:
    """Return the class of a function's fields, and whether it takes the whole config instead."""
    parameters = inspect.signature(function).parameters.values()
    given = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if field == "network" and len(given) == 3:
        return None, True
    wanted = _ARGUMENTS[field]
    if len(given) == wanted - 1:
        return None, False
    if len(given) != wanted:
        raise UntypedConfig(
            f"the function must take {wanted - 1} or, with a config first, {wanted} arguments, "
            f"it takes {len(given)}"
        )
    made = config_model(type_of_first(function))
    if missing := [name for name in made.required() if name != "seed"]:
        raise UntypedConfig(
            f"field {missing[0]!r} needs a default, because a spec may leave it out"
        )
    return made, False


def _word(field: str) -> str:
    return _WORDS.get(field, field)


# --- Of a config --------------------------------------------------------------------------------


def named_parts(config: TrialConfig) -> Iterator[tuple[str, str]]:
    """Yield field and name of each part of a config that is not built in."""
    for field in ("network", "dataset", "optimizer", "augmentation", "loss"):
        name = getattr(config, field)
        if name is not None and (field in ("augmentation", "loss") or _is_others(field, name)):
            yield field, name
    for name in getattr(config, "metrics", None) or ():
        yield "metrics", name


def parts_of(config: TrialConfig) -> dict[str, Part]:
    """Load the parts of a config that are not built in: by field, metrics as ``metrics/NAME``."""
    found = (load_part(field, name) for field, name in named_parts(config))
    return {part.key if part.field == "metrics" else part.field: part for part in found}


def check_parts(config: TrialConfig, parts: Collection[Part]) -> None:
    """Refuse a field that no part has, and values that a part refuses. Raises FieldError."""
    known = {where for part in parts for where in part.fields().values()}
    for name in config.__pydantic_extra__ or {}:
        if name not in known:
            field = name.partition(".")[0]
            raise FieldError(
                name,
                f"{name} is not a field of {_word(field)} {getattr(config, field)!r}; remove it",
            )
    for part in parts:
        part.values(config)


def part_defaults(config: TrialConfig, parts: Collection[Part]) -> dict[str, Any]:
    """Return every field of the parts, by its name in the config, with its value or default."""
    found: dict[str, Any] = {}
    for part in parts:
        values = part.values(config)
        if values is not None:
            dumped = values.model_dump(mode="json")
            found |= {where: dumped[name] for name, where in part.fields().items()}
    return found


def packages_of(parts: Collection[Part]) -> dict[str, dict[str, str]]:
    """Return package and version of each part, by its key."""
    return {part.key: {"name": part.package, "version": part.version} for part in parts}


def check_part_packages(
    wanted: Mapping[str, Mapping[str, str]] | None, parts: Collection[Part]
) -> None:
    """Raise PackageMismatch unless parts are of the packages and versions that a spec names."""
    for part in parts:
        asked = (wanted or {}).get(part.key)
        if asked and (asked["name"], asked["version"]) != (part.package, part.version):
            raise PackageMismatch(
                f"{part.title} was submitted with {asked['name']} {asked['version']}, and "
                f"{socket.gethostname()} has {part.package} {part.version}; run pip install "
                f"{asked['name']}=={asked['version']} there"
            )
