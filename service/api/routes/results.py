"""``/sweeps/{id}/points``, ``curves``, ``best``: a sweep's results in bulk, for data frames."""

import base64
import hashlib
from collections.abc import Iterator
from io import BufferedReader
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from service.contract.errors import answers
from service.contract.inputs import CurvesQuery, PointQuery, SettingsDep, StoreDep, SweepId
from service.contract.outputs import BestTrialOut, CurveOut, PageOut, PointOut, TrialCurvesOut
from service.submission.admission import page_out
from sweeps.analysis.intervals import ends_of_mean
from sweeps.figures.quantities import is_of_layer
from sweeps.records import Point, TrialCurves
from sweeps.retention.best_weights import kept_weights
from sweeps.store.queries.curves import Curve

router = APIRouter(prefix="/sweeps/{sweep_id}", tags=["results"])

#: Bytes of a piece of a download.
PIECE = 1 << 20


@router.get("/points", responses=answers(404))
def list_points(
    sweep_id: SweepId, store: StoreDep, query: Annotated[PointQuery, Query()]
) -> PageOut[PointOut]:
    """List the points of a sweep, each with its mean over seeds and the 95 % interval."""
    metric = store.get_sweep(sweep_id).objective.metric

    def converted(point: Point) -> PointOut:
        low, high = ends_of_mean(metric, point.mean, point.sd, point.n)
        return PointOut(**vars(point) | {"low": low, "high": high})

    return page_out(store.points(sweep_id, **query.model_dump()), converted)


@router.get("/curves", responses=answers(404))
def list_curves(
    sweep_id: SweepId, store: StoreDep, query: Annotated[CurvesQuery, Query()]
) -> PageOut[TrialCurvesOut]:
    """Whole curves of many trials, by number, every reported step.

    A page ends early after 200,000 values or so.
    """
    is_dynamics = query.kind == "dynamics"
    names = [
        name
        for name in store.metric_names(sweep_id)
        if is_of_layer(name) == is_dynamics and (query.name is None or name in query.name)
    ]
    recorded = [
        name
        for name in (store.series_names(sweep_id) if is_dynamics else ())
        if query.name is None or name in query.name
    ]
    page = store.trial_curves(sweep_id, names, cursor=query.cursor, limit=query.limit)

    def converted(trial: TrialCurves) -> TrialCurvesOut:
        curves = trial.curves | {
            name: curve
            for name in recorded
            if name not in trial.curves
            and (curve := store.recorded_curve(sweep_id, trial.number, name))
        }
        return TrialCurvesOut(
            number=trial.number,
            point=trial.point,
            seed=trial.seed,
            curves={name: _curve_out(curve) for name, curve in curves.items()},
        )

    return page_out(page, converted)


def _curve_out(curve: Curve) -> CurveOut:
    return CurveOut(steps=[step for step, _ in curve], values=[value for _, value in curve])


@router.get("/best", responses=answers(404))
def get_best_trial(sweep_id: SweepId, store: StoreDep, settings: SettingsDep) -> BestTrialOut:
    """The trial whose final weights are kept, and the checksum of the file."""
    found = kept_weights(settings.home, store.get_sweep(sweep_id))
    with found.open() as file:
        digest, size = _checksum(file)
    trial = store.trial(sweep_id, found.trial)
    return BestTrialOut(
        sweep_id=sweep_id,
        trial=found.trial,
        point=trial.point,
        seed=trial.seed,
        params=trial.params,
        objective=found.objective,
        bytes=size,
        sha256=digest.hex(),
    )


@router.get(
    "/best/weights",
    response_class=StreamingResponse,
    responses=answers(404)
    | {
        200: {
            "description": "The file that `torch.load(…, weights_only=True)` reads; its checksum "
            "is the header `Repr-Digest`.",
            "content": {"application/octet-stream": {"schema": {"type": "string"}}},
        }
    },
)
def get_best_weights(
    sweep_id: SweepId, store: StoreDep, settings: SettingsDep
) -> StreamingResponse:
    """Download the final weights of the best trial."""
    file = kept_weights(settings.home, store.get_sweep(sweep_id)).open()
    # Opened once: a better trial may replace the file while it is sent.
    digest, size = _checksum(file)
    headers = {
        "Content-Length": str(size),
        "Content-Disposition": f'attachment; filename="{sweep_id}-weights.pt"',
        "Repr-Digest": f"sha-256=:{base64.b64encode(digest).decode()}:",
    }
    return StreamingResponse(_pieces(file), media_type="application/octet-stream", headers=headers)


def _checksum(file: BufferedReader) -> tuple[bytes, int]:
    """SHA-256 and length of an open file, which stands at its beginning again."""
    digest = hashlib.file_digest(file, "sha256").digest()
    size = file.tell()
    file.seek(0)
    return digest, size


def _pieces(file: BufferedReader) -> Iterator[bytes]:
    with file:
        while piece := file.read(PIECE):
            yield piece
