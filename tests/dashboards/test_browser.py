"""The pages in a real Chromium, over a real server: live, clickable, readable, and alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.base import AxeResults
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    TimeoutError,
    expect,
)

from sweeps.records import Claim, SweepState, TrialState
from sweeps.store import Store
from tests.dashboards import seeding
from tests.dashboards.conftest import Seeded
from tests.dashboards.serving import chromium, served

pytestmark = pytest.mark.browser

#: What the pages promise: a report is seen within two seconds. A busy test machine gets more.
SOON_MS = 10_000
PAGES = (
    "list",
    "sweep",
    "running",
    "queued",
    "trial",
    "matches",
    "match",
    "new",
    "compare",
    "paper",
    "missing",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def site(seeded: Seeded) -> Iterator[dict[str, str]]:
    """Address of every kind of page of a served, seeded store."""
    with served(seeded.store, seeded.home) as url:
        yield {
            "list": url,
            "sweep": f"{url}/sweeps/{seeded.sweep}",
            "running": f"{url}/sweeps/{seeded.running}",
            "queued": f"{url}/sweeps/{seeded.queued}",
            "trial": f"{url}/sweeps/{seeded.sweep}/trials/0",
            "matches": f"{url}/matches",
            "match": f"{url}/matches/{seeded.match}",
            "new": f"{url}/sweeps/new?preset=quickstart",
            "compare": f"{url}/compare?arm={seeded.sweep}&arm={seeded.sweep}:t9",
            "paper": f"{url}/paper",
            "missing": f"{url}/sweeps/000000000000",
        }


@dataclass
class Watched:
    """A page, the hosts it asked and what it complained about."""

    page: Page
    hosts: set[str]
    complaints: list[str]


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """One cache for all pages, as a person's browser has; plotly's script is large."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield context
    context.close()


def watch(context: BrowserContext) -> Watched:
    """Open a new page and take down what it does."""
    page = context.new_page()
    found = Watched(page, set(), [])

    def request(asked: Request) -> None:
        address = urlsplit(asked.url)
        found.hosts.add(address.hostname or address.scheme)

    def message(said: ConsoleMessage) -> None:
        if said.type in ("error", "warning"):
            found.complaints.append(said.text)

    page.on("request", request)
    page.on("console", message)
    page.on("pageerror", lambda error: found.complaints.append(str(error)))
    return found


@pytest.fixture
def watched(context: BrowserContext) -> Iterator[Watched]:
    found = watch(context)
    yield found
    found.page.close()


def draw_all(page: Page) -> None:
    """Scroll through the page until every plot is drawn or says why not."""
    for plot in page.locator("[data-plot]").all():
        plot.scroll_into_view_if_needed()
        expect(plot.locator(".main-svg, .plot-message").first).to_be_visible(timeout=SOON_MS)


@dataclass(frozen=True)
class Visit:
    """What was found on one page, drawn in whole at 1024 pixels of width."""

    name: str
    complaints: list[str]
    hosts: set[str]
    width: int
    axe: dict[str, AxeResults]


@pytest.fixture(scope="module", params=PAGES)
def visit(request: pytest.FixtureRequest, context: BrowserContext, site: dict[str, str]) -> Visit:
    found = watch(context)
    page = found.page
    page.set_viewport_size({"width": 1024, "height": 800})
    page.goto(site[request.param])
    draw_all(page)
    width = page.evaluate("document.documentElement.scrollWidth")
    light = Axe().run(page)
    page.emulate_media(color_scheme="dark")
    dark = Axe().run(page)
    page.close()
    axe = {"light": light, "dark": dark}
    return Visit(request.param, found.complaints, found.hosts, width, axe)


class TestEveryPage:
    def test_it_draws_without_a_complaint(self, visit: Visit) -> None:
        # Chromium itself reports the status of a page that is not there.
        expected = 1 if visit.name == "missing" else 0

        assert len(visit.complaints) == expected, visit.complaints

    def test_it_asks_no_other_host(self, visit: Visit) -> None:
        # data: and blob: are the browser's own.
        assert visit.hosts - {"data", "blob"} == {"127.0.0.1"}

    def test_at_1024_pixels_nothing_is_cut_off(self, visit: Visit) -> None:
        assert visit.width <= 1024

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_axe_finds_nothing(self, visit: Visit, scheme: str) -> None:
        results = visit.axe[scheme]

        assert results.violations_count == 0, results.generate_report()

    @pytest.mark.parametrize(
        ("name", "table"),
        [
            ("sweep", "Leaderboard"),
            ("match", "Criteria"),
            ("trial", "Attempts"),
            ("list", "Sweeps"),
            ("compare", "Arms"),
            ("paper", "Table 1, CIFAR-10: WRN-22-7.5"),
        ],
    )
    def test_tables_are_there_without_script(
        self, browser: Browser, site: dict[str, str], name: str, table: str
    ) -> None:
        context = browser.new_context(java_script_enabled=False)
        page = context.new_page()
        page.goto(site[name])
        rows = page.get_by_role("region", name=table).locator("tbody tr").count()
        context.close()

        assert rows >= 1


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
        plot = page.locator("#curves")
        plot.scroll_into_view_if_needed()
        expect(plot).to_have_attribute("data-drawn", "1", timeout=SOON_MS)
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


class TestForm:
    def test_each_rule_appears_at_its_field_while_typing_and_goes_when_kept(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["new"])
        seeds, why = page.get_by_label("Seeds per point"), page.locator("#why-field-replicates")
        seeds.fill("0")

        expect(why).to_contain_text("greater than or equal to 1, got 0", timeout=SOON_MS)
        expect(seeds).to_have_attribute("aria-invalid", "true")
        expect(page.locator("#check")).to_contain_text("1 thing to put right")

        seeds.fill("5")
        expect(page.locator("#check")).to_contain_text("12 points × 5 seeds", timeout=SOON_MS)
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

        expect(page.get_by_label("Seeds per point")).to_have_value("7", timeout=SOON_MS)
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
        expect(rows).to_have_count(7, timeout=SOON_MS)

        page.get_by_role("button", name="Remove weight_decay").click()
        expect(rows).to_have_count(6, timeout=SOON_MS)

    def test_a_sweep_is_submitted_and_shown(
        self, watched: Watched, empty_store: Store, tmp_path: Path
    ) -> None:
        page = watched.page
        with served(empty_store, tmp_path / "home") as url:
            page.goto(f"{url}/sweeps/new?preset=quickstart")
            page.get_by_label("Name", exact=True).fill("from the form")
            page.get_by_role("button", name="Submit sweep").click()

            expect(page.locator("h1")).to_have_text("from the form", timeout=SOON_MS)
            [sweep] = empty_store.list_sweeps().items
            assert page.url == f"{url}/sweeps/{sweep.id}"
            page.goto("about:blank")


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
            page.wait_for_url(lambda address: sweep not in address, timeout=SOON_MS)
            expect(page.locator(".meta")).to_contain_text(f"confirms points of {sweep}")

            page.goto(f"{url}/sweeps/{sweep}")
            page.locator("#ask-extend summary").click()
            page.get_by_label("Points in all").fill("6")
            page.get_by_role("button", name="Extend", exact=True).click()
            expect(page.locator("#notice")).to_contain_text("Extended", timeout=SOON_MS)
            assert empty_store.get_sweep(sweep).spec["num_points"] == 6
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

            expect(page.locator("#overview")).to_contain_text("of the second week", timeout=SOON_MS)
            assert empty_store.get_sweep(sweep).tags == ("digits", "fast")
            page.goto("about:blank")


class TestComparing:
    def test_ticked_sweeps_are_compared_also_after_the_list_was_refreshed(
        self, watched: Watched, site: dict[str, str], seeded: Seeded
    ) -> None:
        page = watched.page
        page.goto(site["list"])
        page.get_by_label("Compare digits-optimizers").check()
        page.evaluate("htmx.ajax('GET', '/parts/sweeps', {target: '#listing', swap: 'outerMorph'})")
        page.wait_for_timeout(500)
        page.get_by_role("button", name="Compare ticked").click()

        expect(page.locator("h1")).to_have_text("Compare")
        assert f"arm={seeded.sweep}" in page.url
        draw_all(page)
        expect(page.locator("#differences .main-svg").first).to_be_visible()

    def test_two_fields_are_chosen_for_the_contour(
        self, watched: Watched, site: dict[str, str]
    ) -> None:
        page = watched.page
        page.goto(site["sweep"])
        draw_all(page)
        page.locator("#contour-x").select_option("lambda_c")
        page.locator("#contour-y").select_option("gamma_c")

        expect(page.locator("#contour .xtitle")).to_contain_text("λ", timeout=SOON_MS)
        href = page.locator("a[data-csv-of=contour]").get_attribute("href")
        assert href is not None
        assert href.endswith("x=lambda_c&y=gamma_c")


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
        expect(watched.page.locator("#live")).to_have_text("live", timeout=SOON_MS)
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

        expect(row).to_contain_text("600 / 600", timeout=SOON_MS)
        expect(page.locator(".progress")).to_contain_text("10 complete", timeout=SOON_MS)
        page.wait_for_function(
            "n => document.querySelectorAll('#curves .scatterlayer .point').length > n",
            arg=points_before,
            timeout=SOON_MS,
        )

    def test_pause_is_asked_for_carried_out_and_taken_back(self, live: Live) -> None:
        page = live.page
        page.get_by_role("button", name="Pause").click()
        expect(page.locator("#overview")).to_contain_text("pause asked for", timeout=SOON_MS)
        assert live.store.requested(live.claim) == "pause"

        live.store.release(live.claim, SweepState.PAUSED, "asked for")
        expect(page.locator("#overview .meta")).to_contain_text("paused", timeout=SOON_MS)

        page.get_by_role("button", name="Resume").click()
        expect(page.locator("#overview .meta")).to_contain_text("queued", timeout=SOON_MS)
        assert live.store.get_sweep(live.sweep).state == SweepState.QUEUED

    def test_cancel_asks_first(self, live: Live) -> None:
        page = live.page
        page.locator("#ask-cancel summary").click()
        expect(page.locator("#ask-cancel")).to_contain_text("the rest will never run")
        assert live.store.requested(live.claim) == "none"

        page.get_by_role("button", name="Cancel for good").click()
        expect(page.locator("#notice")).to_contain_text("Cancel asked for", timeout=SOON_MS)
        assert live.store.requested(live.claim) == "cancel"

    def test_the_end_of_the_sweep_is_seen_and_the_stream_is_closed(self, live: Live) -> None:
        self.finish_trial(live)
        live.store.release(live.claim, SweepState.COMPLETE, "all done")

        expect(live.page.locator("#overview .meta")).to_contain_text("all done", timeout=SOON_MS)
        expect(live.page.locator("#live")).to_have_count(0, timeout=SOON_MS)
        # Longer than a browser waits before it opens a lost stream again (3 s).
        with pytest.raises(TimeoutError), live.page.expect_request("**/events*", timeout=4000):
            pass


def test_a_refused_action_says_why(browser: Browser, empty_store: Store, tmp_path: Path) -> None:
    sweep_id = seeding.create(empty_store, "refused")
    context = browser.new_context()
    page = context.new_page()
    with served(empty_store, tmp_path / "home") as url:
        # Without events the page does not learn that the sweep has ended.
        page.route("**/events*", lambda route: route.abort())
        page.goto(f"{url}/sweeps/{sweep_id}")
        empty_store.request(sweep_id, "cancel")
        page.get_by_role("button", name="Pause").click()

        expect(page.locator("#notice")).to_contain_text("cannot pause", timeout=SOON_MS)
        context.close()
