"""Reads docker-compose.yml as Docker Compose does: anchors merged, variables replaced."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

COMPOSE = Path(__file__).parents[2] / "docker-compose.yml"

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def read(variables: dict[str, str] | None = None) -> dict[str, Any]:
    """The file with each ``${NAME:-default}`` replaced by ``variables`` or its default."""
    given = variables or {}
    text = COMPOSE.read_text("utf-8")
    replaced = _VARIABLE.sub(lambda match: given.get(match[1], match[2] or ""), text)
    document: dict[str, Any] = yaml.safe_load(replaced)
    return document


def as_json(document: dict[str, Any]) -> str:
    """The file without the ``x-`` blocks that only hold anchors."""
    return json.dumps({key: part for key, part in document.items() if not key.startswith("x-")})
