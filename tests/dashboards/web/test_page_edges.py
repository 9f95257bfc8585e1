"""Data of the plots, pages of errors, and that nothing is loaded from elsewhere."""

import re
import subprocess
import sys
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from dashboards.pages import pages_router
from dashboards.web.templating import CONTENT_SECURITY_POLICY
from sweeps.errors import StoreUnavailable
from tests.dashboards import seeding
from tests.dashboards.conftest import Seeded
from tests.dashboards.page_reading import every_page, open_page

#: Answered to POST only, and an analysis that a queued sweep does not have yet.
ACTIONS = (
    *("/pause", "/cancel", "/resume", "/retry", "/extend", "/confirm", "/submit"),
    "/analysis",
)
#: Of forms that send the sweeps, too, or that a script sends elsewhere.
WITHOUT_SWEEPS = {"/trials/parts/trials", "/trials/do/view"}


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

    def test_parts_of_a_match_are_not_found_for_a_sweep(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        parts = ("overview", "verdict", "details")
        addresses = [f"/matches/{seeded.sweep}/parts/{part}" for part in parts]
        addresses += [f"/matches/{seeded.sweep}/plots/{plot}.json" for plot in ("curves", "layers")]

        assert [client.get(address).status_code for address in addresses] == [404] * 5

    def test_parts_of_a_sweep_do_not_fail_for_a_match(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        parts = ("overview", "results", "leaderboard", "trials", "front", "views")
        plots = ("curves", "front", "importance", "variance", "parallel", "contour", "timeline")
        addresses = [f"/sweeps/{seeded.match}/parts/{part}" for part in parts]
        addresses += [f"/sweeps/{seeded.match}/plots/{plot}.json" for plot in plots]
        addresses += [f"/sweeps/{seeded.match}/plots/sensitivity/lr.json"]

        failed = {a: s for a in addresses if (s := client.get(a).status_code) not in (200, 404)}
        assert not failed

    def test_a_store_that_is_away_is_a_page_too(self, client: TestClient) -> None:

        class Away:
            def __getattr__(self, verb: str) -> Any:
                raise StoreUnavailable("the database does not answer")

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
            for a in sorted(addresses - WITHOUT_SWEEPS)
            if not a.startswith(("http", "#")) and "/events" not in a and not a.endswith(ACTIONS)
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
