"""``/login``, ``/logout``, ``/shared``: a browser shows a token or a link once, then a cookie."""

from datetime import UTC, datetime
from pathlib import Path as Folder
from typing import Annotated, Literal, TypedDict
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from dashboards.web.error_pages import error_page, sentence
from dashboards.web.templating import template_environment
from dashboards.wording.sweep_facts import address
from service.api.access.callers import COOKIE, LINK_COOKIE, Access, TooManyWrong, client_host
from service.api.monitoring import API
from service.contract.inputs import StoreDep
from sweeps.errors import LinkNotFound

router = APIRouter(include_in_schema=False)

MAX_FORM_BYTES = 4096

#: Pages of the service itself, which load nothing: no style sheet is served without the token.
TEMPLATES = template_environment(Folder(__file__).parents[2] / "templates")

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
    access: Access = request.app.state.access
    response = RedirectResponse(local_path(next), status_code=303)
    if await access.is_open():
        return response
    try:
        actor = await access.of_token(client_host(request.scope), given.strip())
    except TooManyWrong as error:
        alert = "Too many wrong tokens came from your address. Try again in "
        return _page(next, 429, f"{alert}{error.seconds} seconds.", error.seconds)
    if actor is None:
        return _page(next, 401, "This is not a token of this service, or it is over.")
    cookie, seconds = await access.open_session(actor)
    response.set_cookie(COOKIE, cookie, max_age=seconds, **_private(request))
    return response


@router.post("/logout")
async def logout(request: Request) -> Response:
    """End the session of this browser, also for whoever may have copied its cookie."""
    access: Access = request.app.state.access
    if not await access.is_open():
        await access.end_session(request.scope)
    response = RedirectResponse("/login", status_code=303)
    response.delete_cookie(COOKIE, **_private(request))
    return response


@router.get("/shared/{key}")
def shared(request: Request, key: Annotated[str, Path(max_length=64)], store: StoreDep) -> Response:
    """Lead a public link to the page of its sweep, with a cookie that opens that page alone."""
    try:
        link = store.link_of_key(key)
    except LinkNotFound as error:
        response: Response = error_page(404, "This link is over", sentence(str(error)))
    else:
        sweep = store.get_sweep(link.sweep_id)
        here = address(sweep)
        response = RedirectResponse(here, status_code=303)
        seconds = int((link.expires_at - datetime.now(UTC)).total_seconds())
        trials = f"/sweeps/{sweep.id}"
        for path in dict.fromkeys((here, trials, API + here, API + trials, "/static")):
            response.set_cookie(
                LINK_COOKIE, key, max_age=max(1, seconds), path=path, **_private(request)
            )
    response.headers["X-Robots-Tag"] = "noindex, nofollow"
    return response


def _private(request: Request) -> "_Private":
    """How cookies are kept: from scripts, from other sites, and with https from the network."""
    return {"httponly": True, "samesite": "lax", "secure": request.url.scheme == "https"}


class _Private(TypedDict):
    httponly: bool
    samesite: Literal["lax"]
    secure: bool
