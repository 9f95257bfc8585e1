"""The scope that each route needs. A route that is not listed is for administrators."""

import re
from typing import Any

from fastapi import Request

from sweeps.errors import ScopeTooSmall
from sweeps.store.database.people import Scope, acting
from worker.process.logs import add_ids

#: Where the API is mounted; the routes of a router that is included there do not know it.
_API = "/api/v1"

#: Answered before anybody is known.
OPEN = frozenset(
    {
        "GET /healthz",
        "GET /readyz",
        "GET /login",
        "POST /login",
        "POST /logout",
        "GET /shared/{key}",
    }
)

#: Shown by a public link, of its own sweep alone.
_LINK = """
GET /matches/{sweep_id}
GET /matches/{sweep_id}/parts/details
GET /matches/{sweep_id}/parts/overview
GET /matches/{sweep_id}/parts/trials
GET /matches/{sweep_id}/parts/verdict
GET /matches/{sweep_id}/plots/curves.{form}
GET /matches/{sweep_id}/plots/layers.{form}
GET /static/{version}/{name}
GET /sweeps/{sweep_id}
GET /sweeps/{sweep_id}/parts/front
GET /sweeps/{sweep_id}/parts/leaderboard
GET /sweeps/{sweep_id}/parts/overview
GET /sweeps/{sweep_id}/parts/results
GET /sweeps/{sweep_id}/parts/trials
GET /sweeps/{sweep_id}/plots/contour.{form}
GET /sweeps/{sweep_id}/plots/curves.{form}
GET /sweeps/{sweep_id}/plots/front.{form}
GET /sweeps/{sweep_id}/plots/importance.{form}
GET /sweeps/{sweep_id}/plots/parallel.{form}
GET /sweeps/{sweep_id}/plots/sensitivity/{param}.{form}
GET /sweeps/{sweep_id}/plots/timeline.{form}
GET /sweeps/{sweep_id}/plots/variance.{form}
GET /sweeps/{sweep_id}/trials/{number}
GET /sweeps/{sweep_id}/trials/{number}/parts/overview
GET /sweeps/{sweep_id}/trials/{number}/plots/layers.{form}
GET /sweeps/{sweep_id}/trials/{number}/plots/metric/{name}.{form}
GET /sweeps/{sweep_id}/trials/{number}/plots/usage/{name}.{form}
GET /api/v1/matches/{sweep_id}/events
GET /api/v1/sweeps/{sweep_id}/events
GET /api/v1/sweeps/{sweep_id}/images/{name}
GET /api/v1/sweeps/{sweep_id}/trials/{number}/log/events
GET /api/v1/sweeps/{sweep_id}/trials/{number}/log/file
"""

_READ = """
GET /
GET /compare
GET /compare/configs
GET /compare/plots/curves.{form}
GET /compare/plots/differences.{form}
GET /docs
GET /matches
POST /matches/validate
GET /metrics
GET /openapi.json
GET /paper
GET /paper/plots/{name}.{form}
GET /parts/banner
GET /parts/matches
GET /parts/sweeps
POST /sweeps/validate
GET /sweeps/{sweep_id}/do/{verb}
GET /sweeps/{sweep_id}/images
GET /sweeps/{sweep_id}/parts/views
GET /sweeps/{sweep_id}/views/{name}
GET /trials
GET /trials/parts/trials
GET /trials/parts/views
GET /trials/plots/curves.{form}
GET /trials/views/{name}
POST /api/v1/comparisons
GET /api/v1/datasets
GET /api/v1/machines
GET /api/v1/matches
POST /api/v1/matches/predict
GET /api/v1/matches/{sweep_id}
GET /api/v1/me
GET /api/v1/optimizers
GET /api/v1/parts
GET /api/v1/presets
GET /api/v1/sweeps
POST /api/v1/sweeps/validate
GET /api/v1/sweeps/{sweep_id}
GET /api/v1/sweeps/{sweep_id}/analysis
GET /api/v1/sweeps/{sweep_id}/best
GET /api/v1/sweeps/{sweep_id}/best/weights
GET /api/v1/sweeps/{sweep_id}/curves
GET /api/v1/sweeps/{sweep_id}/export
GET /api/v1/sweeps/{sweep_id}/points
GET /api/v1/sweeps/{sweep_id}/trials
GET /api/v1/sweeps/{sweep_id}/trials/{number}
GET /api/v1/sweeps/{sweep_id}/trials/{number}/log
GET /api/v1/sweeps/{sweep_id}/trials/{number}/metrics
GET /api/v1/sweeps/{sweep_id}/trials/{number}/usage
GET /api/v1/sweeps/{sweep_id}/views
GET /api/v1/trainings
GET /api/v1/trials
GET /api/v1/views
"""

#: What these change must be one's own; the store sees to that.
_SUBMIT = """
GET /matches/new
POST /matches/new
POST /presets/{name}/submit
GET /sweeps/new
POST /sweeps/new
GET /sweeps/{sweep_id}/delete
POST /sweeps/{sweep_id}/delete
POST /sweeps/{sweep_id}/do/{verb}
POST /sweeps/{sweep_id}/images
POST /api/v1/matches
POST /api/v1/matches/of-trial
POST /api/v1/matches/{sweep_id}/cancel
POST /api/v1/sweeps
DELETE /api/v1/sweeps/{sweep_id}
PATCH /api/v1/sweeps/{sweep_id}
POST /api/v1/sweeps/{sweep_id}/ask
POST /api/v1/sweeps/{sweep_id}/cancel
POST /api/v1/sweeps/{sweep_id}/confirm
POST /api/v1/sweeps/{sweep_id}/extend
POST /api/v1/sweeps/{sweep_id}/images
GET /api/v1/sweeps/{sweep_id}/links
POST /api/v1/sweeps/{sweep_id}/links
DELETE /api/v1/sweeps/{sweep_id}/links/{link_id}
POST /api/v1/sweeps/{sweep_id}/pause
POST /api/v1/sweeps/{sweep_id}/resume
POST /api/v1/sweeps/{sweep_id}/retry
POST /api/v1/sweeps/{sweep_id}/trials/{number}/heartbeat
POST /api/v1/sweeps/{sweep_id}/trials/{number}/reports
POST /api/v1/sweeps/{sweep_id}/trials/{number}/tell
DELETE /api/v1/sweeps/{sweep_id}/views/{name}
PUT /api/v1/sweeps/{sweep_id}/views/{name}
DELETE /api/v1/views/{name}
PUT /api/v1/views/{name}
"""

_ADMIN = """
GET /audit
GET /api/v1/audit
GET /api/v1/tokens
POST /api/v1/tokens
DELETE /api/v1/tokens/{token_id}
PATCH /api/v1/tokens/{token_id}
"""

SCOPES = {
    route: scope
    for scope, routes in (
        (Scope.LINK, _LINK),
        (Scope.READ, _READ),
        (Scope.SUBMIT, _SUBMIT),
        (Scope.ADMIN, _ADMIN),
    )
    for route in routes.split("\n")
    if route
}


async def in_scope(request: Request) -> None:
    """Refuse who may not use this route, and note what it is about. Raises ScopeTooSmall."""
    note_ids(request.path_params)
    actor = acting()
    if actor is None:
        return
    path = request.scope["route"].path
    if request.url.path.startswith(f"{_API}/"):
        path = _API + path
    needed = SCOPES.get(f"{request.method} {path}", Scope.ADMIN)
    sweep_id = request.path_params.get("sweep_id")
    is_other = actor.sweep_id is not None and sweep_id not in (None, actor.sweep_id)
    if is_other or not actor.scope.covers(needed):
        raise ScopeTooSmall(Scope.READ if is_other else needed, actor.scope, actor.name)


def note_ids(params: dict[str, Any]) -> None:
    """Have records of this request name the sweep and the trial of its address."""
    if "sweep_id" in params:
        add_ids(sweep=params["sweep_id"])
    number = params.get("number", "")
    if re.fullmatch("[0-9]{1,9}", number):
        add_ids(trial=int(number))


def must_submit() -> None:
    """Refuse who may not submit: for routes that skip ``in_scope``. Raises ScopeTooSmall."""
    actor = acting()
    if actor is not None and not actor.scope.covers(Scope.SUBMIT):
        raise ScopeTooSmall(Scope.SUBMIT, actor.scope, actor.name)
