"""How pages are laid out, in a real Chromium: at 390 pixels, folded, followed, and on paper."""

import io
import itertools
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Locator, Page, expect

from tests.dashboards.browser.browsing import DONE, Watched, draw_all
from tests.worker.training.installed import on_path, write_package

pytestmark = pytest.mark.browser

PHONE = {"width": 390, "height": 800}
DESK = {"width": 1280, "height": 900}


@pytest.fixture
def phone(watched: Watched) -> Page:
    watched.page.set_viewport_size({"width": 390, "height": 800})
    return watched.page


def edge_is_darker(region: Locator) -> bool:
    """Whether the last pixels of a region are darker than what is to the left of them."""
    pixels = np.asarray(Image.open(io.BytesIO(region.screenshot())).convert("L"), dtype=float)
    # Below the head and above the rounded corner; columns of paper at the very edge and before it.
    rows = pixels[45:-12]
    edge, before = np.median(rows[:, -8:-3]), np.median(rows[:, -90:-60])
    return bool(before - edge > 15)


class TestPhone:
    @pytest.mark.parametrize(
        "name",
        [
            "list",
            "sweep",
            "running",
            "trial",
            "matches",
            "match",
            "new",
            "compare",
            "trials",
            "paper",
        ],
    )
    def test_nothing_is_wider_than_the_page(
        self, phone: Page, site: dict[str, str], name: str
    ) -> None:
        phone.goto(site[name])
        draw_all(phone)

        assert phone.evaluate("document.documentElement.scrollWidth") <= 390

    def test_the_form_of_a_training_of_ones_own_fits_and_is_checked_while_typed(
        self, phone: Page, site: dict[str, str], tmp_path: Path
    ) -> None:
        with on_path(write_package(tmp_path)):
            phone.goto(f"{site['list']}/sweeps/new?training=mine")
            assert phone.evaluate("document.documentElement.scrollWidth") <= 390
            phone.get_by_label("rate", exact=True).fill("-1")

            expect(phone.locator("#why-field-base-rate")).to_contain_text("greater than 0, got -1")

    def test_a_table_shows_that_it_goes_on_until_its_end_is_reached(
        self, phone: Page, site: dict[str, str]
    ) -> None:
        phone.goto(site["sweep"])
        table = phone.get_by_role("region", name="Comparisons")
        assert table.evaluate("e => e.scrollWidth > e.clientWidth")

        assert edge_is_darker(table)
        table.evaluate("e => (e.scrollLeft = e.scrollWidth)")
        assert not edge_is_darker(table)
        expect(table.get_by_text("Verdict")).to_be_in_viewport()
        # The name of the row is still there.
        assert table.locator("tbody th").first.bounding_box()["x"] < 30  # type: ignore[index]

    def test_rows_with_settings_are_no_taller_than_two_lines(
        self, phone: Page, site: dict[str, str]
    ) -> None:
        phone.goto(site["sweep"])
        rows = phone.get_by_role("region", name="Result table").locator("tbody tr")

        assert max(rows.evaluate_all("rows => rows.map(row => row.offsetHeight)")) <= 60

    def test_the_first_row_of_the_list_is_on_the_first_screen(
        self, phone: Page, site: dict[str, str]
    ) -> None:
        phone.goto(site["list"])

        row = phone.locator("#listing tbody tr").first.bounding_box()
        assert row is not None
        assert row["y"] + row["height"] <= 600
        expect(phone.locator("select[name=state]")).to_be_hidden()
        phone.get_by_text("Filter and sort").click()
        expect(phone.locator("select[name=state]")).to_be_visible()

    def test_a_wide_page_shows_every_filter(self, watched: Watched, site: dict[str, str]) -> None:
        watched.page.set_viewport_size({"width": 1280, "height": 900})
        watched.page.goto(site["list"])

        for name in ("search", "state", "sort", "tag"):
            expect(watched.page.locator(f".filters [name={name}]")).to_be_visible()

    def test_numbers_of_log_axes_stand_upright_and_apart(
        self, phone: Page, site: dict[str, str]
    ) -> None:
        phone.goto(site["sweep"])
        draw_all(phone)
        for field in ("alpha_v", "alpha_s", "lr", "lambda_c"):
            ticks = phone.locator(f"#sensitivity-{field} .xtick text")
            transforms = ticks.evaluate_all("all => all.map(e => e.getAttribute('transform'))")
            boxes = sorted(
                ticks.evaluate_all(
                    "all => all.map(e => e.getBoundingClientRect()).map(b => [b.left, b.right])"
                )
            )

            assert not any("rotate" in (found or "") for found in transforms)
            assert 2 <= len(boxes) <= 7
            pairs = itertools.pairwise(boxes)
            assert all(left[1] <= right[0] for left, right in pairs), (field, boxes)


class TestSections:
    def test_the_bar_of_sections_stays_in_sight_and_shows_where_one_is(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["sweep"])
        bar = page.get_by_role("navigation", name="On this page")
        bar.get_by_role("link", name="Timeline").click()

        expect(bar).to_be_in_viewport()
        expect(page.locator("#timeline-title")).to_be_in_viewport()
        expect(bar.locator("[aria-current]")).to_have_text("Timeline")

    def test_a_section_folds_and_is_folded_on_the_next_page(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["sweep"])
        page.locator("#curves-title").click()
        expect(page.locator("#curves")).to_be_hidden()

        page.goto(site["running"])
        expect(page.locator("#curves")).to_be_hidden()
        expect(page.locator("#leaderboard")).to_be_visible()

        # A link to it opens it, by the keyboard too.
        page.get_by_role("link", name="Learning curves").press("Enter")
        expect(page.locator("#curves")).to_be_visible()
        page.reload()
        expect(page.locator("#curves")).to_be_visible()

    def test_a_live_update_leaves_folded_sections_folded(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["trial"])
        page.locator("#config-title").click()
        expect(page.locator("#part-config dl")).to_be_hidden()
        page.evaluate(
            """() => new Promise((resolve) => {
              document.addEventListener("htmx:after:swap", () => resolve(true), { once: true });
              const part = { target: "#record", select: "#record", swap: "outerMorph" };
              htmx.ajax("GET", location.pathname, part);
            })"""
        )

        expect(page.locator("#part-config dl")).to_be_hidden()
        page.locator("#config-title").click()


class TestNames:
    def test_a_symbol_in_a_heading_has_its_name_on_focus(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["sweep"])
        link = page.locator("#leaderboard").get_by_role(
            "link", name="learning rate of weight vectors (alpha_v)"
        )
        shown = "e => getComputedStyle(e, '::after').content"
        assert link.evaluate(shown) == "none"
        # Focus that comes by the keyboard.
        page.locator("#leaderboard thead a").first.focus()
        for _ in range(6):
            page.keyboard.press("Tab")

        expect(link).to_be_focused()
        assert link.evaluate(shown) == '"learning rate of weight vectors (alpha_v)"'


class TestPaper:
    def test_every_plot_is_drawn_without_scrolling(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["sweep"])
        plots = page.locator("[data-plot]")

        expect(plots.locator(DONE)).to_have_count(plots.count())
        assert page.evaluate("scrollY") == 0
        assert watched.complaints == []

    def test_plots_are_printed_in_dark_ink_within_the_sheet(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.emulate_media(color_scheme="dark")
        page.goto(site["sweep"])
        draw_all(page)
        page.evaluate(
            """() => addEventListener("beforeprint", () => {
              const svgs = [...document.querySelectorAll(".plot .main-svg:first-child")];
              const width = (svg) => Number(svg.getAttribute("width"));
              window.printed = svgs.map((svg) => [width(svg), svg.style.background]);
            })"""
        )
        sheet = page.pdf(format="A4", print_background=True)
        printed = page.evaluate("window.printed")

        assert len(sheet) > 50_000
        assert len(printed) >= 8
        assert max(width for width, _ in printed) <= 680
        assert {paper for _, paper in printed} == {"rgb(255, 255, 255)"}
        # Afterwards the screen has its plots back.
        back = page.locator("#curves .main-svg").first
        expect(back).not_to_have_attribute("width", "680")

    def test_paper_has_no_buttons_and_whole_tables(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["sweep"])
        page.emulate_media(media="print")

        expect(page.locator(".contents")).to_be_hidden()
        expect(page.get_by_role("button", name="Confirm")).to_be_hidden()
        overflow = page.locator(".table").evaluate_all(
            "all => all.map(e => getComputedStyle(e).overflowX)"
        )
        assert set(overflow) == {"visible"}
