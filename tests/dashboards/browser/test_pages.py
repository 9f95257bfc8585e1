"""Every page in a real Chromium: drawn without complaint, readable, and alone with its service."""

from dataclasses import dataclass

import pytest
from axe_playwright_python.base import AxeResults
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext

from tests.dashboards.browser.browsing import Watched, draw_all, new_context, watching

pytestmark = pytest.mark.browser

PAGES = (
    "list",
    "sweep",
    "running",
    "queued",
    "trial",
    "matches",
    "match",
    "delete",
    "new",
    "new match",
    "compare",
    "paper",
    "missing",
)


@dataclass(frozen=True)
class Visit:
    """What was found on one page, drawn in whole at 1024 pixels of width."""

    name: str
    complaints: list[str]
    hosts: set[str]
    width: int
    axe: dict[str, AxeResults]


@pytest.fixture(scope="module", params=PAGES)
def visit(request: pytest.FixtureRequest, context: BrowserContext, site: dict[str, str]) -> Visit:
    with watching(context) as found:
        page = found.page
        page.set_viewport_size({"width": 1024, "height": 800})
        page.goto(site[request.param])
        draw_all(page)
        width = page.evaluate("document.documentElement.scrollWidth")
        light = Axe().run(page)
        page.emulate_media(color_scheme="dark")
        # The scheme changes colours only.
        dark = Axe().run(page, options={"runOnly": ["color-contrast", "link-in-text-block"]})
    axe = {"light": light, "dark": dark}
    return Visit(request.param, found.complaints, found.hosts, width, axe)


class TestWideTables:
    def test_a_table_wider_than_the_page_scrolls_by_itself(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.set_viewport_size({"width": 1024, "height": 800})
        page.goto(site["sweep"])
        page.locator("#leaderboard table").evaluate("table => (table.style.width = '2000px')")

        assert page.evaluate("document.documentElement.scrollWidth") <= 1024


class TestEveryPage:
    def test_it_draws_without_a_complaint(self, visit: Visit) -> None:
        # Chromium itself reports the status of a page that is not there.
        expected = 1 if visit.name == "missing" else 0

        assert len(visit.complaints) == expected, visit.complaints

    def test_it_asks_no_other_host(self, visit: Visit) -> None:
        # data: and blob: are the browser's own.
        assert visit.hosts - {"data", "blob"} == {"127.0.0.1"}

    def test_at_1024_pixels_nothing_is_cut_off(self, visit: Visit) -> None:
        assert visit.width <= 1024

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_axe_finds_nothing(self, visit: Visit, scheme: str) -> None:
        results = visit.axe[scheme]

        assert results.violations_count == 0, results.generate_report()

    @pytest.mark.parametrize(
        ("name", "table"),
        [
            ("sweep", "Leaderboard"),
            ("match", "Criteria"),
            ("trial", "Attempts"),
            ("list", "Sweeps"),
            ("compare", "Arms"),
            ("paper", "Table 1, CIFAR-10: WRN-22-7.5"),
        ],
    )
    def test_tables_are_there_without_script(
        self, browser: Browser, site: dict[str, str], name: str, table: str
    ) -> None:
        context = new_context(browser, java_script_enabled=False)
        page = context.new_page()
        page.goto(site[name])
        rows = page.get_by_role("region", name=table).locator("tbody tr").count()
        heights = page.locator(".plot").evaluate_all("plots => plots.map(e => e.offsetHeight)")
        choices = page.locator("[data-plot-select]:visible").count()
        context.close()

        assert rows >= 1
        # What needs script takes no room and offers nothing.
        assert max(heights, default=0) < 100
        assert choices == 0
