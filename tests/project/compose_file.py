"""Reads docker-compose.yml as Docker Compose does: anchors merged, variables replaced."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

COMPOSE = Path(__file__).parents[2] / "docker-compose.yml"
#: Given beside it where the machine has GPUs.
GPU = COMPOSE.parent / "deploy" / "compose.gpu.yml"

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def read(
    variables: dict[str, str] | None = None, files: Sequence[Path] = (COMPOSE,)
) -> dict[str, Any]:
    """The files with each ``${NAME:-default}`` replaced by ``variables`` or its default.

    What a later file says of a service takes the place of what an earlier one does.
    """
    given = variables or {}
    document: dict[str, Any] = {}
    for file in files:
        text = file.read_text("utf-8")
        replaced = _VARIABLE.sub(lambda match: given.get(match[1], match[2] or ""), text)
        part: dict[str, Any] = yaml.safe_load(replaced.replace("$$", "$"))
        if not document:
            document = part
            continue
        for name, service in part["services"].items():
            document["services"][name] |= service
    return document


def as_json(document: dict[str, Any]) -> str:
    """The file without the ``x-`` blocks that only hold anchors."""
    return json.dumps({key: part for key, part in document.items() if not key.startswith("x-")})
