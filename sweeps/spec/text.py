"""Reads the text of a spec: JSON, or YAML as its version 1.2 says (``sweeps.spec.spec_yaml``)."""

import json
from typing import Any, NoReturn

from sweeps.errors import UnreadableSpec

#: Levels of nesting; a spec needs about 8.
MAX_DEPTH = 64


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
    # Not earlier: a machine that only runs batches of JSON specs may lack PyYAML.
    try:
        from sweeps.spec import spec_yaml
    except ModuleNotFoundError as error:
        raise unreadable(
            f"it is not JSON, and YAML needs the package {error.name!r}, which is not here; "
            "convert it to JSON"
        ) from error
    return spec_yaml.read_yaml(text)


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
