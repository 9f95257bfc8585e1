"""The buttons of a sweep's page in a real Chromium."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from sweeps.store.store import Store
from tests.dashboards import seeding
from tests.dashboards.browser.browsing import Watched, new_context
from tests.dashboards.browser.serving import served

pytestmark = pytest.mark.browser


class TestActions:
    def test_extend_asks_for_totals_and_confirm_leads_to_the_new_sweep(
        self, watched: Watched, empty_store: Store, tmp_path: Path
    ) -> None:
        page = watched.page
        with seeding.stopped_clock(1000) as clock:
            sweep = seeding.finished_sweep(empty_store, "search", clock, num_points=4)
        with served(empty_store, tmp_path / "home") as url:
            page.goto(f"{url}/sweeps/{sweep}")
            page.locator("#ask-confirm summary").click()
            page.get_by_label("Fresh seeds of each").fill("3")
            page.get_by_role("button", name="Confirm", exact=True).click()
            page.wait_for_url(lambda address: sweep not in address)
            expect(page.locator(".meta")).to_contain_text(f"confirms points of {sweep}")

            page.goto(f"{url}/sweeps/{sweep}")
            page.locator("#ask-extend summary").click()
            page.get_by_label("Points in all").fill("6")
            page.get_by_role("button", name="Extend", exact=True).click()
            expect(page.locator("#notice")).to_contain_text("Extended")
            assert empty_store.get_sweep(sweep).spec["num_points"] == 6
            # What was over goes on, and the page follows it again.
            expect(page.locator("#live")).to_have_text("live")
            page.goto("about:blank")

    def test_tags_and_notes_are_saved(
        self, watched: Watched, empty_store: Store, tmp_path: Path
    ) -> None:
        page = watched.page
        sweep = seeding.create(empty_store, "labels")
        with served(empty_store, tmp_path / "home") as url:
            page.goto(f"{url}/sweeps/{sweep}")
            page.get_by_text("Edit tags and notes").click()
            page.get_by_label("Tags, separated by commas").fill("fast, digits")
            page.get_by_label("Notes", exact=True).fill("of the second week")
            page.get_by_role("button", name="Save").click()

            expect(page.locator("#overview")).to_contain_text("of the second week")
            assert empty_store.get_sweep(sweep).tags == ("digits", "fast")
            page.goto("about:blank")

    def test_a_sweep_is_deleted_with_the_keyboard_alone_and_no_script(
        self, browser: Browser, empty_store: Store, tmp_path: Path
    ) -> None:
        with seeding.stopped_clock(1000) as clock:
            sweep = seeding.finished_sweep(empty_store, "old", clock, num_points=1)
        context = new_context(browser, java_script_enabled=False)
        page = context.new_page()
        with served(empty_store, tmp_path / "home") as url:
            page.goto(f"{url}/sweeps/{sweep}")
            page.get_by_role("link", name="Delete…").focus()
            page.keyboard.press("Enter")
            expect(page.locator("h1")).to_have_text("Delete sweep “old”?")
            page.get_by_role("button", name="Delete for good").focus()
            page.keyboard.press("Enter")
            expect(page.locator("h1")).to_have_text("Sweeps")
            context.close()

        assert empty_store.list_sweeps().items == []


class TestMenus:
    @pytest.mark.parametrize("width", [1024, 1440])
    def test_one_is_open_at_a_time_and_none_is_cut_off(
        self, watched: Watched, site: dict[str, str], width: int
    ) -> None:
        page = watched.page
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(site["sweep"])
        menus = page.locator(".menu")
        # Extend, Confirm, Export, Views, and the columns of the trials.
        assert menus.count() == 5
        for menu in menus.all():
            menu.locator("summary").click()
            expect(page.locator(".menu[open]")).to_have_count(1)
            # It is moved to where it has room just after it was opened.
            page.wait_for_function(
                """panel => {
                  const { left, right, width } = panel.getBoundingClientRect();
                  return width > 0 && left >= 0 && right <= document.documentElement.clientWidth;
                }""",
                arg=menu.locator(".panel").element_handle(),
            )

    def test_escape_and_a_click_elsewhere_close_it(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["sweep"])
        export = page.locator("#menu-export")
        export.locator("summary").press("Enter")
        expect(export).to_have_attribute("open", "")
        page.keyboard.press("Tab")
        page.keyboard.press("Escape")
        expect(export).not_to_have_attribute("open", "")
        expect(export.locator("summary")).to_be_focused()

        export.locator("summary").click()
        page.locator("h1").click()
        expect(export).not_to_have_attribute("open", "")


def test_a_preset_is_queued_once_however_often_its_button_is_pressed(
    watched: Watched, empty_store: Store, tmp_path: Path
) -> None:
    page = watched.page
    with served(empty_store, tmp_path / "home") as url:
        page.goto(f"{url}/matches")
        # The answer comes too late for the second press.
        page.route("**/submit", lambda route: (page.wait_for_timeout(400), route.continue_()))
        button = "document.querySelector('form[action$=submit] button')"
        page.evaluate(f"{button}.click(); setTimeout(() => {button}.click(), 150)")
        expect(page.locator("h1")).to_have_text("quickstart-match")
        page.goto("about:blank")

    assert len(empty_store.list_sweeps(kind="match").items) == 1


def test_a_refused_action_says_why(browser: Browser, empty_store: Store, tmp_path: Path) -> None:
    sweep_id = seeding.create(empty_store, "refused")
    context = new_context(browser)
    page = context.new_page()
    with served(empty_store, tmp_path / "home") as url:
        # Without events the page does not learn that the sweep has ended.
        page.route("**/events*", lambda route: route.abort())
        page.goto(f"{url}/sweeps/{sweep_id}")
        empty_store.request(sweep_id, "cancel")
        page.get_by_role("button", name="Pause").click()

        expect(page.locator("#notice")).to_contain_text("cannot pause")
        # And shows what has become of it.
        expect(page.locator(".meta")).to_contain_text("cancelled")
        context.close()
