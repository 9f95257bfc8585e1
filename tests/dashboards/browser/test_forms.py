"""The forms of new sweeps and matches in a real Chromium, by mouse and by keyboard."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from sweeps.store.store import Store
from tests.dashboards.browser.browsing import Watched
from tests.dashboards.browser.serving import served

pytestmark = pytest.mark.browser


class TestForm:
    def test_each_rule_appears_at_its_field_while_typing_and_goes_when_kept(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["new"])
        seeds, why = page.get_by_label("Seeds per point"), page.locator("#why-field-replicates")
        seeds.fill("0")

        expect(why).to_contain_text("greater than or equal to 1, got 0")
        expect(seeds).to_have_attribute("aria-invalid", "true")
        expect(page.locator("#check")).to_contain_text("1 problem to fix")

        seeds.fill("5")
        expect(page.locator("#check")).to_contain_text("12 points × 5 seeds")
        expect(why).to_be_empty()
        expect(seeds).not_to_have_attribute("aria-invalid", "true")
        assert watched.complaints == []

    def test_the_yaml_moves_into_the_controls_and_nothing_typed_meanwhile_is_lost(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["new"])
        page.get_by_label("Rest of the spec").fill("replicates: 7\nbase: {flip: false}")
        page.get_by_label("Points", exact=True).fill("4")

        expect(page.get_by_label("Seeds per point")).to_have_value("7")
        expect(page.get_by_label("Points", exact=True)).to_have_value("4")
        expect(page.get_by_label("Rest of the spec")).to_have_value("base:\n  flip: false\n")

    def test_a_field_is_added_by_keyboard_and_removed(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["new"])
        page.get_by_role("button", name="Vary one more field").focus()
        page.keyboard.press("Enter")
        rows = page.locator(".vary")
        expect(rows).to_have_count(7)

        page.get_by_role("button", name="Remove weight_decay").click()
        expect(rows).to_have_count(6)

    def test_enter_in_a_field_checks_and_neither_removes_nor_submits(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["new"])
        page.get_by_label("Points", exact=True).fill("7")
        with page.expect_response("**/sweeps/new"):
            page.get_by_label("Points", exact=True).press("Enter")

        expect(page.locator("#check")).to_contain_text("7 points × 3 seeds")
        expect(page.locator(".vary")).to_have_count(6)
        assert page.url == site["new"]

    def test_what_was_submitted_and_refused_stays_with_its_reasons_in_front(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["new"])
        page.get_by_label("Points", exact=True).fill("0")
        page.locator("[name='space.5.when']").fill("optimizer: [nope")
        page.get_by_role("button", name="Submit sweep").click()

        check = page.locator("#check")
        expect(check).to_be_focused()
        expect(check).to_contain_text("2 problems to fix")
        expect(page.get_by_label("Points", exact=True)).to_have_value("0")
        expect(page.locator("[name='space.5.when']")).to_have_value("optimizer: [nope")
        assert page.url == site["new"]

    def test_a_service_that_fails_or_is_away_is_said(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page, notice = watched.page, watched.page.locator("#notice")
        page.goto(site["new"])
        page.route("**/sweeps/validate", lambda route: route.fulfill(status=500, body="broken"))
        page.get_by_label("Points", exact=True).fill("7")
        expect(notice).to_contain_text("answered 500")
        expect(page.locator("#check")).to_contain_text("12 points")

        page.route("**/sweeps/new", lambda route: route.abort())
        page.get_by_role("button", name="Submit sweep").click()
        expect(notice).to_contain_text("does not answer")

        # It is back: what is typed is checked, and the cursor stays where it is.
        page.unroute("**/sweeps/validate")
        page.get_by_label("Points", exact=True).fill("8")
        expect(page.locator("#check")).to_contain_text("8 points")
        expect(page.get_by_label("Points", exact=True)).to_be_focused()

    def test_a_sweep_is_submitted_and_shown(
        self, watched: Watched, empty_store: Store, tmp_path: Path
    ) -> None:
        page = watched.page
        with served(empty_store, tmp_path / "home") as url:
            page.goto(f"{url}/sweeps/new?preset=quickstart")
            page.get_by_label("Name", exact=True).fill("from the form")
            page.get_by_label("Notes").fill("one line\nand another")
            page.get_by_role("button", name="Submit sweep").click()

            expect(page.locator("h1")).to_have_text("from the form")
            [sweep] = empty_store.list_sweeps().items
            assert sweep.notes == "one line\nand another"
            assert page.url == f"{url}/sweeps/{sweep.id}"
            page.goto("about:blank")


class TestMatchForm:
    def test_the_closed_form_follows_what_is_typed(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["new match"])
        expect(page.locator("#check")).to_contain_text("0.04496 stationary")
        page.locator("#field-source-lr").fill("0.4")

        # Twice the effective learning rate of a quarter of the rate.
        expect(page.locator("#check")).to_contain_text("0.09133")
        page.locator("#field-source-momentum").fill("1.5")
        expect(page.locator("#why-field-source-momentum")).to_contain_text("got 1.5")
        assert watched.complaints == []
