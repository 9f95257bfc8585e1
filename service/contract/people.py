"""Tokens, who asks, public links and the audit log, as the API takes and shows them."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, Field

from service.contract.inputs import PageQuery, Text
from service.contract.outputs import Output
from sweeps.spec.model import Label, SpecModel
from sweeps.store.database.people import Quotas, Scope

#: Most days that a public link works.
MAX_DAYS = 365


def _to_come(at: datetime) -> datetime:
    if at <= datetime.now(UTC):
        raise ValueError("must lie in the future")
    return at


Future = Annotated[AwareDatetime, AfterValidator(_to_come)]
_Whole = Annotated[int, Field(strict=True, ge=0, le=10**9)]


class QuotasSpec(SpecModel):
    """Most that a token may use; null or left out = no limit."""

    queued_sweeps: _Whole | None = Field(None, description="Sweeps that wait for a runner.")
    trials: _Whole | None = Field(None, description="Trials that have yet to end.")
    gpu_hours: Annotated[float, Field(strict=True, ge=0, le=1e9)] | None = Field(
        None, description="GPU-hours of sweeps that were submitted in the last 30 days."
    )
    requests_per_second: Annotated[float, Field(strict=True, gt=0, le=1e6)] | None = None

    def limits(self) -> Quotas:
        return Quotas.of_json(self.model_dump())


class TokenSpec(SpecModel):
    """A token to be created."""

    name: Label = Field(description="What it is for; no other token may have it.")
    scope: Literal["read", "submit", "admin"] = Field(
        description="read: see everything; submit: also submit, and change one's own sweeps; "
        "admin: everything."
    )
    owner: Label | None = Field(
        None,
        description="Whom its sweeps belong to, the same for all tokens of a person; "
        "default: the name.",
    )
    expires_at: Future | None = Field(None, description="RFC 3339 with an offset; null = never.")
    quotas: QuotasSpec = QuotasSpec()


class TokenChange(SpecModel):
    """What to change of a token; what is left out stays."""

    expires_at: Future | None = Field(None, description="RFC 3339 with an offset; null = never.")
    quotas: QuotasSpec | None = Field(None, description="All quotas anew; null = none.")


class LinkSpec(SpecModel):
    """A public link to be created."""

    days: Annotated[int, Field(strict=True, ge=1, le=MAX_DAYS)] = Field(
        30, description="Days that it works."
    )


class QuotasOut(Output):
    """Most that a token may use; null = no limit."""

    queued_sweeps: int | None
    trials: int | None
    gpu_hours: float | None
    requests_per_second: float | None


class TokenOut(Output):
    """A token without its secret."""

    id: str
    name: str
    owner: str
    scope: Scope
    quotas: QuotasOut
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    #: To the minute.
    last_used_at: datetime | None


class NewTokenOut(TokenOut):
    """A token with its text, which is shown this once."""

    token: str


class UseOut(Output):
    """What an owner's sweeps use."""

    queued_sweeps: int
    trials: int
    gpu_hours: float


class MeOut(Output):
    """Who asks, what they may do, and how much of their quotas is used."""

    #: Owner of what they submit; "" where nobody is asked for a name.
    name: str
    scope: Scope
    #: Id of the token, or what else let them in: NDSWEEP_TOKEN, proxy, "".
    token: str
    token_name: str
    expires_at: datetime | None
    quotas: QuotasOut
    use: UseOut


class LinkOut(Output):
    """A public link to the page of one sweep."""

    id: str
    sweep_id: str
    url: str
    created_at: datetime
    created_by: str
    expires_at: datetime


class AuditOut(Output):
    """One change: who made it, when, from where, and what it was."""

    id: int
    at: datetime
    who: str
    token: str
    address: str
    action: str
    target: str
    data: dict[str, Any]


class TokenQuery(PageQuery):
    revoked: bool = Field(False, description="With those that were revoked.")


class AuditQuery(PageQuery):
    who: Text | None = Field(None, description="Only what this owner did.")
    action: Text | None = Field(
        None, description="Only this action, such as `sweep.cancel`, or its first part, `sweep`."
    )
    target: Text | None = Field(None, description="Only changes of this sweep or token.")
