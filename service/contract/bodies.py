"""Reads the JSON and YAML that people send, and refuses what cannot be a spec.

Everything that passes is plain data that survives JSON, a database and a log line: finite numbers,
integers of 64 bits, text without NUL or lone surrogates, string keys that occur once, little depth.
"""

import math
import re
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, TypeVar

from anyio.to_thread import run_sync
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import (
    BaseModel,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from service.contract.errors import ApiError, refused
from sweeps.errors import UnreadableSpec
from sweeps.spec.text import (
    MAX_ITEMS,
    MAX_KEYS,
    TOO_MANY_ITEMS,
    TOO_MANY_KEYS,
    read_json,
    read_yaml,
)

MAX_BODY_BYTES = 1_000_000
#: A spec needs about 8 levels; Python's own recursion limit is far above this.
MAX_DEPTH = 32

YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})


class RefusedDocument(ValueError):
    """Values that no spec may hold; the message says why."""


def check_plain(value: Any) -> None:
    """Refuse values that JSON, a database or a log line cannot carry. Raises RefusedDocument."""
    stack: list[tuple[Any, int]] = [(value, 1)]
    while stack:
        item, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise RefusedDocument(f"nesting must be at most {MAX_DEPTH} levels deep")
        if isinstance(item, dict):
            if len(item) > MAX_KEYS:
                raise RefusedDocument(TOO_MANY_KEYS)
            for key in item:
                _check_scalar(key)
            stack.extend((child, depth + 1) for child in item.values())
        elif isinstance(item, list):
            if len(item) > MAX_ITEMS:
                raise RefusedDocument(TOO_MANY_ITEMS)
            stack.extend((child, depth + 1) for child in item)
        else:
            _check_scalar(item)


def _check_scalar(item: Any) -> None:
    if isinstance(item, bool) or item is None:
        return
    if isinstance(item, int) and not -(2**63) <= item < 2**63:
        raise RefusedDocument("integers must fit in 64 bits, got one that is longer")
    if isinstance(item, float) and not math.isfinite(item):
        raise RefusedDocument("numbers must be finite, got one that is not")
    if isinstance(item, str):
        if "\0" in item:
            raise RefusedDocument("text must not contain the character NUL")
        if not item.isascii() and re.search("[\ud800-\udfff]", item):
            raise RefusedDocument("text must be valid Unicode, got half of a surrogate pair")


async def read_limited(request: Request, most: int = MAX_BODY_BYTES) -> bytes:
    """The body, refused as soon as it passes the limit, whatever its headers say."""
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise ApiError(413, "BodyTooLarge", f"a body may have at most {most:,} bytes, got more")
        chunks.append(chunk)
    return b"".join(chunks)


def refuse_compressed(encoding: str) -> None:
    """Unpacked, a small body may be a huge one; read as it is, it would be no text."""
    if encoding.strip().lower() != "identity":
        raise ApiError(
            415,
            "UnsupportedMediaType",
            f"bodies are not unpacked; send it without Content-Encoding, got {encoding[:80]!r}",
        )


def _parse(raw: bytes, content_type: str) -> Any:
    media = content_type.partition(";")[0].strip().lower()
    if media not in YAML_TYPES and media != "application/json":
        got = repr(media[:80]) if media else "none"
        raise ApiError(
            415,
            "UnsupportedMediaType",
            f"Content-Type must be application/json or application/yaml, got {got}",
        )
    try:
        text = raw.decode("utf-8")
        value = read_yaml(text) if media in YAML_TYPES else read_json(text)
        check_plain(value)
        return value
    except UnicodeDecodeError:
        reason = "the body must be UTF-8 text"
    except UnreadableSpec as error:
        # Not every body is a spec.
        reason = f"the body{str(error).removeprefix('the spec')}"
    except RefusedDocument as error:
        reason = str(error)
    raise refused("InvalidDocument", "", reason)


T = TypeVar("T")


def _once(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    return value if isinstance(value, BaseModel) else check(value)


ONCE = WrapValidator(_once)
#: Type of a ``DocumentRoute``'s body: the route has checked it, and FastAPI passes it on. Without
#: this mark FastAPI would check it again, on the loop.
Checked = Annotated[T, ONCE]


class DocumentRoute(APIRoute):
    """A route whose body, declared as ``Checked[Model]``, may be JSON or YAML, read strictly.

    A body is read and checked in a thread: the largest takes a second or two, and a small one may
    ask for thousands of configs to be tried. The loop that serves everybody must not wait for it.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        body = self.body_field
        if body is None or body.field_info.annotation is None:
            return super().get_route_handler()
        if self._embed_body_fields:
            raise TypeError(f"{self.path} must take its whole body as one value")
        model: TypeAdapter[Any] = TypeAdapter(body.field_info.annotation)
        handle = super().get_route_handler()

        async def handle_document(request: Request) -> Response:
            raw, value = await read_limited(request), None
            if raw:
                refuse_compressed(request.headers.get("content-encoding", "identity"))
                media = request.headers.get("content-type", "")
                value = await run_sync(_read_as, model, raw, media)
            return await handle(_Parsed(request, raw, value))

        return handle_document


def _read_as(model: TypeAdapter[Any], raw: bytes, media: str) -> Any:
    try:
        return model.validate_python(_parse(raw, media))
    except ValidationError as error:
        found = error.errors(include_url=False)
        raise RequestValidationError(
            [{**one, "loc": ("body", *one["loc"])} for one in found]
        ) from error


class _Parsed(Request):
    """A request whose body has been read and understood; it says that it is JSON."""

    def __init__(self, request: Request, raw: bytes, value: Any) -> None:
        kept = [(k, v) for k, v in request.scope["headers"] if k != b"content-type"]
        headers = [*kept, (b"content-type", b"application/json")]
        super().__init__({**request.scope, "headers": headers}, request.receive)
        self._raw, self._value = raw, value

    async def body(self) -> bytes:
        return self._raw

    async def json(self) -> Any:
        return self._value


#: Declares both content types of a route's body in OpenAPI; ``model`` is a component's name.
def json_or_yaml(model: str, *, required: bool = True) -> dict[str, Any]:
    schema = {"schema": {"$ref": f"#/components/schemas/{model}"}}
    content = {"application/json": schema, "application/yaml": schema}
    return {"requestBody": {"required": required, "content": content}}
