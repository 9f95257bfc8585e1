"""The service's fixtures, and a client of ``ndsweep`` on its live application."""

import pytest

import ndsweep
from service.api.routes import events
from tests.service.conftest import (  # noqa: F401 - fixtures of the tests in this folder
    _no_settings_from_outside,
    app,
    client,
    data,
    finished,
    home,
    live,
    match_spec,
    settings,
    spec,
    store,
    trained,
)


@pytest.fixture
def connected(live, monkeypatch):  # noqa: F811
    monkeypatch.setattr(events, "POLL_SECONDS", 0.02)
    with ndsweep.connect(live) as found:
        yield found


@pytest.fixture
def sweep(connected, trained):  # noqa: F811
    """The finished sweep of two points and four trials."""
    return connected.sweep(trained.id)
