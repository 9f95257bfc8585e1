"""What a reader finds in another tool's results, before it becomes a sweep."""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from sweeps.records import Direction, TrialState

Key = TypeVar("Key")

#: Longest text that is a field's value.
_MOST_TEXT = 200
#: Integers that a JSON reader with doubles only still represents exactly.
_MOST_WHOLE = 2**53


@dataclass(frozen=True)
class FoundTrial:
    """One finished run of another tool."""

    #: What the other tool calls it: a number, a name.
    label: str
    #: Field -> plain value, as ``plain_value`` makes it.
    params: Mapping[str, Any]
    state: TrialState
    #: Last value of every metric, the objective included; NaN and infinities are left out.
    metrics: Mapping[str, float] = field(default_factory=dict)
    #: As the source has it, a number or text; None = it names none.
    seed: Any = None
    #: (step, value) by metric name.
    curves: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)
    #: Last step; 0 where the source counts none.
    step: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    #: Why it failed; "" for others.
    cause: str = ""
    #: What is known of the machine, as provenance.
    provenance: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """Results of another tool."""

    #: The tool, as people write it.
    tool: str
    #: What makes two imports the same source, beside the tool.
    identity: str
    #: Name of the sweep.
    name: str
    objective: str
    direction: Direction
    trials: Sequence[FoundTrial]
    #: When the source was written; stands in for times that it does not have.
    at: datetime
    #: Metrics of which the better end is known, further objectives among them.
    directions: Mapping[str, Direction] = field(default_factory=dict)
    #: Objectives of a search for a front, ``objective`` first; () = it is the only one.
    objectives: Sequence[str] = ()
    #: Field -> domain as JSON values, where the source declares one.
    domains: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: What was left out and what is lacking: sentences without a full stop.
    notes: Sequence[str] = ()


_NOT_OF_FIELD = re.compile(r"[^A-Za-z0-9_.-]")
_NOT_OF_METRIC = re.compile(r"[^A-Za-z0-9_./@ -]")


def field_name(text: str) -> str:
    """A name as a spec may write a field: ``optimizer/lr`` becomes ``optimizer.lr``."""
    return _begun(_NOT_OF_FIELD.sub("_", text.strip().replace("/", ".")))


def metric_name(text: str) -> str:
    """A name as a spec may write a metric."""
    return _begun(_NOT_OF_METRIC.sub("_", text.strip()))


def _begun(name: str) -> str:
    return (name if name[:1].isalpha() or name[:1] == "_" else f"_{name}")[:100]


def plain_value(value: Any) -> Any:
    """A value as a config can hold it; what it cannot hold becomes text.

    NaN, infinities and integers beyond 2^53 become text, as do lists of anything but numbers. Long
    text is cut, and ends with a hash of the whole.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _MOST_WHOLE else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple) and 0 < len(value) <= 1000:
        numbers = [plain_value(item) for item in value]
        if all(map(is_number, numbers)):
            return numbers
    if not isinstance(value, str):
        value = json.dumps(value, sort_keys=True, default=str)
    text: str = value
    if len(text) <= _MOST_TEXT:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{text[: _MOST_TEXT - 11]}… {digest}"


def flattened(values: Mapping[str, Any], separator: str) -> dict[str, Any]:
    """Nested objects as one: ``{"a": {"b": 1}}`` becomes ``{"a.b": 1}``."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            inner = flattened(value, separator)
            flat |= {f"{name}{separator}{key}": item for key, item in inner.items()}
        else:
            flat[str(name)] = value
    return flat


def counted(count: int, word: str) -> str:
    """``1 trial``, ``2 trials``."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def is_number(value: Any) -> bool:
    """Whether a value is a number; NaN and infinities are, true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def finite_numbers(values: Mapping[Key, Any]) -> dict[Key, float]:
    """The values that are finite numbers, as floats."""
    return {
        name: float(value)
        for name, value in values.items()
        if is_number(value) and math.isfinite(value)
    }
