"""The service's part of the pages, measured without a browser: answers, their weight, live updates.

What a browser adds is its own work: the drawing of a plot, and the frame that shows it.
"""

import random
import statistics
import threading
import time
from dataclasses import dataclass

import httpx2

from benchmarks.pages.store import SPACE, STRIDE, LiveSweep
from service.client.client import Client

#: Times that each address is asked for, and reports whose arrival is timed.
ASKED, REPORTS = 7, 12
#: What the page of a sweep asks for, below the sweep's own address, the page itself first.
ADDRESSES = {
    "page": "",
    "curves": "/plots/curves.json",
    "curves, grouped": "/plots/curves.json?group=optimizer",
    "curves that fit": "/plots/curves.json?where=gamma_c+%3E+2+and+point_mean+%3C+0.1",
    "trials that fit": "/parts/trials?where=gamma_c+%3E+2&trial_sort=-metrics.validation_error",
    **{f"sensitivity {name}": f"/plots/sensitivity/{name}.json" for name in SPACE},
    "parallel": "/plots/parallel.json",
    "parallel, brushed": "/plots/parallel.json?where=gamma_c+%3E+2+and+point_mean+%3C+0.1",
    "importance": "/plots/importance.json",
    "variance shares": "/plots/variance.json",
    "contour": "/plots/contour.json",
    "timeline": "/plots/timeline.json",
}


@dataclass(frozen=True)
class Figure:
    """One measured number, and the most that is promised; None where nothing is."""

    name: str
    value: float
    unit: str
    most: float | None


def answer_figures(url: str, sweep: str) -> list[Figure]:
    """Seconds from asking the service for each part of a sweep's page to having all of it."""
    found, weight = [], 0
    with httpx2.Client(base_url=url, timeout=60.0) as client:
        for name, below in ADDRESSES.items():
            times = []
            for _ in range(ASKED + 1):
                start = time.monotonic()
                answer = client.get(f"/sweeps/{sweep}{below}").raise_for_status()
                times.append(time.monotonic() - start)
            # What a page asks for by itself; choices of a reader come on top.
            weight += 0 if "?" in below else answer.num_bytes_downloaded
            if name == "page":
                found.append(Figure("answer: page, after a start", times[0], "s", 1.0))
            most = 1.0 if name == "page" else 1.5
            found.append(Figure(f"answer: {name}", statistics.median(times[1:]), "s", most))
    return [*found, Figure("answers: weight as sent", weight / 1e6, "MB", 2.0)]


def live_answer_figures(url: str, live: LiveSweep) -> list[Figure]:
    """Seconds from a report being recorded to the table that has it, as a live page asks for it."""
    recorded: dict[int, float] = {}
    after = live.store.last_event_id(live.sweep)
    reports = threading.Thread(target=_report, args=(live, recorded))
    reports.start()
    times: list[float] = []
    with Client(url) as service, httpx2.Client(base_url=url, timeout=60.0) as client:
        for event in service.watch(live.sweep, after=after):
            step = event.data.get("step")
            if step is None:
                continue
            text = client.get(f"/sweeps/{live.sweep}/parts/trials").raise_for_status().text
            if f"{step} / " not in text:
                raise RuntimeError(f"step {step} was announced and is not in the table")
            times.append(time.monotonic() - recorded[step])
            if len(times) == REPORTS:
                break
    reports.join()
    return [
        Figure("live answer of a 50-trial sweep, median", statistics.median(times), "s", 2.0),
        Figure("live answer of a 50-trial sweep, slowest", max(times), "s", 2.0),
    ]


def _report(live: LiveSweep, recorded: dict[int, float]) -> None:
    """Move the sweep on at uneven times; note when each step was there to be read."""
    for at in range(REPORTS):
        time.sleep(random.Random(at).uniform(0.6, 1.6))
        recorded[live.step + STRIDE] = time.monotonic()
        live.report()
