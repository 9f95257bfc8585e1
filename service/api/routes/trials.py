"""``/sweeps/{id}/trials``: what was trained, with its curves and its log."""

from collections.abc import AsyncIterator
from typing import Annotated

import anyio
from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import FileResponse, PlainTextResponse, StreamingResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent

from service.api.routes.events import LastEventId, StillDep
from service.api.trial_files import GrowingLog, log_path, pieces_of
from service.api.trial_files import trial_log as read_log
from service.contract.errors import answers
from service.contract.inputs import (
    LogEventsQuery,
    LogQuery,
    MetricsQuery,
    SettingsDep,
    StoreDep,
    SweepId,
    TrialNumber,
    TrialQuery,
)
from service.contract.outputs import MachineUseOut, MetricsOut, PageOut, TrialOut, UsageOut
from service.submission.admission import page_out
from sweeps.errors import SweepsError
from sweeps.records import Trial
from sweeps.store.queries.thinning import thin

#: Seconds between two looks for new lines of a log.
LOG_SECONDS = 0.5

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


@router.get("/{number}/usage", responses=answers(404))
def trial_usage(sweep_id: SweepId, number: TrialNumber, store: StoreDep) -> UsageOut:
    """Load, memory and power of the machine while a trial ran; empty where nothing was measured."""
    trial = store.trial(sweep_id, number)
    curves = store.usage_curves(trial.sweep_id, trial.number)
    return UsageOut(total=MachineUseOut.model_validate(trial.usage), curves=curves)


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
    return read_log(settings.home, trial.sweep_id, trial.number, query.lines).text


@router.get(
    "/{number}/log/file",
    response_class=PlainTextResponse,
    responses=answers(404) | {206: {"description": "The bytes that `Range` asks for."}},
)
def trial_log_file(
    request: Request,
    sweep_id: SweepId,
    number: TrialNumber,
    store: StoreDep,
    settings: SettingsDep,
) -> Response:
    """The whole log, or the bytes that a ``Range`` asks for."""
    trial = store.trial(sweep_id, number)
    path = log_path(settings.home, trial.sweep_id, trial.number)
    if not path.is_file():
        return PlainTextResponse("")
    if "range" in request.headers:
        return FileResponse(path, media_type="text/plain")
    # Without its length, which changes while it is sent.
    return StreamingResponse(pieces_of(path), media_type="text/plain")


def _existing(sweep_id: SweepId, number: TrialNumber, store: StoreDep) -> Trial:
    """Answer 404 before the stream begins; afterwards there is no status left to send."""
    return store.trial(sweep_id, number)


@router.get("/{number}/log/events", response_class=EventSourceResponse, responses=answers(404))
async def trial_log_events(
    trial: Annotated[Trial, Depends(_existing)],
    store: StoreDep,
    settings: SettingsDep,
    query: Annotated[LogEventsQuery, Query()],
    still: StillDep,
    last_event_id: LastEventId = None,
) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events named ``log``, with text as it is written, from a byte of the log on.

    The id of an event is the byte behind its text. Ends with an event named ``end`` once the trial
    has ended and all of its log was sent.
    """
    path = log_path(settings.home, trial.sweep_id, trial.number)
    log = GrowingLog(path, query.after if last_event_id is None else last_event_id)
    looks_since_end = 0
    while await still():
        if text := await run_sync(log.read):
            data = {"text": text}
            yield ServerSentEvent(id=str(log.offset), event="log", data=data)
            continue
        # A worker that was stopped may write a last line just after the verdict is stored.
        if looks_since_end > 1:
            yield ServerSentEvent(event="end", data={"state": trial.state})
            return
        try:
            trial = await run_sync(store.trial, trial.sweep_id, trial.number)
        except SweepsError:
            return  # deleted, or the store is away: the client comes back and is told so
        looks_since_end = looks_since_end + 1 if trial.state.is_finished() else 0
        await anyio.sleep(LOG_SECONDS)
