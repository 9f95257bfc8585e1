"""Actions of a sweep's buttons in a browser without script, and the page that confirms a deletion.

With script the same forms go to the API and the page stays; without, they come here.
"""

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response

from dashboards.web.error_pages import PageRoute, error_page, sentence
from dashboards.web.ports import VERBS, Refused, Steering
from dashboards.web.posted_form import FileDep, SentDep
from dashboards.web.templating import page
from dashboards.wording.sweep_facts import StoreDep, address, mlflow_experiment
from sweeps.errors import ImageRefused, SweepStateConflict
from sweeps.store.store import Store

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_NO_BUTTONS = (404, "No buttons here", "These pages are read-only; use ndsweep or the API.")


#: What a button of another name does.
_DOES = {"label": "save", "view": "save the view", "unview": "delete the view"}


def _provided(request: Request) -> Steering | None:
    steering: Steering | None = request.state.steering
    return steering


SteeringDep = Depends(_provided)


@router.post("/sweeps/{sweep_id}/do/{verb}")
def act(
    sweep_id: str,
    verb: str,
    sent: dict[str, str] = SentDep,
    store: Store = StoreDep,
    steering: Steering | None = SteeringDep,
) -> Response:
    """Carry out a button, and go back to the page of the sweep."""
    if steering is None:
        return error_page(*_NO_BUTTONS)
    if verb not in VERBS:
        return error_page(404, "Not found", f"There is no button {verb[:80]!r}.")
    try:
        shown = steering.act(sweep_id, verb, sent)
    except (Refused, SweepStateConflict) as refused:
        status = 422 if isinstance(refused, Refused) else 409
        title = f"Could not {_DOES.get(verb, verb)}"
        return error_page(status, title, sentence(str(refused)), address(store.get_sweep(sweep_id)))
    there = address(store.get_sweep(shown))
    if verb == "view":
        there += f"?{sent.get('query', '')}"
    return RedirectResponse(there, status_code=303)


@router.get("/sweeps/{sweep_id}/do/{verb}")
def back(sweep_id: str, verb: str, store: Store = StoreDep) -> Response:
    """Redirect a reload of a refused button to the sweep's page; a GET changes nothing."""
    return RedirectResponse(address(store.get_sweep(sweep_id)), status_code=303)


@router.post("/sweeps/{sweep_id}/images")
def add_image(
    sweep_id: str,
    data: bytes = FileDep,
    store: Store = StoreDep,
    steering: Steering | None = SteeringDep,
) -> Response:
    """Add an image to the end of the notes, and go back to the page of the sweep."""
    if steering is None:
        return error_page(*_NO_BUTTONS)
    here = address(store.get_sweep(sweep_id))
    try:
        steering.add_image(sweep_id, data)
    except (Refused, ImageRefused) as refused:
        return error_page(422, "Could not add the image", sentence(str(refused)), here)
    return RedirectResponse(here, status_code=303)


@router.get("/sweeps/{sweep_id}/images")
def back_from_image(sweep_id: str, store: Store = StoreDep) -> Response:
    """Redirect a reload of a refused image to the sweep's page."""
    return RedirectResponse(address(store.get_sweep(sweep_id)), status_code=303)


@router.get("/sweeps/{sweep_id}/delete")
def ask_page(sweep_id: str, store: Store = StoreDep) -> Response:
    """Show what a deletion removes and keeps, and ask for confirmation."""
    sweep = store.get_sweep(sweep_id)
    return page(
        "delete.html",
        title=f"Delete {sweep.name}?",
        section="matches" if sweep.kind == "match" else "sweeps",
        sweep=sweep,
        address=address(sweep),
        trials=sum(sweep.trials.values()),
        confirmations=store.confirmations(sweep_id),
        mlflow=mlflow_experiment(sweep),
    )


@router.post("/sweeps/{sweep_id}/delete")
def delete(
    sweep_id: str, store: Store = StoreDep, steering: Steering | None = SteeringDep
) -> Response:
    """Delete the sweep; while its trials stop, redirect to its page."""
    if steering is None:
        return error_page(*_NO_BUTTONS)
    sweep = store.get_sweep(sweep_id)
    listing = "/matches" if sweep.kind == "match" else "/"
    is_gone = steering.delete(sweep_id)
    return RedirectResponse(listing if is_gone else address(sweep), status_code=303)
