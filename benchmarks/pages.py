"""How fast the pages are in a real Chromium, over a store with a 10,000-trial sweep.

python -m benchmarks.pages [--trials 10000] [--views 1000] [--out pages.json]

Prints a table of figures beside what is promised, and writes the same as JSON. The service runs in
a process of its own; the browser and this program share the machine with it.
"""

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx2
import uvicorn
from playwright.sync_api import Browser, Page

from benchmarks.pages_store import LiveSweep, full_sweep, live_sweep
from service.app import create_app
from service.settings import Settings
from sweeps.store import Store
from tests.dashboards.serving import chromium

#: Loads of the page that are timed, and reports whose arrival is.
LOADS, REPORTS = 7, 12
#: What pages read when somebody looks at a sweep; the addresses below the sweep's own.
VIEWED = (
    "",
    "/plots/curves.json",
    "/plots/sensitivity/alpha_v.json",
    "/plots/parallel.json",
    "/plots/importance.json",
    "/plots/variance.json",
    "/plots/contour.json",
    "/plots/timeline.json",
)


@dataclass(frozen=True)
class Figure:
    """One measured number, and the most that is promised; None where nothing is."""

    name: str
    value: float
    unit: str
    most: float | None


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--points", type=int, default=200, help="reported steps of each trial")
    parser.add_argument("--views", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        store = Store(f"sqlite:///{home / 'store.db'}")
        store.migrate()
        began = time.monotonic()
        full = full_sweep(store, asked.trials, asked.points)
        live = live_sweep(store)
        print(f"seeded {asked.trials:,} trials in {time.monotonic() - began:.0f} s", flush=True)
        with _service(home) as (url, pid):
            with chromium() as browser:
                figures = [
                    *_page_figures(browser, f"{url}/sweeps/{full}"),
                    *_live_figures(browser, f"{url}/sweeps/{live.sweep}", live),
                ]
            figures += _memory_figures(url, pid, f"/sweeps/{full}", asked.views)
        store.close()
    _print(figures)
    if asked.out is not None:
        asked.out.write_text(json.dumps([asdict(figure) for figure in figures], indent=2) + "\n")


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
    page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")
    return float(
        page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1000
    )


def _plots(page: Page) -> dict[str, float]:
    """Seconds from asking for each plot to its being drawn, one after the other."""
    found = {}
    for plot in page.locator("[data-plot]").all():
        name = str(plot.get_attribute("id"))
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
    page.wait_for_function("document.getElementById('live')?.dataset.state === 'open'")
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


def _memory_figures(url: str, pid: int, sweep: str, views: int) -> list[Figure]:
    """Growth of the service's memory over many views, after the first tenth filled its caches."""
    warm = max(views // 10, 1)
    with httpx2.Client(base_url=url, timeout=60.0) as client:
        for view in range(views):
            for part in VIEWED if view % 10 == 0 else ("",):
                client.get(sweep + part).raise_for_status()
            client.get("/").raise_for_status()
            if view + 1 == warm:
                before = _resident(pid)
        after = _resident(pid)
    return [
        Figure("memory of the service after its first views", before, "MB", None),
        Figure(f"its growth over {views:,} page views", after - before, "MB", 20.0),
    ]


def _resident(pid: int) -> float:
    """Resident memory of a process, MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1000
    raise RuntimeError(f"process {pid} has no resident memory")


@contextmanager
def _service(home: Path) -> Iterator[tuple[str, int]]:
    """The application in a process of its own: its address and its id."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-c", "from benchmarks.pages import serve; serve()"]
    environment = {**os.environ, "PAGES_HOME": str(home), "PAGES_PORT": str(port)}
    process = subprocess.Popen(command, env=environment)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                httpx2.get(f"{url}/readyz", timeout=5.0).raise_for_status()
                break
            except httpx2.HTTPError:
                time.sleep(0.1)
        yield url, process.pid
    finally:
        process.terminate()
        process.wait(timeout=30)


def serve() -> None:
    """Run the application that the benchmark looks at; its place is in the environment."""
    home = Path(os.environ["PAGES_HOME"])
    app = create_app(Store(f"sqlite:///{home / 'store.db'}"), Settings(home=home))
    uvicorn.run(app, port=int(os.environ["PAGES_PORT"]), log_level="error")


def _print(figures: list[Figure]) -> None:
    width = max(len(figure.name) for figure in figures)
    for figure in figures:
        most = "" if figure.most is None else f"  (at most {figure.most:g})"
        late = "" if figure.most is None or figure.value <= figure.most else "  OVER"
        print(f"{figure.name:{width}}  {figure.value:8.2f} {figure.unit}{most}{late}")


if __name__ == "__main__":
    main()
