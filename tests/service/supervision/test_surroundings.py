"""What a machine lacks is put into the environment, and nothing that it has is changed."""

import os
import pwd

import pytest

from service.client.client import Client
from service.supervision.surroundings import complete_surroundings

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch):
    monkeypatch.setattr(os, "environ", os.environ.copy())
    for name in PROXIES:
        os.environ.pop(name, None)
        os.environ.pop(name.upper(), None)


def test_a_user_without_a_home_folder_gets_that_of_the_service(monkeypatch, tmp_path):
    def unknown(uid):
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.delenv("HOME")
    monkeypatch.setenv("NDSWEEP_HOME", str(tmp_path))

    complete_surroundings()

    assert os.environ["HOME"] == str(tmp_path)


def test_a_home_folder_that_is_there_stays(monkeypatch):
    monkeypatch.setenv("HOME", "/somewhere")

    complete_surroundings()

    assert os.environ["HOME"] == "/somewhere"


def test_without_a_proxy_nothing_is_set():
    before = dict(os.environ)

    complete_surroundings()

    assert dict(os.environ) == before


@pytest.mark.parametrize("proxy", ["http_proxy", "HTTPS_PROXY", "ALL_PROXY"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "127.0.0.1,localhost,::1"),
        ("example.org, localhost", "example.org,localhost,127.0.0.1,::1"),
        ("*", "*"),
    ],
)
def test_no_proxy_is_asked_for_this_machine(monkeypatch, proxy, before, after):
    monkeypatch.setenv(proxy, "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", before)

    complete_surroundings()

    assert os.environ["no_proxy"] == os.environ["NO_PROXY"] == after


def test_a_client_asks_no_proxy_for_a_service_on_this_machine(monkeypatch, live):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")

    with Client(live) as service:
        assert service.is_ready()
