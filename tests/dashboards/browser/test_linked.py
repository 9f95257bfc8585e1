"""Plots and tables that show the same points, in a real Chromium: pointed at, brushed, grouped."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.dashboards.browser.browsing import Watched, draw_all
from tests.dashboards.conftest import Seeded

pytestmark = pytest.mark.browser

#: Ends of the axes of parallel coordinates, as the plot has them.
LEFT, LOW, HIGH = -0.25, -0.2, 1.06


def settled(plot: Locator) -> None:
    """Scroll a plot into view, and wait until nothing moves it any more."""
    plot.scroll_into_view_if_needed()
    plot.evaluate(
        """async (e) => {
          const top = () => e.getBoundingClientRect().top;
          for (let last = NaN; last !== top(); ) {
            last = top();
            await new Promise((resolve) => setTimeout(resolve, 250));
          }
        }"""
    )


def brush(page: Page, axis: str, low: float, high: float) -> None:
    """Draw a box over one axis of the parallel coordinates, from place to place (0..1)."""
    plot = page.locator("#parallel")
    settled(plot)
    fields = plot.evaluate("e => e.figure.brush.map((axis) => axis.field)")
    box = plot.locator(".nsewdrag").bounding_box()
    assert box is not None

    def x(at: float) -> float:
        return box["x"] + (at - LEFT) / (len(fields) - 0.5) * box["width"]

    def y(place: float) -> float:
        return box["y"] + (HIGH - place) / (HIGH - LOW) * box["height"]

    at = fields.index(axis)
    page.mouse.move(x(at - 0.1), y(high))
    page.mouse.down()
    page.mouse.move(x(at), y((low + high) / 2), steps=4)
    page.mouse.move(x(at + 0.1), y(low), steps=4)
    page.mouse.up()


class TestPointer:
    def test_a_point_is_marked_in_every_plot_and_table(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["sweep"])
        draw_all(page)
        curves = page.locator("#curves")
        settled(curves)
        curves.locator(".scatterlayer .point").last.hover(force=True)

        expect(curves.locator(".hovertext")).to_be_visible()
        marked = page.locator("#sensitivity-optimizer[data-marked]")
        expect(marked).to_be_visible()
        point = marked.get_attribute("data-marked")
        row = page.locator(f"#leaderboard tr[data-point='{point}']")
        expect(row).to_have_class(re.compile("marked"))
        # The other way round: from a row, also by the keyboard, to the plots.
        other = page.locator("#leaderboard tbody tr").last
        other.get_by_role("link").last.focus()
        expect(other).to_have_class(re.compile("marked"))
        expect(row).not_to_have_class(re.compile("marked"))
        assert watched.complaints == []

    def test_a_mark_moves_no_axis(self, watched: Watched, site: dict[str, str]) -> None:
        page = watched.page
        page.goto(site["sweep"])
        draw_all(page)
        plot = page.locator("#sensitivity-gamma_c")
        settled(plot)
        ends = "e => JSON.stringify([e._fullLayout.xaxis.range, e._fullLayout.yaxis.range])"
        before = plot.evaluate(ends)
        page.evaluate("mark('0')")
        expect(plot).to_have_attribute("data-marked", "0")

        assert plot.evaluate(ends) == before


class TestBrush:
    def test_it_filters_curves_and_trials_and_is_in_the_address(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["sweep"])
        draw_all(page)
        brush(page, "optimizer", 0.55, 1.0)

        box = page.get_by_label("Where", exact=True)
        expect(box).to_have_value('optimizer = "sgd"')
        expect(page.locator("#trials tbody tr")).to_have_count(9)
        title = page.locator("#curves .xtitle")
        expect(title).to_contain_text('only trials that fit: optimizer = "sgd"')
        expect(page.locator("#parallel .legend")).to_contain_text("left out")
        expect(page).to_have_url(re.compile("where=optimizer"))

        # Whoever gets the address sees the same, and can take it away.
        page.goto(page.url)
        expect(page.locator("#trials tbody tr")).to_have_count(9)
        expect(title).to_contain_text("only trials that fit")
        page.get_by_role("button", name="Show all trials").first.click()
        expect(page.locator("#trials tbody tr")).to_have_count(25)
        expect(title).not_to_contain_text("only trials that fit")
        assert watched.complaints == []

    def test_a_second_box_narrows_it_and_a_typed_condition_stays(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(f"{site['sweep']}?where=seed+%3D+1")
        draw_all(page)
        brush(page, "point_mean", -0.05, 0.5)
        box = page.get_by_label("Where", exact=True)
        expect(box).to_have_value(re.compile(r"^seed = 1 and point_mean <= 0\.\d+$"))

        page.keyboard.down("Shift")
        brush(page, "alpha_v", 0.02, 1.05)
        page.keyboard.up("Shift")
        words = re.compile(r"^seed = 1 and [\d.]+ <= alpha_v and point_mean <= 0\.\d+$")
        expect(box).to_have_value(words)
        expect(page.locator("#trials tbody td", has_text="sgd")).to_have_count(0)


class TestGroups:
    def test_curves_are_grouped_by_a_field_and_the_address_says_so(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["sweep"])
        page.get_by_label("grouped by").select_option("optimizer")

        expect(page.locator("#curves .legend")).to_contain_text("ndadam (15 trials)")
        assert "curves.group=optimizer" in page.url
        page.goto(page.url)
        expect(page.locator("#curves .legend")).to_contain_text("ndadam (15 trials)")

    def test_marks_and_lines_are_coloured_by_a_field(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(f"{site['sweep']}?sensitivity.colour=lambda_c&parallel.colour=optimizer")
        draw_all(page)

        expect(page.locator("#sensitivity-gamma_c .legend")).to_contain_text(" to ")
        expect(page.locator("#parallel .legend")).to_contain_text("ndadam")


class TestPinned:
    @pytest.mark.parametrize("width", [900, 390])
    def test_a_pinned_column_stays_while_the_table_scrolls(
        self, watched: Watched, site: dict[str, str], width: int
    ) -> None:
        page = watched.page
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(site["sweep"])
        page.get_by_text("Columns", exact=True).click()
        page.get_by_label("Pin Test error").check()
        for name in ("Training loss", "Training error", "Speed", "RMS of the logits"):
            page.get_by_label(name, exact=True).check()
        page.get_by_role("button", name="Show these").click()

        table = page.get_by_role("region", name="Trials")
        expect(table.locator("thead th").nth(1)).to_contain_text("Test error")
        assert table.evaluate("e => e.scrollWidth > e.clientWidth + 60")
        pin = table.locator("tbody .pin").first
        at = pin.bounding_box()
        table.evaluate("e => (e.scrollLeft = e.scrollWidth)")
        assert pin.bounding_box() == at
        expect(page).to_have_url(re.compile("pinned=test_error"))

        # On paper it is a column like the others.
        page.emulate_media(media="print")
        assert pin.evaluate("e => getComputedStyle(e).position") == "static"


class TestViews:
    def test_what_the_page_shows_is_kept_under_a_name(
        self, watched: Watched, site: dict[str, str], seeded: Seeded
    ) -> None:
        page = watched.page
        page.goto(f"{site['sweep']}?where=seed+%3D+2&curves.group=seed")
        page.get_by_text("Views", exact=True).click()
        page.get_by_label("Save what the page shows as").fill("third seed")
        page.get_by_role("button", name="Save", exact=True).click()
        link = page.get_by_role("link", name="third seed")
        expect(link).to_be_visible()

        page.goto(site["sweep"])
        page.get_by_text("Views", exact=True).click()
        link.click()
        expect(page.locator("#trials-where")).to_have_value("seed = 2")
        assert "curves.group=seed" in page.url

        page.get_by_text("Views", exact=True).click()
        page.get_by_role("button", name="Delete the view third seed").click()
        expect(page.get_by_text("No view is saved yet.")).to_be_visible()
        assert seeded.store.saved_views(seeded.sweep) == []
        assert watched.complaints == []


class TestTogether:
    def test_ticked_sweeps_are_shown_as_one_and_pointed_at_as_one(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["list"])
        page.get_by_label("Compare digits-optimizers").check()
        page.get_by_label("Compare digits-alpha-v-fine").check()
        page.get_by_role("button", name="Trials together").click()

        expect(page.locator("h1")).to_have_text("Trials of several sweeps")
        draw_all(page)
        box = page.get_by_label("Where", exact=True)
        box.fill('sweep = "digits-alpha-v-fine" and point = 0')
        box.press("Enter")
        expect(page.locator("#trials tbody tr")).to_have_count(3)
        expect(page.locator("#curves .legend")).not_to_contain_text("digits-optimizers")
        settled(page.locator("#curves"))
        page.locator("#trials tbody tr").first.hover()
        expect(page.locator("#curves")).to_have_attribute("data-marked", re.compile(":0$"))
        assert watched.complaints == []


class TestFacts:
    @pytest.mark.parametrize("width", [1280, 1000, 390])
    def test_no_row_of_facts_ends_in_an_empty_cell(
        self, watched: Watched, site: dict[str, str], width: int
    ) -> None:
        page = watched.page
        page.set_viewport_size({"width": width, "height": 800})
        for name in ("sweep", "running", "trial", "match"):
            page.goto(site[name])
            gaps = page.locator(".facts").first.evaluate(
                """(facts) => {
                  const rows = new Map();
                  for (const { offsetTop: row, offsetLeft, offsetWidth } of facts.children)
                    rows.set(row, Math.max(rows.get(row) || 0, offsetLeft + offsetWidth));
                  const end = facts.offsetLeft + facts.clientWidth;
                  return [...rows.values()].map((right) => end - right);
                }"""
            )
            assert max(abs(gap) for gap in gaps) <= 2, name
