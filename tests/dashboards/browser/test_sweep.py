"""The page of a sweep in a real Chromium: sorted, paged, hovered over, saved, compared."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.dashboards.browser.browsing import Watched, draw_all
from tests.dashboards.conftest import Seeded

pytestmark = pytest.mark.browser


class TestSweepPage:
    def test_a_click_on_a_heading_sorts_without_a_reload(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["sweep"])
        page.evaluate("window.loadedOnce = true")
        board = page.locator("#leaderboard")
        board.get_by_role("link", name="Point", exact=True).click()

        expect(board.locator("th[aria-sort=ascending]")).to_contain_text("Point")
        expect(board.locator("tbody th").first).to_have_text("0")
        assert page.evaluate("window.loadedOnce") is True

    def test_the_keyboard_alone_turns_the_page(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["sweep"])
        page.locator("#trials .pager a", has_text="Next page").focus()
        page.keyboard.press("Enter")

        expect(page.locator("#trials tbody th").first).to_have_text("25")
        # The focus goes on from there: the link is gone on the last page, and the table is next.
        expect(page.get_by_role("region", name="Trials")).to_be_focused()
        heading = page.locator("#trials thead a").first
        heading.press("Enter")
        expect(page.locator("#trials th[aria-sort=descending]")).to_contain_text("Trial")
        expect(heading).to_be_focused()

    def test_another_metric_is_drawn_on_choice(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["sweep"])
        draw_all(page)
        page.get_by_label("What “curves” shows").select_option("train_loss")

        expect(page.locator("#curves .ytitle")).to_have_text("training loss (nats)")
        href = page.locator("a[data-csv-of=curves]").get_attribute("href")
        assert href is not None
        assert href.endswith("curves.csv?metric=train_loss")

    def test_hovering_shows_the_values(self, watched: Watched, site: dict[str, str]) -> None:
        page = watched.page
        page.goto(site["sweep"])
        # Once all plots have their height, a point stays where the pointer goes.
        draw_all(page)
        plot = page.locator("#curves")
        plot.scroll_into_view_if_needed()
        plot.locator(".scatterlayer .point").last.hover(force=True)

        expect(plot.locator(".hovertext")).to_contain_text("sd of 3 seeds")

    @pytest.mark.parametrize("ending", ["png", "svg"])
    def test_a_plot_can_be_saved_with_the_keyboard(
        self, watched: Watched, site: dict[str, str], ending: str, tmp_path: Path
    ) -> None:
        page = watched.page
        page.goto(site["sweep"])
        plot = page.locator("#curves")
        plot.scroll_into_view_if_needed()
        button = page.get_by_role("button", name=f"Save “curves” as {ending.upper()}")
        button.focus()
        with page.expect_download() as download:
            page.keyboard.press("Enter")
        download.value.save_as(tmp_path / "plot")

        assert download.value.suggested_filename == f"curves-validation_error.{ending}"
        assert (tmp_path / "plot").stat().st_size > 1000

    def test_a_plot_s_values_can_be_saved(self, watched: Watched, site: dict[str, str]) -> None:
        page = watched.page
        page.goto(site["sweep"])
        with page.expect_download() as download:
            page.locator("a[data-csv-of=sensitivity-gamma_c]").click()

        assert download.value.suggested_filename.endswith("sensitivity-gamma_c.csv")

    def test_two_fields_are_chosen_for_the_contour(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["sweep"])
        draw_all(page)
        page.locator("#contour-x").select_option("lambda_c")
        page.locator("#contour-y").select_option("gamma_c")

        expect(page.locator("#contour .xtitle")).to_contain_text("λ")
        href = page.locator("a[data-csv-of=contour]").get_attribute("href")
        assert href is not None
        assert href.endswith("x=lambda_c&y=gamma_c")


class TestViews:
    def test_what_is_chosen_is_drawn_and_is_in_the_address(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["sweep"])
        draw_all(page)
        page.get_by_label("over", exact=True).select_option("time")
        page.get_by_label("smoothing").select_option("0.9")

        title = page.locator("#curves .xtitle")
        expect(title).to_contain_text("time since the first start (s)")
        expect(title).to_contain_text("smoothed, weight 0.9; faint: as reported")
        assert "curves.x=time" in page.url

        # Whoever gets the address sees the same.
        page.goto(page.url)
        expect(page.locator("#curves .xtitle")).to_contain_text("smoothed, weight 0.9")
        expect(page.get_by_label("over", exact=True)).to_have_value("time")
        assert watched.complaints == []

    def test_one_choice_is_for_all_metrics_of_a_trial(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["trial"])
        draw_all(page)
        page.get_by_label("over", exact=True).select_option("images")

        for plot in ("metric-errors", "metric-train_loss"):
            expect(page.locator(f"#{plot} .xtitle")).to_have_text("images")


class TestSearching:
    def test_trials_are_found_without_a_reload_and_the_address_says_which(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["sweep"])
        page.evaluate("window.loadedOnce = true")
        box = page.get_by_label("Where", exact=True)
        box.fill("optimizer = sgd and seed = 1")
        box.press("Enter")

        expect(page.locator("#trials tbody tr")).to_have_count(3)
        page.locator("#trials").get_by_role("link", name="Validation error").click()
        expect(page.locator("#trials th[aria-sort=ascending]")).to_contain_text("Validation error")
        expect(page.locator("#trials tbody tr")).to_have_count(3)
        assert page.evaluate("window.loadedOnce") is True
        expect(page).to_have_url(re.compile("where=optimizer"))
        assert "trial_sort=objective" in page.url

        page.reload()
        expect(page.locator("#trials tbody tr")).to_have_count(3)
        assert watched.complaints == []

    def test_columns_are_chosen_from_a_menu(self, watched: Watched, site: dict[str, str]) -> None:
        page = watched.page
        page.goto(site["sweep"])
        page.get_by_text("Columns", exact=True).click()
        page.get_by_label("Test error", exact=True).check()
        page.get_by_role("button", name="Show these").click()

        expect(page.locator("#trials thead")).to_contain_text("Test error")
        expect(page).to_have_url(re.compile("test_error"))  # a moment after the table

    def test_ticked_configs_stand_side_by_side(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["sweep"])
        page.get_by_label("Compare trial 0").check()
        page.get_by_label("Compare trial 3").check()
        page.get_by_role("button", name="Configs side by side").click()

        expect(page.locator("h1")).to_have_text("Configs side by side")
        expect(page.get_by_role("region", name="Fields that differ")).to_contain_text("optimizer")


class TestComparing:
    def test_ticked_sweeps_are_compared_also_after_the_list_was_refreshed(
        self, watched: Watched, site: dict[str, str], seeded: Seeded
    ) -> None:
        page = watched.page
        page.goto(site["list"])
        page.get_by_label("Compare digits-optimizers").check()
        page.evaluate(
            """() => new Promise((resolve) => {
              document.addEventListener("htmx:after:swap", () => resolve(true), { once: true });
              htmx.ajax("GET", "/parts/sweeps", { target: "#listing", swap: "outerMorph" });
            })"""
        )
        page.get_by_role("button", name="Compare ticked").click()

        expect(page.locator("h1")).to_have_text("Compare")
        assert f"arm={seeded.sweep}" in page.url
        draw_all(page)
        expect(page.locator("#differences .main-svg").first).to_be_visible()
