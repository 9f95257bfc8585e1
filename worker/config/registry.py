"""Networks and data sets by name, from entry points. Imports each of them only on request.

A package adds a network by declaring an entry point in the group ``ndsweep.networks`` that names a
function ``build(config, num_classes, in_channels) -> torch.nn.Module``; the built-in ones register
the same way, in this project's ``pyproject.toml``, which is read if a checkout runs without
being installed.
"""

import tomllib
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

_CHECKOUT = Path(__file__).resolve().parents[2] / "pyproject.toml"


@cache
def _entries(kind: str) -> dict[str, EntryPoint]:
    group = f"ndsweep.{kind}"
    built_in = {name: EntryPoint(name, value, group) for name, value in _declared(group).items()}
    return built_in | {entry.name: entry for entry in entry_points(group=group)}


def _declared(group: str) -> dict[str, str]:
    """Return the entry points that this checkout declares; none for an installed package."""
    if not _CHECKOUT.is_file():
        return {}
    project = tomllib.loads(_CHECKOUT.read_text(encoding="utf-8")).get("project", {})
    declared: dict[str, str] = project.get("entry-points", {}).get(group, {})
    return declared


def registered_names(kind: str) -> list[str]:
    """Return the names registered under ``kind`` ("networks"), sorted."""
    return sorted(_entries(kind))


def load(kind: str, name: str) -> Any:
    """Import the object registered as ``name``. Raises KeyError for an unknown name."""
    return _entries(kind)[name].load()
