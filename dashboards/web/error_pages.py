"""Errors of the store as pages: what is missing or wrong, with links onwards."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute

from dashboards.web.templating import page
from sweeps.errors import (
    Forbidden,
    InvalidQuery,
    NotFound,
    QuotaExceeded,
    StoreUnavailable,
    SweepsError,
    SweepStateConflict,
)
from worker.config.trial_config import FieldError

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

_TITLES: dict[type[SweepsError], tuple[int, str]] = {
    NotFound: (404, "Not found"),
    SweepStateConflict: (409, "Not in this state"),
    Forbidden: (403, "Not yours to do"),
    QuotaExceeded: (429, "A quota is used up"),
    InvalidQuery: (400, "That listing cannot be shown"),
    StoreUnavailable: (503, "The store does not answer"),
}


def error_page(status: int, title: str, detail: str, back: str = "") -> HTMLResponse:
    """Show an error as a page with navigation and a link to ``back``, if given."""
    values = {"title": title, "status": status, "detail": detail, "back": back}
    return page("error.html", status, section="", **values)


class PageRoute(APIRoute):
    """A route that answers a browser: an error is a page, not JSON."""

    def get_route_handler(self) -> Handler:
        answer = super().get_route_handler()

        async def answer_or_error_page(request: Request) -> Response:
            try:
                return await answer(request)
            except RequestValidationError:
                # A path that is not of the right form, like /sweeps/x/trials/y.
                return error_page(404, "Not found", f"There is no page {request.url.path[:200]}.")
            except FieldError as error:
                return error_page(422, "This value cannot be used", sentence(str(error)))
            except SweepsError as error:
                for kind, (status, title) in _TITLES.items():
                    if isinstance(error, kind):
                        return error_page(status, title, sentence(str(error)))
                raise

        return answer_or_error_page


def sentence(text: str) -> str:
    """A message of the store as a sentence of a page."""
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."
