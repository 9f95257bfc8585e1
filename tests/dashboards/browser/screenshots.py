"""Takes the screenshots of the documentation from what a quickstart left in its home.

python -m tests.dashboards.browser.screenshots docs/images [.ndsweep]

Without a home it seeds a store with made-up numbers, to look at the pages while working on them.
"""

import sys
import tempfile
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image
from playwright.sync_api import Browser

from sweeps.store.store import Store
from tests.dashboards import seeding
from tests.dashboards.browser.serving import chromium, served

Scheme = Literal["light", "dark"]
WIDTH = 1280
#: Pixels above and below what is kept: less than to what is next to it.
MARGIN = 12
#: More than a page with two plots shows, with the edges of its letters.
COLOURS = 256
#: A plot is drawn, or says why there is nothing to draw.
DRAWN = "e => e.dataset.drawn || e.querySelector('.plot-message')"
#: Top and bottom of an element on its page, and the width without the room of a scroll bar.
PLACE = """e => {
    const { top, bottom } = e.getBoundingClientRect();
    return [top + scrollY, bottom + scrollY, document.body.offsetWidth];
}"""


def take(
    browser: Browser, url: str, path: Path, last: str, *, first: str = "", scheme: Scheme = "light"
) -> None:
    """Draw every plot of a page; keep it from the start, or ``first``, to the end of ``last``.

    Both are selectors of elements: a picture cuts through nothing.
    """
    context = browser.new_context(
        viewport={"width": WIDTH, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    page.goto(url)
    for plot in page.locator("[data-plot]").all():
        plot.scroll_into_view_if_needed()
        page.wait_for_function(DRAWN, arg=plot.element_handle(), timeout=60_000)
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_timeout(300)
    _, end, width = page.locator(last).first.evaluate(PLACE)
    start = page.locator(first).first.evaluate(PLACE)[0] - MARGIN if first else 0
    height = end + MARGIN - start
    page.screenshot(
        path=path, full_page=True, clip={"x": 0, "y": start, "width": width, "height": height}
    )
    context.close()
    shrink(path)


def part(title: str) -> str:
    """Selector of the part of a page under the heading of this id."""
    return f"section:has(#{title})"


def shrink(path: Path) -> None:
    """Keep as many colours of a picture as one byte tells apart: a third of the bytes.

    Each next one is the one that is furthest off on most pixels, so that a line of a few pixels
    keeps its own.
    """
    with Image.open(path) as opened:
        pixels = np.asarray(opened.convert("RGB"), dtype=np.int32)  # (height, width, 3)
    colours, places, counts = np.unique(
        pixels.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True
    )
    chosen = [int(counts.argmax())]
    off = np.square(colours - colours[chosen[0]]).sum(axis=-1)
    nearest = np.zeros(len(colours), dtype=np.int32)
    while len(chosen) < COLOURS and off.any():
        chosen.append(int((off * counts).argmax()))
        apart = np.square(colours - colours[chosen[-1]]).sum(axis=-1)
        nearest[apart < off] = len(chosen) - 1
        off = np.minimum(off, apart)
    small = Image.fromarray(nearest[places].reshape(pixels.shape[:2]).astype(np.uint8), mode="P")
    small.putpalette(colours[chosen].astype(np.uint8).tobytes())
    small.save(path, optimize=True)


def seeded(store: Store) -> None:
    """Fill an empty store with a sweep, a match and more, named for what they are."""
    with seeding.stopped_clock(1600) as clock:
        seeding.finished_sweep(store, "made-up-numbers", clock)
        seeding.finished_match(store, clock, "made-up-match")
        seeding.running_sweep(store, "made-up-numbers-live", clock)
        seeding.create(store, "cifar10-table-1")


def main(folder: Path, home: Path | None = None) -> None:
    """Write a picture of every page, and a dark one of the sweep.

    The pages of a home that holds the paper's runs, as ``ndsweep import-results`` leaves it, show
    them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        place = home or Path(made)
        store = Store(f"sqlite:///{place.absolute()}/store.db")
        store.migrate()
        if home is None:
            seeded(store)
        finished = store.list_sweeps(state="complete").items
        sweep, match = (
            next(one.id for one in finished if one.kind == kind and "paper" not in one.name)
            for kind in ("sweep", "match")
        )
        with served(store, place) as url, chromium() as browser:
            page = f"{url}/sweeps/{sweep}"
            new, new_match = f"{url}/sweeps/new?preset=quickstart", f"{url}/matches/new?preset="
            curves = part("curves-title")
            take(browser, url, folder / "sweeps.png", "#listing")
            take(browser, page, folder / "sweep.png", curves)
            take(browser, page, folder / "sweep-dark.png", curves, scheme="dark")
            search = part("search-title")
            take(browser, page, folder / "search.png", search, first=search)
            brushed = f"{page}?where=point_mean+%3C+0.03"
            take(browser, brushed, folder / "brush.png", "figure:has(#parallel)", first=search)
            trained = [
                s.id for s in store.list_sweeps(kind="sweep").items if any(s.trials.values())
            ]
            both = ",".join(trained[:4])
            trials = f"{url}/trials?sweep={both}&trial_sort=objective&pinned=optimizer"
            take(browser, trials, folder / "trials.png", "#trials .table")
            take(browser, f"{page}/trials/0", folder / "trial.png", "#layers figure")
            take(browser, f"{url}/matches/{match}", folder / "match.png", curves)
            take(browser, new, folder / "new.png", "#field-space")
            judged = "fieldset:has(#field-tolerance)"
            take(browser, f"{new_match}quickstart-match", folder / "new-match.png", judged)
            take(browser, f"{url}/compare?arm={sweep}", folder / "compare.png", curves)
            take(browser, f"{url}/paper", folder / "paper.png", "main section")
        store.close()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
