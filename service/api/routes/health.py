"""``/healthz``, ``/readyz`` and ``/metrics``: what machines ask a service."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse

from service.api.monitoring import CONTENT_TYPE
from service.contract.errors import answers
from service.contract.inputs import StoreDep
from service.contract.outputs import ErrorOut, HealthOut
from service.version import VERSION

router = APIRouter(tags=["health"])


@router.get("/healthz")
def alive() -> HealthOut:
    """Whether the process answers at all. Asks nothing else and needs no token."""
    return HealthOut(status="ok", version=VERSION, store="not asked")


@router.get("/readyz", responses={503: {"model": ErrorOut, "description": "No store."}})
def ready(store: StoreDep) -> HealthOut:
    """Whether requests can be served: the store answers. Needs no token."""
    store.health()
    return HealthOut(status="ok", version=VERSION, store="ok")


@router.get("/metrics", response_class=PlainTextResponse, responses=answers())
def metrics(request: Request) -> Response:
    """Counts of sweeps, trials and requests in the text format of Prometheus."""
    return Response(request.app.state.metrics.text(), media_type=CONTENT_TYPE)
