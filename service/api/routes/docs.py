"""``/docs``: the API, readable without any script or other host; made from its OpenAPI document."""

from functools import lru_cache

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import HTMLResponse

from service.api.routes.people.login import TEMPLATES, own_page_policy

router = APIRouter(include_in_schema=False)

_SIGNS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


@router.get("/docs")
def documentation(request: Request) -> HTMLResponse:
    headers = {"Content-Security-Policy": own_page_policy(form_action="'none'")}
    return HTMLResponse(_page(request.app), headers=headers)


@lru_cache(maxsize=4)
def _page(app: FastAPI) -> str:
    document = app.openapi()
    return TEMPLATES.get_template("docs.html").render(
        title=f"{document['info']['title']} {document['info']['version']}: HTTP API",
        paths=document["paths"],
        schemas=document["components"]["schemas"],
        signs=_SIGNS,
    )
