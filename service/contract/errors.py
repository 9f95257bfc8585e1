"""The one shape of every error, and the one place where an error becomes an HTTP status."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from dashboards.web.error_pages import error_page
from service.contract.outputs import ErrorOut, FieldOut
from sweeps import errors as domain
from sweeps.errors import SweepsError
from sweeps.spec.validation_messages import MAX_FIELDS, explain_items
from worker.config.train_config import FieldError

log = logging.getLogger(__name__)

#: Longest piece of somebody's input that an error repeats, in characters.
MAX_ECHO = 1000


class ApiError(Exception):
    """An error of the HTTP edge itself, ready to be sent."""

    def __init__(
        self, status: int, error: str, detail: str, fields: Sequence[FieldOut] = ()
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.body = ErrorOut(error=error, detail=detail, fields=list(fields))


#: Every leaf of the domain's errors is one of these or below one.
STATUS: dict[type[SweepsError], int] = {
    domain.NotFound: 404,
    domain.Conflict: 409,
    domain.Forbidden: 403,
    domain.LeaseLost: 409,
    domain.QuotaExceeded: 429,
    domain.InvalidQuery: 422,
    domain.InvalidReport: 422,
    domain.ImageRefused: 422,
    domain.UnreadableSpec: 422,
    domain.StoreUnavailable: 503,
}

_NAMES = {404: "NotFound", 405: "MethodNotAllowed", 400: "BadRequest", 413: "BodyTooLarge"}

_MEANING = {
    401: "The service asks for a token, and the request carries none that it knows.",
    403: "The token's scope is too small, the sweep is somebody else's, or the request comes from "
    "elsewhere.",
    404: "There is no such thing.",
    405: "The route does not know the method.",
    409: "The state of the sweep, or an earlier request, stands in the way.",
    413: "The body is too large.",
    415: "The body is neither JSON nor YAML.",
    422: "The request breaks a rule; `fields` says which.",
    429: "A quota of the token is used up, or too many wrong tokens came from this address; "
    "`Retry-After` says when to try again.",
    500: "A fault of the service; its log has the details.",
    503: "The store cannot be reached at the moment.",
}
#: Statuses that any route under /api/v1 may answer with.
EVERYWHERE = (401, 403, 422, 429, 500, 503)


def answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """``responses=`` of a route: these statuses and the ones that every route has.

    ``model=`` would document errors under the media type of the answer, which may be text.
    """
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorOut"}}}
    return {
        status: {"description": _MEANING[status], "content": content}
        for status in sorted({*statuses, *EVERYWHERE})
    }


def error_response(
    status: int, body: ErrorOut, headers: dict[str, str] | None = None
) -> JSONResponse:
    return JSONResponse(body.model_dump(), status_code=status, headers=headers)


def add_error_handlers(app: FastAPI) -> None:
    """Answer every error of ``app`` in the one shape."""
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(SweepsError, _domain_error)
    app.add_exception_handler(FieldError, _refused_field)
    app.add_exception_handler(RequestValidationError, _refused_request)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ClientDisconnect, _broken_off)
    app.add_exception_handler(Exception, _fault)


def _api_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    return error_response(error.status, error.body)


def status_of(error: SweepsError) -> int:
    """The status of the nearest class of ``error`` that has one."""
    return next(STATUS[cls] for cls in type(error).__mro__ if cls in STATUS)


def _domain_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, SweepsError)
    status = status_of(error)
    if status >= 500:
        log.error("%s %s: %s", request.method, request.url.path, error)
    fields = [FieldOut(path=error.field, reason=str(error))] if error.field else []
    body = ErrorOut(error=type(error).__name__, detail=str(error), fields=fields)
    seconds = 5 if status == 503 else getattr(error, "retry_seconds", None)
    return error_response(status, body, {"Retry-After": str(seconds)} if seconds else None)


def _refused_field(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, FieldError)
    return error_response(422, refused_field(error).body)


def refused(name: str, path: str, reason: str) -> ApiError:
    """A request that cannot be met, ready to be sent: the error's name, the field, a sentence."""
    return ApiError(422, name, reason, [FieldOut(path=path, reason=reason)])


def refused_field(error: FieldError) -> ApiError:
    """A rule that one field breaks, ready to be sent."""
    field = FieldOut(path=error.field[:MAX_ECHO], reason=str(error)[:MAX_ECHO])
    return ApiError(422, "ValidationError", f"{error.field}: {error}"[:MAX_ECHO], [field])


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404 and _is_for_a_person(request):
        where = request.url.path[:MAX_ECHO]
        return error_page(404, "Not found", f"There is no page {where}.")
    detail = {
        404: f"there is no {request.url.path[:MAX_ECHO]}",
        405: f"{request.url.path[:MAX_ECHO]} does not answer {request.method}",
    }.get(error.status_code, str(error.detail))
    body = ErrorOut(error=_NAMES.get(error.status_code, "HttpError"), detail=detail, fields=[])
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_methods(request))
    return error_response(error.status_code, body, headers)


def _broken_off(request: Request, error: Exception) -> JSONResponse:
    """Nobody hears this answer: the client went away, or sent a body that is no HTTP."""
    log.info("%s %s: the client broke off its body", request.method, request.url.path)
    detail = "the body must be sent to its end"
    return error_response(400, ErrorOut(error="BadRequest", detail=detail, fields=[]))


def _methods(request: Request) -> list[str]:
    """Every method that the address answers: each method of it is a route of its own."""
    found: set[str] = set()
    for method in ("GET", "POST", "PATCH", "DELETE"):
        scope = {**request.scope, "method": method}
        for route in request.app.routes:
            if route.matches(scope)[0] == Match.FULL:
                found.add(method)
                break
    return sorted(found | ({"HEAD"} if "GET" in found else set()))


def _is_for_a_person(request: Request) -> bool:
    is_api = request.url.path.startswith("/api/")
    return not is_api and "text/html" in request.headers.get("accept", "")


def _fault(request: Request, error: Exception) -> JSONResponse:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    detail = "the service made a mistake; its log has the details"
    return error_response(500, ErrorOut(error="InternalError", detail=detail, fields=[]))


def _refused_request(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    # The first part of a location says where in the request: path, query, header, body.
    fields = refused_fields({**item, "loc": item["loc"][1:]} for item in error.errors())
    more = f" (and {len(fields) - 1} more)" if 1 < len(fields) < MAX_FIELDS else ""
    if len(fields) == MAX_FIELDS:
        more = f" (and at least {MAX_FIELDS - 1} more)"
    first = fields[0]
    detail = f"{first.path}: {first.reason}{more}" if first.path else f"{first.reason}{more}"
    body = ErrorOut(error="ValidationError", detail=detail, fields=fields)
    return error_response(422, body)


def refused_fields(items: Iterable[Any]) -> list[FieldOut]:
    """Fields that pydantic refused, each with a sentence of bounded length; not all of many."""
    return [
        FieldOut(path=one["path"][:MAX_ECHO], reason=one["reason"][:MAX_ECHO])
        for one in explain_items(items)
    ]
