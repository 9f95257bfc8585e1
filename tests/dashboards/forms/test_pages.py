"""The form of a new sweep, over HTTP as a browser without script uses it."""

import re
from pathlib import Path

import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from dashboards.pages import pages_router
from service.api.app import create_app
from sweeps.store.store import Store
from tests.dashboards import seeding
from tests.dashboards.conftest import Seeded, settings_of
from tests.dashboards.forms.conftest import reason_at, value_of, yaml_of
from tests.dashboards.page_reading import open_page

VALID = {
    "name": "by-hand",
    "base.dataset": "digits",
    "base.depth": "10",
    "base.widen_factor": "1",
    "base.batch_size": "64",
    "base.epochs": "1",
    "sampler": "random",
    "num_points": "4",
    "replicates": "3",
    "space.0.field": "alpha_v",
    "space.0.kind": "float",
    "space.0.low": "0.01",
    "space.0.high": "0.2",
    "space.0.log": "on",
    "rest": "base:\n  flip: false\n  crop_pad: 1\n",
    "key": "one",
}


def test_a_preset_fills_the_form_and_is_estimated_at_once(client: TestClient) -> None:
    html = client.get("/sweeps/new?preset=quickstart").text

    assert value_of(html, "name") == "quickstart"
    assert value_of(html, "space-1-low") == "0.001"
    assert "Ready to submit" in html
    assert "12 points × 3 seeds" in html


def test_a_sweep_is_cloned_with_its_settings(client: TestClient, seeded: Seeded) -> None:
    html = client.get(f"/sweeps/new?source={seeded.sweep}").text

    assert value_of(html, "name") == "digits-optimizers"
    assert value_of(html, "replicates") == "3"
    assert "Filled from sweep digits-optimizers" in html


def test_a_clone_has_the_notes_and_tags_of_today(
    form_client: TestClient, empty_store: Store
) -> None:
    sweep = seeding.create(empty_store, "cloned", notes="first", tags=["old"])
    form_client.post(f"/sweeps/{sweep}/do/label", data={"notes": "second", "tags": "new, words"})

    html = form_client.get(f"/sweeps/new?source={sweep}").text

    assert value_of(html, "tags") == "new, words"
    assert re.search(r'id="field-notes"[^>]*>second</textarea>', html)


def test_a_match_fills_the_form_around_its_rate(client: TestClient, seeded: Seeded) -> None:
    html = client.get(f"/sweeps/new?source={seeded.match}").text

    low, high = (float(value_of(html, f"space-0-{end}")) for end in ("low", "high"))
    assert low == pytest.approx(0.04975 / 2, rel=1e-2)
    assert high == pytest.approx(0.04975 * 2, rel=1e-2)
    # Though the match trained on every image, which a sweep that chooses by errors may not.
    assert "Ready to submit" in html
    assert "that the match trained on are held out here" in html


def test_an_unknown_preset_and_source_are_not_found(client: TestClient) -> None:
    for query in ("preset=nothing", "source=000000000000"):
        open_page(client, f"/sweeps/new?{query}", status=404)


def test_checking_says_each_rule_at_its_field_and_creates_nothing(
    form_client: TestClient, empty_store: Store
) -> None:
    wrong = {**VALID, "replicates": "0", "space.0.low": "0.5", "base.depth": "11"}

    html = form_client.post("/sweeps/validate", data=wrong).text

    assert "greater than or equal to 1, got 0" in reason_at(html, "replicates")
    assert "6n + 4" in reason_at(html, "base-depth")
    assert reason_at(html, "name") == ""
    assert empty_store.list_sweeps().items == []


def test_a_range_the_wrong_way_round_is_refused_at_its_row(form_client: TestClient) -> None:
    html = form_client.post("/sweeps/validate", data={**VALID, "space.0.low": "0.5"}).text

    assert "low must be below high" in reason_at(html, "space-0-low") + reason_at(
        html, "space-0-field"
    )


def test_checking_tells_trials_steps_and_difference(form_client: TestClient) -> None:
    html = form_client.post("/sweeps/validate", data=VALID).text

    assert "4 points × 3 seeds" in html
    assert "0.37 points" in html
    assert "Estimated GPU time</dt><dd>none<small>the trials run on CPU cores" in html


def test_submitting_queues_one_sweep_however_often_it_is_sent(
    form_client: TestClient, empty_store: Store
) -> None:
    answers = [
        form_client.post("/sweeps/new", data={**VALID, "action": "create"}) for _ in range(2)
    ]

    [sweep] = empty_store.list_sweeps().items
    assert {a.headers["location"] for a in answers} == {f"/sweeps/{sweep.id}"}
    assert sweep.spec["base"]["crop_pad"] == 1
    assert sweep.spec["space"]["alpha_v"]["high"] == 0.2


def test_an_edited_form_makes_another_sweep(form_client: TestClient, empty_store: Store) -> None:
    for name in ("first", "second"):
        form_client.post("/sweeps/new", data={**VALID, "name": name, "action": "create"})

    assert {sweep.name for sweep in empty_store.list_sweeps().items} == {"first", "second"}


def test_a_refused_submission_keeps_what_was_typed(
    form_client: TestClient, empty_store: Store
) -> None:
    answer = form_client.post("/sweeps/new", data={**VALID, "num_points": "x", "action": "create"})

    assert answer.status_code == 422
    assert value_of(answer.text, "num-points") == "x"
    assert reason_at(answer.text, "num-points") != ""
    assert empty_store.list_sweeps().items == []


def test_images_may_have_several_objectives(form_client: TestClient, empty_store: Store) -> None:
    ends = "[{metric: validation_error}, {metric: train_loss, reference: 3}]"
    form_client.post("/sweeps/new", data=VALID | {"objectives": ends, "action": "create"})

    [sweep] = empty_store.list_sweeps().items
    assert [one.metric for one in sweep.objectives] == ["validation_error", "train_loss"]
    html = form_client.get(f"/sweeps/new?source={sweep.id}").text
    assert "train_loss" in value_of(html, "objectives")
    sent = VALID | {"objectives": "[{metric: train_loss}]"}
    wrong = form_client.post("/sweeps/validate", data=sent).text
    assert "a single one, train_loss, belongs in objective" in reason_at(wrong, "objectives")


def test_fields_are_added_and_removed_without_script(form_client: TestClient) -> None:
    more = form_client.post("/sweeps/new", data={**VALID, "action": "add"}).text
    assert 'aria-label="Remove alpha_s"' in more

    less = form_client.post("/sweeps/new", data={**VALID, "action": "remove-0"}).text
    assert 'aria-label="Remove' not in less


def test_yaml_moves_into_the_controls_and_bad_yaml_stays(form_client: TestClient) -> None:
    moved = form_client.post("/sweeps/new", data={**VALID, "rest": "replicates: 7"}).text
    assert value_of(moved, "replicates") == "7"

    kept = form_client.post("/sweeps/new", data={**VALID, "rest": "replicates: [7"}).text
    assert value_of(kept, "replicates") == "3"
    assert "cannot be read" in reason_at(kept, "rest")


def test_lines_of_notes_are_kept_as_a_browser_sends_them(
    form_client: TestClient, empty_store: Store
) -> None:
    form_client.post("/sweeps/new", data={**VALID, "notes": "one\r\ntwo", "action": "create"})

    [sweep] = empty_store.list_sweeps().items
    assert sweep.notes == "one\ntwo"

    form_client.post(f"/sweeps/{sweep.id}/do/label", data={"notes": "three\r\nfour", "tags": ""})
    assert empty_store.get_sweep(sweep.id).notes == "three\nfour"


def test_a_script_is_led_to_the_new_sweep_by_a_header(
    form_client: TestClient, empty_store: Store
) -> None:
    sent = {**VALID, "action": "create"}
    answer = form_client.post("/sweeps/new", data=sent, headers={"HX-Request": "true"})

    [sweep] = empty_store.list_sweeps().items
    assert (answer.status_code, answer.headers["hx-redirect"]) == (200, f"/sweeps/{sweep.id}")


def test_a_field_that_is_varied_is_no_choice_of_another_row(form_client: TestClient) -> None:
    html = form_client.post("/sweeps/new", data={**VALID, "action": "add"}).text
    first, second = re.findall(r'<select id="field-space-\d-field".*?</select>', html, re.DOTALL)

    assert "<option selected>alpha_v</option>" in first
    assert "<option>alpha_s</option>" not in first
    assert "<option selected>alpha_s</option>" in second
    assert "<option>alpha_v</option>" not in second


def test_more_controls_than_a_form_has_are_not_read(form_client: TestClient) -> None:
    many = {f"x{index}": "1" for index in range(3000)}

    answer = form_client.post("/sweeps/validate", data={**VALID, **many})

    assert "Ready to submit" in answer.text


def test_a_form_that_is_too_long_is_refused(form_client: TestClient, empty_store: Store) -> None:
    long = {**VALID, "rest": "a: " + "x" * 1_100_000, "action": "create"}

    form_client.post("/sweeps/new", data=long)

    assert empty_store.list_sweeps().items == []


def test_a_preset_is_queued_by_one_button(form_client: TestClient, empty_store: Store) -> None:
    answer = form_client.post("/presets/quickstart/submit")

    [sweep] = empty_store.list_sweeps().items
    assert answer.headers["location"] == f"/sweeps/{sweep.id}"


def test_a_match_is_queued_from_the_page_of_all_matches(
    form_client: TestClient, empty_store: Store
) -> None:
    assert "/presets/quickstart-match/submit" in open_page(form_client, "/matches").addresses

    answer = form_client.post("/presets/quickstart-match/submit")

    [match] = empty_store.list_sweeps().items
    assert (match.kind, answer.headers["location"]) == ("match", f"/matches/{match.id}")


def test_a_preset_that_cannot_run_here_says_why(form_client: TestClient) -> None:
    answer = form_client.post("/presets/paper-table1-cifar10/submit")

    assert answer.status_code == 422
    assert "not prepared" in answer.text


def test_another_site_may_not_submit(form_client: TestClient, empty_store: Store) -> None:
    answer = form_client.post(
        "/sweeps/new", data={**VALID, "action": "create"}, headers={"Origin": "http://elsewhere"}
    )

    assert answer.status_code == 403
    assert empty_store.list_sweeps().items == []


def test_pages_without_a_service_have_no_form(empty_store: Store) -> None:
    from fastapi import FastAPI

    app = FastAPI()
    app.include_router(pages_router(empty_store))
    open_page(TestClient(app), "/sweeps/new", status=404)


def test_what_cloning_shows_is_what_was_run(form_client: TestClient, empty_store: Store) -> None:
    sweep_id = seeding.create(empty_store, "origin")

    html = form_client.get(f"/sweeps/new?source={sweep_id}").text

    assert value_of(html, "space-1-when") == "optimizer: [ndadam]"


def test_the_form_works_behind_a_token_with_the_login_s_cookie(
    empty_store: Store, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path / "home").model_copy(
        update={"token": SecretStr("secret-of-this-test")}
    )
    client = TestClient(create_app(empty_store, settings), base_url="http://127.0.0.1:8000")
    client.follow_redirects = False
    html = {"Accept": "text/html", "Origin": "http://127.0.0.1:8000"}

    assert client.get("/sweeps/new", headers=html).headers["location"].startswith("/login")
    refused = client.post("/sweeps/new", data={**VALID, "action": "create"}, headers=html)
    assert refused.status_code == 401
    client.post("/login?next=/sweeps/new", data={"token": "secret-of-this-test"}, headers=html)

    checked = client.post("/sweeps/validate", data=VALID, headers=html)
    assert "Ready to submit" in checked.text
    made = client.post("/sweeps/new", data={**VALID, "action": "create"}, headers=html)
    assert made.status_code == 303
    [sweep] = empty_store.list_sweeps().items
    assert made.headers["location"] == f"/sweeps/{sweep.id}"


MATCH = {
    "name": "by-hand",
    "base.dataset": "digits",
    "base.recipe": "paper-wrn",
    "base.depth": "10",
    "base.widen_factor": "1",
    "base.batch_size": "32",
    "base.steps": "2400",
    "base.lr_schedule": "constant",
    "base.gamma_c": "2.5",
    "source.optimizer": "sgd",
    "source.lr": "0.1",
    "source.momentum": "0.9",
    "source.weight_decay": "0.001",
    "target.optimizer": "ndadam",
    "replicates": "3",
    "rest": "base: {crop_pad: 1, flip: false, last_batch: drop, validation_fraction: 0.0}",
    "key": "one",
}


class TestMatchForm:
    def test_the_closed_form_answers_while_the_form_is_filled(
        self, form_client: TestClient, empty_store: Store
    ) -> None:
        html = form_client.post("/matches/validate", data=MATCH).text

        # sqrt(2 · 0.1 · 0.001 / 1.9) over sqrt(0.1 / 1.9) is 0.0447; on the sphere a little more.
        assert "Ready to submit" in html
        assert re.search(r"0\.04496 <small>stationary: what the verdict uses", html), html
        assert re.search(r"6 to 9 <small>", html)
        assert re.search(r"steps 1.?400 to 2.?400", html)
        assert empty_store.list_sweeps().items == []

    def test_a_refusal_stands_at_the_arm_s_field(self, form_client: TestClient) -> None:
        wrong = {**MATCH, "source.momentum": "1.5", "tolerance": "3"}
        html = form_client.post("/matches/validate", data=wrong).text

        assert "got 1.5" in reason_at(html, "source-momentum")
        assert reason_at(html, "tolerance") != ""
        open_rate = {**MATCH, "rest": "target: {alpha_v: 0.1}"}
        assert "is what the match finds" in reason_at(
            form_client.post("/matches/validate", data=open_rate).text, "rest"
        )

    def test_a_space_stays_in_the_yaml_with_its_refusal_there(
        self, form_client: TestClient, empty_store: Store
    ) -> None:
        space = "space: {alpha_v: {kind: float, low: 0.01, high: 0.1}}"
        pasted = {**MATCH, "rest": space, "action": "step"}
        html = form_client.post("/matches/new", data=pasted).text

        assert "low: 0.01" in yaml_of(html)
        assert "space" in reason_at(html, "rest")
        kept = {**MATCH, "rest": yaml_of(html), "action": "create"}
        again = form_client.post("/matches/new", data=kept)
        assert again.status_code == 422
        assert "low: 0.01" in yaml_of(again.text)
        assert empty_store.list_sweeps().items == []

    def test_a_match_is_cloned_edited_and_queued_once(
        self, form_client: TestClient, empty_store: Store
    ) -> None:
        for _ in range(2):
            made = form_client.post("/matches/new", data={**MATCH, "action": "create"})
        [match] = empty_store.list_sweeps().items
        assert (match.kind, made.headers["location"]) == ("match", f"/matches/{match.id}")
        page = form_client.get(f"/matches/{match.id}").text
        assert f'href="/matches/new?source={match.id}"' in page

        html = form_client.get(f"/matches/new?source={match.id}").text
        assert "Filled from match by-hand" in html
        assert value_of(html, "source-lr") == "0.1"
        assert "crop_pad: 1" in html
        edited = {**MATCH, "source.lr": "0.2", "action": "create"}
        form_client.post("/matches/new", data=edited)
        rates = {one.spec["source"]["lr"] for one in empty_store.list_sweeps().items}
        assert rates == {0.1, 0.2}

    def test_presets_and_sources_of_the_other_kind_lead_to_its_form(
        self, client: TestClient, seeded: Seeded
    ) -> None:
        def target(address: str) -> str:
            return client.get(address, follow_redirects=False).headers["location"]

        assert target("/sweeps/new?preset=quickstart-match") == (
            "/matches/new?preset=quickstart-match"
        )
        assert target("/matches/new?preset=quickstart") == "/sweeps/new?preset=quickstart"
        assert target(f"/matches/new?source={seeded.sweep}") == f"/sweeps/new?source={seeded.sweep}"
        assert "Ready to submit" in client.get("/matches/new?preset=quickstart-match").text


class TestOpening:
    """What a new user sees before anything was typed."""

    @pytest.mark.parametrize("place", ["sweeps", "matches"])
    def test_an_empty_form_opens_without_a_mistake(self, client: TestClient, place: str) -> None:
        html = client.get(f"/{place}/new").text

        assert 'class="problems"' not in html
        assert "problem to fix" not in html
        assert re.findall(r'class="why"[^>]*>[^<]+<', html) == []
        assert '<a href="#field-name">name</a>: what to call the ' in html

    def test_what_is_there_is_estimated_before_it_has_a_name(self, form_client: TestClient) -> None:
        html = form_client.post("/sweeps/validate", data={**VALID, "name": ""}).text

        assert "Ready when this is filled in" in html
        assert "4 points × 3 seeds" in html
        assert reason_at(html, "name") == ""

    def test_without_a_name_it_cannot_be_submitted(
        self, form_client: TestClient, empty_store: Store
    ) -> None:
        sent = {**VALID, "name": "", "action": "create"}
        refused = form_client.post("/sweeps/new", data=sent)

        assert refused.status_code == 422
        assert "name should have at least 1 character" in reason_at(refused.text, "name")
        assert "1 problem to fix" in refused.text
        assert empty_store.list_sweeps().items == []

    def test_a_name_in_the_yaml_is_a_name(self, form_client: TestClient) -> None:
        sent = {**VALID, "name": "", "rest": "name: from-yaml"}

        assert "Ready to submit" in form_client.post("/sweeps/validate", data=sent).text


class TestNetwork:
    @pytest.mark.parametrize("place", ["sweeps", "matches"])
    def test_it_has_a_control_with_every_registered_network(
        self, client: TestClient, place: str
    ) -> None:
        html = client.get(f"/{place}/new").text
        control = re.search(r'<select id="field-base-network".*?</select>', html, re.DOTALL)

        assert control is not None
        assert re.findall(r"<option[^>]*>([^<]*)", control[0]) == ["– (wrn)", "mlp", "wrn"]
        assert "wrn: 6n + 4 layers; mlp: hidden layers" in html

    def test_a_perceptron_may_be_of_any_depth(self, form_client: TestClient) -> None:
        sent = {**VALID, "base.network": "mlp", "base.depth": "2"}

        assert "Ready to submit" in form_client.post("/sweeps/validate", data=sent).text


def test_a_field_that_varies_offers_no_default_in_its_fixed_control(client: TestClient) -> None:
    html = client.get("/sweeps/new?preset=quickstart").text
    control = re.search(r'<select id="field-base-optimizer".*?</option>', html, re.DOTALL)

    assert control is not None
    assert "– (varies below)" in control[0]
    assert re.search(r'id="field-base-alpha-v"[^>]*placeholder="varies below"', html)
