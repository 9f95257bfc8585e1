"""A runner whose local head of the cluster was replaced leaves the drivers of the old one."""

import json
import sys
import threading
from pathlib import Path

import pytest

from sweeps.driver.process import DriverSettings
from sweeps.driver.runner import Runner
from sweeps.store.store import Store
from tests.sweeps.stack import until

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


def started(home: Path) -> set[str]:
    return {path.name for path in home.joinpath("pids").iterdir()}


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
