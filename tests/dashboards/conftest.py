"""Fixtures of the pages' tests: one store full of results, and the application over it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient

from service.api.app import create_app
from service.settings import Settings
from sweeps.store.store import Store
from tests.dashboards import seeding
from tests.service.analysed_routes import analyse_routes_once
from worker.data.fetch import prepare_digits

# Without a browser the other tests run all the same.
if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

    from tests.dashboards.browser.browsing import Watched

analyse_routes_once()


@dataclass(frozen=True)
class Seeded:
    """A store, and the ids of what is in it. Tests only read it."""

    store: Store
    home: Path
    sweep: str
    match: str
    running: str
    queued: str


def open_store(home: Path) -> Store:
    """A new, empty store below ``home``."""
    home.mkdir(parents=True, exist_ok=True)
    store = Store(f"sqlite:///{home / 'store.db'}")
    store.migrate()
    return store


def settings_of(home: Path) -> Settings:
    """Settings of a service over ``home``, with the data sets that were prepared in it, if any."""
    data = home / "data"
    return Settings(home=home, data=data if data.is_dir() else None)


def client_of(store: Store, home: Path) -> TestClient:
    """A client of the whole application, as on this machine without a token."""
    return TestClient(create_app(store, settings_of(home)), base_url="http://127.0.0.1:8000")


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one prepared data set, which homes link to."""
    folder = tmp_path_factory.mktemp("data")
    prepare_digits(folder)
    return folder


@pytest.fixture(scope="session")
def seeded(tmp_path_factory: pytest.TempPathFactory, digits: Path) -> Iterator[Seeded]:
    home = tmp_path_factory.mktemp("dashboards")
    (home / "data").symlink_to(digits)
    store = open_store(home)
    with seeding.stopped_clock(1600) as clock:
        sweep = seeding.finished_sweep(store, "digits-optimizers", clock)
        match = seeding.finished_match(store, clock)
        running, *_ = seeding.running_sweep(store, "digits-alpha-v-fine", clock)
        queued = seeding.create(store, "cifar10-table-1")
    yield Seeded(store, home, sweep, match, running, queued)
    store.close()


@pytest.fixture(scope="session")
def client(seeded: Seeded) -> TestClient:
    return client_of(seeded.store, seeded.home)


@pytest.fixture
def empty_store(tmp_path: Path, digits: Path) -> Iterator[Store]:
    store = open_store(tmp_path / "home")
    (tmp_path / "home" / "data").symlink_to(digits)
    yield store
    store.close()


@pytest.fixture
def empty_client(empty_store: Store, tmp_path: Path) -> TestClient:
    return client_of(empty_store, tmp_path / "home")


# --- In a real browser: one for each file of tests, and one service over the seeded store --------


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    from tests.dashboards.browser.serving import chromium

    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def site(seeded: Seeded) -> Iterator[dict[str, str]]:
    """Address of every kind of page of a served, seeded store."""
    from tests.dashboards.browser.serving import served

    with served(seeded.store, seeded.home) as url:
        yield {
            "list": url,
            "sweep": f"{url}/sweeps/{seeded.sweep}",
            "running": f"{url}/sweeps/{seeded.running}",
            "queued": f"{url}/sweeps/{seeded.queued}",
            "trial": f"{url}/sweeps/{seeded.sweep}/trials/0",
            "matches": f"{url}/matches",
            "match": f"{url}/matches/{seeded.match}",
            "delete": f"{url}/sweeps/{seeded.running}/delete",
            "new": f"{url}/sweeps/new?preset=quickstart",
            "new match": f"{url}/matches/new?preset=quickstart-match",
            "compare": f"{url}/compare?arm={seeded.sweep}&arm={seeded.sweep}:t9",
            "trials": f"{url}/trials?sweep={seeded.sweep},{seeded.running}",
            "paper": f"{url}/paper",
            "missing": f"{url}/sweeps/000000000000",
        }


@pytest.fixture(scope="module")
def context(browser: "Browser") -> "Iterator[BrowserContext]":
    """One cache for all pages, as a person's browser has; plotly's script is large."""
    from tests.dashboards.browser.browsing import DESK, new_context

    context = new_context(browser, viewport=DESK)
    yield context
    context.close()


@pytest.fixture
def watched(context: "BrowserContext") -> "Iterator[Watched]":
    from tests.dashboards.browser.browsing import watching

    with watching(context) as found:
        yield found
