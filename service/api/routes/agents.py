"""``/sweeps/{id}/ask`` and what agents report: trials that run outside. See docs/agents.md."""

import asyncio
import math
import re
import time
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel

from service.api.access.scopes import must_submit, note_ids
from service.api.group_commit import GroupCommit
from service.api.trial_files import add_to_log
from service.contract.agents import (
    AskOut,
    AskSpec,
    HeardOut,
    HeartbeatSpec,
    LeasedOut,
    LeaseOut,
    ReportsSpec,
    TellSpec,
    ToldOut,
)
from service.contract.bodies import Checked, DocumentRoute, json_or_yaml
from service.contract.errors import answers
from service.contract.inputs import IdempotencyKey, SweepId, TrialNumber
from sweeps.records import SweepState, TrialState
from sweeps.store.commands.agent_requests import (
    AgentReport,
    AgentReports,
    Ask,
    Handout,
    Heard,
    Leased,
    Tell,
    Told,
)
from sweeps.store.database.people import Scope, may, require_own
from sweeps.store.store import Store
from worker.pauses import pauses

router = APIRouter(prefix="/sweeps/{sweep_id}", tags=["agents"], route_class=DocumentRoute)


#: Seconds until asking again makes sense, by the sweep's state; others bring no more trials.
_RETRY = {SweepState.QUEUED: 2.0, SweepState.RUNNING: 2.0, SweepState.PAUSED: 30.0}
#: Read and checked on the loop that serves everybody in less than a millisecond.
MAX_PLAIN_BYTES = 10_000
_STATUSES = answers(404, 409, 413, 415)


class ReportRoute(DocumentRoute):
    """A route for thousands of requests a second: takes a plain, valid one without ado.

    FastAPI's handling of parameters costs more than all that is done here. Whatever is unusual,
    wrong included, goes the usual way and is answered there.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle_any = super().get_route_handler()
        assert self.body_field is not None
        model: type[BaseModel] = self.body_field.field_info.annotation  # type: ignore[assignment]

        async def handle(request: Request) -> Response:
            must_submit()
            note_ids(request.path_params)
            asked = await _plainly_asked(request, model)
            if asked is None:
                return await handle_any(request)
            place = request.path_params
            answer = await self.endpoint(
                sweep_id=place["sweep_id"],
                number=int(place["number"]),
                asked=asked,
                desk=request.app.state.agents,
            )
            return Response(answer.model_dump_json(), media_type="application/json")

        return handle


async def _plainly_asked(request: Request, model: type[BaseModel]) -> BaseModel | None:
    """The body of a request as most are: small, valid JSON, no parameters; None for any other."""
    headers, place = request.headers, request.path_params
    try:
        size = int(headers.get("content-length", MAX_PLAIN_BYTES + 1))
        is_plain = (
            size <= MAX_PLAIN_BYTES
            and headers.get("content-type") == "application/json"
            and "content-encoding" not in headers
            and not request.scope["query_string"]
            and _PLACE.fullmatch(f"{place['sweep_id']}/{place['number']}") is not None
        )
        return model.model_validate_json(await request.body()) if is_plain else None
    except ValueError:
        return None


#: A sweep's id and a trial's number that need no further look.
_PLACE = re.compile(r"[0-9a-f]{12}/[0-9]{1,9}")


reports = APIRouter(
    prefix="/sweeps/{sweep_id}/trials/{number}", tags=["agents"], route_class=ReportRoute
)


async def _desk(request: Request) -> GroupCommit:
    desk: GroupCommit = request.app.state.agents
    return desk


Desk = Annotated[GroupCommit, Depends(_desk)]


@router.post("/ask", openapi_extra=json_or_yaml("AskSpec"), responses=_STATUSES)
async def ask_for_trials(
    sweep_id: SweepId,
    asked: Checked[AskSpec],
    desk: Desk,
    request: Request,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> AskOut:
    """Lease trials to an agent. Without one: why, and in ``Retry-After`` when to ask again.

    With an Idempotency-Key, asking again answers with the same trials while they run.
    """
    await _own_sweep(request, sweep_id)
    ask = Ask(sweep_id, asked.agent, asked.count, asked.lease_seconds, idempotency_key)
    handout = await _waiting_for(desk, ask, asked.wait_seconds, request)
    retry = None if handout.trials else _RETRY.get(handout.state)
    if retry is not None:
        response.headers["Retry-After"] = str(math.ceil(retry))
    return AskOut(
        trials=[_leased_out(one) for one in handout.trials],
        reason=handout.reason,
        state=handout.state,
        retry_seconds=retry,
    )


@reports.post("/reports", openapi_extra=json_or_yaml("ReportsSpec"), responses=_STATUSES)
async def report_of_trial(
    sweep_id: SweepId, number: TrialNumber, asked: Checked[ReportsSpec], desk: Desk
) -> HeardOut:
    """Record what a leased trial reports; answers whether it must stop. May be repeated."""
    news = tuple(AgentReport(r.step, r.metrics, r.num_steps) for r in asked.reports)
    return _heard_out(await desk.send(AgentReports(sweep_id, number, asked.lease, news)))


@reports.post("/heartbeat", openapi_extra=json_or_yaml("HeartbeatSpec"), responses=_STATUSES)
async def heartbeat_of_trial(
    sweep_id: SweepId, number: TrialNumber, asked: Checked[HeartbeatSpec], desk: Desk
) -> HeardOut:
    """Keep the lease of a trial that has nothing to report; answers whether it must stop."""
    return _heard_out(await desk.send(AgentReports(sweep_id, number, asked.lease)))


@reports.post("/tell", openapi_extra=json_or_yaml("TellSpec"), responses=_STATUSES)
async def tell_of_trial(
    sweep_id: SweepId, number: TrialNumber, asked: Checked[TellSpec], desk: Desk
) -> ToldOut:
    """End a leased trial, or give it back; answers with its state. Again, it changes nothing."""
    lines = asked.reason.strip().splitlines()
    told = await desk.send(
        Tell(
            sweep_id,
            number,
            asked.lease,
            TrialState(asked.state),
            lines[-1].strip() if lines else "",
            asked.metrics,
            asked.step,
        )
    )
    assert isinstance(told, Told)
    if len(lines) > 1 and told.state == asked.state:
        await run_sync(add_to_log, desk.home, sweep_id, number, "\n".join(lines))
    return ToldOut(state=told.state, reason=told.reason)


async def _own_sweep(request: Request, sweep_id: str) -> None:
    """Refuse agents of others: a lease then proves the right. Raises SweepNotFound, NotOwner."""
    if may(Scope.ADMIN):
        return
    store: Store = request.app.state.store
    require_own(f"sweep {sweep_id}", (await run_sync(store.get_sweep, sweep_id)).owner)


async def _waiting_for(desk: GroupCommit, ask: Ask, seconds: float, request: Request) -> Handout:
    """Ask until there are trials, none will come, the time is over, or the agent has gone."""
    until, waits = time.monotonic() + seconds, pauses(0.05, 1.0)
    while True:
        handout = await desk.send(ask)
        assert isinstance(handout, Handout)
        left = until - time.monotonic()
        if handout.trials or handout.state.is_finished() or left <= 0:
            return handout
        await asyncio.sleep(min(left, next(waits)))
        if await request.is_disconnected():
            return handout


def _leased_out(leased: Leased) -> LeasedOut:
    trial = leased.trial
    return LeasedOut(
        number=trial.number,
        point=trial.point,
        seed=trial.seed,
        params=trial.params,
        config=trial.config,
        lease=LeaseOut(token=leased.lease, seconds=leased.seconds),
    )


def _heard_out(answer: object) -> HeardOut:
    assert isinstance(answer, Heard)
    return HeardOut(stop=answer.stop, reason=answer.reason, lease_seconds=answer.seconds)
