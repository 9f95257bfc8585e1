"""Pages through the whole application over a seeded store, without a browser."""

import math
import re
from html import unescape

import pytest
from starlette.testclient import TestClient

from dashboards.wording.formatting import number
from sweeps.records import NewTrial
from sweeps.store.store import Store
from tests.dashboards import seeding
from tests.dashboards.conftest import Seeded
from tests.dashboards.page_reading import open_page
from worker.report import Report


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
        assert rows[2][3].startswith(f"{100 * best['mean']:.2f} (")
        assert "% selected validation error, n = 3" in rows[2][3].replace(
            "\N{NARROW NO-BREAK SPACE}", " "
        )
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
        assert "No sweep found" in client.get("/?search=zzz").text

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
        # What the verdict's runs measure, as on the page of the match; they trained at 0.0492.
        assert row[3] == "α v = 0.04975"


class TestSweepPage:
    def test_the_result_table_has_the_best_point_of_each_optimizer(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        rows = open_page(client, f"/sweeps/{seeded.sweep}").tables["Result table"]
        best = seeded.store.get_sweep(seeded.sweep).best

        assert rows[0][:3] == ["Arm", "Validation error", "Test error"]
        assert {row[0] for row in rows[1:]} == {"ndadam", "sgd", "adam"}
        assert best is not None
        assert rows[1][1].startswith(f"{100 * best['mean']:.2f} (")
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

    def test_the_interval_is_student_s_on_the_logit_scale(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        best = seeded.store.get_sweep(seeded.sweep).best
        assert best is not None
        m = best["mean"]
        # t(0.975, 2) = 4.3027 (any table).
        reach = 4.3027 * best["sd"] / 3**0.5 / (m * (1 - m))
        low, high = (1 / (1 + (1 - m) / m * math.exp(sign * reach)) for sign in (1, -1))

        assert (
            f"{100 * m:.2f} ({100 * low:.2f} to {100 * high:.2f})"
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

    @pytest.mark.parametrize("kind", ["sweep", "running", "queued", "match"])
    def test_every_part_that_a_page_renews_is_there(
        self, client: TestClient, seeded: Seeded, kind: str
    ) -> None:
        where = "matches" if kind == "match" else "sweeps"
        page = open_page(client, f"/{where}/{getattr(seeded, kind)}")
        parts = [address for address in page.addresses if "/parts/" in address]

        assert len(parts) >= 3
        assert [client.get(part).status_code for part in parts] == [200] * len(parts)

    def test_the_pagers_of_a_page_are_told_apart_by_what_they_turn(
        self, empty_client: TestClient, empty_store: Store
    ) -> None:
        with seeding.stopped_clock(1600) as clock:
            sweep = seeding.finished_sweep(empty_store, "eleven", clock, num_points=11)

        page = empty_client.get(f"/sweeps/{sweep}").text

        labels = re.findall(r'aria-label="(Pages of [^"]+)"', page)
        assert labels == ["Pages of the leaderboard", "Pages of the trials"]

    def test_a_running_sweep_is_live_and_can_be_stopped(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        page = open_page(client, f"/sweeps/{seeded.running}")
        last = seeded.store.last_event_id(seeded.running)
        api = f"/api/v1/sweeps/{seeded.running}"

        assert f"{api}/events?after={last}" in page.addresses
        assert {f"{api}/pause", f"{api}/cancel"} <= set(page.addresses)

    def test_a_finished_sweep_follows_no_stream_and_has_no_buttons(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        addresses = " ".join(open_page(client, f"/sweeps/{seeded.sweep}").addresses)

        # The stream is there for when the sweep is extended.
        for sweep, is_over in ((seeded.sweep, True), (seeded.running, False)):
            html = client.get(f"/sweeps/{sweep}").text
            assert (
                bool(re.search(r'data-events="[^"]+/events\?after=\d+" data-over>', html))
                is is_over
            )
        assert "/cancel" not in addresses
        assert (
            "http://127.0.0.1:5000/#/experiments/3/runs/a1b2?workflowType=machine_learning"
            in addresses
        )

    def test_the_curves_of_a_sweep_that_ended_are_of_no_more_points_than_it_has(
        self, client: TestClient, seeded: Seeded, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tried = len(seeded.store.all_points(seeded.sweep))
        assert (
            "Best 6 points by mean validation error" in client.get(f"/sweeps/{seeded.sweep}").text
        )

        monkeypatch.setattr("dashboards.sweep_pages.sweep.CURVE_POINTS", tried + 1)
        text = client.get(f"/sweeps/{seeded.sweep}").text
        assert f"Best {tried} points by mean validation error" in text

    def test_a_tag_that_is_cut_can_be_read(self, client: TestClient, seeded: Seeded) -> None:
        for address in ("/", f"/sweeps/{seeded.sweep}"):
            assert 'class="chip" title="paper-tf"' in client.get(address).text

    def test_a_space_of_another_version_is_shown(
        self, empty_store: Store, empty_client: TestClient
    ) -> None:
        spec = {"space": {"lr": {"kind": "normal", "low": 0.1, "high": 1.0}}}
        sweep = empty_store.create_sweep("sweep", spec, name="newer")[0].id

        open_page(empty_client, f"/sweeps/{sweep}")
        empty = empty_client.get(f"/sweeps/{sweep}/plots/importance.json").json()["empty"]
        assert "not computed yet" in empty

    def test_an_mlflow_address_that_is_no_web_address_is_no_link(
        self, empty_store: Store, empty_client: TestClient
    ) -> None:
        sweep_id = seeding.create(empty_store, "odd")
        empty_store.set_mirror(sweep_id, {"url": "javascript:alert(1)"})

        assert "javascript:" not in empty_client.get(f"/sweeps/{sweep_id}").text

    def test_a_tag_leads_to_the_list_that_its_sweep_or_match_is_in(
        self, empty_store: Store, empty_client: TestClient
    ) -> None:
        made = {
            "/": seeding.create(empty_store, "a"),
            "/matches": empty_store.create_sweep("match", {}, name="b")[0].id,
        }
        for address, sweep_id in made.items():
            empty_store.set_tags(sweep_id, ["paper"])
            here = f"/{'matches' if address == '/matches' else 'sweeps'}/{sweep_id}"
            link = f"{address}?tag=paper"

            assert f'href="{link}"' in empty_client.get(here).text
            assert sweep_id in empty_client.get(link).text

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

        assert (
            "http://127.0.0.1:5000/#/experiments/3/runs/c3d4?workflowType=machine_learning"
            in addresses
        )

    def test_it_plots_what_was_reported(self, client: TestClient, seeded: Seeded) -> None:
        plots = open_page(client, f"/sweeps/{seeded.sweep}/trials/0").plots

        assert list(plots) == [
            "metric-errors",
            "metric-train_loss",
            "metric-logit_rms",
            "metric-images_per_second",
            "layers-effective_lr",
            "layers-angular_update",
            "layers-weight_norm",
            *(f"usage-{panel}" for panel in ("load", "memory", "power", "cpu", "ram")),
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
        assert "waits for free resources" in client.get(f"/sweeps/{seeded.running}/trials/14").text


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
        assert "At the matched rate the target is not inferior to the source" in text

    def test_it_shows_classes_cost_and_calibration(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        tables = open_page(client, f"/matches/{seeded.match}").tables

        assert tables["Classes of weight vectors"][1][:2] == ["invariant", "144"]
        assert [row[0] for row in tables["Cost"][1:]] == ["source", "calibration", "verdict"]
        assert [row[0] for row in tables["Calibration"][1:]] == ["3", "4"]

    def test_words_of_its_trials_stand_left_and_numbers_right(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        html = client.get(f"/matches/{seeded.match}/parts/trials").text
        headings = re.findall(r'<th scope="col"( class="num")?[^>]*><a\s[^>]*params\.(\w+)', html)

        assert {name: bool(right) for right, name in headings} == {
            "optimizer": False,
            "alpha_v": True,
        }

    def test_a_match_without_a_result_says_what_comes(
        self, empty_store: Store, empty_client: TestClient
    ) -> None:
        spec = seeding.match_spec()
        sweep, _ = empty_store.create_sweep("match", spec, name=spec["name"])
        text = empty_client.get(f"/matches/{sweep.id}").text

        assert "No verdict yet" in text
        assert "Waiting for a runner" in text
        answer = empty_client.get(f"/matches/{sweep.id}/plots/curves.json").json()
        assert answer == {"empty": "The curves appear when the first source run has ended."}

    def test_a_match_that_runs_says_what_it_waits_for_and_how_long(
        self, empty_store: Store, empty_client: TestClient
    ) -> None:
        spec = seeding.match_spec()
        sweep, _ = empty_store.create_sweep("match", spec, name=spec["name"], num_trials=None)
        claim = empty_store.claim("runner", 3000.0)
        assert claim is not None
        begun = empty_client.get(f"/matches/{sweep.id}/parts/verdict").text
        values = {"seed": 0, "steps": 6000}
        empty_store.add_trials(claim, [NewTrial(0, 0, {}, values, "key", role="source")])
        attempt = empty_store.start_attempt(claim, 0)
        report = Report(step=1200, num_steps=6000, status="running", metrics={"train_loss": 1.0})
        empty_store.record(claim, 0, attempt.id, [report])
        text = empty_client.get(f"/matches/{sweep.id}/parts/verdict").text

        assert "The match begins." in begun
        where = f"trial 0 is at step {number(1200)} of {number(6000)}, about"
        assert f"0 of 3 trials have ended, {where}" in text
        assert "Then 1 calibration trial and 3 verdict trials follow." in text

    def test_sweeps_and_matches_lead_to_each_other_s_pages(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        assert client.get(f"/sweeps/{seeded.match}").url.path == f"/matches/{seeded.match}"
        assert client.get(f"/matches/{seeded.sweep}").url.path == f"/sweeps/{seeded.sweep}"

    def test_it_says_which_of_two_rates_to_take(self, client: TestClient, seeded: Seeded) -> None:
        html = client.get(f"/matches/{seeded.match}").text
        text = re.sub(r"<[^>]+>", "", html)

        assert "Take this one; the verdict's runs trained at αv = 0.0492" in unescape(text)
        assert "Judged at αᵛ = 0.0492, which calibration had arrived at" in text
        assert "αᵛ = 0.04975, is the better estimate, so take that one" in text
        assert "the two are 1.1" in text
