"""What tests in a real browser share: a page that is watched, and one whose plots are all drawn."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Page,
    Request,
    ViewportSize,
    expect,
)

#: What the pages promise: a report is seen within two seconds. A busy test machine gets more.
SOON_MS = 180_000
_EMPTY = "http://127.0.0.1/empty"
#: Or the browser asks for one, and complains to whoever has the page next.
_NO_ICON = '<link rel="icon" href="data:,">'
DESK: ViewportSize = {"width": 1280, "height": 900}
expect.set_options(timeout=SOON_MS)
#: A plot that is drawn or says why not. XPath is the browser's own; ``:has`` is Playwright's, and
#: takes seconds on a page of ten thousand elements.
DONE = "xpath=self::*[@data-drawn or .//*[@class='plot-message']]"


@dataclass
class Watched:
    """A page, the hosts it asked and what it complained about."""

    page: Page
    hosts: set[str]
    complaints: list[str]


def new_context(browser: Browser, **options: Any) -> BrowserContext:
    """A browser's context whose pages get as long as what is expected of them."""
    context = browser.new_context(**options)
    context.set_default_timeout(SOON_MS)
    return context


@contextmanager
def watching(context: BrowserContext) -> Iterator[Watched]:
    """Watch the page of a context while entered; who enters next gets it as if it were new.

    One page for all: each new one has a process that reads plotly's script again, for seconds.
    """
    page = context.pages[0] if context.pages else context.new_page()
    found = Watched(page, set(), [])

    def request(asked: Request) -> None:
        address = urlsplit(asked.url)
        found.hosts.add(address.hostname or address.scheme)

    def message(said: ConsoleMessage) -> None:
        if said.type in ("error", "warning"):
            found.complaints.append(said.text)

    def error(raised: Error) -> None:
        found.complaints.append(str(raised))

    listeners = {"request": request, "console": message, "pageerror": error}
    for event, listener in listeners.items():
        page.on(event, listener)  # type: ignore[call-overload]
    try:
        yield found
    finally:
        for event, listener in listeners.items():
            page.remove_listener(event, listener)
        page.unroute_all(behavior="ignoreErrors")
        # Of the same site as the pages: for one of another, Chromium would start a process.
        page.route(_EMPTY, lambda route: route.fulfill(content_type="text/html", body=_NO_ICON))
        page.goto(_EMPTY)
        page.unroute_all()
        page.emulate_media(media="null", color_scheme="null")
        page.set_viewport_size(DESK)


def draw_all(page: Page) -> None:
    """Scroll through the page until every plot is drawn or says why not."""
    for plot in page.locator("[data-plot]").all():
        plot.scroll_into_view_if_needed()
        expect(plot.locator(DONE)).to_be_visible()
