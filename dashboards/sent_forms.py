"""What a browser sends when somebody submits a form."""

from urllib.parse import parse_qsl

from fastapi import Depends, Request

#: As much as a spec may have over the API.
MAX_FORM_BYTES = 1_000_000


async def _sent(request: Request) -> dict[str, str]:
    """The pairs of a submitted form; a body that is too long is cut, and refused as YAML."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            break
    text = body[:MAX_FORM_BYTES].decode("utf-8", "replace")
    return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=2000))


#: The pairs of the form that a request carries.
SentDep = Depends(_sent)
