"""``/docs``: the API, readable without any script or other host; made from its OpenAPI document."""

from functools import lru_cache
from html import escape
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import HTMLResponse

router = APIRouter(include_in_schema=False)

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; }
code { font: .92em ui-monospace, monospace; }
summary { cursor: pointer; padding: .4rem 0; }
summary code { font-weight: 600; }
table { border-collapse: collapse; margin: .5rem 0 1rem; width: 100%; }
th, td { border-top: 1px solid #8885; padding: .3rem .6rem .3rem 0; text-align: left;
  vertical-align: top; }
.method { display: inline-block; min-width: 4.5rem; }
@media (prefers-color-scheme: dark) { body { background: #16181c; color: #e6e6e6; }
  a { color: #8ab4f8; } }
"""


@router.get("/docs")
def documentation(request: Request) -> HTMLResponse:
    headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return HTMLResponse(_page(request.app), headers=headers)


@lru_cache(maxsize=4)
def _page(app: FastAPI) -> str:
    document = app.openapi()
    routes = [
        _operation(method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = [_schema(*item) for item in document["components"]["schemas"].items()]
    title = f"{document['info']['title']} {document['info']['version']}: HTTP API"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
<p>The same as <a href="/openapi.json">OpenAPI</a>, for tools that make clients. Every error has
the shape <a href="#ErrorOut">ErrorOut</a>. With <code>NDSWEEP_TOKEN</code> set, send it as
<code>Authorization: Bearer TOKEN</code>. <a href="/">Pages</a></p>
<h2>Routes</h2>
{"".join(routes)}
<h2>Bodies</h2>
{"".join(schemas)}
</main>
</body>
</html>
"""


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    rows = [
        _row(f"{item['name']} ({item['in']})", _type(item["schema"]), item.get("description", ""))
        for item in operation.get("parameters", [])
    ]
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        rows.append(_row("body", _type(content["schema"]), media))
    answers = [
        _row(status, _answer(answer), answer["description"])
        for status, answer in sorted(operation["responses"].items())
    ]
    return (
        f'<details><summary><code><span class="method">{method.upper()}</span> '
        f"{escape(path)}</code></summary>\n<p>{escape(operation.get('description', ''))}</p>\n"
        f"<table>{''.join(rows)}</table>\n<table>{''.join(answers)}</table></details>\n"
    )


def _answer(answer: dict[str, Any]) -> str:
    kinds = [
        _type(content["schema"]) if content.get("schema", {}).get("$ref") else escape(media)
        for media, content in answer.get("content", {}).items()
    ]
    return ", ".join(kinds)


def _schema(name: str, schema: dict[str, Any]) -> str:
    required = set(schema.get("required", ()))
    rows = [
        _row(f"{field}{'' if field in required else ' (optional)'}", _type(part), _about(part))
        for field, part in schema.get("properties", {}).items()
    ]
    text = escape(schema.get("description", ""))
    return (
        f'<details id="{escape(name)}" open><summary><code>{escape(name)}</code></summary>\n'
        f"<p>{text}</p>\n<table>{''.join(rows)}</table></details>\n"
    )


def _about(part: dict[str, Any]) -> str:
    default = f" Default: {part['default']!r}." if part.get("default") is not None else ""
    return f"{part.get('description', '')}{default}"


def _row(name: str, kind: str, text: str) -> str:
    return f"<tr><td><code>{escape(name)}</code></td><td>{kind}</td><td>{escape(text)}</td></tr>"


def _type(schema: dict[str, Any]) -> str:
    """A schema in words, with links to the schemas that it names. HTML."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return escape(" | ".join(str(value) for value in values))
    for key, word in (
        ("anyOf", " or "),
        ("oneOf", " or "),
        ("allOf", " and "),
        ("prefixItems", ", "),
    ):
        if key in schema:
            return word.join(_type(part) for part in schema[key])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', schema))}" if "items" in schema else "list"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"name → {_type(schema['additionalProperties'])}"
    return escape(_limited(schema))


def _limited(schema: dict[str, Any]) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [f"{sign} {schema[key]}" for key, sign in signs.items() if key in schema]
    return " ".join([str(schema.get("type", "any")), *limits])
