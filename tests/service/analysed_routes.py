"""Applications of one process share what FastAPI works out from the signatures of its routes."""

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any

from fastapi import routing
from fastapi._compat import ModelField


@cache
def analyse_routes_once() -> None:
    """Have each route's function analysed once, instead of again for each application.

    A test takes an application of its own, and that analysis is most of what making one costs.
    """
    routing.get_dependant = _shared_analysis(routing.get_dependant)  # type: ignore[attr-defined]
    routing.create_model_field = _shared_fields(routing.create_model_field)  # type: ignore[attr-defined]


def _shared_analysis(analyse: Callable[..., Any]) -> Callable[..., Any]:
    once = cache(analyse)

    def copied(**route: Any) -> Any:
        found = once(**route)
        # FastAPI puts the dependencies of routers into this list.
        return dataclasses.replace(found, dependencies=list(found.dependencies))

    return copied


def _shared_fields(make: Callable[..., ModelField]) -> Callable[..., ModelField]:
    once = cache(make)

    def found(**field: Any) -> ModelField:
        try:
            return once(**field)
        except TypeError:  # a type that has no hash
            return make(**field)

    return found
