"""Scripts and styles, each under an address that holds its version: cached for a year, never stale.

plotly's script comes from the installed ``plotly`` package, htmx and the rest from ``static/``.
"""

import hashlib
import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fastapi import APIRouter
from fastapi.responses import FileResponse, PlainTextResponse, Response

_HERE = Path(__file__).parents[1] / "static"
_YEAR = "public, max-age=31536000, immutable"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class Asset(NamedTuple):
    """A file that pages may ask for, and the version in its address."""

    path: Path
    version: str


def _plotly_script() -> Path:
    # Found, not imported: the Python side of plotly is slow to load and not needed.
    spec = importlib.util.find_spec("plotly")
    if spec is None or spec.origin is None:
        raise RuntimeError("the package plotly is not installed, and pages need its script")
    return Path(spec.origin).parent / "package_data" / "plotly.min.js"


@cache
def assets() -> dict[str, Asset]:
    """Name -> file and version. The version is a hash of the content."""
    files = [path for path in sorted(_HERE.iterdir()) if path.suffix in _TYPES]
    return {
        path.name: Asset(path, hashlib.sha256(path.read_bytes()).hexdigest()[:12])
        for path in [*files, _plotly_script()]
    }


def asset_url(name: str) -> str:
    """Address of a script or style, for a template."""
    return f"/static/{assets()[name].version}/{name}"


@cache
def plotly_map_style_ids() -> tuple[str, ...]:
    """Ids of ``<style>`` elements that plotly's script adds for maps when it loads.

    The pages draw no maps and their policy forbids inline styles. A page that already holds an
    element of that id is left alone, so the base template renders one.
    """
    script = assets()["plotly.min.js"].path.read_text("utf-8")
    return tuple(dict.fromkeys(re.findall(r'document\.getElementById\("([0-9a-f]{64})"\)', script)))


router = APIRouter()


@router.get("/static/{version}/{name}", include_in_schema=False)
def static_file(version: str, name: str) -> Response:
    """One asset. The address of an old version gives the current file, without caching."""
    asset = assets().get(name)
    if asset is None:
        return PlainTextResponse(f"there is no static file {name[:80]!r}", status_code=404)
    kept = _YEAR if version == asset.version else "no-cache"
    return FileResponse(
        asset.path,
        media_type=_TYPES[asset.path.suffix],
        headers={"Cache-Control": kept},
    )
