"""Who may talk to the service: holders of the token, or, without one, this machine alone."""

import hashlib
import hmac
import socket
from collections.abc import Callable
from functools import lru_cache
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.wrong_tokens import WrongTokens
from service.contract.errors import error_response
from service.contract.outputs import ErrorOut
from service.settings import is_address, is_loopback

#: Answered without a token: probes, and the page that asks for the token.
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/login"})
COOKIE = "ndsweep_session"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def same_secret(given: str, secret: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(given.encode(), secret.encode())


def session_cookie(secret: str) -> str:
    """What a browser keeps instead of the token: it proves the token and does not reveal it."""
    return hmac.new(secret.encode(), b"ndsweep browser session", hashlib.sha256).hexdigest()


class Guard:
    """ASGI middleware that turns away whoever may not talk to the service.

    With a token: every path but ``OPEN_PATHS`` needs it, as a bearer token or as the cookie that
    the login page sets. In both cases the Host must be a name of this service (a page elsewhere
    whose name was rebound to this address shows its own name there), without a token one of this
    machine; and a browser's request that changes something must come from a page of this service.
    """

    def __init__(
        self, app: ASGIApp, secret: str | None, door: "Door", names: frozenset[str] = frozenset()
    ) -> None:
        self.app = app
        self.secret = secret
        self.door = door
        self.names = names | {socket.gethostname().lower()}
        #: Most requests name the service alike, and to parse a name costs more than the rest.
        self._is_own_name = lru_cache(maxsize=256)(self._names_this_service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = self._refusal(scope)
        await (answer or self.app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        path, method = scope["path"], scope["method"]
        if path in ("/healthz", "/readyz"):
            return None
        if method not in SAFE_METHODS and not _same_origin(headers):
            return _foreign(headers)
        host = headers.get("host", "")
        if not self._is_own_name(host):
            return _forbidden("HostNotAllowed", "Host", host, has_token=self.secret is not None)
        if self.secret is None or path in OPEN_PATHS or _has_session(headers, self.secret):
            return None
        given = bearer_token(headers)
        if given is not None:
            answer = self.door.opens(client_host(scope), given)
            if answer is True:
                return None
            if answer is not False:
                return too_many(answer)
        if method == "GET" and "text/html" in headers.get("accept", ""):
            target = path + (
                f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else ""
            )
            return RedirectResponse(f"/login?next={quote(target, safe='')}", status_code=303)
        detail = "this service asks for a token: send it as 'Authorization: Bearer TOKEN'"
        body = ErrorOut(error="Unauthorized", detail=detail, fields=[])
        return error_response(401, body, {"WWW-Authenticate": "Bearer"})

    def _names_this_service(self, host: str) -> bool:
        name = _parsed(lambda: urlsplit(f"//{host}").hostname)
        if name is None:
            return False
        if self.secret is None:
            return is_loopback(name)
        # Rebinding takes a name in the public DNS, which has a dot and is no address.
        return name in self.names or "." not in name or is_address(name)


class Door:
    """Looks at tokens, of each address only so many wrong ones."""

    def __init__(self, secret: str | None, wrong: WrongTokens | None = None) -> None:
        self._secret = secret
        self._wrong = wrong or WrongTokens()

    def opens(self, host: str, given: str) -> bool | int:
        """Whether ``given`` is the token; the seconds to wait where it is not looked at."""
        wait = self._wrong.seconds_to_wait(host)
        if wait:
            return wait
        if self._secret is None or same_secret(given, self._secret):
            self._wrong.note_right(host)
            return True
        return self._wrong.note_wrong(host, given) or False


def client_host(scope: Scope) -> str:
    """The address that a request comes from; "" where it has none."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def bearer_token(headers: Headers) -> str | None:
    """The bearer token of a request; None without one."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return given.strip() or None if scheme.lower() == "bearer" else None


def too_many(seconds: int) -> Response:
    """The answer to an address that has shown too many wrong tokens."""
    detail = f"too many wrong tokens came from this address; try again in {seconds} s"
    body = ErrorOut(error="TooManyWrongTokens", detail=detail, fields=[])
    return error_response(429, body, {"Retry-After": str(seconds)})


def _has_session(headers: Headers, secret: str) -> bool:
    # Lenient, as browsers are: a host's other programs set cookies too, well formed or not.
    cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE)
    return cookie is not None and same_secret(cookie, session_cookie(secret))


def _same_origin(headers: Headers) -> bool:
    """No Origin (not a browser), or the one of this very service."""
    origin = headers.get("origin")
    if origin is None:
        return headers.get("sec-fetch-site", "none") in ("same-origin", "none")
    return _parsed(lambda: urlsplit(origin).netloc.lower()) == headers.get("host", "").lower()


def _parsed(part: Callable[[], str | None]) -> str | None:
    try:
        return part() or None
    except ValueError:
        return None


def _foreign(headers: Headers) -> Response:
    """The answer to a page of another site; some browsers say only that it is one."""
    origin = headers.get("origin")
    if origin is not None:
        return _forbidden("OriginNotAllowed", "Origin", origin, has_token=True)
    site = headers.get("sec-fetch-site", "")[:80]
    detail = (
        f"requests that change something must come from this service's own pages, and the browser "
        f"says that this one does not (Sec-Fetch-Site: {site})"
    )
    return error_response(403, ErrorOut(error="OriginNotAllowed", detail=detail, fields=[]))


def _forbidden(error: str, header: str, value: str, *, has_token: bool) -> Response:
    remedy = (
        "if it is one, add its name to NDSWEEP_ALLOWED_HOSTS"
        if has_token
        else "to be reached under other names, set NDSWEEP_TOKEN and listen on that address"
    )
    detail = f"{header} must name this service's own address, got {value[:80]!r}; {remedy}"
    return error_response(403, ErrorOut(error=error, detail=detail, fields=[]))
