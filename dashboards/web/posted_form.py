"""Values of a submitted form."""

from email.parser import BytesParser
from email.policy import HTTP
from urllib.parse import parse_qsl

from anyio.to_thread import run_sync
from fastapi import Depends, Request

#: The API's limit for a spec.
MAX_FORM_BYTES = 1_000_000
#: A little more than the API's limit for an image.
MAX_FILE_BYTES = 8_100_000
#: More than any form has controls.
MAX_PAIRS = 2000


async def _sent(request: Request) -> dict[str, str]:
    """The pairs of a submitted form; a body that is too long is cut, and refused as YAML.

    A browser ends the lines of a form with CR LF, whatever was typed; a script sends them as typed.
    """
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            break
    text = body[:MAX_FORM_BYTES].decode("utf-8", "replace")
    few = "&".join(text.split("&", MAX_PAIRS)[:MAX_PAIRS])
    pairs = parse_qsl(few, keep_blank_values=True)
    return {name: value.replace("\r\n", "\n") for name, value in pairs}


#: The pairs of the form that a request carries.
SentDep = Depends(_sent)


async def _file(request: Request) -> bytes:
    """The one file of a form; b"" without one. A body that is too long is cut, and refused."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FILE_BYTES:
            break
    return await run_sync(_file_of, request.headers.get("content-type", ""), body)


def _file_of(content_type: str, body: bytes) -> bytes:
    head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1", "replace")
    message = BytesParser(policy=HTTP).parsebytes(head + body[:MAX_FILE_BYTES])
    for part in message.iter_parts() if message.is_multipart() else ():
        if part.get_filename():
            found = part.get_payload(decode=True)
            return found if isinstance(found, bytes) else b""
    return b""


#: The file of the form that a request carries.
FileDep = Depends(_file)


def control_id(path: str) -> str:
    """Id of the control of a path, for labels and for links to it."""
    return "field-" + path.replace(".", "-").replace("_", "-")
