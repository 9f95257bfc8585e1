"""Pages through the whole application over a seeded store, without a browser."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import Any

import pytest
from starlette.testclient import TestClient

from dashboards.templating import CONTENT_SECURITY_POLICY
from sweeps.store import Store
from tests.dashboards import seeding
from tests.dashboards.conftest import Seeded


class Page(HTMLParser):
    """Tables of a page as text, and every address it holds."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.addresses: list[str] = []
        self.plots: dict[str, str] = {}
        self._rows: list[list[str]] | None = None
        self._in_cell = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        for name in ("href", "src", "action", "hx-get", "data-plot", "data-events"):
            if name in values:
                self.addresses.append(values[name])
        if "data-plot" in values:
            self.plots[values["id"]] = values["data-plot"]
        if "table" in values.get("class", "").split():
            self._rows = self.tables.setdefault(values["aria-label"], [])
        elif tag == "tr" and self._rows is not None:
            self._rows.append([])
        elif tag in ("td", "th") and self._rows is not None:
            self._rows[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._in_cell = False
        elif tag == "table":
            self._rows = None

    def handle_data(self, data: str) -> None:
        if self._rows and self._in_cell:
            words = f"{self._rows[-1][-1]} {data}".split()
            self._rows[-1][-1] = " ".join(words)


def open_page(client: TestClient, address: str, status: int = 200) -> Page:
    response = client.get(address)
    assert response.status_code == status, response.text[:500]
    assert response.headers["content-type"].startswith("text/html")
    assert response.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    return Page(response.text)


def every_page(seeded: Seeded) -> list[str]:
    return [
        "/",
        "/matches",
        f"/sweeps/{seeded.sweep}",
        f"/sweeps/{seeded.running}",
        f"/sweeps/{seeded.queued}",
        f"/matches/{seeded.match}",
        f"/sweeps/{seeded.sweep}/trials/0",
        f"/sweeps/{seeded.sweep}/trials/3",
        f"/sweeps/{seeded.running}/trials/12",
        f"/sweeps/{seeded.running}/trials/14",
        f"/sweeps/{seeded.match}/trials/0",
    ]


class TestLists:
    def test_the_list_shows_state_progress_and_the_selected_best(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        rows = open_page(client, "/").tables["Sweeps"][1:]
        best = seeded.store.get_sweep(seeded.sweep).best

        assert [row[0].split()[0] for row in rows] == [
            "cifar10-table-1",
            "digits-alpha-v-fine",
            "digits-optimizers",
        ]
        assert best is not None
        assert rows[2][1] == "complete all done"
        assert rows[2][2] == "30 / 30"
        assert rows[2][3].startswith(f"{100 * best['mean']:.2f} ±")
        assert rows[2][3].endswith("selected")
        assert rows[0][3] == "–"

    @pytest.mark.parametrize(
        ("query", "names"),
        [
            ("state=running", ["digits-alpha-v-fine"]),
            ("search=optim", ["digits-optimizers"]),
            (
                "sort=name&tag=digits",
                ["cifar10-table-1", "digits-alpha-v-fine", "digits-optimizers"],
            ),
            (
                "state=&search=&sort=",
                ["cifar10-table-1", "digits-alpha-v-fine", "digits-optimizers"],
            ),
        ],
    )
    def test_the_list_is_filtered_by_the_store(
        self, client: TestClient, query: str, names: list[str]
    ) -> None:
        rows = open_page(client, f"/?{query}").tables["Sweeps"][1:]

        assert [row[0].split()[0] for row in rows] == names

    def test_a_filter_that_nothing_fits_offers_the_way_back(self, client: TestClient) -> None:
        assert "No sweep fits" in client.get("/?search=zzz").text

    @pytest.mark.parametrize(
        ("address", "command"), [("/", "ndsweep submit"), ("/matches", "ndsweep match run")]
    )
    def test_an_empty_list_says_what_to_do(
        self, empty_client: TestClient, address: str, command: str
    ) -> None:
        assert command in empty_client.get(address).text

    def test_the_list_of_matches_shows_verdict_and_rate(self, client: TestClient) -> None:
        [row] = open_page(client, "/matches").tables["Matches"][1:]

        assert row[0] == "sgd-to-ndadam"
        assert row[2] == "matched"
        assert row[3] == "α v = 0.0492"


class TestSweepPage:
    def test_the_result_table_has_the_best_point_of_each_optimizer(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        rows = open_page(client, f"/sweeps/{seeded.sweep}").tables["Result table"]
        best = seeded.store.get_sweep(seeded.sweep).best

        assert rows[0][:3] == ["Arm", "Validation error", "Test error"]
        assert {row[0] for row in rows[1:]} == {"ndadam", "sgd", "adam"}
        assert best is not None
        assert rows[1][1].startswith(f"{100 * best['mean']:.2f} ± ")
        assert all(row[6].endswith("selected") for row in rows[1:])

    def test_optimizers_are_compared_with_a_verdict(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        rows = open_page(client, f"/sweeps/{seeded.sweep}").tables["Comparisons"]
        found = {row[0]: row[-1] for row in rows[1:]}

        assert found == {
            "ndadam − sgd": "not shown",
            "ndadam − adam": "lower",
            "sgd − adam": "not shown",
        }

    def test_the_interval_is_student_s_with_two_degrees_of_freedom(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        best = seeded.store.get_sweep(seeded.sweep).best
        assert best is not None
        # t(0.975, 2) = 4.3027 (any table).
        half = 4.3027 * best["sd"] / 3**0.5

        assert (
            f"{100 * best['mean']:.2f} ± {100 * half:.2f}"
            in client.get(f"/sweeps/{seeded.sweep}").text
        )

    def test_the_leaderboard_is_sorted_and_a_diverged_point_is_last(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        rows = open_page(client, f"/sweeps/{seeded.sweep}").tables["Leaderboard"][1:]
        means = [float(row[1].split()[0]) for row in rows[:-1]]

        assert means == sorted(means)
        assert rows[0][0].endswith("selected")
        assert rows[-1][1] == "–"
        assert rows[-1][4] == "diverged"

    def test_sorting_by_number_is_a_plain_link(self, client: TestClient, seeded: Seeded) -> None:
        page = open_page(client, f"/sweeps/{seeded.sweep}")
        [link] = [a for a in page.addresses if a.endswith("?sort=number#leaderboard-title")]
        rows = open_page(client, link).tables["Leaderboard"][1:]

        assert [int(row[0].split()[0]) for row in rows] == list(range(10))

    def test_the_trials_can_be_filtered_by_state_and_point(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        diverged = open_page(client, f"/sweeps/{seeded.sweep}?state=diverged").tables["Trials"][1:]
        of_point = open_page(client, f"/sweeps/{seeded.sweep}?point=2").tables["Trials"][1:]

        assert [row[0] for row in diverged] == ["3", "4", "5"]
        assert all(row[-1] == "diverged at step 150" for row in diverged)
        assert [row[2] for row in of_point] == ["2", "2", "2"]

    def test_the_pager_shows_every_trial_once(self, client: TestClient, seeded: Seeded) -> None:
        page = open_page(client, f"/sweeps/{seeded.sweep}")
        seen = [row[0] for row in page.tables["Trials"][1:]]
        [following] = [a for a in page.addresses if "/parts/trials?trial_cursor=" in a]
        page = open_page(client, following)
        seen += [row[0] for row in page.tables["Trials"][1:]]

        assert seen == [str(number) for number in range(30)]

    def test_a_running_sweep_is_live_and_can_be_stopped(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        page = open_page(client, f"/sweeps/{seeded.running}")
        last = seeded.store.last_event_id(seeded.running)
        api = f"/api/v1/sweeps/{seeded.running}"

        assert f"{api}/events?after={last}" in page.addresses
        assert {f"{api}/pause", f"{api}/cancel"} <= set(page.addresses)

    def test_a_finished_sweep_has_no_stream_and_no_buttons(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        addresses = " ".join(open_page(client, f"/sweeps/{seeded.sweep}").addresses)

        assert "/events" not in addresses
        assert "/cancel" not in addresses
        assert "http://127.0.0.1:5000/#/experiments/3/runs/a1b2" in addresses

    def test_an_mlflow_address_that_is_no_web_address_is_no_link(
        self, empty_store: Store, empty_client: TestClient
    ) -> None:
        sweep_id = seeding.create(empty_store, "odd")
        empty_store.set_mirror(sweep_id, {"url": "javascript:alert(1)"})

        assert "javascript:" not in empty_client.get(f"/sweeps/{sweep_id}").text

    def test_what_people_write_is_text_and_never_markup(
        self, empty_store: Store, empty_client: TestClient
    ) -> None:
        evil = "<script>alert(1)</script>"
        sweep_id = seeding.create(empty_store, evil)
        empty_store.set_tags(sweep_id, [evil])
        empty_store.set_notes(sweep_id, evil)

        for address in ("/", f"/sweeps/{sweep_id}"):
            text = empty_client.get(address).text
            assert evil not in text
            assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


class TestTrialPage:
    def test_it_shows_config_provenance_attempts_and_exit_cause(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        text = client.get(f"/sweeps/{seeded.sweep}/trials/3").text

        assert "loss not finite at step 150" in text
        assert "diverged at step 150" in text
        for part in (
            "validation_fraction",
            "AMD EPYC 7B13",
            "0f3c2d9",
            "393 MiB",
            "versions.torch",
        ):
            assert part in text, part

    def test_an_attempt_leads_to_its_run_in_mlflow(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        addresses = open_page(client, f"/sweeps/{seeded.sweep}/trials/0").addresses

        assert "http://127.0.0.1:5000/#/experiments/3/runs/c3d4" in addresses

    def test_it_plots_what_was_reported(self, client: TestClient, seeded: Seeded) -> None:
        plots = open_page(client, f"/sweeps/{seeded.sweep}/trials/0").plots

        assert list(plots) == [
            "metric-errors",
            "metric-train_loss",
            "metric-logit_rms",
            "metric-images_per_second",
            "layers",
        ]

    def test_the_log_s_end_is_shown(self, client: TestClient, seeded: Seeded) -> None:
        folder = seeded.home / "logs" / seeded.sweep
        folder.mkdir(parents=True)
        (folder / "4.log").write_text("ValueError: <no> such layer\n")

        assert (
            "ValueError: &lt;no&gt; such layer"
            in client.get(f"/sweeps/{seeded.sweep}/trials/4").text
        )

    def test_a_trial_that_waits_says_so(self, client: TestClient, seeded: Seeded) -> None:
        assert "waits for a free place" in client.get(f"/sweeps/{seeded.running}/trials/14").text


class TestMatchPage:
    def test_it_shows_every_criterion_and_marks_the_verdict_s(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        rows = open_page(client, f"/matches/{seeded.match}").tables["Criteria"][1:]

        assert [row[0] for row in rows] == [
            "stationary",
            "least squares the verdict's",
            "equal rotation",
            "equal mean",
            "schedule",
        ]

    def test_the_verdict_stands_in_words(self, client: TestClient, seeded: Seeded) -> None:
        text = client.get(f"/matches/{seeded.match}").text

        assert "Matched by least squares within ±5 %" in text
        assert "Matched: source over target +0.4" in text

    def test_it_shows_classes_cost_and_calibration(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        tables = open_page(client, f"/matches/{seeded.match}").tables

        assert tables["Classes of weight vectors"][1][:2] == ["invariant", "144"]
        assert [row[0] for row in tables["Cost"][1:]] == ["source", "calibration", "verdict"]
        assert [row[0] for row in tables["Calibration"][1:]] == ["3", "4"]

    def test_a_match_without_a_result_says_what_comes(
        self, empty_store: Store, empty_client: TestClient
    ) -> None:
        spec = seeding.match_spec()
        sweep, _ = empty_store.create_sweep("match", spec, name=spec["name"])
        text = empty_client.get(f"/matches/{sweep.id}").text

        assert "No verdict yet" in text
        assert "starts when a runner takes it up" in text
        answer = empty_client.get(f"/matches/{sweep.id}/plots/curves.json").json()
        assert answer == {"empty": "The curves appear when the first source run has ended."}

    def test_sweeps_and_matches_lead_to_each_other_s_pages(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        assert client.get(f"/sweeps/{seeded.match}").url.path == f"/matches/{seeded.match}"
        assert client.get(f"/matches/{seeded.sweep}").url.path == f"/sweeps/{seeded.sweep}"


class TestPlotData:
    def test_every_plot_of_every_page_has_data_or_a_sentence(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        drawn = 0
        for address in every_page(seeded):
            for plot in open_page(client, address).plots.values():
                answer = client.get(plot)
                assert answer.status_code == 200, plot
                body: dict[str, Any] = answer.json()
                drawn += bool(body.get("data"))
                assert body.get("data") or body["empty"].endswith("."), plot
        assert drawn > 20

    def test_every_axis_has_a_title(self, client: TestClient, seeded: Seeded) -> None:
        for address in every_page(seeded):
            for plot in open_page(client, address).plots.values():
                layout = client.get(plot).json().get("layout", {})
                for name in layout:
                    if re.match(r"[xy]axis", name):
                        assert layout[name]["title"]["text"], (plot, name)

    def test_the_same_values_come_as_csv(self, client: TestClient, seeded: Seeded) -> None:
        answer = client.get(f"/sweeps/{seeded.sweep}/plots/sensitivity/alpha_v.csv")

        assert answer.headers["content-type"].startswith("text/csv")
        assert "attachment" in answer.headers["content-disposition"]
        lines = answer.text.splitlines()
        assert lines[0] == "point,optimizer,alpha_v,mean,sd,seeds"
        assert len(lines) == 6

    def test_the_curves_can_show_any_metric(self, client: TestClient, seeded: Seeded) -> None:
        address = f"/sweeps/{seeded.sweep}/plots/curves.json?metric=effective_lr/conv5"
        figure = client.get(address).json()

        assert "conv5" in figure["layout"]["yaxis"]["title"]["text"]
        assert figure["layout"]["yaxis"]["type"] == "log"

    def test_a_field_that_is_not_varied_is_not_found(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        open_page(client, f"/sweeps/{seeded.sweep}/plots/sensitivity/momentum.json", 404)


class TestErrors:
    @pytest.mark.parametrize(
        ("address", "status", "says"),
        [
            ("/sweeps/000000000000", 404, "There is no sweep"),
            ("/matches/nothing", 404, "There is no sweep"),
            ("/sweeps/{sweep}/trials/999", 404, "has no trial 999"),
            ("/sweeps/{sweep}/trials/one", 404, "There is no page"),
            ("/sweeps/{sweep}?sort=colour", 400, "Sort must be one of"),
            ("/sweeps/{sweep}?cursor=xyz", 400, "Cursor"),
            ("/?state=sleeping", 400, "State"),
        ],
    )
    def test_a_wrong_address_gets_a_page_that_leads_on(
        self, client: TestClient, seeded: Seeded, address: str, status: int, says: str
    ) -> None:
        response = client.get(address.format(sweep=seeded.sweep), headers={"Accept": "text/html"})

        assert response.status_code == status
        assert says in response.text
        assert 'href="/matches"' in response.text

    def test_a_store_that_is_away_is_a_page_too(self, client: TestClient) -> None:
        from sweeps.errors import StoreUnavailable

        class Away:
            def __getattr__(self, verb: str) -> Any:
                raise StoreUnavailable("the database does not answer")

        from fastapi import FastAPI

        from dashboards.pages import pages_router

        app = FastAPI()
        app.include_router(pages_router(Away()))  # type: ignore[arg-type]
        response = TestClient(app).get("/")

        assert response.status_code == 503
        assert "The database does not answer." in response.text


class TestOwnOrigin:
    def test_the_policy_names_no_other_host(self) -> None:
        sources = set(CONTENT_SECURITY_POLICY.replace(";", "").split())

        assert not [s for s in sources if "." in s or "*" in s or s in ("http:", "https:")]
        assert "'unsafe-eval'" not in sources
        assert "script-src 'self';" in CONTENT_SECURITY_POLICY

    def test_pages_load_nothing_from_elsewhere_and_hold_no_inline_script(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        for address in every_page(seeded):
            text = client.get(address).text
            assert not re.search(r'(src|hx-get|action|data-\w+)="(https?:)?//', text), address
            assert not re.search(r"<script(?![^>]*\bsrc=)", text), address
            assert not re.search(r"<style|\son\w+=", text), address
            links = re.findall(r'<a[^>]+href="(https?://[^"]*)', text)
            assert all(link.startswith("http://127.0.0.1:5000/") for link in links), address

    def test_every_address_on_every_page_answers(self, client: TestClient, seeded: Seeded) -> None:
        addresses = {a for page in every_page(seeded) for a in open_page(client, page).addresses}
        gets = [
            a
            for a in sorted(addresses)
            if not a.startswith(("http", "#"))
            and "/events" not in a
            and not a.endswith(("/pause", "/cancel", "/resume", "/analysis"))
        ]

        wrong = {a: s for a in gets if (s := client.get(a).status_code) != 200}
        assert wrong == {}

    def test_scripts_are_kept_for_a_year_under_an_address_with_their_version(
        self, client: TestClient
    ) -> None:
        scripts = re.findall(r'(?:src|href)="(/static/[^"]+)"', client.get("/").text)
        assert len(scripts) >= 3
        for script in scripts:
            answer = client.get(script)
            assert answer.status_code == 200
            assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"

        old = client.get("/static/0123/pages.css")
        assert old.headers["cache-control"] == "no-cache"
        assert client.get("/static/0123/missing.js").status_code == 404

    def test_plotly_and_htmx_are_served_with_their_licences_at_hand(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        text = client.get(f"/sweeps/{seeded.sweep}").text
        [plotly] = re.findall(r'src="(/static/[^"]+/plotly.min.js)"', text)

        assert "Licensed under the MIT license" in client.get(plotly).text[:300]
        licence = seeding.__file__.replace(
            "tests/dashboards/seeding.py", "dashboards/static/htmx.LICENSE.txt"
        )
        with open(licence, encoding="utf-8") as file:
            assert "Zero-Clause BSD" in file.read()

    def test_the_pages_load_no_heavy_package(self) -> None:
        code = (
            "import sys, dashboards.pages;"
            "heavy = {'torch', 'ray', 'optuna', 'mlflow', 'scipy', 'plotly', 'numpy'};"
            "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

        assert (done.returncode, done.stderr) == (0, "")
