"""The pages, as one router for the service to mount at its root."""

from fastapi import APIRouter, Depends, Request

from dashboards.compare import pages as compare_pages
from dashboards.forms import pages as form_pages
from dashboards.match import pages as match_pages
from dashboards.paper import pages as paper_pages
from dashboards.sweep_pages import across as across_pages
from dashboards.sweep_pages import actions as action_pages
from dashboards.sweep_pages import front as front_pages
from dashboards.sweep_pages import plots as plot_pages
from dashboards.sweep_pages import search as search_pages
from dashboards.sweep_pages import sweep as sweep_pages
from dashboards.sweep_pages import trial as trial_pages
from dashboards.sweep_pages import usage as usage_pages
from dashboards.sweep_pages.trial import CheckpointFile, ListCheckpoints, LogEnd, ReadLog
from dashboards.web import audit as audit_page
from dashboards.web import banner, static_files
from dashboards.web.ports import Steering, Submitting
from dashboards.web.templating import WhyNotRunning, ask_why_not_running
from sweeps.store.store import Store

#: In the order in which addresses are matched: literal ones before patterns.
PARTS = (
    static_files,
    plot_pages,
    usage_pages,
    front_pages,
    search_pages,
    audit_page,
    banner,
    form_pages,
    compare_pages,
    across_pages,
    action_pages,
    sweep_pages,
    match_pages,
    paper_pages,
    trial_pages,
)


def no_log(sweep_id: str, number: int) -> LogEnd:
    """Return no log: the default if pages are served without the folder of logs."""
    return LogEnd("", 0)


def no_checkpoints(sweep_id: str, number: int) -> list[CheckpointFile]:
    """Return no checkpoints: the default if pages are served without their folder."""
    return []


def pages_router(
    store: Store,
    *,
    read_log: ReadLog = no_log,
    list_checkpoints: ListCheckpoints = no_checkpoints,
    submitting: Submitting | None = None,
    steering: Steering | None = None,
    why_not_running: WhyNotRunning | None = None,
) -> APIRouter:
    """Build every page and plot over ``store``.

    Pages read the store: buttons post to the API under ``/api/v1`` of the same origin, live pages
    follow its event streams, and the form of a new sweep hands its spec to ``submitting``.

    Args:
        store: Where everything that is shown is read from.
        read_log: Gives the end of a trial's log by sweep id and trial number, "" for none.
        list_checkpoints: Gives a trial's checkpoints by sweep id and trial number, newest first.
        submitting: Checks and queues specs by the API's rules; None = pages without a form.
        steering: Carries out buttons in browsers without script; None = pages without deletion.
        why_not_running: Gives the sentence on top of pages while sweeps cannot run.
    """

    # In the request's own context, which the threads that make pages take over.
    async def provide(request: Request) -> None:
        request.state.store = store
        request.state.read_log = read_log
        request.state.list_checkpoints = list_checkpoints
        request.state.submitting = submitting
        request.state.steering = steering
        ask_why_not_running(why_not_running)

    router = APIRouter(dependencies=[Depends(provide)])
    for part in PARTS:
        router.include_router(part.router)
    return router
