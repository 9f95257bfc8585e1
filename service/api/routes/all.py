"""Every router below ``/api/v1``, in the order in which their paths are tried."""

from fastapi import APIRouter

from service.api.routes.agents import reports as agent_reports
from service.api.routes.agents import router as agents
from service.api.routes.catalogue import router as catalogue
from service.api.routes.comparisons import router as comparisons
from service.api.routes.events import router as events
from service.api.routes.images import router as images
from service.api.routes.matches import router as matches
from service.api.routes.people.tokens import router as people
from service.api.routes.results import router as results
from service.api.routes.sweeps import router as sweeps
from service.api.routes.trials import router as trials
from service.api.routes.views import router as views

ROUTERS: tuple[APIRouter, ...] = (
    # First, because it takes thousands of requests a second.
    agent_reports,
    sweeps,
    trials,
    images,
    agents,
    results,
    events,
    comparisons,
    matches,
    catalogue,
    views,
    people,
)
