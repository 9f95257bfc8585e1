"""Trials of several sweeps in one view, and views under a name."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

from sweeps.store.store import Store
from tests.dashboards import seeding
from tests.dashboards.conftest import Seeded, client_of, open_store
from tests.dashboards.page_reading import open_page


def table(client: TestClient, *ids: str, **query: str) -> list[list[str]]:
    asked = urlencode([("sweep", ",".join(ids)), *query.items()])
    return open_page(client, f"/trials?{asked}").tables["Trials"]


class TestTogether:
    def test_one_table_holds_the_trials_of_both_with_the_sweep_as_a_column(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        head, *rows = table(client, seeded.sweep, seeded.running, where="seed = 1 and point <= 1")

        assert head[:4] == ["Trial", "Sweep", "State", "Point"]
        assert [row[1] for row in rows] == ["digits-optimizers"] * 2 + ["digits-alpha-v-fine"] * 2

    def test_it_answers_as_the_api_does(self, client: TestClient, seeded: Seeded) -> None:
        where = "alpha_v > 0.02 and state = complete"
        rows = table(client, seeded.sweep, seeded.running, where=where, trial_sort="params.alpha_v")
        asked = [("sweep", seeded.sweep), ("sweep", seeded.running), ("where", where)]
        answer = client.get(f"/api/v1/trials?{urlencode([*asked, ('sort', 'params.alpha_v')])}")

        numbers = [str(item["number"]) for item in answer.json()["items"]]
        assert numbers
        assert [row[0] for row in rows[1:]] == numbers[:25]

    def test_what_the_list_ticks_is_asked_for(self, client: TestClient, seeded: Seeded) -> None:
        page = open_page(client, f"/trials?arm={seeded.sweep}&arm={seeded.running}")
        assert page.plots["curves"].startswith("/trials/plots/curves.json?sweep=")

        assert "Which sweeps?" in client.get("/trials").text
        open_page(client, "/trials?sweep=000000000000", status=404)

    def test_a_condition_that_cannot_be_read_says_why(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        html = client.get(f"/trials?sweep={seeded.sweep}&where=nope+%3E+1").text
        assert "There is no field &#39;nope&#39;" in html

    def test_a_link_sorts_and_keeps_the_rest(self, client: TestClient, seeded: Seeded) -> None:
        at = f"/trials?sweep={seeded.sweep},{seeded.running}&pinned=lr&where=seed+%3D+1"
        found = [a for a in open_page(client, at).addresses if "trial_sort=params.lr" in a]

        assert found
        assert all("where=seed" in a and "pinned=lr" in a for a in found)
        assert all(f"{seeded.sweep}%2C{seeded.running}" in a for a in found)


class TestCurves:
    def test_sweeps_are_told_apart_by_colour(self, client: TestClient, seeded: Seeded) -> None:
        at = f"/trials/plots/curves.json?sweep={seeded.sweep},{seeded.running}"
        lines = [t for t in client.get(at).json()["data"] if t.get("meta")]
        colours: dict[str, set[str]] = {}
        for line in lines:
            colours.setdefault(line["name"].split(" · ")[0], set()).add(line["line"]["color"])

        assert set(colours) == {"digits-optimizers", "digits-alpha-v-fine"}
        assert all(len(some) == 1 for some in colours.values())
        assert len(set.union(*colours.values())) == 2
        assert {t["meta"]["points"][0].split(":")[0] for t in lines} == {
            seeded.sweep,
            seeded.running,
        }

    @pytest.mark.parametrize("group", ["sweep", "optimizer", "seed"])
    def test_groups_go_over_all_sweeps(
        self, client: TestClient, seeded: Seeded, group: str
    ) -> None:
        at = f"/trials/plots/curves.json?sweep={seeded.sweep},{seeded.running}&group={group}"
        names = [t["name"] for t in client.get(at).json()["data"] if t.get("customdata")]

        assert len(names) == {"sweep": 2}.get(group, 3)
        # 30 trials of the one; 12 of the other and one that runs.
        counts = [int(name.split("(")[1].split()[0]) for name in names]
        assert sum(counts) == 43


class TestViews:
    @pytest.fixture
    def own(self, tmp_path: Path) -> Iterator[tuple[Store, TestClient, str]]:
        store = open_store(tmp_path)
        yield store, client_of(store, tmp_path), seeding.create(store, "viewed")
        store.close()

    def test_a_view_has_a_name_and_an_address(self, own: tuple[Store, TestClient, str]) -> None:
        store, client, sweep = own
        answer = client.put(
            f"/api/v1/sweeps/{sweep}/views/by loss", json={"query": "where=seed+%3D+1"}
        )
        answer.raise_for_status()
        store.save_view(None, "two", f"sweep={sweep}")

        page = open_page(client, f"/sweeps/{sweep}")
        assert f"/sweeps/{sweep}/views/by%20loss" in page.addresses
        there = client.get(f"/sweeps/{sweep}/views/by%20loss", follow_redirects=False)
        assert there.headers["location"] == f"/sweeps/{sweep}?where=seed+%3D+1"
        assert "/trials/views/two" in open_page(client, f"/trials?sweep={sweep}").addresses
        assert client.get("/trials/views/two").url.query == f"sweep={sweep}".encode()
        assert client.get(f"/sweeps/{sweep}/views/none").status_code == 404

    def test_without_script_a_form_saves_and_deletes_it(
        self, own: tuple[Store, TestClient, str]
    ) -> None:
        store, client, sweep = own
        at = f"/sweeps/{sweep}/do"
        saved = client.post(
            f"{at}/view", data={"name": "mine", "query": "sort=-mean"}, follow_redirects=False
        )
        assert saved.status_code == 303
        assert saved.headers["location"] == f"/sweeps/{sweep}?sort=-mean"
        assert [view.name for view in store.saved_views(sweep)] == ["mine"]

        refused = client.post(f"{at}/view", data={"name": "a/b", "query": ""})
        assert refused.status_code == 422
        assert "without a slash" in refused.text
        client.post(f"{at}/unview", data={"name": "mine"}, follow_redirects=False)
        assert store.saved_views(sweep) == []
