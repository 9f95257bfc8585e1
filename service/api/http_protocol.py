"""uvicorn's connection, with this service's error for what is no HTTP."""

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from service.api.edge import HEADERS
from service.contract.outputs import ErrorOut


class Connection(H11Protocol):
    """A connection whose refusals of malformed requests look like every other error."""

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be read, unless an answer is on its way; then close."""
        # Whoever waits for the rest of the body learns that there is none.
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            detail = "the request is not valid HTTP"
            body = ErrorOut(error="BadRequest", detail=detail, fields=[]).model_dump_json().encode()
            about = {"Content-Type": "application/json", "Connection": "close"}
            headers = [(k.encode(), v.encode()) for k, v in {**HEADERS, **about}.items()]
            headers.append((b"Content-Length", str(len(body)).encode()))
            for event in (
                h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
