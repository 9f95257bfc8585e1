"""``/login``: a browser shows the token once and then carries a cookie."""

from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from dashboards.web.templating import template_environment
from service.api.auth import COOKIE, Door, client_host, session_cookie

router = APIRouter(include_in_schema=False)

MAX_FORM_BYTES = 4096

#: Pages of the service itself, which load nothing: no style sheet is served without the token.
TEMPLATES = template_environment(Path(__file__).parents[1] / "templates")

NextPath = Annotated[str, Query(max_length=2000)]


def own_page_policy(form_action: str) -> str:
    """Content-Security-Policy of a page with a style of its own and nothing else."""
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; form-action {form_action}; "
        "base-uri 'none'; frame-ancestors 'none'"
    )


def local_path(target: str) -> str:
    """``target`` if it is a path of this service, else "/": nobody is sent elsewhere from here."""
    plain = target.isprintable() and "\\" not in target
    return target if plain and target.startswith("/") and not target.startswith("//") else "/"


def _page(target: str, status: int, alert: str = "", seconds: int = 0) -> HTMLResponse:
    page = TEMPLATES.get_template("login.html").render(
        next=quote(local_path(target), safe="/"), alert=alert
    )
    headers = {"Content-Security-Policy": own_page_policy(form_action="'self'")}
    if seconds:
        headers["Retry-After"] = str(seconds)
    return HTMLResponse(page, status_code=status, headers=headers)


@router.get("/login")
def login_page(next: NextPath = "/") -> HTMLResponse:
    return _page(next, 200)


@router.post("/login")
async def login(request: Request, next: NextPath = "/") -> Response:
    form = b""
    async for chunk in request.stream():
        form += chunk
        if len(form) > MAX_FORM_BYTES:
            break
    given = parse_qs(form[:MAX_FORM_BYTES].decode("utf-8", "replace")).get("token", [""])[0]
    secret: str | None = request.app.state.secret
    if secret is not None:
        door: Door = request.app.state.door
        opened = door.opens(client_host(request.scope), given.strip())
        if opened is False:
            return _page(next, 401, "This is not the token of this service.")
        if opened is not True:
            alert = f"Too many wrong tokens came from your address. Try again in {opened} seconds."
            return _page(next, 429, alert, opened)
    response = RedirectResponse(local_path(next), status_code=303)
    if secret is not None:
        response.set_cookie(
            COOKIE,
            session_cookie(secret),
            httponly=True,
            samesite="lax",
            secure=request.url.scheme == "https",
            max_age=30 * 24 * 3600,
        )
    return response
