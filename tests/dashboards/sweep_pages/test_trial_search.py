"""Trials that are searched for, the columns of their table, and their configs side by side."""

import re
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

from tests.dashboards.conftest import Seeded
from tests.dashboards.page_reading import open_page


def trials(client: TestClient, seeded: Seeded, **query: str) -> list[list[str]]:
    page = open_page(client, f"/sweeps/{seeded.sweep}?{urlencode(query)}")
    return page.tables.get("Trials", [])


class TestWhere:
    def test_trials_that_fit_are_listed_on_the_page_and_by_the_api(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        where = "alpha_v > 0.05 and state = complete"
        rows = trials(client, seeded, where=where)[1:]
        answer = client.get(f"/api/v1/sweeps/{seeded.sweep}/trials", params={"where": where}).json()

        numbers = [item["number"] for item in answer["items"]]
        assert numbers
        assert [row[0] for row in rows] == [str(number) for number in numbers]
        assert all(item["params"]["alpha_v"] > 0.05 for item in answer["items"])

    def test_links_of_the_table_keep_the_condition(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        html = client.get(f"/sweeps/{seeded.sweep}/parts/trials?where=seed+%3D+1").text

        links = re.findall(r'href="([^"]*trial_sort=[^"]*)"', html)
        assert links
        assert all("where=seed" in link for link in links)
        assert 'value="seed = 1"' in html

    @pytest.mark.parametrize("where", ["alpha_w > 1", "alpha_v >"])
    def test_a_condition_that_cannot_be_read_says_why_where_it_was_typed(
        self, client: TestClient, seeded: Seeded, where: str
    ) -> None:
        at = f"/sweeps/{seeded.sweep}/parts/trials?{urlencode({'where': where})}"
        found = client.get(at)

        assert found.status_code == 200
        assert 'aria-invalid="true"' in found.text
        assert re.search(r'role="alert">(There is no field|&#39;alpha_v &gt;&#39;)', found.text)
        answer = client.get(f"/api/v1/sweeps/{seeded.sweep}/trials", params={"where": where})
        assert answer.status_code == 422
        assert answer.json()["detail"].startswith("where: ")

    def test_the_box_shows_a_condition_of_this_sweep(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        html = client.get(f"/sweeps/{seeded.sweep}").text

        assert 'placeholder="alpha_v &gt; 0.005 and state = complete"' in html


class TestColumns:
    def test_sampled_fields_and_metrics_can_be_columns(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        head = trials(client, seeded, columns="gamma_c,test_error")[0]
        default = trials(client, seeded)[0]

        assert head[-3:] == ["γ C", "Test error", "Ended by"]
        assert default[-2:] == ["α 0", "Ended by"]

    def test_a_form_sends_them_one_by_one_and_what_is_no_column_is_left_out(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        at = f"/sweeps/{seeded.sweep}/parts/trials?columns=lr&columns=train_loss&columns=nothing"
        page = open_page(client, at)

        assert page.tables["Trials"][0][-3:] == ["α 0", "Training loss", "Ended by"]
        # The next page and the next sort keep them.
        assert any("columns=lr%2Ctrain_loss" in address for address in page.addresses)

    def test_pinned_columns_stand_first_and_are_kept_by_the_links(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        at = f"/sweeps/{seeded.sweep}/parts/trials?columns=lr&pinned=train_loss&pinned=gamma_c"
        html = client.get(at).text
        head = open_page(client, at).tables["Trials"][0]

        assert head[:3] == ["Trial", "Training loss", "γ C"]
        assert html.count("pin pin-1") == html.count("pin pin-2") == 26
        assert "pinned=train_loss%2Cgamma_c" in html

    def test_trials_are_sorted_by_any_metric(self, client: TestClient, seeded: Seeded) -> None:
        rows = trials(client, seeded, columns="test_error", trial_sort="-metrics.test_error")[1:]
        errors = [float(row[-2].split()[0]) for row in rows]

        assert errors == sorted(errors, reverse=True)
        html = client.get(f"/sweeps/{seeded.sweep}?columns=test_error").text
        assert "trial_sort=metrics.test_error" in html
        for key in ("state", "point", "seed", "step"):
            assert f'trial_sort={key}#trials-title"' in html


class TestConfigs:
    def test_the_fields_that_differ_stand_first(self, client: TestClient, seeded: Seeded) -> None:
        arms = urlencode([("arm", f"{seeded.sweep}:t0"), ("arm", f"{seeded.sweep}:t15")])
        page = open_page(client, f"/compare/configs?{arms}")
        rows = {row[0].split()[0]: row[1:] for row in page.tables["Fields that differ"][1:]}

        assert rows["optimizer"] == ["ndadam", "sgd"]
        assert "depth" not in rows
        html = client.get(f"/compare/configs?{arms}").text
        assert re.search(r"<code>depth</code></dt><dd>10<", html)

    def test_trials_that_have_not_ended_too(self, client: TestClient, seeded: Seeded) -> None:
        arms = urlencode([("arm", f"{seeded.running}:t12"), ("arm", f"{seeded.running}:t13")])
        html = client.get(f"/compare/configs?{arms}").text

        assert "No fields that differ" in html
        assert "seed 0)" in html
        assert "seed 1)" in html

    def test_one_trial_is_asked_for_another(self, client: TestClient, seeded: Seeded) -> None:
        html = client.get(f"/compare/configs?arm={seeded.sweep}:t0").text

        assert "Two trials make a comparison" in html

    def test_what_is_not_there_is_not_found(self, client: TestClient, seeded: Seeded) -> None:
        open_page(client, f"/compare/configs?arm={seeded.sweep}:t9999", status=404)
