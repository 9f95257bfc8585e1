"""MLflow's own pages in a real browser: what runs are called there, and the links both ways."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("playwright")

from playwright.sync_api import BrowserContext, Page, expect

from sweeps.mlflow_mirror.artifacts import SweepArtifacts
from sweeps.mlflow_mirror.mirror import Mirror
from sweeps.store.store import Store
from tests.dashboards.browser.serving import chromium, served
from tests.sweeps.mlflow_mirror.mirror_cases import send_all
from tests.sweeps.mlflow_mirror.test_artifacts import finished

pytestmark = [pytest.mark.browser, pytest.mark.stack]

#: Milliseconds; MLflow's script is large.
PATIENCE = 120_000


@dataclass(frozen=True)
class Mirrored:
    """A sweep on our pages and in MLflow."""

    context: BrowserContext
    sweep: str
    experiment: str


@pytest.fixture
def mirrored(sqlite_store: Store, tmp_path: Path, mlflow_url: str) -> Iterator[Mirrored]:
    sweep_id = finished(sqlite_store)
    with served(sqlite_store, tmp_path) as pages, chromium() as browser:
        artifacts = SweepArtifacts(sqlite_store, page_url=pages)
        send_all(Mirror(sqlite_store, mlflow_url, page_url=pages, artifacts=artifacts))
        state = sqlite_store.get_sweep(sweep_id).mirror
        assert state is not None
        experiment = f"{mlflow_url}/#/experiments/{state['experiment_id']}"
        context = browser.new_context(viewport={"width": 1700, "height": 1100})
        context.set_default_timeout(PATIENCE)
        expect.set_options(timeout=PATIENCE)
        yield Mirrored(context, f"{pages}/sweeps/{sweep_id}", experiment)


def follow(context: BrowserContext, page: Page, name: str) -> Page:
    """Click a link that opens a page of its own."""
    with context.expect_page() as opened:
        page.get_by_role("link", name=name).first.click()
    opened.value.wait_for_load_state()
    return opened.value


def test_links_lead_both_ways_and_runs_are_compared_by_name(mirrored: Mirrored) -> None:
    context = mirrored.context
    page = context.new_page()
    page.goto(mirrored.sweep)
    page.get_by_role("link", name="MLflow experiment").click()

    # The pages for training, and not those for language models.
    expect(page.get_by_role("heading", name="small", exact=True).first).to_be_visible()
    expect(page.get_by_role("link", name="Traces").first).to_be_visible()
    expect(page.get_by_text("Prompts", exact=True)).to_have_count(0)
    assert follow(context, page, "Page of the sweep").url == mirrored.sweep

    page.goto(f"{mirrored.sweep}/trials/0")
    page.locator(f'a[href^="{mirrored.experiment}/runs/"]').first.click()
    expect(page.get_by_text("trial 0: alpha_v 0.05, gamma_c 2.5, seed 0").first).to_be_visible()
    assert follow(context, page, "Page of the trial").url == f"{mirrored.sweep}/trials/0"
    page.get_by_role("tab", name="Model metrics").click()
    expect(page.get_by_text("Step", exact=True).first).to_be_visible()

    page.goto(f"{mirrored.experiment}/runs?workflowType=machine_learning")
    rows = page.locator(".ag-row")
    rows.first.locator("button").first.click()
    expect(page.get_by_role("link", name=re.compile("^trial "))).to_have_count(4)
    for index in range(1, 5):
        box = page.locator(f'.ag-row[row-index="{index}"] input[type=checkbox]').first
        box.click(force=True)
        # MLflow may take its time to show that it was ticked.
        expect(box).to_be_checked()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_text("Comparing 4 Runs from 1 Experiment").first).to_be_visible()
    for name in ("trial 0: alpha_v 0.05, gamma_c 2.5, seed 0", "trial 2: alpha_v 0.02, seed 0"):
        expect(page.get_by_text(name).first).to_be_visible()
    told = page.locator("table").filter(has_text="alpha_v")
    expect(told.first).to_contain_text("gamma_c")
    expect(page.get_by_text("provenance.versions.torch").first).to_be_visible()
    expect(page.get_by_text("provenance.pid")).to_have_count(0)
