"""Tables as answers: CSV, Markdown, LaTeX."""

from typing import Any, Literal

from fastapi import Response

MEDIA_TYPES = {"csv": "text/csv", "markdown": "text/markdown", "latex": "application/x-tex"}

#: ``responses=`` of a route that answers with JSON or with one of these.
TABLES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "As JSON, or as a table in the format that was asked for.",
        "content": {media: {"schema": {"type": "string"}} for media in MEDIA_TYPES.values()},
    }
}


def table_response(text: str, form: Literal["csv", "markdown", "latex"]) -> Response:
    """Answer with a table."""
    return Response(text, media_type=f"{MEDIA_TYPES[form]}; charset=utf-8")
