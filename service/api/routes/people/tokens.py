"""``/tokens``, ``/me``, ``/audit`` and ``/sweeps/{id}/links``: who is let in, and who did what."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from service.api.access.callers import Access
from service.contract.bodies import Checked, DocumentRoute, json_or_yaml
from service.contract.errors import answers
from service.contract.inputs import StoreDep, SweepId
from service.contract.outputs import ListOut, PageOut
from service.contract.people import (
    AuditOut,
    AuditQuery,
    LinkOut,
    LinkSpec,
    MeOut,
    NewTokenOut,
    QuotasOut,
    QuotasSpec,
    TokenChange,
    TokenOut,
    TokenQuery,
    TokenSpec,
    UseOut,
)
from service.submission.admission import page_out
from sweeps.store.database.people import Actor, Link, Scope, acting, require_own

router = APIRouter(tags=["people"], route_class=DocumentRoute)

TokenId = Annotated[
    str, Path(max_length=100, pattern=r"^[^\x00]+$", description="Id or name of the token.")
]
LinkId = Annotated[str, Path(pattern=r"^[0-9a-f]{8}$", description="Id of the link.")]


@router.get("/me", responses=answers())
def who_am_i(store: StoreDep) -> MeOut:
    """Who asks, with which scope, and how much of their quotas is used."""
    actor = acting() or Actor("", Scope.ADMIN)
    return MeOut(
        name=actor.name,
        scope=actor.scope,
        token=actor.token,
        token_name=actor.token_name,
        expires_at=actor.expires_at,
        quotas=QuotasOut.model_validate(actor.quotas),
        use=UseOut.model_validate(store.use_of(actor.name)),
    )


@router.get("/tokens", responses=answers())
def list_tokens(store: StoreDep, query: Annotated[TokenQuery, Query()]) -> PageOut[TokenOut]:
    """Tokens, newest first, without their secrets."""
    return page_out(store.list_tokens(**query.model_dump()), TokenOut.model_validate)


@router.post(
    "/tokens",
    status_code=201,
    openapi_extra=json_or_yaml("TokenSpec"),
    responses=answers(409, 413, 415),
)
async def create_token(spec: Checked[TokenSpec], store: StoreDep, request: Request) -> NewTokenOut:
    """Create a token. Its text is in this answer and nowhere else."""
    token, text = await run_in_threadpool(
        store.create_token,
        spec.name,
        Scope(spec.scope),
        owner=spec.owner or "",
        expires_at=spec.expires_at,
        quotas=spec.quotas.limits(),
    )
    _access(request).close()
    return NewTokenOut(**TokenOut.model_validate(token).model_dump(), token=text)


@router.patch(
    "/tokens/{token_id}",
    openapi_extra=json_or_yaml("TokenChange"),
    responses=answers(404, 413, 415),
)
async def change_token(
    token_id: TokenId, changes: Checked[TokenChange], store: StoreDep, request: Request
) -> TokenOut:
    """Set a token's expiry or quotas."""
    values: dict[str, Any] = {}
    if "expires_at" in changes.model_fields_set:
        values["expires_at"] = changes.expires_at
    if "quotas" in changes.model_fields_set:
        values["quotas"] = (changes.quotas or QuotasSpec()).limits()
    token = await run_in_threadpool(store.change_token, token_id, values)
    _access(request).forget()
    return TokenOut.model_validate(token)


@router.delete("/tokens/{token_id}", responses=answers(404))
async def revoke_token(token_id: TokenId, store: StoreDep, request: Request) -> TokenOut:
    """Revoke a token, by its id or name. Its sessions end; every process refuses it within 5 s."""
    token = await run_in_threadpool(store.revoke_token, token_id)
    _access(request).forget()
    return TokenOut.model_validate(token)


@router.get("/audit", responses=answers())
def audit_log(store: StoreDep, query: Annotated[AuditQuery, Query()]) -> PageOut[AuditOut]:
    """Who changed what, when and from where, newest first. Nothing can be taken out of it."""
    return page_out(store.audit_log(**query.model_dump()), AuditOut.model_validate)


@router.get("/sweeps/{sweep_id}/links", responses=answers(404))
def list_links(sweep_id: SweepId, store: StoreDep, request: Request) -> ListOut[LinkOut]:
    """The public links of a sweep that work."""
    require_own(f"sweep {sweep_id}", store.get_sweep(sweep_id).owner)
    return ListOut(items=[_link_out(link, request) for link in store.links_of(sweep_id)])


@router.post(
    "/sweeps/{sweep_id}/links",
    status_code=201,
    openapi_extra=json_or_yaml("LinkSpec", required=False),
    responses=answers(404, 413, 415),
)
def create_link(
    sweep_id: SweepId,
    store: StoreDep,
    request: Request,
    asked: Checked[LinkSpec | None] = None,
) -> LinkOut:
    """Create a link that shows this sweep's page and trials to anybody, until it expires."""
    until = datetime.now(UTC) + timedelta(days=(asked or LinkSpec()).days)
    return _link_out(store.create_link(sweep_id, until), request)


@router.delete(
    "/sweeps/{sweep_id}/links/{link_id}",
    status_code=204,
    response_model=None,
    responses=answers(404),
)
async def revoke_link(
    sweep_id: SweepId, link_id: LinkId, store: StoreDep, request: Request
) -> Response:
    """End a public link; every process refuses it within 5 s."""
    await run_in_threadpool(store.revoke_link, sweep_id, link_id)
    _access(request).forget()
    return Response(status_code=204)


def _access(request: Request) -> Access:
    access: Access = request.app.state.access
    return access


def _link_out(link: Link, request: Request) -> LinkOut:
    return LinkOut(
        id=link.id,
        sweep_id=link.sweep_id,
        url=f"{str(request.base_url).rstrip('/')}/shared/{link.key}",
        created_at=link.created_at,
        created_by=link.created_by,
        expires_at=link.expires_at,
    )
