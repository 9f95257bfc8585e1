"""The pages in a real Chromium: what a person waits for, drawing and all."""

import random
import statistics
import time

from playwright.sync_api import Browser, Page

from benchmarks.pages.service import REPORTS, Figure
from benchmarks.pages.store import LiveSweep
from tests.dashboards.browser.serving import chromium

#: Loads of the page that are timed.
LOADS = 7


def browser_figures(url: str, full: str, live: LiveSweep) -> list[Figure]:
    """First paint, every plot, weight and live updates as a person's browser sees them."""
    with chromium() as browser:
        return [
            *_page_figures(browser, f"{url}/sweeps/{full}"),
            *_live_figures(browser, f"{url}/sweeps/{live.sweep}", live),
        ]


def _page_figures(browser: Browser, address: str) -> list[Figure]:
    """First paint, every plot, and weight of the page of the large sweep."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(address)  # fills the cache of scripts, as a person's second visit finds it
    paints, plots = [], dict[str, list[float]]()
    for _ in range(LOADS):
        page.goto(address)
        paints.append(_first_paint(page))
        for name, seconds in _plots(page).items():
            plots.setdefault(name, []).append(seconds)
    weight = page.evaluate(
        """() => [...performance.getEntriesByType("resource"),
                  ...performance.getEntriesByType("navigation")]
             .filter((one) => !one.name.includes("plotly"))
             .reduce((sum, one) => sum + one.encodedBodySize, 0)"""
    )
    context.close()
    return [
        Figure("first paint of the sweep page", statistics.median(paints), "s", 1.0),
        *(
            Figure(f"plot {name}", statistics.median(times), "s", 1.5)
            for name, times in plots.items()
        ),
        Figure("page weight beyond plotly's script", weight / 1e6, "MB", 2.0),
    ]


def _first_paint(page: Page) -> float:
    page.wait_for_function("() => performance.getEntriesByName('first-contentful-paint').length")
    return float(
        page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1000
    )


def _plots(page: Page) -> dict[str, float]:
    """Seconds from asking for each plot to its being drawn, one after the other."""
    found = {}
    for plot in page.locator("[data-plot]").all():
        name = str(plot.get_attribute("id")).replace("variance", "variance shares")
        took = plot.evaluate(
            """async (element) => {
                element.scrollIntoView();
                const start = performance.now();
                await draw(element);
                await new Promise(requestAnimationFrame);
                return performance.now() - start;
            }"""
        )
        found[name] = took / 1000
    return found


def _live_figures(browser: Browser, address: str, live: LiveSweep) -> list[Figure]:
    """Seconds from a report being recorded to its being on the page."""
    page = browser.new_page()
    page.goto(address)
    page.wait_for_function("() => document.getElementById('live')?.dataset.state === 'open'")
    times = []
    for _ in range(REPORTS):
        time.sleep(random.Random(len(times)).uniform(0.6, 1.6))
        step = live.report()
        start = time.monotonic()
        page.wait_for_function(
            "step => document.getElementById('trials').textContent.includes(step)",
            arg=f"{step} / ",
            polling=20,
        )
        times.append(time.monotonic() - start)
    page.close()
    return [
        Figure("live update of a 50-trial sweep, median", statistics.median(times), "s", 2.0),
        Figure("live update of a 50-trial sweep, slowest", max(times), "s", 2.0),
    ]
