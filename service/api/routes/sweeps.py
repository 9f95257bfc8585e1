"""``/sweeps``: submit, list, steer, extend and read sweeps. Matches are sweeps too."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from service.contract.analysis import AnalysisOut
from service.contract.bodies import Checked, DocumentRoute, json_or_yaml
from service.contract.downloads import TABLES, export_stream, table_response
from service.contract.errors import answers
from service.contract.inputs import (
    AnalysisQuery,
    ExportQuery,
    IdempotencyKey,
    Labels,
    SettingsDep,
    StoreDep,
    SweepId,
    SweepQuery,
)
from service.contract.outputs import PageOut, SweepOut, ValidationOut
from service.submission.admission import (
    admitted,
    page_out,
    queue,
    sweep_out,
)
from service.submission.forecast import describe_sweep
from service.submission.growth import confirm, delete, extend, label
from sweeps.analysis.arms import analysis
from sweeps.analysis.result_tables import result_table
from sweeps.analysis.whole import full_analysis
from sweeps.spec.confirmation import ConfirmSpec
from sweeps.spec.extension import Extension
from sweeps.spec.sweep_spec import SweepSpec

router = APIRouter(prefix="/sweeps", tags=["sweeps"], route_class=DocumentRoute)

BODY = json_or_yaml("SweepSpec")


@router.post(
    "",
    status_code=201,
    openapi_extra=BODY,
    responses=answers(409, 413, 415),
)
def create_sweep(
    spec: Checked[SweepSpec],
    store: StoreDep,
    settings: SettingsDep,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> SweepOut:
    """Queue a sweep. A runner picks it up; watch it at the returned Location."""
    sweep = queue("sweep", spec, idempotency_key, store, settings)
    response.headers["Location"] = f"/api/v1/sweeps/{sweep.id}"
    return sweep_out(sweep)


@router.post("/validate", openapi_extra=BODY, responses=answers(413, 415))
def validate_sweep(
    spec: Checked[SweepSpec], store: StoreDep, settings: SettingsDep
) -> ValidationOut:
    """Say what a spec would do: trials, steps, the difference it can show. Creates nothing."""
    return describe_sweep(admitted(spec, store, settings), store, settings)


@router.get("", responses=answers())
def list_sweeps(store: StoreDep, query: Annotated[SweepQuery, Query()]) -> PageOut[SweepOut]:
    """List sweeps and matches, newest first unless sorted otherwise."""
    return page_out(store.list_sweeps(**query.model_dump()), sweep_out)


@router.get("/{sweep_id}", responses=answers(404))
def get_sweep(sweep_id: SweepId, store: StoreDep) -> SweepOut:
    """One sweep: its state and why, its counts, the best point so far, its ETA."""
    return sweep_out(store.get_sweep(sweep_id))


@router.post("/{sweep_id}/cancel", responses=answers(404, 409))
def cancel_sweep(sweep_id: SweepId, store: StoreDep) -> SweepOut:
    """End a sweep for good, whether it waits or runs. Asking again changes nothing."""
    return sweep_out(store.request(sweep_id, "cancel"))


@router.post("/{sweep_id}/pause", responses=answers(404, 409))
def pause_sweep(sweep_id: SweepId, store: StoreDep) -> SweepOut:
    """Stop a sweep and give its resources back; its running trials keep their checkpoints."""
    return sweep_out(store.request(sweep_id, "pause"))


@router.post("/{sweep_id}/resume", responses=answers(404, 409))
def resume_sweep(sweep_id: SweepId, store: StoreDep) -> SweepOut:
    """Go on with a paused or failed sweep from what is recorded."""
    return sweep_out(store.resume(sweep_id))


@router.post("/{sweep_id}/retry", responses=answers(404, 409))
def retry_sweep(sweep_id: SweepId, store: StoreDep) -> SweepOut:
    """Run the failed trials again, and only those."""
    return sweep_out(store.retry(sweep_id))


@router.patch("/{sweep_id}", openapi_extra=json_or_yaml("Labels"), responses=answers(404, 413, 415))
def label_sweep(sweep_id: SweepId, labels: Checked[Labels], store: StoreDep) -> SweepOut:
    """Replace a sweep's tags or notes; what is left out stays. The spec stays as it was sent."""
    return sweep_out(label(store, sweep_id, labels))


@router.delete(
    "/{sweep_id}",
    status_code=204,
    response_model=None,
    responses=answers(404)
    | {202: {"model": SweepOut, "description": "Its trials stop first; then its runner does it."}},
)
def delete_sweep(
    sweep_id: SweepId, store: StoreDep, settings: SettingsDep, response: Response
) -> SweepOut | None:
    """Remove a sweep, everything recorded of it, its logs and its checkpoints; cancels it first.

    Never waits: one whose trials still run is answered with 202, and is gone when they have
    stopped. Asking again meanwhile changes nothing.
    """
    going = delete(store, settings.home, sweep_id)
    if going is None:
        return None
    response.status_code = 202
    return sweep_out(going)


@router.get(
    "/{sweep_id}/export",
    response_class=StreamingResponse,
    responses=answers(404)
    | {
        200: {
            "description": "One row or object for each trial, in the order of their numbers.",
            "content": {
                "text/csv": {"schema": {"type": "string"}},
                "application/json": {"schema": {"type": "object"}},
                "application/vnd.apache.parquet": {"schema": {"type": "string"}},
            },
        }
    },
)
def export_sweep(
    sweep_id: SweepId,
    store: StoreDep,
    settings: SettingsDep,
    query: Annotated[ExportQuery, Query()],
) -> StreamingResponse:
    """Download every trial with its params, its last metrics and its objective."""
    return export_stream(store, store.get_sweep(sweep_id), query.format, settings.home)


@router.get("/{sweep_id}/analysis", response_model=AnalysisOut, responses=answers(404) | TABLES)
def analyse_sweep(
    sweep_id: SweepId, store: StoreDep, query: Annotated[AnalysisQuery, Query()]
) -> AnalysisOut | Response:
    """Result table with intervals over seeds, and how the objective depends on each field."""
    if query.format == "json":
        found = {"sweep_id": sweep_id, "analysis": full_analysis(store, sweep_id)}
        return AnalysisOut.model_validate(found)
    declared = store.get_sweep(sweep_id).metrics
    table = result_table(analysis(store, sweep_id), query.format, declared)
    return table_response(table, query.format)


@router.post(
    "/{sweep_id}/extend",
    openapi_extra=json_or_yaml("Extension"),
    responses=answers(404, 409, 413, 415),
)
def extend_sweep(
    sweep_id: SweepId, asked: Checked[Extension], store: StoreDep, settings: SettingsDep
) -> SweepOut:
    """Give a sweep more points, seeds or budget, in whatever state but cancelled.

    The numbers are totals, so asking again changes nothing. Trials that the old budget cut off go
    on; a sweep that runs takes the rest up when it has done what it was asked before.
    """
    return sweep_out(extend(store, settings, sweep_id, asked))


@router.post(
    "/{sweep_id}/confirm",
    status_code=201,
    openapi_extra=json_or_yaml("ConfirmSpec", required=False),
    responses=answers(404, 409, 413, 415),
)
def confirm_sweep(
    sweep_id: SweepId,
    store: StoreDep,
    settings: SettingsDep,
    response: Response,
    asked: Checked[ConfirmSpec | None] = None,
) -> SweepOut:
    """Queue a sweep that trains the best points on fresh seeds; asking again answers the same."""
    confirming = confirm(store, settings, sweep_id, asked or ConfirmSpec())
    response.headers["Location"] = f"/api/v1/sweeps/{confirming.id}"
    return sweep_out(confirming)
