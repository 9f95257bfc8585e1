"""The page of a running sweep in a real Chromium: what happens is seen without a reload."""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Page, TimeoutError, expect

from sweeps.records import Claim, SweepState, TrialState
from sweeps.store.store import Store
from tests.dashboards import seeding
from tests.dashboards.browser.browsing import Watched, draw_all
from tests.dashboards.browser.serving import served

pytestmark = pytest.mark.browser


@dataclass
class Live:
    """A running sweep that a test may move on, and the page that shows it."""

    store: Store
    sweep: str
    claim: Claim
    trial: int
    attempt: int
    page: Page


@pytest.fixture
def live(watched: Watched, empty_store: Store, tmp_path: Path) -> Iterator[Live]:
    with seeding.stopped_clock(400) as clock:
        sweep, claim, trial, attempt = seeding.running_sweep(empty_store, "live", clock)
    with served(empty_store, tmp_path / "home") as url:
        watched.page.goto(f"{url}/sweeps/{sweep}")
        watched.page.evaluate("window.loadedOnce = true")
        expect(watched.page.locator("#live")).to_have_text("live")
        yield Live(empty_store, sweep, claim, trial, attempt, watched.page)
        assert watched.page.evaluate("window.loadedOnce") is True
        assert watched.complaints == []
        # The stream would outlive the server.
        watched.page.goto("about:blank")


class TestLivePage:
    def finish_trial(self, live: Live) -> None:
        params = live.store.trial(live.sweep, live.trial).params
        for report in list(seeding.reports(params, 0))[5:]:
            live.store.record(live.claim, live.trial, live.attempt, [report])
        done = TrialState.COMPLETE
        live.store.finish_attempt(
            live.claim, live.trial, live.attempt, done, "complete", trial_state=done
        )

    def test_a_report_appears_in_table_progress_and_plot_without_a_reload(self, live: Live) -> None:
        page = live.page
        draw_all(page)
        row = page.locator("#trials tbody tr").nth(live.trial)
        expect(row).to_contain_text("250 / 600")
        expect(page.locator(".progress")).to_contain_text("9 complete")
        plot = page.locator("#curves")
        plot.scroll_into_view_if_needed()
        points_before = plot.locator(".scatterlayer .point").count()
        self.finish_trial(live)

        expect(row).to_contain_text("600 / 600")
        expect(page.locator(".progress")).to_contain_text("10 complete")
        page.wait_for_function(
            "n => document.querySelectorAll('#curves .scatterlayer .point').length > n",
            arg=points_before,
        )

    def test_a_trial_s_page_that_was_opened_before_its_first_report_fills(self, live: Live) -> None:
        page, number = live.page, live.trial + 1
        with page.expect_response("**/events*"):
            page.goto(f"{page.url}/trials/{number}")
        page.evaluate("window.loadedOnce = true")
        expect(page.locator("#metrics")).to_contain_text("Nothing has been reported yet")
        expect(page.locator("#record")).to_contain_text("has not started")
        expect(page.locator("#live")).to_have_text("live")

        params = live.store.trial(live.sweep, number).params
        attempt = live.store.start_attempt(live.claim, number)
        live.store.record(live.claim, number, attempt.id, list(seeding.reports(params, 0))[:2])

        expect(page.locator("#metrics .main-svg").first).to_be_visible()
        expect(page.locator("#layers [data-plot]").first).to_be_attached()
        expect(page.locator("#record tbody tr")).to_contain_text("running")

    def test_lines_of_the_log_appear_while_the_trial_writes_them(
        self, live: Live, tmp_path: Path
    ) -> None:
        page, log = live.page, tmp_path / "home" / "logs" / live.sweep / f"{live.trial}.log"
        log.parent.mkdir(parents=True)
        start = "2026-11-28 11:15:0{},300 INFO attempt {} starts in process 4311 on node-a\n"
        log.write_text(start.format(1, 1) + "first <b>line</b>\n")
        page.goto(f"{page.url}/trials/{live.trial}")
        page.evaluate("window.loadedOnce = true")
        shown = page.get_by_role("region", name="Log")
        expect(shown).to_contain_text("first <b>line</b>")

        with log.open("a") as lines:
            lines.write("second <script>line</script>\n" + start.format(5, 2) + "third\n")
        expect(shown).to_contain_text("second <script>line</script>")
        expect(shown).to_contain_text("third")
        assert page.locator("pre.log b").all_inner_texts() == [
            start.format(1, 1).strip(),
            start.format(5, 2).strip(),
        ]
        assert page.locator("pre.log script").count() == 0

    def test_a_long_log_is_kept_within_bounds(self, live: Live, tmp_path: Path) -> None:
        page, log = live.page, tmp_path / "home" / "logs" / live.sweep / f"{live.trial}.log"
        page.goto(f"{page.url}/trials/{live.trial}")
        page.evaluate("window.loadedOnce = true")
        expect(page.locator(".log-empty")).to_be_visible()

        log.parent.mkdir(parents=True)
        log.write_text("".join(f"line {k} {'x' * 80}\n" for k in range(20_000)))
        expect(page.locator("pre.log")).to_contain_text("line 19999")
        assert page.locator("pre.log").evaluate("e => e.textContent.length") <= 400_100
        expect(page.locator(".log-empty")).to_have_count(0)

    def test_an_image_is_added_to_the_notes_at_the_cursor(self, live: Live) -> None:
        page, picture = live.page, io.BytesIO()
        Image.new("RGB", (64, 48), (200, 30, 30)).save(picture, "PNG")
        file = {"name": "loss <b>.png", "mimeType": "image/png", "buffer": picture.getvalue()}
        page.get_by_text("Edit tags and notes").click()
        notes = page.locator("#edit-notes")
        notes.fill("Before")
        page.locator("#add-image").set_input_files([file])
        page.locator("form[data-images] button").click()
        expect(notes).to_have_value(re.compile(r"^Before\n!\[loss b\.png\]\(/api/v1/sweeps/"))
        page.locator("form.labels button", has_text="Save").click()

        shown = page.locator(".notes img")
        expect(shown).to_be_visible()
        assert shown.evaluate("e => e.decode().then(() => e.naturalWidth)") == 64
        assert live.store.get_sweep(live.sweep).notes.startswith("Before\n![loss b.png](")

    def test_pause_is_asked_for_carried_out_and_taken_back(self, live: Live) -> None:
        page = live.page
        page.get_by_role("button", name="Pause").click()
        expect(page.locator("#overview")).to_contain_text("pause requested")
        assert live.store.requested(live.claim) == "pause"

        live.store.release(live.claim, SweepState.PAUSED, "asked for")
        expect(page.locator("#overview .meta")).to_contain_text("paused")

        page.get_by_role("button", name="Resume").click()
        expect(page.locator("#overview .meta")).to_contain_text("queued")
        assert live.store.get_sweep(live.sweep).state == SweepState.QUEUED

    def test_cancel_asks_first(self, live: Live) -> None:
        page = live.page
        page.locator("#ask-cancel summary").click()
        expect(page.locator("#ask-cancel")).to_contain_text("the rest will never run")
        assert live.store.requested(live.claim) == "none"

        page.get_by_role("button", name="Cancel for good").click()
        expect(page.locator("#notice")).to_contain_text("Cancel requested")
        assert live.store.requested(live.claim) == "cancel"

    def test_the_end_of_the_sweep_is_seen_and_the_stream_is_closed(self, live: Live) -> None:
        self.finish_trial(live)
        live.store.release(live.claim, SweepState.COMPLETE, "all done")

        expect(live.page.locator("#overview .meta")).to_contain_text("all done")
        expect(live.page.locator("#live")).to_have_count(0)
        # Longer than a browser waits before it opens a lost stream again (3 s).
        with pytest.raises(TimeoutError), live.page.expect_request("**/events*", timeout=4000):
            pass
