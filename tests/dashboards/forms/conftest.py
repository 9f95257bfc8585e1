"""A service with an empty store, and what the page of a form holds."""

import re
from html import unescape
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from sweeps.store.store import Store
from tests.dashboards.conftest import client_of


def value_of(html: str, control: str) -> str:
    found = re.search(rf'id="field-{control}"[^>]*value="([^"]*)"', html)
    assert found is not None, control
    return found[1]


def reason_at(html: str, control: str) -> str:
    found = re.search(rf'id="why-field-{control}"[^>]*>([^<]*)<', html)
    assert found is not None, control
    return found[1]


def yaml_of(html: str) -> str:
    found = re.search(r'<textarea id="field-rest"[^>]*>([^<]*)<', html)
    assert found is not None
    return unescape(found[1])


@pytest.fixture
def form_client(empty_store: Store, tmp_path: Path) -> TestClient:
    client = client_of(empty_store, tmp_path / "home")
    client.follow_redirects = False
    return client
