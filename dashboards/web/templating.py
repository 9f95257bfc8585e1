"""Renders templates into pages that may load content from this service only."""

from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from dashboards.web.posted_form import control_id
from dashboards.web.static_files import asset_url, plotly_map_style_ids
from dashboards.wording import formatting
from dashboards.wording.markdown_notes import markdown
from sweeps.analysis.formatting import signed
from sweeps.errors import StoreUnavailable
from sweeps.figures.quantities import quantity
from sweeps.store.database.people import Scope, acting, may, may_change

#: SHA-256 of the empty text. plotly adds an empty ``<style>`` and fills it rule by rule.
_EMPTY_STYLE = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"

#: Only this service: no other host, no inline script, no inline style sheet. plotly sets
#: ``style`` attributes on its own drawing and turns it into an image by a data: or blob: address.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        f"style-src-elem 'self' {_EMPTY_STYLE}",
        "style-src-attr 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "font-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
#: The service adds those that every answer has.
_HEADERS = {"Content-Security-Policy": CONTENT_SECURITY_POLICY}


#: Says why sweeps cannot run now, for the page that is being made; None where they can.
WhyNotRunning = Callable[[], str | None]
_WHY_NOT_RUNNING: ContextVar[WhyNotRunning | None] = ContextVar("why_not_running", default=None)


def ask_why_not_running(ask: WhyNotRunning | None) -> None:
    """Have pages that are made in this context say on top why sweeps cannot run."""
    _WHY_NOT_RUNNING.set(ask)


def _why_not_running() -> str | None:
    ask = _WHY_NOT_RUNNING.get()
    try:
        return ask() if ask else None
    except StoreUnavailable:
        # What the page is about says it already.
        return None


def template_environment(folder: Path) -> Environment:
    """Templates of a folder: values are escaped, one that is missing is an error."""
    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _environment() -> Environment:
    environment = template_environment(Path(__file__).parents[1] / "templates")
    environment.filters |= {
        "config_value": formatting.config_value,
        "duration": formatting.duration,
        "markdown": markdown,
        "moment": formatting.moment,
        "named_symbol": formatting.named_symbol,
        "number": formatting.number,
        "percent": formatting.percent,
        "sampled_value": formatting.sampled_value,
        "short_moment": formatting.short_moment,
        "signed": signed,
        "symbol": formatting.symbol,
        "upper_first": formatting.upper_first,
    }
    environment.globals |= {
        "asset": asset_url,
        "caption": formatting.caption,
        "control_id": control_id,
        "may": lambda scope: may(Scope(scope)),
        "may_change": may_change,
        "mean_text": formatting.mean_text,
        "quantity": quantity,
        "quantity_value": formatting.quantity_value,
        "viewer": acting,
        "why_not_running": _why_not_running,
    }
    return environment


def render(template: str, **values: Any) -> str:
    """The text of a template with its values."""
    return _environment().get_template(template).render(**values)


def page(template: str, status_code: int = 200, **values: Any) -> HTMLResponse:
    """Render a page, or the part of one that a live update replaces."""
    html = render(template, map_style_ids=plotly_map_style_ids(), **values)
    return HTMLResponse(html, status_code=status_code, headers=_HEADERS)
