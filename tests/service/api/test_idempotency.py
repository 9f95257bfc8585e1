"""Twenty identical requests at once are one sweep."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import httpx2
import pytest

TIMES = 20


def post_at_once(url, bodies, headers):
    """The answers to all ``bodies``, sent by as many threads at the same moment."""
    barrier = Barrier(len(bodies))

    def post(body):
        with httpx2.Client(timeout=300) as client:
            barrier.wait()
            return client.post(url, json=body, headers=headers)

    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(post, bodies))


@pytest.mark.parametrize("kind", ["sweeps", "matches"])
def test_parallel_posts_with_one_key_all_answer_the_same_sweep(live, store, spec, match_spec, kind):
    body = spec if kind == "sweeps" else match_spec

    answers = post_at_once(f"{live}/api/v1/{kind}", [body] * TIMES, {"Idempotency-Key": "k"})

    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len({answer.headers["location"] for answer in answers}) == 1
    assert len(store.list_sweeps().items) == 1


def test_parallel_posts_of_two_bodies_with_one_key_make_one_sweep(live, store, spec):
    bodies = [spec, spec | {"replicates": 3}] * (TIMES // 2)

    answers = post_at_once(f"{live}/api/v1/sweeps", bodies, {"Idempotency-Key": "k"})

    winners = {answer.json()["id"] for answer in answers if answer.status_code == 201}
    losers = [answer for answer in answers if answer.status_code != 201]
    assert len(winners) == 1
    assert len(losers) == TIMES // 2
    assert {answer.json()["error"] for answer in losers} == {"IdempotencyConflict"}
    assert len(store.list_sweeps().items) == 1


def test_without_a_key_every_post_is_a_sweep_of_its_own(live, store, spec):
    answers = post_at_once(f"{live}/api/v1/sweeps", [spec] * 5, {})

    assert len({answer.json()["id"] for answer in answers}) == 5


def test_a_duplicate_never_changes_what_the_first_one_became(live, store, spec):
    headers = {"Idempotency-Key": "k"}
    first = post_at_once(f"{live}/api/v1/sweeps", [spec], headers)[0].json()["id"]
    claim = store.claim("runner")

    post_at_once(f"{live}/api/v1/sweeps", [spec, spec | {"replicates": 3}] * 5, headers)

    assert store.get_sweep(first).state == "running"
    store.renew(claim)  # raises if the claim was lost


@pytest.mark.parametrize("key", ["", "a b", "ü", "x" * 201, "a\tb"])
def test_a_key_that_cannot_be_one_is_refused(client, spec, key, assert_error):
    headers = {"Idempotency-Key": key.encode("latin-1")}

    response = client.post("/api/v1/sweeps", json=spec, headers=headers)

    assert_error(response, 422, "ValidationError")
    assert client.get("/api/v1/sweeps").json()["items"] == []


@pytest.mark.parametrize("kind", ["sweeps", "matches"])
def test_a_replay_answers_the_same_after_its_data_set_has_gone(
    client, data, spec, match_spec, kind
):
    body = spec if kind == "sweeps" else match_spec
    headers = {"Idempotency-Key": "k"}
    first = client.post(f"/api/v1/{kind}", json=body, headers=headers)
    for file in data.iterdir():
        file.unlink()

    again = client.post(f"/api/v1/{kind}", json=body, headers=headers)
    other = client.post(f"/api/v1/{kind}", json=body, headers={"Idempotency-Key": "l"})

    assert (first.status_code, again.status_code, other.status_code) == (201, 201, 422)
    assert again.json() == first.json()
    assert again.headers["location"] == first.headers["location"]
