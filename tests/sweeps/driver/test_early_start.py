"""A runner and its drivers begin before the store has tables and before a cluster listens."""

import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeps.cluster.head import listening
from sweeps.driver.process import DriverProcess
from sweeps.driver.runner import Runner, await_tables
from sweeps.store.store import Store
from tests.sweeps.driver.test_runner_head import Stuck, record_head, started
from tests.sweeps.driver.test_runner_report import Idle
from tests.sweeps.stack import until


@pytest.fixture(autouse=True)
def _no_cluster_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@contextlib.contextmanager
def running(runner: Runner) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=runner.run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_runner_waits_for_the_tables_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    with running(Runner(store, Idle(store.url, tmp_path))):
        until(lambda: "waiting: the API has yet to make" in caplog.text, "the runner waits")
        threading.Event().wait(1.5)
        noted = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert not noted
        assert len(caplog.records) == 1
        assert not (tmp_path / "logs" / "drivers.log").exists()

        store.migrate()
        until(
            lambda: [sign for sign in store.runners() if sign.info["cluster"]], "the runner works"
        )
    store.close()


def test_it_waits_for_a_store_that_is_away_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    store = Store("postgresql+psycopg://nobody@127.0.0.1:1/none")
    stop = threading.Event()
    thread = threading.Thread(target=await_tables, args=(store, stop))
    thread.start()
    until(lambda: "waiting: the store cannot be used" in caplog.text, "it waits")
    threading.Event().wait(1.0)
    stop.set()
    thread.join()

    assert len(caplog.records) == 1


# --- Drivers -------------------------------------------------------------------------------------


@pytest.fixture
def driver(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [sys.executable, "-m", "sweeps.driver.driver", "--home", str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"NDSWEEP_STORE_URL": f"sqlite:///{tmp_path / 'store.db'}"},
    ) as process:
        yield process
        process.kill()


def said(driver: "subprocess.Popen[str]") -> dict[str, object]:
    assert driver.stdout is not None
    found: dict[str, object] = json.loads(driver.stdout.readline())
    return found


def test_a_driver_waits_for_a_cluster_and_names_the_one_that_it_calls(
    tmp_path: Path, driver: "subprocess.Popen[str]"
) -> None:
    record_head(tmp_path, 1)  # what the head of before left, at whose address nobody listens

    with pytest.raises(subprocess.TimeoutExpired):
        driver.wait(1.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        record_head(tmp_path, port)
        assert said(driver) == {"head": f"127.0.0.1:{port}"}


def test_a_driver_that_waits_ends_with_its_runner(driver: "subprocess.Popen[str]") -> None:
    assert driver.stdin is not None
    driver.stdin.close()

    assert driver.wait(60) == 75
    assert driver.stderr is not None
    assert "ERROR" not in driver.stderr.read()


WAITING = """
import pathlib, os, sys, time
pathlib.Path(sys.argv[1], str(os.getpid())).touch()
time.sleep(600)
"""


class Waiting(Stuck):
    """Settings of drivers that wait for a cluster, for ever."""

    def command(self) -> list[str]:
        return [sys.executable, "-S", "-c", WAITING, str(self.home / "pids")]


def test_a_runner_keeps_a_driver_that_waits_and_gives_it_no_sweep(
    tmp_path: Path, sqlite_store: Store, sqlite_url: str
) -> None:
    tmp_path.joinpath("pids").mkdir()
    record_head(tmp_path, 1)
    sweep, _ = sqlite_store.create_sweep("sweep", {}, name="a", num_trials=1)
    with running(Runner(sqlite_store, Waiting(sqlite_url, tmp_path))):
        until(lambda: started(tmp_path), "a driver starts")
        record_head(tmp_path, 2)
        threading.Event().wait(1.5)

        assert len(started(tmp_path)) == 1
        assert sqlite_store.get_sweep(sweep.id).state.value == "queued"


def test_a_driver_that_has_named_its_head_is_known_by_it(tmp_path: Path, sqlite_url: str) -> None:
    process = DriverProcess(Waiting(sqlite_url, tmp_path))
    try:
        assert process.is_waiting
        assert not process.has_lost("127.0.0.1:2")
        process._hear({"head": "127.0.0.1:2"})
        assert not process.is_waiting
        assert not process.has_lost("127.0.0.1:2")
        assert not process.has_lost(None)
        assert process.has_lost("127.0.0.1:3")
    finally:
        process.kill()


@pytest.mark.parametrize("address", ["auto", "ray-cluster"])
def test_an_address_that_only_ray_can_find_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)

    assert listening(tmp_path) == address


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ray://127.0.0.1:{}"])
def test_a_cluster_elsewhere_is_called_when_it_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = form.format(server.getsockname()[1])
        monkeypatch.setenv("RAY_ADDRESS", address)
        assert listening(tmp_path) == address

    assert listening(tmp_path) is None
