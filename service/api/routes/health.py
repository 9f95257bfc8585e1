"""``/healthz``, ``/readyz`` and ``/metrics``: what machines ask a service."""

import logging

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from service.api.monitoring import CONTENT_TYPE
from service.api.readiness import Readiness
from service.contract.errors import answers, error_response
from service.contract.outputs import ErrorOut, FieldOut, HealthOut, ReadyOut
from service.version import VERSION
from sweeps.errors import StoreUnavailable

log = logging.getLogger(__name__)

router = APIRouter(tags=["health"])


@router.get("/healthz")
def alive() -> HealthOut:
    """Whether the process answers at all. Asks nothing else and needs no token."""
    return HealthOut(status="ok", version=VERSION, store="not asked")


@router.get(
    "/readyz",
    response_model=ReadyOut,
    responses={503: {"model": ErrorOut, "description": "No store; `fields` lists bad parts."}},
)
def ready(request: Request) -> ReadyOut | Response:
    """Whether requests can be served, and how each part of the service does. Needs no token.

    503 while the store does not answer, for load balancers; another part that is down, or this
    service's disk, makes 200 with the status `degraded`: reads and submissions are served.
    """
    readiness: Readiness = request.app.state.readiness
    try:
        found = readiness.look()
    except StoreUnavailable as error:
        log.error("the store: %s", error)
        return _not_ready(error, readiness)
    return ReadyOut(status=found.state, version=VERSION, store="ok", parts=list(found.parts))


def _not_ready(error: StoreUnavailable, readiness: Readiness) -> Response:
    disk = readiness.disk()
    bad = [FieldOut(path="store", reason=str(error))]
    bad += [FieldOut(path="disk", reason=disk.detail)] if disk.state != "ok" else []
    body = ErrorOut(error=type(error).__name__, detail=str(error), fields=bad)
    return error_response(503, body, {"Retry-After": "5"})


@router.get("/metrics", response_class=PlainTextResponse, responses=answers())
def metrics(request: Request) -> Response:
    """Counts of sweeps, trials and requests in the text format of Prometheus."""
    return Response(request.app.state.metrics.text(), media_type=CONTENT_TYPE)
