"""Every router below ``/api/v1``, in the order in which their paths are tried."""

from fastapi import APIRouter

from service.routes.catalogue import router as catalogue
from service.routes.comparisons import router as comparisons
from service.routes.events import router as events
from service.routes.growth import router as growth
from service.routes.matches import router as matches
from service.routes.predictions import router as predictions
from service.routes.sweeps import router as sweeps
from service.routes.trials import router as trials

ROUTERS: tuple[APIRouter, ...] = (
    sweeps,
    growth,
    trials,
    events,
    comparisons,
    predictions,
    matches,
    catalogue,
)
