"""``/sweeps/{id}/extend`` and ``/confirm``: more of a sweep that is there."""

from typing import Annotated

from fastapi import APIRouter, Body, Response

from service.contract.bodies import DocumentRoute, json_or_yaml
from service.contract.errors import answers
from service.contract.inputs import SettingsDep, StoreDep, SweepId
from service.contract.outputs import SweepOut
from service.submission.admission import sweep_out
from service.submission.growth import confirm, extend
from sweeps.spec.confirmation import ConfirmSpec
from sweeps.spec.extension import Extension

router = APIRouter(prefix="/sweeps/{sweep_id}", tags=["sweeps"], route_class=DocumentRoute)


@router.post(
    "/extend", openapi_extra=json_or_yaml("Extension"), responses=answers(404, 409, 413, 415)
)
def extend_sweep(
    sweep_id: SweepId, asked: Extension, store: StoreDep, settings: SettingsDep
) -> SweepOut:
    """Give a sweep more points, seeds or budget, in whatever state but cancelled.

    The numbers are totals, so asking again changes nothing. Trials that the old budget cut off go
    on; a sweep that runs takes the rest up when it has done what it was asked before.
    """
    return sweep_out(extend(store, settings, sweep_id, asked))


@router.post(
    "/confirm",
    status_code=201,
    openapi_extra=json_or_yaml("ConfirmSpec", required=False),
    responses=answers(404, 409, 413, 415),
)
def confirm_sweep(
    sweep_id: SweepId,
    store: StoreDep,
    settings: SettingsDep,
    response: Response,
    asked: Annotated[ConfirmSpec | None, Body()] = None,
) -> SweepOut:
    """Queue a sweep that trains the best points on fresh seeds; asking again answers the same."""
    confirming = confirm(store, settings, sweep_id, asked or ConfirmSpec())
    response.headers["Location"] = f"/api/v1/sweeps/{confirming.id}"
    return sweep_out(confirming)
