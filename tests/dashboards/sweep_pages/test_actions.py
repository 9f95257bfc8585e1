"""Which buttons a sweep's page offers, what they send, and what it says of best and cost."""

from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from dashboards.sweep_pages.buttons import actions, retry_note, retry_of_trial, trial_note
from dashboards.sweep_pages.overview import cost_text
from dashboards.web.point_cache import Kept
from service.api.trial_files import trial_checkpoints
from sweeps.records import Sweep, SweepState, TrialState
from sweeps.store.store import Store
from tests.dashboards import seeding
from tests.dashboards.conftest import Seeded
from tests.dashboards.page_reading import open_page


@pytest.fixture
def complete(seeded: Seeded) -> Sweep:
    return seeded.store.get_sweep(seeded.sweep)


def verbs(sweep: Sweep) -> list[str]:
    return [action.verb for action in actions(sweep)]


def test_a_complete_sweep_can_be_extended_and_confirmed(complete: Sweep) -> None:
    assert verbs(complete) == ["extend", "confirm"]


def test_failed_trials_can_be_retried(complete: Sweep) -> None:
    failed = replace(complete, trials={**complete.trials, TrialState.FAILED: 2})

    assert verbs(failed) == ["retry", "extend", "confirm"]
    assert actions(failed)[0].label == "Retry 2 failed trials"
    running = replace(failed, state=SweepState.RUNNING)
    assert "retry" in verbs(running)


def test_what_is_not_retried_has_its_reason(complete: Sweep) -> None:
    counts = {**complete.trials, TrialState.FAILED: 1, TrialState.DIVERGED: 2}
    ended = replace(complete, trials=counts)
    cancelled = replace(ended, state=SweepState.CANCELLED)
    ending = replace(ended, state=SweepState.RUNNING, requested="cancel")

    assert "retry" not in verbs(cancelled) + verbs(ending)
    assert retry_note(ended).startswith("Diverged trials are not retried: the same settings")
    assert "cannot be retried: the sweep is cancelled" in retry_note(cancelled)
    assert "cannot be retried: the sweep is being cancelled" in retry_note(ending)
    assert retry_note(replace(ended, trials={**counts, TrialState.DIVERGED: 0})) == ""


def test_a_trial_s_page_says_whether_it_can_be_retried(seeded: Seeded, complete: Sweep) -> None:
    trial = seeded.store.trial(seeded.sweep, 0)
    counts = {**complete.trials, TrialState.FAILED: 1}
    failed, diverged = (
        replace(trial, state=state) for state in (TrialState.FAILED, TrialState.DIVERGED)
    )
    ended = replace(complete, trials=counts)
    button = retry_of_trial(ended, failed)

    assert button is not None
    assert button.verb == "retry"
    assert trial_note(ended, failed) == ""
    cancelled = replace(ended, state=SweepState.CANCELLED)
    assert retry_of_trial(cancelled, failed) is None
    assert "the sweep is cancelled" in trial_note(cancelled, failed)
    assert retry_of_trial(ended, diverged) is None
    assert "would diverge again" in trial_note(ended, diverged)
    assert trial_note(ended, trial) == ""


class TestWithoutScript:
    """What the forms do in a browser that runs no script."""

    def test_a_button_leads_back_to_the_page_that_shows_what_it_did(
        self, empty_store: Store, empty_client: TestClient
    ) -> None:
        sweep = seeding.create(empty_store, "plain")
        html = empty_client.get(f"/sweeps/{sweep}").text
        assert f'action="/sweeps/{sweep}/do/pause"' in html

        answer = empty_client.post(f"/sweeps/{sweep}/do/pause", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/sweeps/{sweep}")
        assert empty_store.get_sweep(sweep).state == SweepState.PAUSED

        empty_client.post(f"/sweeps/{sweep}/do/label", data={"tags": "a, b", "notes": "kept"})
        labelled = empty_store.get_sweep(sweep)
        assert (labelled.tags, labelled.notes) == (("a", "b"), "kept")

        empty_client.post(f"/sweeps/{sweep}/do/resume")
        assert empty_store.get_sweep(sweep).state == SweepState.QUEUED

        empty_client.post(f"/sweeps/{sweep}/do/cancel")
        assert empty_store.get_sweep(sweep).state == SweepState.CANCELLED
        assert empty_client.post(f"/sweeps/{sweep}/do/explode").status_code == 404
        back = empty_client.get(f"/sweeps/{sweep}/do/pause", follow_redirects=False)
        assert (back.status_code, back.headers["location"]) == (303, f"/sweeps/{sweep}")

    def test_extend_and_confirm_read_the_numbers_of_their_forms(
        self, empty_store: Store, empty_client: TestClient
    ) -> None:
        with seeding.stopped_clock(1000) as clock:
            sweep = seeding.finished_sweep(empty_store, "search", clock, num_points=4)

        made = empty_client.post(
            f"/sweeps/{sweep}/do/confirm",
            data={"points": "1", "replicates": "3"},
            follow_redirects=False,
        )
        assert made.status_code == 303
        confirming = made.headers["location"].removeprefix("/sweeps/")
        assert empty_store.get_sweep(confirming).spec["replicates"] == 3

        empty_client.post(f"/sweeps/{sweep}/do/extend", data={"num_points": "6"})
        assert empty_store.get_sweep(sweep).spec["num_points"] == 6
        refused = empty_client.post(f"/sweeps/{sweep}/do/extend", data={"num_points": "many"})
        assert refused.status_code == 422
        assert "num_points" in refused.text or "integer" in refused.text

    def test_a_state_that_forbids_it_is_a_page_with_the_reason(
        self, empty_store: Store, empty_client: TestClient
    ) -> None:
        sweep = seeding.create(empty_store, "ended")
        empty_store.request(sweep, "cancel")

        answer = empty_client.post(f"/sweeps/{sweep}/do/resume")

        assert answer.status_code == 409
        assert "annot resume" in answer.text
        assert f'href="/sweeps/{sweep}">Back</a>' in answer.text


class TestDeleting:
    def test_the_page_says_what_goes_and_what_stays_and_deletes_only_when_sent(
        self, empty_store: Store, empty_client: TestClient, tmp_path: Path
    ) -> None:
        with seeding.stopped_clock(1000) as clock:
            sweep = seeding.finished_sweep(empty_store, "old one", clock, num_points=2)
        log = tmp_path / "home" / "logs" / sweep / "0.log"
        log.parent.mkdir(parents=True)
        log.write_text("step 1")
        assert f'href="/sweeps/{sweep}/delete"' in empty_client.get(f"/sweeps/{sweep}").text

        asked = empty_client.get(f"/sweeps/{sweep}/delete").text
        for words in ("6 trials", "logs and checkpoints", "MLflow experiment", "Delete for good"):
            assert words in asked, words
        assert empty_store.get_sweep(sweep).name == "old one"

        answer = empty_client.post(f"/sweeps/{sweep}/delete", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert not log.exists()
        open_page(empty_client, f"/sweeps/{sweep}", 404)

    def test_a_running_sweep_s_page_shows_that_it_goes_when_its_trials_have_stopped(
        self, empty_store: Store, empty_client: TestClient
    ) -> None:
        with seeding.stopped_clock(400) as clock:
            sweep, claim, *_ = seeding.running_sweep(empty_store, "at work", clock)
        assert "It is running" in empty_client.get(f"/sweeps/{sweep}/delete").text

        answer = empty_client.post(f"/sweeps/{sweep}/delete")

        assert str(answer.url).endswith(f"/sweeps/{sweep}")
        assert "delete requested" in answer.text
        assert empty_store.requested(claim) == "delete"
        assert f"/sweeps/{sweep}/delete" not in answer.text


def test_a_running_sweep_is_not_confirmed_and_a_cancelled_one_not_extended(complete: Sweep) -> None:
    assert verbs(replace(complete, state=SweepState.RUNNING)) == ["pause", "cancel", "extend"]
    assert verbs(replace(complete, state=SweepState.PAUSED)) == ["resume", "cancel", "extend"]
    assert verbs(replace(complete, state=SweepState.CANCELLED)) == ["confirm"]


def test_a_match_only_stops_and_goes_on(seeded: Seeded) -> None:
    match = seeded.store.get_sweep(seeded.match)

    assert verbs(match) == []
    assert verbs(replace(match, state=SweepState.RUNNING)) == ["pause", "cancel"]


def test_an_extension_begins_above_what_there_is(complete: Sweep) -> None:
    [extend] = [action for action in actions(complete) if action.verb == "extend"]

    assert [(n.name, n.value, n.least) for n in extend.numbers] == [
        ("num_points", 20, 10),
        ("replicates", 3, 3),
    ]


def test_cost_counts_what_a_trial_occupies(complete: Sweep) -> None:
    half = replace(complete, spec={"resources": {"gpus": 0.5}}, trial_seconds=7200.0)
    two = replace(complete, spec={"resources": {"cpus": 2}}, trial_seconds=60.0)

    assert cost_text(half) == "1 h GPU"
    assert cost_text(two) == "2 min CPU"


def test_best_is_selected_until_fresh_seeds_have_confirmed_it(
    empty_store: Store, empty_client: TestClient
) -> None:
    with seeding.stopped_clock(1000) as clock:
        sweep = seeding.finished_sweep(empty_store, "search", clock)
    assert "confirmed" not in open_page(empty_client, "/").tables["Sweeps"][1][3]

    answer = empty_client.post(f"/api/v1/sweeps/{sweep}/confirm", json={"replicates": 3})
    assert answer.status_code == 201, answer.text
    claim = seeding.claim(empty_store)
    confirming = empty_store.get_sweep(claim.sweep_id)
    with seeding.stopped_clock(500) as clock:
        for number, params in enumerate(confirming.spec["initial_points"]):
            for trial in empty_store.add_trials(claim, seeding.new_trials(number, params)):
                seeding.train(empty_store, claim, trial.number, params, trial.seed, clock)
        empty_store.release(claim, SweepState.COMPLETE, "all done")

    rows = {row[0].split()[0]: row for row in open_page(empty_client, "/").tables["Sweeps"][1:]}
    assert "confirmed" in rows["search"][3]
    html = empty_client.get(f"/sweeps/{sweep}").text
    assert "on fresh seeds" in html
    assert f'href="/sweeps/{confirming.id}"' in html
    back = empty_client.get(f"/sweeps/{confirming.id}").text
    assert f'href="/sweeps/{sweep}"' in back


def test_checkpoints_are_listed_newest_first(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints" / "abc" / "3"
    folder.mkdir(parents=True)
    for step in (100, 200):
        (folder / f"step-{step:010d}.ckpt").write_bytes(b"x" * step)
    (folder / ".checkpoint-half").write_bytes(b"")

    found = trial_checkpoints(tmp_path, "abc", 3)

    assert [(file.step, file.size) for file in found] == [(200, 200), (100, 100)]
    assert trial_checkpoints(tmp_path, "abc", 4) == []


class TestKept:
    def test_a_value_is_computed_once_per_key(self) -> None:
        calls: list[int] = []
        kept = Kept()

        values = [kept.get(("a", 1), lambda: calls.append(1) or len(calls)) for _ in range(3)]

        assert values == [1, 1, 1]

    def test_what_was_not_asked_for_longest_goes_first(self) -> None:
        kept = Kept(most=2)
        for key in ("a", "b", "a", "c"):
            kept.get((key,), lambda key=key: key)
        calls: list[str] = []

        kept.get(("a",), lambda: calls.append("a"))
        kept.get(("b",), lambda: calls.append("b"))

        assert calls == ["b"]

    def test_a_failure_is_not_kept(self) -> None:
        kept = Kept()
        with pytest.raises(ZeroDivisionError):
            kept.get(("a",), lambda: 1 / 0)

        assert kept.get(("a",), lambda: 2) == 2
