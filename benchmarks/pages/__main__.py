"""How fast the pages are in a real Chromium, over a store with a 10,000-trial sweep.

python -m benchmarks.pages [--trials 10000] [--views 1000] [--no-browser] [--out pages.json]

Prints a table of figures beside what is promised, and writes the same as JSON. The service runs in
a process of its own; the browser and this program share the machine with it. Where no browser is
installed, the service's part of every figure is measured and the drawing is not.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import httpx2
import uvicorn

from benchmarks.pages.service import ADDRESSES, Figure, answer_figures, live_answer_figures
from benchmarks.pages.store import full_sweep, live_sweep
from service.api.app import create_app
from service.settings import Settings
from sweeps.store.store import Store
from tests.browser import find_browser


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--points", type=int, default=200, help="reported steps of each trial")
    parser.add_argument("--views", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--no-browser", action="store_true", help="the service's part alone")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        store = Store(f"sqlite:///{home / 'store.db'}")
        store.migrate()
        began = time.monotonic()
        full = full_sweep(store, asked.trials, asked.points)
        live = live_sweep(store)
        print(f"seeded {asked.trials:,} trials in {time.monotonic() - began:.0f} s", flush=True)
        with _service(home) as (url, pid):
            figures = answer_figures(url, full)
            if asked.no_browser or find_browser() is None:
                figures += live_answer_figures(url, live)
            else:
                from benchmarks.pages.browser import browser_figures

                figures += browser_figures(url, full, live)
            figures += _memory_figures(url, pid, f"/sweeps/{full}", asked.views)
        store.close()
    _print(figures)
    if asked.out is not None:
        asked.out.write_text(json.dumps([asdict(figure) for figure in figures], indent=2) + "\n")


def _memory_figures(url: str, pid: int, sweep: str, views: int) -> list[Figure]:
    """Growth of the service's memory over many views, after the first tenth filled its caches."""
    warm = max(views // 10, 1)
    with httpx2.Client(base_url=url, timeout=60.0) as client:
        for view in range(views):
            for part in ADDRESSES.values() if view % 10 == 0 else ("",):
                client.get(sweep + part).raise_for_status()
            client.get("/").raise_for_status()
            if view + 1 == warm:
                before = _resident(pid)
        after = _resident(pid)
    return [
        Figure("memory of the service after its first views", before, "MB", None),
        Figure(f"its growth over {views:,} page views", after - before, "MB", 20.0),
    ]


def _resident(pid: int) -> float:
    """Resident memory of a process, MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1000
    raise RuntimeError(f"process {pid} has no resident memory")


@contextmanager
def _service(home: Path) -> Iterator[tuple[str, int]]:
    """The application in a process of its own: its address and its id."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-c", "from benchmarks.pages.__main__ import serve; serve()"]
    environment = {**os.environ, "PAGES_HOME": str(home), "PAGES_PORT": str(port)}
    process = subprocess.Popen(command, env=environment)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                httpx2.get(f"{url}/readyz", timeout=5.0).raise_for_status()
                break
            except httpx2.HTTPError:
                time.sleep(0.1)
        yield url, process.pid
    finally:
        process.terminate()
        process.wait(timeout=30)


def serve() -> None:
    """Run the application that the benchmark looks at; its place is in the environment."""
    home = Path(os.environ["PAGES_HOME"])
    app = create_app(Store(f"sqlite:///{home / 'store.db'}"), Settings(home=home))
    uvicorn.run(app, port=int(os.environ["PAGES_PORT"]), log_level="error")


def _print(figures: list[Figure]) -> None:
    width = max(len(figure.name) for figure in figures)
    for figure in figures:
        most = "" if figure.most is None else f"  (at most {figure.most:g})"
        late = "" if figure.most is None or figure.value <= figure.most else "  OVER"
        print(f"{figure.name:{width}}  {figure.value:8.2f} {figure.unit}{most}{late}")


if __name__ == "__main__":
    main()
