"""Guessing the token is slow; who has it is let in whatever others guess."""

import pytest
from starlette.testclient import TestClient

from service.api.access.callers import Access, TooManyWrong
from service.api.access.wrong_tokens import (
    BURST,
    MOST_ADDRESSES,
    REMEMBERED,
    SECONDS_EACH,
    WrongTokens,
)
from service.api.app import create_app
from service.settings import Settings

TOKEN = "correct horse battery staple"
OUTSIDE, LOOPBACK = "203.0.113.9", "127.0.0.1"


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


class Door:
    """Shows tokens: whether one opens, or the seconds to wait where it is not looked at."""

    def __init__(self, access):
        self.access = access

    def opens(self, host, given):
        asking = self.access.of_token(host, given)
        try:
            asking.send(None)  # nothing is waited for: no such token could be in a store
        except StopIteration as answer:
            return answer.value is not None
        except TooManyWrong as refusal:
            return refusal.seconds
        raise AssertionError("asked the store for what is no token")


@pytest.fixture
def door(clock):
    return Door(Access(None, Settings(token=TOKEN), WrongTokens(clock), clock))


def guess(door, host, count, first=0):
    return [door.opens(host, f"guess {first + n}") for n in range(count)]


def test_an_address_may_show_so_many_wrong_tokens_and_then_waits(door, clock):
    assert guess(door, OUTSIDE, BURST) == [False] * BURST
    wait = door.opens(OUTSIDE, "one more")
    assert wait == SECONDS_EACH

    clock.now += SECONDS_EACH
    assert door.opens(OUTSIDE, "one more") is False
    assert door.opens(OUTSIDE, "and one") == SECONDS_EACH


def test_a_guess_is_not_looked_at_while_its_address_waits(door):
    """Else a guesser could take every answer but the right one for no answer."""
    guess(door, OUTSIDE, BURST)

    assert door.opens(OUTSIDE, TOKEN) == SECONDS_EACH


def test_a_day_of_guessing_tries_few_tokens(door, clock):
    tried = 0
    for n in range(24 * 3600):
        clock.now += 1
        tried += door.opens(OUTSIDE, f"guess {n}") is False

    assert tried <= BURST + 24 * 3600 / SECONDS_EACH + 1


def test_other_addresses_are_let_in_meanwhile(door):
    guess(door, OUTSIDE, 10 * BURST)

    assert door.opens("203.0.113.10", TOKEN) is True
    assert door.opens(LOOPBACK, TOKEN) is True


@pytest.mark.parametrize("host", [LOOPBACK, "::1", "127.8.8.8"])
def test_the_right_token_from_this_machine_is_never_kept_out(door, host):
    answers = guess(door, host, 10 * BURST)

    assert answers[-1] == SECONDS_EACH
    assert door.opens(host, TOKEN) is True


def test_who_has_shown_the_token_is_not_kept_out_by_a_guesser_behind_the_same_address(door, clock):
    assert door.opens(OUTSIDE, TOKEN) is True
    answers = guess(door, OUTSIDE, 10 * BURST)

    assert answers[-1] == SECONDS_EACH
    assert door.opens(OUTSIDE, TOKEN) is True
    clock.now += REMEMBERED + 1
    guess(door, OUTSIDE, 10 * BURST, first=1000)
    assert door.opens(OUTSIDE, TOKEN) == SECONDS_EACH


def test_a_program_with_an_old_token_keeps_nobody_out(door):
    for _ in range(1000):
        assert door.opens(OUTSIDE, "the token of last month") is False

    assert door.opens(OUTSIDE, TOKEN) is True


def test_a_network_of_version_6_counts_as_one_address(door):
    answers = [door.opens(f"2001:db8::{n:x}", f"guess {n}") for n in range(1, BURST + 2)]

    assert answers == [False] * BURST + [SECONDS_EACH]
    assert door.opens("2001:db8:0:1::1", "guess") is False
    assert door.opens("::ffff:203.0.113.9", "guess") is False


def test_memory_is_bounded(clock):
    wrong = WrongTokens(clock)
    for n in range(3 * MOST_ADDRESSES):
        wrong.note_wrong(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}", "x" * 1000)

    assert len(wrong._addresses) == MOST_ADDRESSES
    assert max(len(found.seen) for found in wrong._addresses.values()) <= BURST


# --- Over HTTP -----------------------------------------------------------------------------------


@pytest.fixture(params=[OUTSIDE, LOOPBACK])
def guarded(store, home, data, request):
    app = create_app(store, Settings(home=home, data=data, token=TOKEN))
    address = (request.param, 50000)
    with TestClient(
        app, base_url="http://127.0.0.1:8000", client=address, follow_redirects=False
    ) as client:
        yield client


def test_wrong_bearers_are_answered_with_429_and_when_to_come_back(guarded, assert_error):
    def ask(token):
        return guarded.get("/api/v1/sweeps", headers={"Authorization": f"Bearer {token}"})

    statuses = [ask(f"wrong {n}").status_code for n in range(300)]

    assert statuses == [401] * BURST + [429] * (300 - BURST)
    late = ask("wrong 1000")
    assert "try again in" in assert_error(late, 429, "TooManyWrongTokens")["detail"]
    assert 0 < int(late.headers["retry-after"]) <= SECONDS_EACH


def test_wrong_tokens_at_the_page_are_too_and_both_count_together(guarded):
    statuses = [
        guarded.post("/login", data={"token": f"wrong {n}"}).status_code for n in range(BURST)
    ]
    late = guarded.post("/login", data={"token": "wrong again"})

    assert statuses == [401] * BURST
    assert late.status_code == 429
    assert "Too many wrong tokens" in late.text
    assert int(late.headers["retry-after"]) > 0
    bearer = {"Authorization": "Bearer another"}
    assert guarded.get("/api/v1/sweeps", headers=bearer).status_code == 429


def test_signed_in_browsers_go_on_and_health_is_answered(guarded):
    assert guarded.post("/login", data={"token": TOKEN}).status_code == 303
    for n in range(3 * BURST):
        guarded.post("/login", data={"token": f"wrong {n}"})

    assert guarded.get("/api/v1/sweeps").status_code == 200
    assert guarded.get("/healthz").status_code == 200


def test_no_token_is_no_wrong_one(guarded):
    for _ in range(3 * BURST):
        assert guarded.get("/api/v1/sweeps").status_code == 401
        assert guarded.get("/login").status_code == 200

    assert guarded.post("/login", data={"token": TOKEN}).status_code == 303
