"""A runner says at once which sweep which of its drivers has, not at its next sign of life."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.sweep_parts import submit
from sweeps import runner as runners
from sweeps.capacity import ClusterShape, NodeShape
from sweeps.driver_process import DriverSettings
from sweeps.runner import Runner
from sweeps.store import Store
from tests.sweeps.sweep_cases import sweep_spec

#: Says what the cluster looks like, and keeps the sweep that it is given.
IDLE = """
import sys, time
print(sys.argv[1], flush=True)
time.sleep(600)
"""


class Idle(DriverSettings):
    """Settings of drivers that are connected and never train."""

    def command(self) -> list[str]:
        shape = ClusterShape((NodeShape(cpus=2.0, gpus=0.0),))
        return [sys.executable, "-S", "-c", IDLE, json.dumps(shape.to_json())]


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_who_drives_a_sweep_is_known_as_soon_as_it_is_driven(
    tmp_path: Path, sqlite_store: Store, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "_REPORT", 1000.0)
    stop = threading.Event()
    runner = Runner(sqlite_store, Idle(sqlite_url, tmp_path))
    thread = threading.Thread(target=runner.run, args=(stop,))

    def drivers() -> dict[str, int]:
        """By the sweeps that they have."""
        [sign] = sqlite_store.runners()
        return {driver["sweep"]: driver["pid"] for driver in sign.info["drivers"]}

    thread.start()
    try:
        # After this sign of life none is due for a while.
        until(lambda: any(sign.info["cluster"] for sign in sqlite_store.runners()))
        assert drivers() == {}

        sweep_id = submit(sqlite_store, sweep_spec())
        until(lambda: sweep_id in drivers())
        first = drivers()[sweep_id]
        os.kill(first, signal.SIGKILL)

        until(lambda: drivers().get(sweep_id, first) != first)
    finally:
        stop.set()
        thread.join()
