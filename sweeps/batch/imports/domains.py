"""The space that imported points span: domains and conditions, as declared or as inferred."""

from collections.abc import Mapping, Sequence
from typing import Any

from sweeps.batch.imports.found import is_number
from sweeps.spec.domains import same

#: Numbers with at most this many values, fewer than there are points, are a choice.
_FEW = 8


def space_of(
    points: Sequence[Mapping[str, Any]],
    fields: Sequence[str],
    declared: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Domains of the fields, and those that some points lack by no rule that a spec can state."""
    space: dict[str, dict[str, Any]] = {}
    for name in fields:
        values = [point[name] for point in points if name in point]
        space[name] = dict(declared.get(name) or inferred(values))
    without_rule = []
    for name in fields:
        if all(name in point for point in points):
            continue
        rule = _condition(name, points, space)
        if rule is None:
            without_rule.append(name)
        else:
            space[name]["when"] = rule
    return space, without_rule


def inferred(values: Sequence[Any]) -> dict[str, Any]:
    """The domain of a field by its values: a range of numbers, or a choice.

    A range is logarithmic where floats are positive and span a decade or more.
    """
    distinct = list({same(value): value for value in values}.values())
    numbers = [value for value in distinct if is_number(value)]
    few = len(distinct) <= _FEW and len(distinct) < len(values)
    if len(numbers) < len(distinct) or len(distinct) == 1 or few:
        return {"kind": "choice", "values": sorted(distinct, key=_order)}
    low, high = min(numbers), max(numbers)
    if all(isinstance(value, int) for value in numbers):
        return {"kind": "int", "low": low, "high": high}
    is_log = low > 0 and high >= 10 * low
    return {"kind": "float", "low": float(low), "high": float(high), "log": is_log}


def _order(value: Any) -> tuple[int, float, str]:
    return (0, float(value), "") if is_number(value) else (1, 0.0, same(value))


def _condition(
    name: str, points: Sequence[Mapping[str, Any]], space: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[Any]] | None:
    """The choice whose value decides whether a point has the field: ``{"optimizer": ["sgd"]}``."""
    having = [point for point in points if name in point]
    lacking = [point for point in points if name not in point]
    for other, domain in space.items():
        if other == name or domain["kind"] != "choice":
            continue
        if not all(other in point for point in having):
            continue
        with_it = {same(point[other]) for point in having}
        without = {same(point[other]) for point in lacking if other in point}
        if not with_it & without:
            return {other: [value for value in domain["values"] if same(value) in with_it]}
    return None
