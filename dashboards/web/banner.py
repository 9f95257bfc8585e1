"""The line on top of every page while sweeps cannot run."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from dashboards.web.error_pages import PageRoute
from dashboards.web.templating import page

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/parts/banner")
def banner_part() -> HTMLResponse:
    """The line as it is now, for pages that are open."""
    return page("shared/banner.html")
