"""A runner whose cluster was replaced, or its node of it, leaves the drivers of the old one."""

import json
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from benchmarks.sweep.parts import submit
from sweeps.cluster import node as nodes
from sweeps.cluster.node import JoinedNode
from sweeps.driver import runner as runners
from sweeps.driver.process import DriverSettings
from sweeps.driver.runner import Runner
from sweeps.store.store import Store
from tests.sweeps.stack import is_running, until
from tests.sweeps.sweep_cases import sweep_spec

#: Says whom it calls and who it is, and would call a head that is gone for ever.
STUCK = """
import json, os, pathlib, sys, time
head = json.loads(pathlib.Path(sys.argv[1]).with_name("ray.json").read_text())["address"]
print(json.dumps({"head": head}), flush=True)
pathlib.Path(sys.argv[1], str(os.getpid())).touch()
time.sleep(600)
"""


class Stuck(DriverSettings):
    """Settings of drivers that never connect."""

    def command(self) -> list[str]:
        return [sys.executable, "-S", "-c", STUCK, str(self.home / "pids")]


def record_head(home: Path, port: int) -> None:
    """As ``sweeps.cluster.head`` notes a head that it started."""
    head = {"address": f"127.0.0.1:{port}", "session": 0, "folder": "", "token_path": ""}
    home.joinpath("ray.json").write_text(json.dumps(head))


def started(home: Path, kind: str = "pids") -> set[str]:
    return {path.name for path in home.joinpath(kind).iterdir()}


def test_a_driver_of_a_head_that_was_replaced_is_ended_and_another_started(
    tmp_path: Path, sqlite_store: Store, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    tmp_path.joinpath("pids").mkdir()
    record_head(tmp_path, 1)
    runner = Runner(sqlite_store, Stuck(sqlite_url, tmp_path))
    stop = threading.Event()
    thread = threading.Thread(target=runner.run, args=(stop,))
    thread.start()
    try:
        until(lambda: started(tmp_path), "a driver starts")
        [first] = started(tmp_path)

        record_head(tmp_path, 2)

        until(lambda: len(started(tmp_path)) == 2, "another driver starts")
        assert not Path(f"/proc/{first}").exists()
    finally:
        stop.set()
        thread.join()


#: Says who it is, and stays.
NODE = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1], str(os.getpid())).touch()
time.sleep(600)
"""


def test_a_node_that_ended_is_started_again_and_its_drivers_are_replaced(
    tmp_path: Path, sqlite_store: Store, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "_FIRST_PAUSE", 0.01)
    monkeypatch.setenv("RAY_ADDRESS", "head.invalid:6379")
    for kind in ("pids", "nodes"):
        tmp_path.joinpath(kind).mkdir()
    record_head(tmp_path, 1)
    command = [sys.executable, "-S", "-c", NODE, str(tmp_path / "nodes")]
    node = JoinedNode("head.invalid:6379", tmp_path, command)
    runner = Runner(sqlite_store, Stuck(sqlite_url, tmp_path), node=node)
    stop = threading.Event()
    thread = threading.Thread(target=runner.run, args=(stop,))
    thread.start()
    try:
        until(lambda: started(tmp_path) and started(tmp_path, "nodes"), "both start")
        [driver], [first] = started(tmp_path), started(tmp_path, "nodes")

        os.kill(int(first), signal.SIGKILL)

        until(lambda: len(started(tmp_path, "nodes")) == 2, "the node starts again")
        until(lambda: len(started(tmp_path)) == 2, "another driver starts")
        assert not is_running(int(driver))
    finally:
        stop.set()
        thread.join()
    assert not any(is_running(int(pid)) for pid in started(tmp_path, "nodes"))


def test_a_queued_sweep_says_that_the_head_does_not_answer(
    tmp_path: Path, sqlite_store: Store, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "_BOOT", -1.0)
    tmp_path.joinpath("pids").mkdir()
    waiting = Stuck(sqlite_url, tmp_path)
    monkeypatch.setattr(
        Stuck, "command", lambda self: [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
    )
    sweep_id = submit(sqlite_store, sweep_spec())
    stop = threading.Event()
    thread = threading.Thread(target=Runner(sqlite_store, waiting).run, args=(stop,))
    thread.start()
    try:
        until(
            lambda: (
                sqlite_store.get_sweep(sweep_id).reason
                == "waiting for Ray: the head of the cluster does not answer"
            ),
            "the sweep says what it waits for",
        )
    finally:
        stop.set()
        thread.join()
