"""Every verb in every state of a sweep: what happens is what the table in api.md says."""

import pytest

from sweeps.records import NewTrial, SweepState, TrialState
from sweeps.spec.sweep_spec import SweepSpec
from tests.project.documents import page, rows, section

SWEEPS = "/api/v1/sweeps"
TABLE = [row for row in rows(section(page("api.md"), "## Routes")) if len(row) == 8]
VERBS = next(row for row in TABLE if row[0] == "state")[1:] if TABLE else []


def cells():
    header, *states = TABLE
    assert header[0] == "state"
    return [
        pytest.param(state[0], verb, words, id=f"{state[0]}-{verb}")
        for state in states
        for verb, words in zip(header[1:], state[1:], strict=True)
    ]


@pytest.fixture
def sweep_in(client, store, spec):
    """Brings a sweep with a complete and a failed trial into a state."""

    def make(state):
        made = client.post(SWEEPS, json=spec).json()
        claim = store.claim("driver")
        known = SweepSpec.model_validate(made["spec"])
        for seed, ended in ((0, TrialState.COMPLETE), (1, TrialState.FAILED)):
            point = 0 if ended == TrialState.COMPLETE else 1
            params = {"alpha_v": 0.05 + 0.01 * point}
            config = known.config(params, seed)
            new = NewTrial(point, seed, params, config.stored(), config.key())
            trial = store.add_trials(claim, [new])[0]
            attempt = store.start_attempt(claim, trial.number)
            store.finish_attempt(
                claim, trial.number, attempt.id, ended, "x", trial_state=ended, objective=0.1
            )
        if state != "running":
            store.release(claim, SweepState(state), "")
        return made["id"]

    return make


def assert_as_the_table_says(now, sweep_id, state, verb, words):
    """What a verb answered is what the words of its cell say."""
    word = words.split()[0].strip(",")
    if word in {"cancelled", "paused", "queued"}:
        assert now["state"] == word
    elif word == "requested":
        assert (now["state"], now["requested"]) == ("running", verb)
    elif word == "failed":
        counts = now["trials"]
        assert (now["state"], counts["failed"], counts["waiting"]) == ("running", 0, 1)
    elif word == "larger":
        assert (now["state"], now["num_trials"]) == (state, 80)
    elif words == "no change":
        assert now["state"] == state
    elif word == "another":
        assert (now["id"] != sweep_id, now["state"]) == (True, "queued")


@pytest.mark.parametrize(("state", "verb", "words"), cells())
def test_the_table_of_verbs_and_states_is_true(client, sweep_in, state, verb, words):
    sweep_id = sweep_in(state)
    body = {"extend": {"num_points": 40}}.get(verb)

    def ask():
        if verb == "delete":
            return client.delete(f"{SWEEPS}/{sweep_id}")
        return client.post(f"{SWEEPS}/{sweep_id}/{verb}", json=body)

    answer = ask()

    if words.startswith("409"):
        assert answer.status_code == 409, answer.text
        assert answer.json()["error"] == "SweepStateConflict"
        return
    assert answer.is_success, answer.text
    if verb == "delete" and state != "running":
        assert client.get(f"{SWEEPS}/{sweep_id}").status_code == 404
        return
    now = answer.json()
    assert_as_the_table_says(now, sweep_id, state, verb, words)
    # And once more: nothing else happens.
    again = ask()
    assert again.is_success
    assert again.json()["id"] == now["id"]
    assert again.json()["state"] == now["state"]


def test_the_table_names_every_state_and_verb():
    assert {row[0] for row in TABLE} == {"state", *map(str, SweepState)}
    assert VERBS == ["cancel", "pause", "resume", "retry", "extend", "confirm", "delete"]
