"""The API and the pages in front of a full store: lists, leaderboards, submissions, validation."""

import concurrent.futures
import contextlib
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx2

from benchmarks.sweep_parts import Figure, Options, answers, process, submit, trivial_spec, wait
from benchmarks.sweep_store import made_up
from sweeps.records import AttemptEnd, SweepState, TrialReports, TrialState
from sweeps.store import Store
from tests.sweeps.mlflow_server import free_port
from worker.digits import prepare_digits
from worker.measurement import Report

TRIALS, SWEEPS = 10_000, 1_000
#: Requests of each page, and submissions in all by so many clients at once.
REQUESTS, SUBMISSIONS, CLIENTS = 60, 600, 4


def http(options: Options) -> list[Figure]:
    """Times from a client on the same machine."""
    full = _fill(options)
    with _api(options) as client:
        return [
            *_pages(options, client, full),
            *_submissions(options, str(client.base_url)),
            _validation(options, client),
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
def _api(options: Options) -> Iterator[httpx2.Client]:
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
    with process(command, options.folder / "api.log", **settings):
        wait(lambda: answers(f"{url}/readyz"), "the API answers")
        with httpx2.Client(base_url=url, timeout=60) as client:
            yield client


def _pages(options: Options, client: httpx2.Client, full: str) -> list[Figure]:
    wanted = {
        "leaderboard, page, 10,000 trials, p95": (f"/sweeps/{full}", 100.0),
        "leaderboard, API, 10,000 trials, p95": (
            f"/api/v1/sweeps/{full}/trials?sort=objective&limit=50",
            100.0,
        ),
        "sweep list, page, 1,000 sweeps, p95": ("/", 50.0),
        "sweep list, API, 1,000 sweeps, p95": ("/api/v1/sweeps?limit=50", 50.0),
    }
    return [
        Figure("http", options.kind, name, _p95(client, path), "ms", target=target)
        for name, (path, target) in wanted.items()
    ]


def _p95(client: httpx2.Client, path: str) -> float:
    client.get(path).raise_for_status()
    times = [_milliseconds(lambda: client.get(path).raise_for_status()) for _ in range(REQUESTS)]
    return _quantile(times, 0.95)


def _submissions(options: Options, url: str) -> list[Figure]:
    spec = trivial_spec(10, 100).model_dump(mode="json", exclude_defaults=True)

    def one_client(count: int) -> list[float]:
        with httpx2.Client(base_url=url, timeout=60) as client:
            return [
                _milliseconds(lambda: client.post("/api/v1/sweeps", json=spec).raise_for_status())
                for _ in range(count)
            ]

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(one_client, [5] * CLIENTS))
        began = time.monotonic()
        each = pool.map(one_client, [SUBMISSIONS // CLIENTS] * CLIENTS)
        times = [milliseconds for client in each for milliseconds in client]
        seconds = time.monotonic() - began
    rate = len(times) / seconds
    return [
        Figure("http", options.kind, "POST a sweep", rate, "/s", target=100.0, sense="at least"),
        Figure(
            "http", options.kind, "POST a sweep, p99", _quantile(times, 0.99), "ms", target=150.0
        ),
    ]


def _validation(options: Options, client: httpx2.Client) -> Figure:
    """A grid of 10⁶ points: counted, not made."""
    values: dict[str, Any] = {
        name: {"kind": "choice", "values": [low * (1 + i / 100) for i in range(100)]}
        for name, low in (("alpha_v", 0.01), ("alpha_s", 0.001), ("gamma_c", 1.0))
    }
    spec = trivial_spec(10, 100).model_dump(mode="json", exclude_defaults=True)
    spec |= {"space": values, "sampler": "grid", "name": "grid"}

    def validate() -> None:
        """A part of the grid is accepted, all of it is refused with its size."""
        part = client.post("/api/v1/sweeps/validate", json=spec | {"num_points": 1000})
        whole = client.post("/api/v1/sweeps/validate", json=spec | {"num_points": None})
        if (part.status_code, whole.status_code) != (200, 422) or "1,000,000" not in whole.text:
            raise RuntimeError(f"{part.text[:300]} {whole.text[:300]}")

    validate()
    times = [_milliseconds(validate) / 2 for _ in range(20)]
    name = "a grid of 10⁶ points validated, median"
    return Figure("http", options.kind, name, statistics.median(times), "ms", target=50.0)


def _milliseconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def _quantile(times: list[float], share: float) -> float:
    return sorted(times)[math.ceil(share * len(times)) - 1]
