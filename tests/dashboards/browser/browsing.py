"""What tests in a real browser share: a page that is watched, and one whose plots are all drawn."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect

#: What the pages promise: a report is seen within two seconds. A busy test machine gets more.
SOON_MS = 180_000
expect.set_options(timeout=SOON_MS)


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


def watch(context: BrowserContext) -> Watched:
    """Open a new page and take down what it does."""
    page = context.new_page()
    found = Watched(page, set(), [])

    def request(asked: Request) -> None:
        address = urlsplit(asked.url)
        found.hosts.add(address.hostname or address.scheme)

    def message(said: ConsoleMessage) -> None:
        if said.type in ("error", "warning"):
            found.complaints.append(said.text)

    page.on("request", request)
    page.on("console", message)
    page.on("pageerror", lambda error: found.complaints.append(str(error)))
    return found


def draw_all(page: Page) -> None:
    """Scroll through the page until every plot is drawn or says why not."""
    is_done = page.locator("[data-drawn], :has(.plot-message)")
    for plot in page.locator("[data-plot]").all():
        plot.scroll_into_view_if_needed()
        expect(plot.and_(is_done)).to_be_visible()
