"""The audit log, for administrators."""

from dataclasses import asdict, dataclass

from fastapi import APIRouter, Depends
from fastapi.responses import HTMLResponse

from dashboards.web.error_pages import PageRoute
from dashboards.web.links import TableLinks, pager
from dashboards.web.templating import page
from dashboards.wording.sweep_facts import StoreDep
from sweeps.store.store import Store

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True)
class AuditQuery:
    """Filters of the log. "" means no filter, the newest page."""

    who: str = ""
    action: str = ""
    target: str = ""
    cursor: str = ""


@router.get("/audit")
def audit_page(query: AuditQuery = Depends(), store: Store = StoreDep) -> HTMLResponse:
    """Who changed what, when and from where, newest first."""
    found = store.audit_log(
        who=query.who, action=query.action, target=query.target, cursor=query.cursor or None
    )
    links = TableLinks("/audit", "", "/audit", {k: v for k, v in asdict(query).items() if v})
    return page(
        "audit.html",
        title="Audit log",
        section="audit",
        query=query,
        entries=found.items,
        pager=pager(links, "", query.cursor, found.next, "50 a page, newest first"),
    )
