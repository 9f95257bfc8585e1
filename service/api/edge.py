"""What every request and every answer passes, errors, files and probes included.

Requests that two programs could read in two ways are refused, ``HEAD`` is answered as ``GET``
without its body, and every answer has the headers that keep browsers careful, and the id of its
request, which the log has too.
"""

import asyncio
import re
import secrets
from collections import Counter
from urllib.parse import unquote, urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.contract.errors import error_response
from service.contract.outputs import ErrorOut
from worker.process.logs import log_ids

#: Headers of every answer. A page says itself what it loads, a file how long it may be kept.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

#: Header of a request's id: a proxy's is taken over, so that its log and ours name the same.
REQUEST_ID = b"x-request-id"
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")

_RAW = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]

#: Headers of which one decides, so that a second one would be ignored here or on the way.
_SINGLE = frozenset(
    (
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"host",
        b"idempotency-key",
        b"last-event-id",
        b"origin",
        b"transfer-encoding",
    )
)


class Edge:
    """ASGI middleware around the whole application, its handler of faults included."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        request_id = _request_id(scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", ()))
                names = {name.lower() for name, _ in given}
                missing = [header for header in _RAW if header[0] not in names]
                mark = (REQUEST_ID, request_id.encode())
                message = {**message, "headers": [*given, *missing, mark]}
            await send(message)

        with log_ids(request=request_id):
            await self._answer(_with_path_alone(scope), receive, send_with_headers)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        reason = _ambiguity(scope)
        if reason is not None:
            body = ErrorOut(error="BadRequest", detail=reason, fields=[])
            # What follows on the connection may be the rest of this request, or another one.
            refusal = error_response(400, body, {"Connection": "close"})
            await refusal(scope, receive, send)
        elif scope["method"] == "HEAD":
            await self._answer_head({**scope, "method": "GET"}, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _answer_head(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as to GET, without the body. A stream ends as if the client had gone."""
        is_answered = asyncio.Event()

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                is_answered.set()

        async def receive_until_answered() -> Message:
            if not is_answered.is_set():
                message = await receive()
                if message["type"] == "http.disconnect" or message.get("body"):
                    return message
            await is_answered.wait()
            return {"type": "http.disconnect"}

        await self.app(scope, receive_until_answered, send_head)


def _request_id(scope: Scope) -> str:
    """The id that a proxy gave the request, or a new one."""
    for name, value in scope["headers"]:
        if name == REQUEST_ID and _REQUEST_ID.fullmatch(value):
            return str(value, "ascii")
    return secrets.token_hex(8)


def _with_path_alone(scope: Scope) -> Scope:
    """A request for ``http://name/path`` as one for ``/path`` with that name as its Host."""
    raw: bytes = scope.get("raw_path") or b""
    if not raw.lower().startswith((b"http://", b"https://")):
        return scope
    try:
        target = urlsplit(raw.decode("ascii"))
    except ValueError:
        return scope
    others = [(name, value) for name, value in scope["headers"] if name != b"host"]
    return {
        **scope,
        "path": unquote(target.path) or "/",
        "raw_path": target.path.encode() or b"/",
        "headers": [*others, (b"host", target.netloc.encode())],
    }


def _ambiguity(scope: Scope) -> str | None:
    """Why a proxy could take this request for another than the service does, or None."""
    times = Counter([name for name, _ in scope["headers"]])
    for name in sorted(_SINGLE & times.keys()) if len(times) < len(scope["headers"]) else ():
        if times[name] > 1:
            return (
                f"the header {name.decode().title()} must be sent once, got it {times[name]} times"
            )
    if b"host" not in times and scope.get("http_version") == "1.1":
        return "a request must have the header Host"
    if b"transfer-encoding" in times and b"content-length" in times:
        return "a request must have one of Content-Length and Transfer-Encoding, got both"
    if b"transfer-encoding" in times and scope.get("http_version") == "1.0":
        return "a request of HTTP/1.0 must not have Transfer-Encoding"
    return None
