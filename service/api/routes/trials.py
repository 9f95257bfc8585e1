"""``/sweeps/{id}/trials``: what was trained, with its curves and its log."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import PlainTextResponse

from service.api.trial_files import trial_log as read_log
from service.contract.errors import answers
from service.contract.inputs import (
    LogQuery,
    MetricsQuery,
    SettingsDep,
    StoreDep,
    SweepId,
    TrialNumber,
    TrialQuery,
)
from service.contract.outputs import MetricsOut, PageOut, TrialOut
from service.submission.admission import page_out
from sweeps.store.queries.thinning import thin

router = APIRouter(prefix="/sweeps/{sweep_id}/trials", tags=["trials"])


@router.get("", responses=answers(404))
def list_trials(
    sweep_id: SweepId, store: StoreDep, query: Annotated[TrialQuery, Query()]
) -> PageOut[TrialOut]:
    """List the trials of a sweep or match. Their attempts come with the single trial only."""
    return page_out(store.trials(sweep_id, **query.model_dump()), TrialOut.model_validate)


@router.get("/{number}", responses=answers(404))
def get_trial(sweep_id: SweepId, number: TrialNumber, store: StoreDep) -> TrialOut:
    """One trial with its attempts and their provenance."""
    return TrialOut.model_validate(store.trial(sweep_id, number))


@router.get("/{number}/metrics", responses=answers(404))
def trial_metrics(
    sweep_id: SweepId,
    number: TrialNumber,
    store: StoreDep,
    query: Annotated[MetricsQuery, Query()],
) -> MetricsOut:
    """Curves of a trial by metric name; records of every step only where they are asked for."""
    store.trial(sweep_id, number)
    found = store.metrics(sweep_id, number, names=query.name, max_points=query.max_points)
    for name in query.name or ():
        records = [] if name in found else store.recorded_curve(sweep_id, number, name)
        if records:
            found[name] = thin(records, query.max_points)
    return MetricsOut(metrics=found)


@router.get("/{number}/log", response_class=PlainTextResponse, responses=answers(404))
def trial_log(
    sweep_id: SweepId,
    number: TrialNumber,
    store: StoreDep,
    settings: SettingsDep,
    query: Annotated[LogQuery, Query()],
) -> str:
    """The last lines that a trial wrote; empty when it wrote none."""
    trial = store.trial(sweep_id, number)
    return read_log(settings.home, trial.sweep_id, trial.number, query.lines)
