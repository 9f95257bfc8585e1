"""Reads YAML as its version 1.2 says: the half of ``sweeps.spec.text`` that needs PyYAML.

YAML 1.1, which Python's reader speaks, takes ``1e-3`` for a string, ``no`` for false and ``1:30``
for 90. Here a number is what JSON calls a number, and only ``true`` and ``false`` are booleans.
"""

import re
from typing import Any

import yaml

from sweeps.spec.text import MAX_DEPTH, reason, unreadable

# libyaml is four times as fast; a body of the largest size that the service takes is 2 s, not 7.
_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Parser):  # type: ignore[misc]
    """Plain data of YAML 1.2's core schema, without repeated keys."""

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


def read_yaml(text: str) -> Any:
    """Return the values of YAML. Raises UnreadableSpec with line and column."""
    try:
        _scan(text)
        return yaml.load(text, Loader=_Loader)  # a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        deep = "nesting depth" in str(error.problem)  # libyaml has a limit of its own
        problem = "it is nested too deeply" if deep else error.problem
        raise unreadable(f"{problem}{where}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise unreadable(reason(error)) from error


def _scan(text: str) -> None:
    """Refuse depth, aliases and tags while events go by, before anything recursive sees them."""
    depth = 0
    for event in yaml.parse(text, Loader=_Parser):
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


def _problem(text: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, text, mark)
