"""uvicorn's connection over llhttp, with this service's error for what is no HTTP.

llhttp parses several times as fast as h11 and promises less: what it leaves to its users (bounds
of a head, trailers, HTTP/1.0, errors behind an answer that is on its way) is here.
"""

from collections import deque
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, ASGISendEvent
from uvicorn._types import Scope as UvicornScope
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from service.api.edge import HEADERS
from service.contract.outputs import ErrorOut

#: Bytes of a head, of trailers or of the line above a chunk that wait for their end. One read
#: of at most 256 KiB may come on top.
MOST_UNFINISHED = 16_384


class Connection(HttpToolsProtocol):
    """A connection whose refusals of malformed requests look like every other error.

    Requests behind one that is still answered wait; what is malformed among them ends the
    connection after that answer.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unfinished = 0
        #: Whose answer is being written; ``self.cycle`` is that of the newest request.
        self._answered: RequestResponseCycle | None = None

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._unfinished += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Answered like any request, and the last one: what follows is not HTTP.
            self.on_message_complete()
        except httptools.HttpParserError:
            self.send_400_response("the request is not valid HTTP")
        else:
            if self._unfinished > MOST_UNFINISHED:
                self.send_400_response(
                    f"a request's head must have at most {MOST_UNFINISHED:,} bytes"
                )

    # --- What the parser calls: an error raised here is one of the request ---------------------

    def on_headers_complete(self) -> None:
        if self.parser.get_http_version() not in ("1.0", "1.1"):
            raise ValueError("a version that is not served")
        self._unfinished = 0
        # Taken as it stands: uvicorn would drop the name from http://name/path.
        target, self.url = self.url, b"/"
        raw_path, _, query = target.partition(b"?")
        path = raw_path.decode("ascii")
        super().on_headers_complete()
        self.scope["path"] = unquote(path) if "%" in path else path
        self.scope["raw_path"], self.scope["query_string"] = raw_path, query
        if self.parser.should_upgrade():
            self.cycle.keep_alive = False
        # Trailers come here: nobody may add headers to a request that was let in.
        self.headers = deque(maxlen=0)  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        self._unfinished = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unfinished = 0
        super().on_message_complete()
        self.cycle.more_body = False  # also where it is answered already

    # --- Answers -------------------------------------------------------------------------------

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answered = cycle
        if cycle.scope["http_version"] == "1.0":
            app = _until_the_end(cycle, app)
        super()._start_asgi_task(cycle, app)

    def connection_lost(self, exc: Exception | None) -> None:
        self._break_off(self._answered)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be read, unless an answer is on its way; then close."""
        newest = self.cycle
        if newest is None or (newest.response_complete and not newest.more_body):
            self._refuse(msg)
        elif newest is not self._answered:
            # Others are answered first, this one never: its end cannot be found.
            if newest.more_body:
                self.pipeline.popleft()
            last = self.pipeline[0][0] if self.pipeline else self._answered
            assert last is not None
            last.keep_alive = False
        elif not newest.more_body:
            newest.keep_alive = False
        else:
            # Whoever waits for the rest of the body learns that there is none.
            self._break_off(newest)
            if newest.response_started:
                self.transport.close()
            else:
                self._refuse(msg)

    def _refuse(self, detail: str) -> None:
        self.logger.warning("a request was refused: %s", detail)
        body = ErrorOut(error="BadRequest", detail=detail, fields=[]).model_dump_json().encode()
        about = {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Connection": "close",
        }
        lines = [f"{name}: {value}\r\n".encode() for name, value in {**HEADERS, **about}.items()]
        self.transport.write(b"".join([STATUS_LINE[400], *lines, b"\r\n", body]))
        self.transport.close()

    def _break_off(self, cycle: RequestResponseCycle | None) -> None:
        """Tell whoever answers a request that its client is gone."""
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()


def _until_the_end(cycle: RequestResponseCycle, app: ASGI3Application) -> ASGI3Application:
    """An application for HTTP/1.0, which knows no chunks: what has no length ends with the wire."""

    async def answer(
        scope: UvicornScope, receive: ASGIReceiveCallable, send: ASGISendCallable
    ) -> None:
        is_open = False

        async def send_whole(message: ASGISendEvent) -> None:
            nonlocal is_open
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message.get("headers", ())}
                is_open = b"content-length" not in names
                if is_open:
                    cycle.chunked_encoding = False
            elif is_open and message["type"] == "http.response.body":
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, send_whole)

    return answer
