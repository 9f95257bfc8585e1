"""The fields in which several configs differ, side by side."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dashboards.wording.formatting import config_value

#: Fields that never tell two settings apart: replicates differ in them by design.
_SEEDS = frozenset({"seed"})


@dataclass(frozen=True)
class Differing:
    """A table: one column per config, one row per field whose values are not all the same."""

    names: list[str]
    #: Field, and its value in each config.
    rows: list[tuple[str, list[str]]]
    #: Whose fields they are; "" if the configs are of several trainings.
    training: str = ""


def differing_fields(configs: Mapping[str, Mapping[str, Any]], training: str) -> Differing:
    """Line configs up by field. A field that a config does not have reads as unset."""
    fields = dict.fromkeys(name for config in configs.values() for name in config)
    rows = []
    for name in fields:
        if name in _SEEDS:
            continue
        values = [config.get(name) for config in configs.values()]
        if any(value != values[0] for value in values[1:]):
            rows.append((name, [config_value(value) for value in values]))
    return Differing(list(configs), rows, training)
