"""Puts the API and the pages together over a store that is passed in."""

import os
from functools import partial
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.security import HTTPBearer
from starlette.types import ASGIApp
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from dashboards.pages import pages_router
from dashboards.web.responses import Compression
from service.api.access.callers import Access, Peers
from service.api.access.guard import Guard
from service.api.access.scopes import in_scope
from service.api.edge import Edge
from service.api.group_commit import GroupCommit
from service.api.monitoring import API, Metrics, RequestMetrics
from service.api.readiness import Readiness
from service.api.routes.all import ROUTERS
from service.api.routes.docs import router as docs_router
from service.api.routes.health import router as health_router
from service.api.routes.people.login import router as login_router
from service.api.trial_files import trial_checkpoints, trial_log
from service.contract.errors import add_error_handlers
from service.contract.inputs import parameters_once
from service.settings import Settings, require_token_off_loopback
from service.submission.from_pages import PageSteering, PageSubmission
from service.version import VERSION
from sweeps.store.store import Store


class Application(FastAPI):
    """The application inside its edge, which also the answer to a fault passes."""

    def build_middleware_stack(self) -> ASGIApp:
        stack: Any = Edge(super().build_middleware_stack())
        # uvicorn would do it before anybody has seen who is connected.
        believed = os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1").split(",")
        proxy = self.state.settings.trusted_proxy()
        believed += [str(network) for network in proxy.networks] if proxy else []
        behind_proxies: Any = ProxyHeadersMiddleware(stack, trusted_hosts=believed)
        return Peers(behind_proxies)


def create_app(store: Store, settings: Settings) -> FastAPI:
    """The application. Raises SettingsError for an address that must not be open to all."""
    app = Application(
        title="ndsweep",
        version=VERSION,
        summary="Hyperparameter sweeps, and learning rates that make optimizers comparable.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.store = store
    app.state.settings = settings
    app.state.agents = GroupCommit(store, settings.home)
    require_token_off_loopback(settings)
    app.state.readiness = Readiness(store, settings.home)
    app.state.metrics = Metrics(store, app.state.readiness)
    app.add_middleware(Compression, except_below=f"{API}/")
    app.state.access = Access(store, settings)
    app.add_middleware(Guard, access=app.state.access, names=settings.host_names())
    app.add_middleware(RequestMetrics, metrics=app.state.metrics)
    add_error_handlers(app)
    token = HTTPBearer(auto_error=False, description="A token, where the service asks for one.")
    everywhere = [Depends(in_scope), Depends(token), Depends(parameters_once)]
    for router in ROUTERS:
        app.include_router(router, prefix=API, dependencies=everywhere)
    pages = pages_router(
        store,
        read_log=partial(trial_log, settings.home),
        list_checkpoints=partial(trial_checkpoints, settings.home),
        submitting=PageSubmission(store, settings),
        steering=PageSteering(store, settings),
        why_not_running=lambda: app.state.readiness.look().why_not_running,
    )
    for router in (health_router, login_router, docs_router, pages):
        app.include_router(router, dependencies=[Depends(in_scope)])
    return app
