"""Takes the screenshots of the documentation from what a quickstart left in its home.

python -m tests.dashboards.screenshots docs/images [.ndsweep]

Without a home it seeds a store with made-up numbers, to look at the pages while working on them.
"""

import sys
import tempfile
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser

from sweeps.store import Store
from tests.dashboards import seeding
from tests.dashboards.serving import chromium, served

Scheme = Literal["light", "dark"]
WIDTH = 1280
#: More than a page with two plots shows, with the edges of its letters.
COLOURS = 256
#: A plot is drawn, or says why there is nothing to draw.
DRAWN = "e => e.dataset.drawn || e.querySelector('.plot-message')"


def take(
    browser: Browser, url: str, path: Path, scheme: Scheme, height: int, top: str = ""
) -> None:
    """Draw every plot of a page, then keep ``height`` pixels, from the start or from ``top``."""
    context = browser.new_context(
        viewport={"width": WIDTH, "height": height}, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    page.goto(url)
    for plot in page.locator("[data-plot]").all():
        plot.scroll_into_view_if_needed()
        page.wait_for_function(DRAWN, arg=plot.element_handle(), timeout=60_000)
    page.evaluate("scrollTo(0, 0)")
    if top:
        page.evaluate("top => scrollTo(0, document.querySelector(top).offsetTop - 24)", top)
    page.wait_for_timeout(300)
    page.screenshot(path=path)
    context.close()
    shrink(path)


def shrink(path: Path) -> None:
    """Keep a picture in its commonest colours: a third of the bytes, and the same to see."""
    with Image.open(path) as opened:
        picture = opened.convert("RGB")
    counts = sorted(picture.getcolors(picture.width * picture.height), reverse=True)
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for _, colour in counts[:COLOURS] for part in colour])
    picture.quantize(palette=palette, dither=Image.Dither.NONE).save(path, optimize=True)


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
            take(browser, url, folder / "sweeps.png", "light", 420 if home is None else 320)
            take(browser, f"{url}/sweeps/{sweep}", folder / "sweep.png", "light", 1700)
            take(browser, f"{url}/sweeps/{sweep}", folder / "sweep-dark.png", "dark", 1700)
            take(browser, f"{url}/sweeps/{sweep}/trials/0", folder / "trial.png", "light", 1300)
            take(browser, f"{url}/matches/{match}", folder / "match.png", "light", 1310)
            take(browser, f"{url}/sweeps/new?preset=quickstart", folder / "new.png", "light", 1000)
            form = f"{url}/matches/new?preset=quickstart-match"
            take(browser, form, folder / "new-match.png", "light", 1000)
            take(browser, f"{url}/compare?arm={sweep}", folder / "compare.png", "light", 1330)
            take(browser, f"{url}/paper", folder / "paper.png", "light", 1040)
            search = f"{url}/sweeps/{sweep}"
            take(browser, search, folder / "search.png", "light", 1130, "#search-title")
        store.close()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
