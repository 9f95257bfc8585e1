"""What a trial used of its machine, and its log, as its page and the table of trials show them."""

from pathlib import Path

from starlette.testclient import TestClient

from sweeps.records import NOT_MEASURED
from sweeps.store.store import Store
from tests.dashboards import seeding
from tests.dashboards.conftest import Seeded
from tests.dashboards.page_reading import open_page


def test_a_trial_has_panels_of_what_was_measured(client: TestClient, seeded: Seeded) -> None:
    here = f"/sweeps/{seeded.sweep}/trials/0"
    page = open_page(client, here)

    panels = {name for name in page.plots if name.startswith("usage-")}
    power = client.get(page.plots["usage-power"]).json()
    assert panels == {"usage-load", "usage-memory", "usage-power", "usage-cpu", "usage-ram"}
    assert power["data"][0]["y"] == [310, 290, 300]
    assert power["data"][0]["x"] == [5, 10, 15]
    assert len(client.get(page.plots["usage-memory"]).json()["data"]) == 2
    csv = client.get(f"{here}/plots/usage/ram.csv").text.splitlines()
    assert csv[:2] == ["name,seconds,value", "process_memory_usage_megabytes,5.0,1900.0"]
    assert client.get(f"{here}/plots/usage/none.json").json()["empty"] == "This was not measured."


def test_its_cost_says_that_the_card_was_shared(client: TestClient, seeded: Seeded) -> None:
    text = client.get(f"/sweeps/{seeded.sweep}/trials/0").text

    assert "0.5 GPU-hours" in text
    assert "load 75 %, 150 Wh, shared by up to 2 trials" in text
    assert "hours and energy are the trial&#39;s share" in text or "the trial's share" in text


def test_the_table_has_columns_of_it(client: TestClient, seeded: Seeded) -> None:
    names = "usage.gpu_hours,usage.gpu_utilization_percentage,usage.energy_watt_hours"
    page = open_page(client, f"/sweeps/{seeded.sweep}?columns={names}")

    head, first, *_ = page.tables["Trials"]
    at = head.index("GPU-hours")
    assert head[at : at + 3] == ["GPU-hours", "Load of the card (%)", "Energy (Wh)"]
    assert first[at : at + 3] == ["0.5", "75", "150"]


def test_a_sweep_adds_them_up(client: TestClient, seeded: Seeded) -> None:
    body = client.get(f"/api/v1/sweeps/{seeded.sweep}").json()
    text = client.get(f"/sweeps/{seeded.sweep}").text

    assert body["usage"]["gpu_hours"] == 15
    assert body["usage"]["energy_watt_hours"] == 4500
    assert "30 trials, load 75 %, 4.5 kWh, shared by up to 2 trials" in text


def test_what_was_not_measured_is_no_column_and_no_zero(
    empty_client: TestClient, empty_store: Store
) -> None:
    with seeding.stopped_clock(10) as clock:
        sweep_id, *_ = seeding.running_sweep(empty_store, "unmeasured", clock)
    waiting = empty_store.trial(sweep_id, 13)

    page = empty_client.get(f"/sweeps/{sweep_id}/trials/13").text

    assert waiting.usage == NOT_MEASURED
    assert "Not measured: nothing was reported yet." in page
    assert empty_client.get(f"/api/v1/sweeps/{sweep_id}/trials/13/usage").json()["curves"] == {}


LOG = """2026-11-28 11:15:05,300 INFO attempt 1 starts in process 4311 on node-a
2026-11-28 11:15:06,300 INFO step 4/12 <script>alert(1)</script>
2026-11-28 11:16:05,300 INFO attempt 2 starts in process 99 on node-b
2026-11-28 11:16:06,300 INFO step 8/12
"""


def test_the_log_tells_attempts_apart_and_is_text(
    empty_client: TestClient, empty_store: Store, tmp_path: Path
) -> None:
    with seeding.stopped_clock(10) as clock:
        sweep_id, _, number, _ = seeding.running_sweep(empty_store, "logged", clock)
    log = tmp_path / "home" / "logs" / sweep_id / f"{number}.log"
    log.parent.mkdir(parents=True)
    log.write_text(LOG)

    here = f"/sweeps/{sweep_id}/trials/{number}"
    running, done = empty_client.get(here).text, empty_client.get(f"/sweeps/{sweep_id}/trials/0")

    assert running.count("<b>2026") == 2
    assert "<b>2026-11-28 11:16:05,300 INFO attempt 2 starts in process 99 on node-b</b>" in running
    assert "step 4/12 &lt;script&gt;alert(1)&lt;/script&gt;" in running
    assert f'data-log="/api/v1{here}/log/events?after={len(LOG)}"' in running
    assert f'<a href="/api/v1{here}/log/file">' in running
    assert "data-log" not in done.text
