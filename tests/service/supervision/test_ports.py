"""Listening sockets and the sentences of those that cannot be had."""

import pytest

from service.settings import SettingsError
from service.supervision.ports import address, claimed_port, listen


@pytest.fixture
def taken():
    """A port below those that a system gives to whoever takes any: nobody takes its neighbours."""
    with listen("127.0.0.1", None, 21_000) as server:
        yield server.getsockname()[1]


def test_a_port_that_was_asked_for_and_is_in_use_is_refused_by_name(taken):
    with pytest.raises(SettingsError, match=f"port {taken} on 127.0.0.1 is in use"):
        listen("127.0.0.1", taken, 8000)


def test_the_usual_port_in_use_gives_the_next_free_one(taken):
    with listen("127.0.0.1", None, taken) as server:
        assert taken < server.getsockname()[1] < taken + 100


def test_a_claimed_port_can_be_bound(taken):
    with claimed_port("127.0.0.1", None, taken) as port:
        assert port > taken
        with listen("127.0.0.1", port, 0) as server:
            assert server.getsockname()[1] == port


def test_a_claimed_port_is_passed_over_and_refused_by_name_until_it_is_given_back(taken):
    with claimed_port("127.0.0.1", None, taken) as mine:
        # As after the death of the program that listens there: nothing does, and it is still ours.
        with claimed_port("127.0.0.1", None, mine) as other:
            assert mine < other < mine + 100
        with (
            pytest.raises(SettingsError, match=f"port {mine} on 127.0.0.1 belongs to another"),
            claimed_port("127.0.0.1", mine, 0),
        ):
            pass

    with claimed_port("127.0.0.1", mine, 0) as again:
        assert again == mine


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1"])
def test_an_address_of_another_machine_is_refused_with_a_sentence(host):
    with pytest.raises(SettingsError, match=host.replace(".", r"\.")):
        listen(host, 0, 8000)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("::1", "http://[::1]:80"),
        ("box.example", "http://box.example:80"),
    ],
)
def test_the_printed_address_can_be_opened_on_this_machine(host, url):
    assert address(host, 80) == url
