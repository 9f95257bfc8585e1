"""``/sweeps/{id}/events``: what happens to a sweep, as it happens."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Annotated

import anyio
from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from service.api.access.callers import Access
from service.contract.errors import answers
from service.contract.inputs import EventsQuery, StoreDep, SweepId
from service.contract.outputs import EventOut
from service.submission.admission import get_match
from sweeps.errors import SweepsError
from sweeps.records import Event, Sweep
from sweeps.store.store import Store

router = APIRouter(tags=["events"])

#: Seconds between two looks at the store.
POLL_SECONDS = 0.5
BATCH = 500


def _existing(sweep_id: SweepId, store: StoreDep) -> Sweep:
    """Answer 404 before the stream begins; afterwards there is no status left to send."""
    return store.get_sweep(sweep_id)


def _existing_match(sweep_id: SweepId, store: StoreDep) -> Sweep:
    return get_match(store, sweep_id)


Still = Callable[[], Awaitable[bool]]


async def _still(request: Request) -> Still:
    access: Access = request.app.state.access
    return partial(access.is_still_known, request.scope)


StillDep = Annotated[Still, Depends(_still)]
SweepDep = Annotated[Sweep, Depends(_existing)]
MatchDep = Annotated[Sweep, Depends(_existing_match)]
LastEventId = Annotated[
    int | None,
    Header(ge=0, lt=2**63, description="Id of the last event seen; the stream goes on after it."),
]


@router.get("/sweeps/{sweep_id}/events", response_class=EventSourceResponse, responses=answers(404))
async def sweep_events(
    sweep: SweepDep,
    store: StoreDep,
    query: Annotated[EventsQuery, Query()],
    still: StillDep,
    last_event_id: LastEventId = None,
) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events from the sweep's first one, or after ``Last-Event-ID``.

    Ends with an event named ``end`` once the sweep is finished and every event was sent.
    """
    after = query.after if last_event_id is None else last_event_id
    async for event in follow(store, sweep.id, after, still):
        yield event


@router.get(
    "/matches/{sweep_id}/events", response_class=EventSourceResponse, responses=answers(404)
)
async def match_events(
    match: MatchDep,
    store: StoreDep,
    query: Annotated[EventsQuery, Query()],
    still: StillDep,
    last_event_id: LastEventId = None,
) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events of a match, as those of a sweep."""
    after = query.after if last_event_id is None else last_event_id
    async for event in follow(store, match.id, after, still):
        yield event


async def follow(
    store: Store, sweep_id: str, after: int, still: Still
) -> AsyncIterator[ServerSentEvent]:
    """Events with an id above ``after`` until the sweep is finished and drained.

    Ends without a word when ``still`` says that who follows is no longer let in.
    """
    while await still():
        try:
            # The state is read first: whatever happened before it was finished is in the batch.
            sweep = await run_sync(store.get_sweep, sweep_id)
            events = await run_sync(store.events, sweep_id, after, BATCH)
        except SweepsError:
            return  # deleted, or the store is away: the client comes back and is told so
        for event in events:
            after = event.id
            yield _sent(event)
        if len(events) < BATCH:
            if sweep.state.is_finished():
                yield ServerSentEvent(event="end", data={"state": sweep.state})
                return
            await anyio.sleep(POLL_SECONDS)


def _sent(event: Event) -> ServerSentEvent:
    data = EventOut.model_validate(event).model_dump(mode="json")
    return ServerSentEvent(id=str(event.id), event=event.kind, data=data)
