"""Path and query parameters shared by the routes, with the ranges they are held to."""

from collections import Counter
from typing import Annotated, Literal

from fastapi import Depends, Header, Path, Request
from pydantic import BaseModel, ConfigDict, Field

from service.contract.errors import ApiError
from service.contract.outputs import FieldOut
from service.settings import Settings
from sweeps.records import Kind, SweepState, TrialState
from sweeps.spec.model import Label, Notes, SpecModel
from sweeps.spec.validation_messages import MAX_FIELDS, shown
from sweeps.store.queries.across import MOST_SWEEPS
from sweeps.store.queries.where import MAX_LENGTH
from sweeps.store.store import Store

#: What the store's ids and names look like; also keeps NUL and slashes from it.
SweepId = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="The id from the sweep's URL.")
]
TrialNumber = Annotated[
    int, Path(ge=0, lt=2**31, description="Number of the trial in its sweep, counted from 0.")
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        pattern=r"^[\x21-\x7e]{1,200}$",
        description="Sent again with the same body, it answers with the sweep of the first time.",
    ),
]
Text = Annotated[str, Field(max_length=200, pattern=r"^[^\x00]*$")]


# Coroutines, although they wait for nothing: FastAPI runs functions in a thread, one after another.
async def _store(request: Request) -> Store:
    store: Store = request.app.state.store
    return store


async def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


StoreDep = Annotated[Store, Depends(_store)]
SettingsDep = Annotated[Settings, Depends(_settings)]


class _Query(BaseModel):
    """A query string; a parameter that the route does not know is refused, not ignored."""

    model_config = ConfigDict(extra="forbid")


#: Parameters that stand for a list.
_REPEATED = frozenset({"name", "sweep"})


async def parameters_once(request: Request) -> None:
    """Refuse a parameter that is given twice, where one would be ignored, and any that has no use.

    Raises ApiError 422.
    """
    given = Counter(name for name, _ in request.query_params.multi_items())
    takes_none = not request.scope["route"].dependant.query_params
    fields = []
    for name, times in given.items():
        if takes_none:
            fields.append(FieldOut(path=name[:80], reason=f"{shown(name)} is not a parameter here"))
        elif times > 1 and name not in _REPEATED:
            reason = f"{shown(name)} must be given once, got it {times} times"
            fields.append(FieldOut(path=name[:80], reason=reason))
    if fields:
        raise ApiError(422, "InvalidQuery", fields[0].reason, fields[:MAX_FIELDS])


class PageQuery(_Query):
    cursor: Annotated[str, Field(max_length=500, pattern=r"^[^\x00]*$")] | None = Field(
        None, description="`next` of the previous page, with the same filters and sort."
    )
    limit: Annotated[int, Field(ge=1, le=500)] = Field(50, description="Items of a page.")


class MatchQuery(PageQuery):
    state: SweepState | None = None
    tag: Text | None = Field(None, description="Only sweeps that carry this tag.")
    owner: Text | None = Field(None, description="Only sweeps that this owner submitted.")
    search: Text | None = Field(None, description="Only sweeps whose name or notes contain this.")
    sort: Text = Field("-created_at", description="Field to sort by; a minus reverses.")


class SweepQuery(MatchQuery):
    kind: Kind | None = Field(None, description="Only sweeps, or only matches.")


class TrialQuery(PageQuery):
    state: TrialState | None = None
    point: Annotated[int, Field(ge=0, lt=2**31)] | None = Field(
        None, description="Only the replicates of this point."
    )
    where: Annotated[str, Field(max_length=MAX_LENGTH, pattern=r"^[^\x00]*$")] | None = Field(
        None,
        description="A condition on fields, sampled values and last metrics, such as "
        "`alpha_v > 0.05 and state = complete`.",
    )
    sort: Text = Field("number", description="Field to sort by; a minus reverses.")


class AcrossQuery(PageQuery):
    sweep: list[Text] = Field(
        min_length=1, max_length=MOST_SWEEPS, description="Ids of the sweeps; may be repeated."
    )
    state: TrialState | None = None
    where: Annotated[str, Field(max_length=MAX_LENGTH, pattern=r"^[^\x00]*$")] | None = Field(
        None, description="A condition on the fields of all of the sweeps, and on `sweep` itself."
    )
    sort: Text = Field("sweep", description="Field to sort by; a minus reverses.")


class ViewSpec(SpecModel):
    """What a page shows: the part of its address after the question mark."""

    query: Annotated[str, Field(max_length=4000, pattern=r"^[!-~]*$")] = Field(
        description="Such as `where=seed+%3D+1&columns=lr`; printable ASCII without spaces."
    )


class Labels(SpecModel):
    """What people find a sweep by; null or left out = as it was."""

    tags: Annotated[list[Label], Field(max_length=50)] | None = Field(
        None, description="Words to find the sweep by, in place of those it has."
    )
    notes: Notes | None = Field(None, description="Free text, in place of what it has.")


class MetricsQuery(_Query):
    name: list[Text] | None = Field(None, max_length=200, description="Metrics to return.")
    max_points: Annotated[int, Field(ge=2, le=10_000)] = Field(
        1000, description="Points of each curve."
    )


class PointQuery(PageQuery):
    sort: Text = Field("number", description="Field to sort by; a minus reverses.")


class CurvesQuery(PageQuery):
    name: list[Text] | None = Field(None, max_length=200, description="Metrics to return.")
    kind: Literal["metrics", "dynamics"] = Field(
        "metrics",
        description="Reported metrics without those of single layers, or the weight dynamics: "
        "metrics of layers, or what a match records at every step.",
    )


class LogQuery(_Query):
    lines: Annotated[int, Field(ge=1, le=10_000)] = Field(200, description="Lines from the end.")


class LogEventsQuery(_Query):
    after: Annotated[int, Field(ge=0, lt=2**63)] = Field(
        0, description="Byte of the log from which on it is sent; Last-Event-ID wins over it."
    )


class ExportQuery(_Query):
    format: Literal["csv", "json", "parquet"] = "csv"


class AnalysisQuery(_Query):
    format: Literal["json", "csv", "markdown", "latex"] = "json"


class ComparisonQuery(_Query):
    format: Literal["json", "csv", "markdown", "latex"] = "json"
    table: Literal["arms", "differences"] = Field(
        "differences", description="Which table CSV holds; the other formats hold both."
    )


class EventsQuery(_Query):
    after: Annotated[int, Field(ge=0, lt=2**63)] = Field(
        0, description="Only events with a higher id; Last-Event-ID wins over it."
    )
