"""Reads the text of a spec: JSON, or YAML 1.2.

PyYAML is imported only when a text needs it, because a machine that runs batches of JSON specs
may not have it.

PyYAML reads YAML 1.1, in which ``1e-3`` is a string, ``no`` is false and ``1:30`` is 90. Here
numbers are those of JSON, and only ``true`` and ``false`` are booleans.
"""

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

from sweeps.errors import UnreadableSpec

if TYPE_CHECKING:
    import yaml

#: Levels of nesting; a spec needs about 8.
MAX_DEPTH = 64
#: Keys of one mapping; the largest, metrics that an agent reports, has as many. Each key that is
#: no field makes an error, and these take longer to explain than to read.
MAX_KEYS = 1000
#: Items of one list; the longest, a recorded curve, has 20,000 values.
MAX_ITEMS = 100_000
TOO_MANY_KEYS = f"a mapping may have at most {MAX_KEYS:,} keys, got more"
TOO_MANY_ITEMS = f"a list may have at most {MAX_ITEMS:,} items, got more"

#: Scalars of YAML 1.2's core schema: tag, pattern, first characters.
_SCALARS: tuple[tuple[str, str, Sequence[str]], ...] = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
)


def load_spec_text(text: str) -> Any:
    """Return the values of a spec's text. Raises UnreadableSpec with line and column."""
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_no_constant)
        except json.JSONDecodeError:
            # It may be YAML in flow style, which looks like JSON.
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
    """Make the error for a text that is not a spec, with a reason."""
    return UnreadableSpec(f"the spec cannot be read: {why}")


def reason(error: Exception) -> str:
    """Return a parser's message in one line."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if str(error).startswith("Exceeds the limit"):
        # Python's own message explains how to change Python's limit.
        return "a number has more digits than can be read; integers must fit in 64 bits"
    return (str(error).splitlines() or [type(error).__name__])[0]


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MAX_KEYS:
        raise ValueError(TOO_MANY_KEYS)
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
    """Make a loader class for YAML 1.2's core schema that refuses repeated keys."""
    import yaml

    # libyaml is four times as fast: the largest body that the service accepts takes 2 s, not 7.
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
    """Refuse depth, size, aliases and tags in the stream of events, before any recursive reader."""
    import yaml

    # Of each collection that is open: whether it is a mapping, and its events so far.
    open_ones: list[tuple[bool, Iterator[int]]] = []
    for event in yaml.parse(text, Loader=loader):
        if open_ones and not isinstance(event, yaml.CollectionEndEvent):
            is_mapping, count = open_ones[-1]
            number = next(count)
            if number > (2 * MAX_KEYS if is_mapping else MAX_ITEMS):
                raise _problem(TOO_MANY_KEYS if is_mapping else TOO_MANY_ITEMS, event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            # A few lines of aliases can stand for gigabytes.
            raise _problem("aliases (*name) are not read", event.start_mark)
        if getattr(event, "tag", None) not in (None, "tag:yaml.org,2002:str"):
            # Specs have no dates, sets or bytes, and a tag may contradict its value.
            raise _problem("tags (!!name) other than !!str are not read", event.start_mark)
        if isinstance(event, yaml.CollectionStartEvent):
            open_ones.append((isinstance(event, yaml.MappingStartEvent), itertools.count(1)))
            if len(open_ones) > MAX_DEPTH:
                raise _problem("it is nested too deeply", event.start_mark)
        elif isinstance(event, yaml.CollectionEndEvent):
            open_ones.pop()


def _problem(text: str, mark: Any) -> "yaml.MarkedYAMLError":
    import yaml

    return yaml.constructor.ConstructorError(None, None, text, mark)
