"""The pages, as one router for the service to mount at its root."""

from fastapi import APIRouter, Depends, Request

from dashboards import match_pages, plot_pages, static_files, sweep_pages, trial_pages
from dashboards.trial_pages import ReadLog
from sweeps.store import Store


def no_log(sweep_id: str, number: int) -> str:
    """Say that no trial has a log, where the pages are served without the folder of logs."""
    return ""


def pages_router(store: Store, *, read_log: ReadLog = no_log) -> APIRouter:
    """Build every page and plot over ``store``.

    Pages only read: buttons post to the API under ``/api/v1`` of the same origin, and live pages
    follow its event streams.

    Args:
        store: Where everything that is shown is read from.
        read_log: Gives the end of a trial's log by sweep id and trial number, "" for none.
    """

    def provide(request: Request) -> None:
        request.state.store = store
        request.state.read_log = read_log

    router = APIRouter(dependencies=[Depends(provide)])
    for part in (static_files, plot_pages, sweep_pages, match_pages, trial_pages):
        router.include_router(part.router)
    return router
