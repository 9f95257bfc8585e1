"""Pages and plots as gzip where the browser takes it: a plot of 10,000 points is mostly digits."""

import gzip

from fastapi import Request, Response

#: Shorter bodies fit one packet anyway.
LEAST_BYTES = 1500
#: The fastest level: it gives most of what the best one does.
LEVEL = 1


def compressed(request: Request, response: Response) -> Response:
    """The response with its body as gzip, if that is accepted and worth it; else as it was."""
    accepted = request.headers.get("accept-encoding", "")
    takes_gzip = any(
        part.partition(";")[0].strip() == "gzip" and "q=0" not in part.replace(" ", "").split(";")
        for part in accepted.lower().split(",")
    )
    body = getattr(response, "body", b"")
    if not takes_gzip or len(body) < LEAST_BYTES or "content-encoding" in response.headers:
        return response
    # No time of making inside: the same page gives the same bytes.
    response.body = gzip.compress(bytes(body), LEVEL, mtime=0)
    response.headers["Content-Encoding"] = "gzip"
    response.headers["Content-Length"] = str(len(response.body))
    response.headers.append("Vary", "Accept-Encoding")
    return response
