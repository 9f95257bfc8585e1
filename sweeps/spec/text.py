"""Reads the text of a spec: JSON, or YAML 1.2.

PyYAML is imported by the first text that needs it: a machine that only runs batches of JSON specs
may lack it.

YAML 1.1, which Python's reader speaks, takes ``1e-3`` for a string, ``no`` for false and ``1:30``
for 90. Here a number is what JSON calls a number, and only ``true`` and ``false`` are booleans.
"""

import json
import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from sweeps.errors import UnreadableSpec

if TYPE_CHECKING:
    import yaml

#: Levels of nesting; a spec needs about 8.
MAX_DEPTH = 64

#: Scalars of YAML 1.2's core schema: tag, pattern, first characters.
_SCALARS: tuple[tuple[str, str, Sequence[str]], ...] = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
)


def load_spec_text(text: str) -> Any:
    """Return the values that a spec's text holds. Raises UnreadableSpec with line and column."""
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_no_constant)
        except json.JSONDecodeError:
            # YAML's flow style looks like JSON too.
            pass
        except (ValueError, RecursionError) as error:
            raise unreadable(reason(error)) from error
    return read_yaml(text)


def read_json(text: str) -> Any:
    """Return the values of strict JSON. Raises UnreadableSpec with line and column."""
    try:
        return json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise unreadable(f"not valid JSON: {error.msg}, {where}") from error
    except (ValueError, RecursionError) as error:
        raise unreadable(reason(error)) from error


def read_yaml(text: str) -> Any:
    """Return the values of YAML. Raises UnreadableSpec with line and column."""
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise unreadable(
            f"it is not JSON, and YAML needs the package {error.name!r}, which is not here; "
            "convert it to JSON"
        ) from error
    loader = _loader()
    try:
        _scan(text, loader)
        return yaml.load(text, Loader=loader)  # a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        deep = "nesting depth" in str(error.problem)  # libyaml has a limit of its own
        problem = "it is nested too deeply" if deep else error.problem
        raise unreadable(f"{problem}{where}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise unreadable(reason(error)) from error


def unreadable(why: str) -> UnreadableSpec:
    """The error for a text that is no spec, with a sentence."""
    return UnreadableSpec(f"the spec cannot be read: {why}")


def reason(error: Exception) -> str:
    """What a parser says is wrong, in one line."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if str(error).startswith("Exceeds the limit"):
        # Python's own sentence tells how to change Python.
        return "a number has more digits than can be read; integers must fit in 64 bits"
    return (str(error).splitlines() or [type(error).__name__])[0]


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"key {key[:80]!r} appears twice")
            seen.add(key)
    return values


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


@cache
def _loader() -> Any:
    """The class that loads plain data of YAML 1.2's core schema, without repeated keys."""
    import yaml

    # libyaml is four times as fast: the largest body that the service takes is 2 s, not 7.
    parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(parser):  # type: ignore[misc]
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            keys: set[str] = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                    raise _problem("a key must be a word", key.start_mark)
                if key.value in keys:
                    raise _problem(f"key {key.value[:80]!r} appears twice", key.start_mark)
                keys.add(key.value)
            values: dict[Any, Any] = super().construct_mapping(node, deep)
            return values

    Loader.yaml_implicit_resolvers = {}
    for tag, pattern, first in _SCALARS:
        Loader.add_implicit_resolver(
            f"tag:yaml.org,2002:{tag}", re.compile(rf"^(?:{pattern})$"), list(first)
        )
    Loader.add_constructor(
        "tag:yaml.org,2002:int", lambda loader, node: int(loader.construct_scalar(node))
    )
    return Loader


def _scan(text: str, loader: Any) -> None:
    """Refuse depth, aliases and tags while events go by, before anything recursive sees them."""
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.AliasEvent):
            # A few lines of aliases can stand for gigabytes.
            raise _problem("aliases (*name) are not read", event.start_mark)
        if getattr(event, "tag", None) not in (None, "tag:yaml.org,2002:str"):
            # No spec holds dates, sets or bytes, and a tag may contradict its value.
            raise _problem("tags (!!name) other than !!str are not read", event.start_mark)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise _problem("it is nested too deeply", event.start_mark)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _problem(text: str, mark: Any) -> "yaml.MarkedYAMLError":
    import yaml

    return yaml.constructor.ConstructorError(None, None, text, mark)
