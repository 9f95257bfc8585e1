"""``/login``: a browser shows the token once and then carries a cookie."""

from html import escape
from typing import Annotated
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from service.api.auth import COOKIE, same_secret, session_cookie

router = APIRouter(include_in_schema=False)

MAX_FORM_BYTES = 4096

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in · ndsweep</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 15vh auto; max-width: 22rem; padding: 1rem; }}
label, input, button {{ display: block; width: 100%; box-sizing: border-box; font: inherit; }}
input, button {{ margin-top: .5rem; padding: .5rem; }}
[role=alert] {{ color: #a00000; }}
@media (prefers-color-scheme: dark) {{
  body {{ background: #16181c; color: #e6e6e6; }}
  [role=alert] {{ color: #ff9b9b; }}
}}
</style>
</head>
<body>
<main>
<h1>ndsweep</h1>
<form method="post" action="/login?next={next}">
<label for="token">Token of this service (<code>NDSWEEP_TOKEN</code>)</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
{alert}<button>Sign in</button>
</form>
</main>
</body>
</html>
"""

NextPath = Annotated[str, Query(max_length=2000)]


def local_path(target: str) -> str:
    """``target`` if it is a path of this service, else "/": nobody is sent elsewhere from here."""
    plain = target.isprintable() and "\\" not in target
    return target if plain and target.startswith("/") and not target.startswith("//") else "/"


def _page(target: str, alert: str, status: int) -> HTMLResponse:
    page = _PAGE.format(next=escape(quote(local_path(target), safe="/")), alert=alert)
    return HTMLResponse(page, status_code=status, headers={"Cache-Control": "no-store"})


@router.get("/login")
def login_page(next: NextPath = "/") -> HTMLResponse:
    return _page(next, "", 200)


@router.post("/login")
async def login(request: Request, next: NextPath = "/") -> Response:
    form = b""
    async for chunk in request.stream():
        form += chunk
        if len(form) > MAX_FORM_BYTES:
            break
    given = parse_qs(form[:MAX_FORM_BYTES].decode("utf-8", "replace")).get("token", [""])[0]
    secret: str | None = request.app.state.secret
    if secret is not None and not same_secret(given.strip(), secret):
        return _page(next, '<p role="alert">This is not the token of this service.</p>\n', 401)
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
