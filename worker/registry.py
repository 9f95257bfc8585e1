"""Networks and data sets by name, filled from entry points. Loads none of them until asked.

A package adds a network by declaring an entry point in the group ``ndsweep.networks`` that names a
function ``build(config, num_classes, in_channels) -> torch.nn.Module``; the built-in ones register
the same way, in this project's ``pyproject.toml``.
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any


@cache
def _entries(kind: str) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=f"ndsweep.{kind}")}


def registered_names(kind: str) -> list[str]:
    """Names registered under ``kind`` ("networks"), sorted."""
    return sorted(_entries(kind))


def load(kind: str, name: str) -> Any:
    """Import what is registered as ``name``. Raises KeyError for an unknown name."""
    return _entries(kind)[name].load()
