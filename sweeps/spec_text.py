"""Reads the text of a spec: JSON, or YAML as its version 1.2 says.

YAML 1.1, which Python's reader speaks, takes ``1e-3`` for a string, ``no`` for false and ``1:30``
for 90. Here a number is what JSON calls a number, and only ``true`` and ``false`` are booleans.
"""

import json
import re
from typing import Any, NoReturn

import yaml

from sweeps.errors import UnreadableSpec


class _Loader(yaml.SafeLoader):
    """Plain data of YAML 1.2's core schema, without anchors and without repeated keys."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            # A few lines of aliases can stand for gigabytes.
            event = self.get_event()  # type: ignore[no-untyped-call]
            raise yaml.constructor.ConstructorError(
                None, None, "aliases (*name) are not read", event.start_mark
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise yaml.constructor.ConstructorError(
                    None, None, "a key must be a word", key.start_mark
                )
            if key.value in keys:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key.value[:80]!r} appears twice", key.start_mark
                )
            keys.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), list(_first)
    )


def _construct_int(loader: _Loader, node: yaml.ScalarNode) -> int:
    return int(loader.construct_scalar(node))


_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)


def load_spec_text(text: str) -> Any:
    """Return the values that a spec's text holds. Raises UnreadableSpec with line and column."""
    try:
        if text.lstrip().startswith("{"):
            return json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_no_constant)
    except json.JSONDecodeError:
        # YAML's flow style looks like JSON too.
        pass
    except (ValueError, RecursionError) as error:
        raise UnreadableSpec(f"the spec cannot be read: {_reason(error)}") from error
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UnreadableSpec(f"the spec cannot be read: {error.problem}{where}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UnreadableSpec(f"the spec cannot be read: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return (str(error).splitlines() or [type(error).__name__])[0]


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise ValueError(f"key {key[:80]!r} appears twice")
    return dict(pairs)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")
