"""Who may talk to the service: those whom it knows, or, without any token, this machine alone."""

import math
import socket
import time
from collections.abc import Callable
from functools import lru_cache
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dashboards.web.error_pages import error_page, sentence
from service.api.access.callers import Access, NotKnown, TooManyWrong
from service.contract.errors import error_response
from service.contract.outputs import ErrorOut, FieldOut
from service.settings import is_address, is_loopback
from sweeps.errors import StoreUnavailable
from sweeps.store.database.people import Actor, acting_as
from sweeps.store.database.people import Scope as Allowed
from worker.process.logs import add_ids

#: Answered to everybody: probes, the page that asks for a token and what forgets it.
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/login", "/logout"})
#: Below it, public links lead to what they show.
SHARED = "/shared/"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Guard:
    """ASGI middleware that turns away whoever may not talk to the service.

    Every path but the open ones needs somebody whom ``Access`` knows. The Host must be a name of
    this service (a page elsewhere whose name was rebound to this address shows its own name there),
    without tokens one of this machine; and a browser's request that changes something must come
    from a page of this service. What is behind the guard is done by whom it let in.
    """

    def __init__(self, app: ASGIApp, access: Access, names: frozenset[str] = frozenset()) -> None:
        self.app = app
        self.access = access
        self.names = names | {socket.gethostname().lower()}
        self.rates = Rates()
        #: Most requests name the service alike, and to parse a name costs more than the rest.
        self._is_own_name = lru_cache(maxsize=256)(self._names_this_service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        found = await self._let_in(scope, Headers(scope=scope))
        if isinstance(found, Response):
            await found(scope, receive, send)
            return
        if found is not None and found.scope == Allowed.LINK:
            send = _unlisted(send)
        if found is not None:
            add_ids(token=found.token or found.token_name)
        with acting_as(found):
            await self.app(scope, receive, send)

    async def _let_in(self, scope: Scope, headers: Headers) -> Response | Actor | None:
        """The answer to who is turned away; who acts; None where that does not matter."""
        path, method = scope["path"], scope["method"]
        if path in ("/healthz", "/readyz"):
            return None
        if method not in SAFE_METHODS and not _same_origin(headers):
            return _foreign(headers)
        try:
            is_open = await self.access.is_open()
            host = headers.get("host", "")
            if not self._is_own_name(host, is_open):
                return _forbidden("HostNotAllowed", "Host", host, has_token=not is_open)
            if path in OPEN_PATHS or path.startswith(SHARED):
                return None
            actor = await self.access.caller(scope, headers)
        except NotKnown:
            return _who_is_it(scope, headers)
        except TooManyWrong as error:
            return too_many(error.seconds)
        except StoreUnavailable as error:
            return _no_store(scope, headers, error)
        wait = self.rates.seconds_to_wait(actor) if actor is not None else 0
        return _too_fast(actor, wait) if actor is not None and wait else actor

    def _names_this_service(self, host: str, is_open: bool) -> bool:
        name = _parsed(lambda: urlsplit(f"//{host}").hostname)
        if name is None:
            return False
        if is_open:
            return is_loopback(name)
        # Rebinding takes a name in the public DNS, which has a dot and is no address.
        return name in self.names or "." not in name or is_address(name)


class Rates:
    """Holds tokens to their requests per second, each with two seconds' worth at once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: Token -> requests that it may still make, as of a time.
        self._left: dict[str, tuple[float, float]] = {}

    def seconds_to_wait(self, actor: Actor) -> int:
        """Count a request; 0, or the whole seconds until the next one is answered."""
        rate = actor.quotas.requests_per_second
        if rate is None:
            return 0
        most, now = max(1.0, 2 * rate), self._clock()
        left, at = self._left.get(actor.token, (most, now))
        left = min(most, left + (now - at) * rate)
        is_answered = left >= 1
        self._left[actor.token] = (left - 1 if is_answered else left, now)
        return 0 if is_answered else max(1, math.ceil((1 - left) / rate))


def too_many(seconds: int) -> Response:
    """The answer to an address that has shown too many wrong tokens."""
    body = ErrorOut(error="TooManyWrongTokens", detail=str(TooManyWrong(seconds)), fields=[])
    return error_response(429, body, {"Retry-After": str(seconds)})


def _too_fast(actor: Actor, seconds: int) -> Response:
    quota = "requests_per_second"
    detail = (
        f"the quota {quota} of {actor.name!r} is {actor.quotas.requests_per_second:g}: try again "
        f"in {seconds} s, send fewer requests, or ask an administrator for more"
    )
    body = ErrorOut(
        error="QuotaExceeded", detail=detail, fields=[FieldOut(path=quota, reason=detail)]
    )
    return error_response(429, body, {"Retry-After": str(seconds)})


def _unlisted(send: Send) -> Send:
    """No search engine keeps what a public link shows."""

    async def send_unlisted(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=list(message.get("headers", [])))
            headers["X-Robots-Tag"] = "noindex, nofollow"
            message = {**message, "headers": headers.raw}
        await send(message)

    return send_unlisted


def _who_is_it(scope: Scope, headers: Headers) -> Response:
    if scope["method"] == "GET" and "text/html" in headers.get("accept", ""):
        query = scope["query_string"]
        target = scope["path"] + (f"?{query.decode('latin-1')}" if query else "")
        return RedirectResponse(f"/login?next={quote(target, safe='')}", status_code=303)
    detail = "this service asks for a token: send it as 'Authorization: Bearer TOKEN'"
    body = ErrorOut(error="Unauthorized", detail=detail, fields=[])
    return error_response(401, body, {"WWW-Authenticate": "Bearer"})


def _no_store(scope: Scope, headers: Headers, error: StoreUnavailable) -> Response:
    """Nobody can be looked up at the moment."""
    is_page = not scope["path"].startswith("/api/") and "text/html" in headers.get("accept", "")
    if is_page:
        return error_page(503, "The store does not answer", sentence(str(error)))
    body = ErrorOut(error=type(error).__name__, detail=str(error), fields=[])
    return error_response(503, body, {"Retry-After": "5"})


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
