"""``/trials`` of several sweeps, and ``/views``: what a page shows, under a name."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import AfterValidator

from service.contract.bodies import Checked, DocumentRoute, json_or_yaml
from service.contract.errors import answers
from service.contract.inputs import AcrossQuery, StoreDep, SweepId, ViewSpec
from service.contract.outputs import PageOut, SavedViewOut, SavedViewsOut, TrialOut
from service.submission.admission import page_out
from sweeps.spec.model import one_line

router = APIRouter(tags=["views"], route_class=DocumentRoute)

BODY = json_or_yaml("ViewSpec")
Name = Annotated[
    str, Path(pattern=r"^[^\x00-\x1f/]{1,80}$", description="What people call the view.")
]


def _can_stand_in_an_address(name: str) -> str:
    # A browser takes these out of an address: the view could not be opened.
    if name in (".", ".."):
        raise ValueError("must not be '.' or '..'")
    return name


NewName = Annotated[Name, AfterValidator(one_line), AfterValidator(_can_stand_in_an_address)]


@router.get("/trials", responses=answers(404))
def trials_of_sweeps(store: StoreDep, query: Annotated[AcrossQuery, Query()]) -> PageOut[TrialOut]:
    """List the trials of several sweeps together; fields of the same name are one field."""
    asked = query.model_dump()
    return page_out(store.trials_across(asked.pop("sweep"), **asked), TrialOut.model_validate)


@router.get("/views", responses=answers())
def views_of_several(store: StoreDep) -> SavedViewsOut:
    """The saved views of the page with trials of several sweeps."""
    return SavedViewsOut.model_validate({"items": store.saved_views(None)})


@router.put("/views/{name}", openapi_extra=BODY, responses=answers(413, 415))
def save_view_of_several(name: NewName, asked: Checked[ViewSpec], store: StoreDep) -> SavedViewOut:
    """Keep a view of that page under a name, in place of one that has it."""
    return SavedViewOut.model_validate(store.save_view(None, name, asked.query))


@router.delete("/views/{name}", status_code=204, responses=answers())
def delete_view_of_several(name: Name, store: StoreDep) -> None:
    """Forget a view of that page. Asking again changes nothing."""
    store.delete_view(None, name)


@router.get("/sweeps/{sweep_id}/views", responses=answers(404))
def views_of_sweep(sweep_id: SweepId, store: StoreDep) -> SavedViewsOut:
    """The saved views of a sweep's page."""
    return SavedViewsOut.model_validate({"items": store.saved_views(sweep_id)})


@router.put("/sweeps/{sweep_id}/views/{name}", openapi_extra=BODY, responses=answers(404, 413, 415))
def save_view(
    sweep_id: SweepId, name: NewName, asked: Checked[ViewSpec], store: StoreDep
) -> SavedViewOut:
    """Keep a view of the sweep's page under a name, in place of one that has it."""
    return SavedViewOut.model_validate(store.save_view(sweep_id, name, asked.query))


@router.delete("/sweeps/{sweep_id}/views/{name}", status_code=204, responses=answers(404))
def delete_view(sweep_id: SweepId, name: Name, store: StoreDep) -> None:
    """Forget a view of the sweep's page. Asking again changes nothing."""
    store.delete_view(sweep_id, name)
