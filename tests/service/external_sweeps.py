"""Sweeps of agents in a store of tests, and a driver for them in a thread."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweeps.driver.external_driver import ExternalDriver
from sweeps.store.store import Store

SPEC: dict[str, Any] = {
    "name": "outside",
    "training": "external",
    "base": {"batch": 32},
    "space": {"x": {"kind": "float", "low": 0.0, "high": 1.0}},
    "num_points": 4,
    "objective": {"metric": "loss"},
}


@contextlib.contextmanager
def driven(store: Store, home: Path) -> Iterator[ExternalDriver]:
    """A driver at work in a thread."""
    driver, stop = ExternalDriver(store, home, "tests", 3000.0), threading.Event()
    thread = threading.Thread(target=driver.run, args=(stop,))
    thread.start()
    try:
        yield driver
    finally:
        stop.set()
        thread.join()
