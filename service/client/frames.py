"""Answers as flat rows, all with the same columns: what ``pandas.DataFrame(rows)`` takes.

frame = pandas.DataFrame(difference_rows(service.compare(arms)))
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from service.client.client import Client
from service.contract.outputs import ComparisonOut

Row = dict[str, Any]


def arm_rows(found: ComparisonOut) -> list[Row]:
    """A row for each arm; ``params.NAME`` columns, lists as text."""
    return same_columns(flat(arm.model_dump()) for arm in found.arms)


def difference_rows(found: ComparisonOut) -> list[Row]:
    """A row for each pair of arms."""
    return same_columns(flat(row.model_dump()) for row in found.differences)


def value_rows(found: ComparisonOut) -> list[Row]:
    """A row for each seed of each arm."""
    return [
        {"arm": arm.label, "sweep": arm.sweep, "point": arm.point, "seed": seed, "value": value}
        for arm in found.arms
        for seed, value in zip(arm.seeds, arm.values, strict=True)
    ]


def trial_rows(service: Client, sweep_id: str) -> list[Row]:
    """A row for each trial of a sweep, as its export has them."""
    text = b"".join(service.export(sweep_id, "json"))
    return same_columns(flat(row) for row in json.loads(text)["trials"])


def same_columns(rows: Iterable[Row]) -> list[Row]:
    """The rows with every column that any of them has; None where one has it not."""
    known = list(rows)
    columns = dict.fromkeys(name for row in known for name in row)
    return [{name: row.get(name) for name in columns} for row in known]


def flat(row: Mapping[str, Any]) -> Row:
    """A row whose objects are columns ``NAME.KEY``, and whose lists are JSON text."""
    flat: Row = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{key}": _cell(item) for key, item in value.items()}
        else:
            flat[name] = _cell(value)
    return flat


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | tuple | dict) else value
