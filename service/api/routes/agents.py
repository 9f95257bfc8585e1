"""``/sweeps/{id}/ask`` and what agents report: trials that run outside. See docs/agents.md."""

import asyncio
import math
import time
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from service.api.group_commit import GroupCommit
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
from service.contract.bodies import DocumentRoute, json_or_yaml
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
from worker.pauses import pauses

router = APIRouter(prefix="/sweeps/{sweep_id}", tags=["agents"], route_class=DocumentRoute)

#: Seconds until asking again makes sense, by the sweep's state; others bring no more trials.
_RETRY = {SweepState.QUEUED: 2.0, SweepState.RUNNING: 2.0, SweepState.PAUSED: 30.0}
_STATUSES = answers(404, 409, 413, 415)


async def _desk(request: Request) -> GroupCommit:
    desk: GroupCommit = request.app.state.agents
    return desk


Desk = Annotated[GroupCommit, Depends(_desk)]


@router.post("/ask", openapi_extra=json_or_yaml("AskSpec"), responses=_STATUSES)
async def ask_for_trials(
    sweep_id: SweepId,
    asked: AskSpec,
    desk: Desk,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> AskOut:
    """Lease trials to an agent. Without one: why, and in ``Retry-After`` when to ask again.

    With an Idempotency-Key, asking again answers with the same trials while they run.
    """
    ask = Ask(sweep_id, asked.agent, asked.count, asked.lease_seconds, idempotency_key)
    handout = await _waiting_for(desk, ask, asked.wait_seconds)
    retry = None if handout.trials else _RETRY.get(handout.state)
    if retry is not None:
        response.headers["Retry-After"] = str(math.ceil(retry))
    return AskOut(
        trials=[_leased_out(one) for one in handout.trials],
        reason=handout.reason,
        state=handout.state,
        retry_seconds=retry,
    )


@router.post(
    "/trials/{number}/reports", openapi_extra=json_or_yaml("ReportsSpec"), responses=_STATUSES
)
async def report_of_trial(
    sweep_id: SweepId, number: TrialNumber, asked: ReportsSpec, desk: Desk
) -> HeardOut:
    """Record what a leased trial reports; answers whether it must stop. May be repeated."""
    reports = tuple(AgentReport(r.step, r.metrics, r.num_steps) for r in asked.reports)
    return _heard_out(await desk.send(AgentReports(sweep_id, number, asked.lease, reports)))


@router.post(
    "/trials/{number}/heartbeat", openapi_extra=json_or_yaml("HeartbeatSpec"), responses=_STATUSES
)
async def heartbeat_of_trial(
    sweep_id: SweepId, number: TrialNumber, asked: HeartbeatSpec, desk: Desk
) -> HeardOut:
    """Keep the lease of a trial that has nothing to report; answers whether it must stop."""
    return _heard_out(await desk.send(AgentReports(sweep_id, number, asked.lease)))


@router.post("/trials/{number}/tell", openapi_extra=json_or_yaml("TellSpec"), responses=_STATUSES)
async def tell_of_trial(
    sweep_id: SweepId, number: TrialNumber, asked: TellSpec, desk: Desk
) -> ToldOut:
    """End a leased trial; answers with its state. Telling again changes nothing."""
    told = await desk.send(
        Tell(
            sweep_id,
            number,
            asked.lease,
            TrialState(asked.state),
            asked.reason,
            asked.metrics,
            asked.step,
        )
    )
    assert isinstance(told, Told)
    return ToldOut(state=told.state, reason=told.reason)


async def _waiting_for(desk: GroupCommit, ask: Ask, seconds: float) -> Handout:
    """Ask until there are trials, none will come, or the time is over."""
    until, waits = time.monotonic() + seconds, pauses(0.05, 1.0)
    while True:
        handout = await desk.send(ask)
        assert isinstance(handout, Handout)
        left = until - time.monotonic()
        if handout.trials or handout.state.is_finished() or left <= 0:
            return handout
        await asyncio.sleep(min(left, next(waits)))


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
