"""The API and the pages in front of a full store: lists, leaderboards, submissions, validation."""

import concurrent.futures
import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx2
import psutil

from benchmarks.sweep.parts import Figure, Options, answers, process, submit, trivial_spec, wait
from benchmarks.sweep.store import made_up
from sweeps.cluster.free_port import free_port
from sweeps.records import AttemptEnd, SweepState, TrialReports, TrialState
from sweeps.store.store import Store
from worker.data.fetch import prepare_digits
from worker.report import Report

TRIALS, SWEEPS = 10_000, 1_000
#: Requests of each page, and submissions in all by so many clients at once.
REQUESTS, SUBMISSIONS, CLIENTS = 60, 600, 4


def http(options: Options) -> list[Figure]:
    """Times from a client on the same machine, and the API's own processor time."""
    full = _fill(options)
    with api(options) as (url, pid), httpx2.Client(base_url=url, timeout=60) as client:
        server = _Server(options.kind, client, psutil.Process(pid))
        return [
            *_pages(server, full),
            *_submissions(options, server),
            *_validation(options, server),
        ]


@dataclass(frozen=True)
class _Server:
    """The API's process, and a client of it."""

    kind: str
    client: httpx2.Client
    process: psutil.Process

    def resident_bytes(self) -> int:
        return int(self.process.memory_info().rss)

    def cpu_seconds(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def timed(
        self,
        name: str,
        work: Callable[[], object],
        count: int,
        *,
        share: float,
        what: str,
        target: float,
    ) -> list[Figure]:
        """A quantile of the time of ``work``, and the processor time of one."""
        work()
        before = self.cpu_seconds()
        times = [_milliseconds(work) for _ in range(count)]
        cpu = (self.cpu_seconds() - before) * 1000 / count
        return [
            Figure("http", self.kind, f"{name}, {what}", quantile(times, share), "ms", target),
            Figure("http", self.kind, f"{name}, processor time of the API", cpu, "ms"),
        ]


def _fill(options: Options) -> str:
    """A sweep of 10,000 finished trials among 1,000 sweeps; its id."""
    store = Store(options.url)
    for _ in range(SWEEPS - 1):
        submit(store, trivial_spec(10, 100))
    for _ in range(SWEEPS - 1):
        claim = store.claim("benchmark", 3000.0)
        assert claim is not None
        store.release(claim, SweepState.COMPLETE, "all done")
    full = submit(store, trivial_spec(TRIALS, 100))
    claim = store.claim("benchmark", 3000.0)
    assert claim is not None
    for start in range(0, TRIALS, 500):
        trials = store.add_trials(claim, made_up(range(start, start + 500)))
        attempts = store.start_attempts(claim, [trial.number for trial in trials])
        done = [
            TrialReports(number, attempt, [_last_report(number)])
            for number, attempt in attempts.items()
        ]
        store.record_batch(claim, done)
        ends = [
            AttemptEnd(n, a, TrialState.COMPLETE, TrialState.COMPLETE, "complete")
            for n, a in attempts.items()
        ]
        store.finish_attempts(claim, ends)
    store.close()
    return full


def _last_report(number: int) -> Report:
    error = 0.05 + (number * 7919 % TRIALS) / TRIALS
    metrics = {"validation_error": error, "train_loss": error * 3, "test_error": error + 0.01}
    return Report(step=100, num_steps=100, status="complete", metrics=metrics)


@contextlib.contextmanager
def api(options: Options) -> Iterator[tuple[str, int]]:
    """The API over a store, as a process of its own; its address and its process id."""
    data = options.folder / "data"
    prepare_digits(data)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    settings = {
        "NDSWEEP_HOME": str(options.folder),
        "NDSWEEP_DATA": str(data),
        "NDSWEEP_STORE_URL": options.url,
        "NDSWEEP_PORT": str(port),
    }
    command = [sys.executable, "-m", "service.api"]
    with process(command, options.folder / "api.log", **settings) as pid:
        wait(lambda: answers(f"{url}/readyz"), "the API answers")
        yield url, pid


def _pages(server: _Server, full: str) -> list[Figure]:
    wanted = {
        "leaderboard, page, 10,000 trials": (f"/sweeps/{full}", 100.0),
        "leaderboard, API, 10,000 trials": (
            f"/api/v1/sweeps/{full}/trials?sort=objective&limit=50",
            100.0,
        ),
        "sweep list, page, 1,000 sweeps": ("/", 50.0),
        "sweep list, API, 1,000 sweeps": ("/api/v1/sweeps?limit=50", 50.0),
    }
    return [
        figure
        for name, (path, target) in wanted.items()
        for figure in server.timed(
            name,
            partial(_get, server.client, path),
            REQUESTS,
            share=0.95,
            what="p95",
            target=target,
        )
    ]


def _get(client: httpx2.Client, path: str) -> None:
    client.get(path).raise_for_status()


def _submissions(options: Options, server: _Server) -> list[Figure]:
    spec = trivial_spec(10, 100).model_dump(mode="json", exclude_defaults=True)

    def one_client(count: int) -> list[float]:
        with httpx2.Client(base_url=server.client.base_url, timeout=60) as client:
            return [
                _milliseconds(lambda: client.post("/api/v1/sweeps", json=spec).raise_for_status())
                for _ in range(count)
            ]

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(one_client, [5] * CLIENTS))
        cpu, began = server.cpu_seconds(), time.monotonic()
        each = pool.map(one_client, [SUBMISSIONS // CLIENTS] * CLIENTS)
        times = [milliseconds for client in each for milliseconds in client]
        seconds = time.monotonic() - began
        cpu = (server.cpu_seconds() - cpu) * 1000 / len(times)

    def figure(name: str, value: float, unit: str, **target: Any) -> Figure:
        return Figure("http", options.kind, name, value, unit, **target)

    return [
        figure("POST a sweep", len(times) / seconds, "/s", target=100.0, sense="at least"),
        figure("POST a sweep, p99", quantile(times, 0.99), "ms", target=150.0),
        figure("POST a sweep, processor time of the API", cpu, "ms"),
    ]


def _validation(options: Options, server: _Server) -> list[Figure]:
    """A grid of 10⁶ points: counted, not made. One a thousand times as large is no dearer."""
    spec = trivial_spec(10, 100).model_dump(mode="json", exclude_defaults=True)

    def grid(fields: int) -> dict[str, Any]:
        rates = (("alpha_v", 0.01), ("alpha_s", 0.001), ("gamma_c", 1.0), ("lambda_c", 0.001))
        values: dict[str, Any] = {
            name: {"kind": "choice", "values": [low * (1 + i / 100) for i in range(100)]}
            for name, low in rates[:fields]
        }
        return spec | {"space": values, "sampler": "grid", "name": "grid", "num_points": None}

    million, hundred_million = grid(3), grid(4)

    def accepted() -> None:
        answer = server.client.post("/api/v1/sweeps/validate", json=million)
        if (answer.status_code, answer.json().get("trials")) != (200, 10**6):
            raise RuntimeError(answer.text[:300])

    def refused() -> None:
        answer = server.client.post("/api/v1/sweeps/validate", json=hundred_million)
        if answer.status_code != 422 or "100,000,000" not in answer.text:
            raise RuntimeError(answer.text[:300])

    refused()
    accepted()
    before = server.resident_bytes()
    found = [
        figure
        for name, work in (
            ("a grid of 10⁶ points accepted", accepted),
            ("one of 10⁸ refused with its number", refused),
        )
        for figure in server.timed(name, work, 40, share=0.5, what="median", target=50.0)
    ]
    grown = (server.resident_bytes() - before) / 2**20
    memory = "the API's memory, growth over 80 grids"
    return [*found, Figure("http", options.kind, memory, grown, "MB", target=20.0)]


def _milliseconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def quantile(times: list[float], share: float) -> float:
    """The smallest of these that is not below ``share`` of them."""
    return sorted(times)[math.ceil(share * len(times)) - 1]
