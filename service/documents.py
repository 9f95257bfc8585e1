"""Reads the JSON and YAML that people send, and refuses what cannot be a spec.

Everything that passes is plain data that survives JSON, a database and a log line: finite numbers,
integers of 64 bits, text without NUL or lone surrogates, string keys that occur once, little depth.
"""

import json
import math
import re
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, ClassVar

import yaml
from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.types import Message

from service.errors import ApiError
from service.outputs import FieldOut

MAX_BODY_BYTES = 1_000_000
#: A spec needs about 8 levels; Python's own recursion limit is far above this.
MAX_DEPTH = 32

YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})


class RefusedDocument(ValueError):
    """Text that is not an acceptable document; the message says why."""


def read_json(text: str) -> Any:
    """Parse strict JSON: no NaN, no Infinity, no key twice. Raises RefusedDocument."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
    except RecursionError:
        raise RefusedDocument(f"nesting must be at most {MAX_DEPTH} levels deep") from None
    except json.JSONDecodeError as error:
        raise RefusedDocument(
            f"the body is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RefusedDocument:
        raise
    except ValueError:  # int() refuses thousands of digits with a hint that helps nobody here
        raise RefusedDocument("integers must fit in 64 bits, got one far longer") from None
    check_plain(value)
    return value


def read_yaml(text: str) -> Any:
    """Parse YAML 1.2 scalars in plain YAML: no tags, anchors or aliases. Raises RefusedDocument."""
    try:
        _check_yaml_events(text)
        value = yaml.load(text, Loader=_SpecLoader)  # a SafeLoader
    except yaml.YAMLError as error:
        raise RefusedDocument(f"the body is not valid YAML: {_one_line(error)}") from None
    except RefusedDocument:
        raise
    except ValueError:
        raise RefusedDocument("integers must fit in 64 bits, got one far longer") from None
    check_plain(value)
    return value


def check_plain(value: Any) -> None:
    """Refuse values that JSON, a database or a log line cannot carry. Raises RefusedDocument."""
    stack: list[tuple[Any, int]] = [(value, 1)]
    while stack:
        item, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise RefusedDocument(f"nesting must be at most {MAX_DEPTH} levels deep")
        if isinstance(item, dict):
            for key in item:
                _check_scalar(key)
            stack.extend((child, depth + 1) for child in item.values())
        elif isinstance(item, list):
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


def _refuse_constant(name: str) -> Any:
    raise RefusedDocument(f"numbers must be finite, got {name}")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise RefusedDocument(f"a key may occur once in an object, got {twice[:80]!r} twice")
    return result


def _one_line(error: yaml.YAMLError) -> str:
    problem = getattr(error, "problem", None) or "it cannot be read"
    mark = getattr(error, "problem_mark", None)
    where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    return f"{problem}{where}"


_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _check_yaml_events(text: str) -> None:
    """Look at depth and aliases before anything recursive does: events cost no stack."""
    depth = 0
    for event in yaml.parse(text, Loader=_PARSER):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise RefusedDocument("YAML anchors and aliases are not accepted; write values out")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise RefusedDocument(f"nesting must be at most {MAX_DEPTH} levels deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _SpecLoader(_PARSER):  # type: ignore[misc]
    """YAML 1.2's core scalars: ``1e-3`` is a number, ``on`` and ``2026-01-01`` are text."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if not isinstance(key, str):
                raise RefusedDocument(f"keys must be text, got {str(key)[:80]!r}")
        values = [self.construct_object(value, deep=deep) for _, value in node.value]
        return dict(_unique_keys(list(zip(keys, values, strict=True))).items())


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
):
    _SpecLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first
    )
_SpecLoader.add_constructor(
    "tag:yaml.org,2002:int", lambda loader, node: int(loader.construct_scalar(node))
)


async def _read_limited(request: Request) -> bytes:
    """The body, refused as soon as it passes the limit, whatever its headers say."""
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise ApiError(
                413, "BodyTooLarge", f"a body may have at most {MAX_BODY_BYTES:,} bytes, got more"
            )
        chunks.append(chunk)
    return b"".join(chunks)


def _parse(raw: bytes, content_type: str) -> Any:
    media = content_type.partition(";")[0].strip().lower()
    if media not in YAML_TYPES and media not in ("", "application/json"):
        raise ApiError(
            415,
            "UnsupportedMediaType",
            f"Content-Type must be application/json or application/yaml, got {media[:80]!r}",
        )
    try:
        text = raw.decode("utf-8")
        return read_yaml(text) if media in YAML_TYPES else read_json(text)
    except UnicodeDecodeError:
        reason = "the body must be UTF-8 text"
    except RefusedDocument as error:
        reason = str(error)
    raise ApiError(422, "InvalidDocument", reason, [FieldOut(path="", reason=reason)])


class DocumentRoute(APIRoute):
    """A route whose body may be JSON or YAML, read strictly; FastAPI then sees clean JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def handle_document(request: Request) -> Response:
            raw = await _read_limited(request)
            if raw:
                raw = json.dumps(_parse(raw, request.headers.get("content-type", ""))).encode()
            return await handle(_with_json(request, raw))

        return handle_document


def _with_json(request: Request, raw: bytes) -> Request:
    kept = [(k, v) for k, v in request.scope["headers"] if k not in (b"content-type",)]
    scope = {**request.scope, "headers": [*kept, (b"content-type", b"application/json")]}
    sent = False

    async def receive() -> Message:
        nonlocal sent
        if sent:
            return await request.receive()
        sent = True
        return {"type": "http.request", "body": raw, "more_body": False}

    return Request(scope, receive)


#: Declares both content types of a route's body in OpenAPI; ``model`` is a component's name.
def json_or_yaml(model: str) -> dict[str, Any]:
    schema = {"schema": {"$ref": f"#/components/schemas/{model}"}}
    content = {"application/json": schema, "application/yaml": schema}
    return {"requestBody": {"required": True, "content": content}}
