"""The application on a real port of this machine, and a real browser to open it with."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from playwright.sync_api import Browser, Playwright, sync_playwright

from service.api.app import create_app
from sweeps.store.store import Store
from tests.browser import HELP, find_browser
from tests.dashboards.conftest import settings_of

#: Seconds until the application is there, and until it is gone; a busy machine needs some.
PATIENCE = 120.0
#: Nothing of Chromium's own may go out while a page is watched for requests.
_QUIET = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
    # Kept ready for pages that never come.
    "--disable-features=SpareRendererForSitePerProcess",
)


@contextmanager
def served(store: Store, home: Path) -> Iterator[str]:
    """Serve the application over ``store`` from a thread; yield its address."""
    app = create_app(store, settings_of(home))
    # Event streams stay open for as long as a page does, so the end is not waited for.
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            deadline = time.monotonic() + PATIENCE
            while not server.started and time.monotonic() < deadline:
                time.sleep(0.01)
            assert server.started
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
    # What it still answered would be read from a store that its owner closes.
    assert not thread.is_alive()


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless Chromium."""
    with sync_playwright() as playwright:
        browser = _launch(playwright)
        try:
            yield browser
        finally:
            browser.close()


def _launch(playwright: Playwright) -> Browser:
    found = find_browser()
    if found is None:
        raise FileNotFoundError(HELP)
    return playwright.chromium.launch(executable_path=found.path, args=list(_QUIET))
