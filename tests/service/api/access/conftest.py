"""A service for several people: guarded by a token of the settings, reached under a name."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from service.api.app import create_app
from service.settings import Settings
from sweeps.store.store import Store

ROOT_TOKEN = "correct horse battery staple"
BOX_URL = "http://box.example:8000"


def bearer(token: str) -> dict[str, str]:
    """The header that shows a token."""
    return {"Authorization": f"Bearer {token}"}


ADMIN = bearer(ROOT_TOKEN)


@pytest.fixture
def guarded_app(store: Store, home: Any, data: Any) -> FastAPI:
    return create_app(
        store,
        Settings(
            home=home, data=data, host="0.0.0.0", token=ROOT_TOKEN, allowed_hosts="box.example"
        ),
    )


@pytest.fixture
def guarded(guarded_app: FastAPI) -> Iterator[TestClient]:
    with TestClient(guarded_app, base_url=BOX_URL, follow_redirects=False) as client:
        yield client


@pytest.fixture
def token(guarded: TestClient) -> Callable[..., dict[str, str]]:
    """Creates a token over the API; returns the header that shows it."""

    def make(name: str, scope: str = "submit", **more: Any) -> dict[str, str]:
        body = {"name": name, "scope": scope, **more}
        made = guarded.post("/api/v1/tokens", json=body, headers=ADMIN)
        assert made.status_code == 201, made.text
        return bearer(made.json()["token"])

    return make
