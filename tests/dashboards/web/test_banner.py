"""The line on top of every page while sweeps cannot run."""

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from dashboards.pages import pages_router
from sweeps.errors import StoreUnavailable
from sweeps.store.database.people import Actor, Scope, acting_as
from tests.dashboards.conftest import Seeded

WHY = "Sweeps cannot run: no runner <reports>."


class Service:
    """Pages over a store, with a reason that changes."""

    def __init__(self, seeded: Seeded) -> None:
        self.why: str | None = WHY
        self.is_away = False
        app = FastAPI()
        app.include_router(pages_router(seeded.store, why_not_running=self._ask))
        self.client = TestClient(app)

    def _ask(self) -> str | None:
        if self.is_away:
            raise StoreUnavailable("the store cannot be used")
        return self.why

    def banner(self, address: str) -> str:
        text = self.client.get(address).text
        assert text.count('id="banner"') == 1
        return text.partition('id="banner"')[2].partition("</div>")[0]


@pytest.fixture
def service(seeded: Seeded) -> Service:
    return Service(seeded)


def test_every_page_says_why_sweeps_cannot_run_as_text(service: Service, seeded: Seeded) -> None:
    missing = "/sweeps/0123456789ab"
    for address in ("/", "/matches", "/compare", "/paper", f"/sweeps/{seeded.sweep}", missing):
        assert "no runner &lt;reports&gt;." in service.banner(address)


def test_an_open_page_asks_again_and_the_line_goes(service: Service) -> None:
    banner = service.banner("/")
    assert 'hx-get="/parts/banner"' in banner
    assert "no runner" in service.banner("/parts/banner")

    service.why = None
    assert "<p>" not in service.banner("/parts/banner")
    assert "<p>" not in service.banner("/")


def test_a_store_that_is_away_fails_no_page_for_its_line(service: Service) -> None:
    service.is_away = True

    assert service.client.get("/").status_code == 200
    assert "<p>" not in service.banner("/")


def test_who_follows_a_public_link_is_told_nothing_of_the_service(
    service: Service, seeded: Seeded
) -> None:
    with acting_as(Actor("", Scope.LINK, sweep_id=seeded.sweep)):
        text = service.client.get(f"/sweeps/{seeded.sweep}").text

    assert "no runner" not in text
    assert "/parts/banner" not in text
