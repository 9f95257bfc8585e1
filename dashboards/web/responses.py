"""Answers as gzip if the browser accepts it: a plot of 10,000 points is mostly digits."""

from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipResponder
from starlette.types import ASGIApp, Receive, Scope, Send

#: Shorter bodies fit one packet anyway.
LEAST_BYTES = 1500
#: The fastest level: it gives most of what the best one does.
LEVEL = 1


class Compression:
    """ASGI middleware: Starlette's gzip for all but the paths below ``except_below``.

    Not Starlette's GZipMiddleware, which takes every header with the word gzip for consent, also
    ``gzip;q=0``. Large bodies are compressed in a thread; event streams never are.
    """

    def __init__(self, app: ASGIApp, except_below: str) -> None:
        self.app = app
        self.except_below = except_below

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self.app
        if (
            scope["type"] == "http"
            and not scope["path"].startswith(self.except_below)
            and _takes_gzip(Headers(scope=scope).get("accept-encoding", ""))
        ):
            answer = GZipResponder(self.app, LEAST_BYTES, LEVEL)
        await answer(scope, receive, send)


def _takes_gzip(accepted: str) -> bool:
    return any(
        part.partition(";")[0].strip() == "gzip" and "q=0" not in part.replace(" ", "").split(";")
        for part in accepted.lower().split(",")
    )
