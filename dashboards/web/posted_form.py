"""Values of a submitted form."""

from urllib.parse import parse_qsl

from fastapi import Depends, Request

#: The API's limit for a spec.
MAX_FORM_BYTES = 1_000_000
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


def control_id(path: str) -> str:
    """Id of the control of a path, for labels and for links to it."""
    return "field-" + path.replace(".", "-").replace("_", "-")
