"""Specs that ship with the product: the quickstart, and the paper's tables and figures.

``python -m sweeps.spec.presets NAME`` prints one as JSON, for machines without PyYAML.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from sweeps.errors import PresetNotFound
from sweeps.records import Kind
from sweeps.spec.text import load_spec_text


@dataclass(frozen=True)
class Preset:
    """A spec by name. ``title`` is the first line of its file, one sentence."""

    name: str
    kind: Kind
    title: str
    #: Values of a SweepSpec or a MatchSpec.
    spec: dict[str, Any]


def preset_names() -> list[str]:
    """Return the names of all presets, sorted."""
    return sorted(
        entry.name.removesuffix(".yaml")
        for entry in _folder().iterdir()
        if entry.name.endswith(".yaml")
    )


def preset_text(name: str) -> str:
    """Return the YAML of a preset. Raises PresetNotFound."""
    # Only listed names are opened, so that no name can be a path.
    if name not in preset_names():
        raise PresetNotFound(name, preset_names())
    return (_folder() / f"{name}.yaml").read_text(encoding="utf-8")


def read_preset(name: str) -> Preset:
    """Return a preset, parsed. Raises PresetNotFound."""
    text = preset_text(name)
    spec = load_spec_text(text)
    title = text.partition("\n")[0].removeprefix("#").strip()
    return Preset(name, "match" if "source" in spec else "sweep", title, spec)


def preset_json(name: str) -> str:
    """Return a preset as JSON text. Raises PresetNotFound."""
    return json.dumps(read_preset(name).spec, indent=1, ensure_ascii=False) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Print one preset as JSON, or without arguments the names of all."""
    if not arguments:
        print("\n".join(preset_names()))
        return 0
    try:
        print(preset_json(arguments[0]), end="")
    except PresetNotFound as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _folder() -> Traversable:
    return files("sweeps.spec") / "preset_specs"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
