"""Clients that use a service at the same time: errors, times of each route, the API's memory.

    python -m benchmarks.sweep.clients [--clients 20] [--minutes 5] [--pause 0.5]
                                       [--store sqlite|postgresql] [--json FILE]

Each client submits, lists, reads and watches in an order of its own, with a pause between two
requests; ``--pause 0`` asks as fast as answers come. The store holds 200 sweeps, one of 200 trials
with curves, and one that runs: a report of each of its ten trials every half second, which those
who watch receive. The API is a process of its own; clients and reports share the machine with it.
"""

import argparse
import contextlib
import json
import os
import random
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import psutil

from benchmarks.sweep.http import api, quantile
from benchmarks.sweep.parts import Figure, Options, database, submit, trivial_spec
from benchmarks.sweep.store import made_up
from sweeps.cluster.capacity import usable_cpus
from sweeps.records import AttemptEnd, Claim, SweepState, TrialReports, TrialState
from sweeps.store.store import Store
from worker.report import Report

SWEEPS, TRIALS, RUNNING, POINTS = 200, 200, 10, 50
#: Seconds: between two reports of a running trial, of one look at live events, before memory is
#: looked at first.
REPORT_EVERY, WATCHED, WARM_UP = 0.5, 3.0, 20.0
P99, GROWTH = 250.0, 10.0

#: What is done, and how often of a hundred times.
SHARES = {
    "POST /sweeps, then cancel": 5,
    "GET /sweeps": 15,
    "GET /sweeps/ID": 15,
    "GET /sweeps/ID/trials": 15,
    "GET /sweeps/ID/trials/N/metrics": 15,
    "page of the sweeps": 10,
    "page of a sweep": 10,
    "curves of a sweep's page": 5,
    "GET /sweeps/ID/events": 10,
}


@dataclass
class Seen:
    """What clients met, written by several threads."""

    #: Milliseconds by route.
    times: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    errors: Counter[str] = field(default_factory=Counter)
    #: The newest event that anybody received: who watches goes on from it, as pages do.
    last_event: str = "0"


@dataclass(frozen=True)
class Places:
    """Sweeps that clients look at."""

    full: str
    live: str
    spec: dict[str, Any]


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--pause", type=float, default=0.5, help="mean seconds between requests")
    parser.add_argument("--store", choices=("sqlite", "postgresql"), default="postgresql")
    parser.add_argument("--json", type=Path, help="file for the figures")
    asked = parser.parse_args()
    load = os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder,
        database(asked.store, Path(folder)) as url,
    ):
        options = Options(Path(folder), asked.store, url, 0, 0, 1)
        figures, errors = measure(options, asked.clients, asked.minutes * 60, asked.pause)
    print("| part | store | figure | measured | target | |\n|---|---|---|---|---|---|")
    print("\n".join(figure.row() for figure in figures))
    for error, count in errors.most_common(10):
        print(f"{count} × {error}")
    print(f"\nload of the machine before: {load:.1f}, cores it may use: {usable_cpus()}")
    if asked.json:
        found = {"load_before": load, "cores": usable_cpus(), "errors": dict(errors)}
        rows = [figure.to_json() for figure in figures]
        asked.json.write_text(json.dumps(found | {"figures": rows}, indent=1) + "\n")


def measure(
    options: Options, clients: int, seconds: float, pause: float
) -> tuple[list[Figure], Counter[str]]:
    """Let clients work for so long; figures, and what went wrong."""
    store, seen, stop = Store(options.url), Seen(), threading.Event()
    places, claim, attempts = _fill(store)
    with api(options) as (url, pid):
        works = [lambda: _report(store, claim, attempts, stop)]
        works += [
            lambda seed=seed: _client(url, places, seen, stop, pause, seed)  # type: ignore[misc]
            for seed in range(clients)
        ]
        threads = [threading.Thread(target=work) for work in works]
        for thread in threads:
            thread.start()
        process = psutil.Process(pid)
        stop.wait(min(WARM_UP, seconds / 4))
        before, cpu, began = _memory(process), sum(process.cpu_times()[:2]), time.monotonic()
        stop.wait(seconds)
        after, passed = _memory(process), time.monotonic() - began
        cpu = (sum(process.cpu_times()[:2]) - cpu) / passed
        stop.set()
        for thread in threads:
            thread.join()
    store.close()
    return _figures(options.kind, seen, before, after, cpu), seen.errors


def _figures(kind: str, seen: Seen, before: float, after: float, cpu: float) -> list[Figure]:
    every = [one for name, times in seen.times.items() if name != ARRIVAL for one in times]
    failed = float(sum(seen.errors.values()))

    def figure(name: str, value: float, unit: str, target: float | None = None) -> Figure:
        return Figure("clients", kind, name, value, unit, target)

    rows = [
        figure("requests", float(len(every)), ""),
        figure("errors", failed, "", 0.0),
        figure("every route, p50", quantile(every, 0.5), "ms"),
        figure("every route, p99", quantile(every, 0.99), "ms", P99),
    ]
    for name, times in sorted(seen.times.items()):
        rows.append(figure(f"{name}, p50", quantile(times, 0.5), "ms"))
        rows.append(figure(f"{name}, p99 of {len(times):,}", quantile(times, 0.99), "ms"))
    return [
        *rows,
        figure("the API's memory before (PSS)", before, "MB"),
        figure("the API's memory after (PSS)", after, "MB"),
        figure("the API's memory, growth", after - before, "MB", GROWTH),
        figure("the API's processor", cpu, "cores"),
    ]


#: From the record of an event to who watches.
ARRIVAL = "an event's way to who watches"


def _memory(process: psutil.Process) -> float:
    return float(process.memory_full_info().pss) / 2**20


def _fill(store: Store) -> tuple[Places, Claim, dict[int, int]]:
    """Sweeps to list, one with curves to read, one that runs; its claim and attempts."""
    for _ in range(SWEEPS):
        submit(store, trivial_spec(10, 100))
        claim = store.claim("benchmark", 3000.0)
        assert claim is not None
        store.release(claim, SweepState.COMPLETE, "all done")
    full = submit(store, trivial_spec(TRIALS, POINTS))
    claim, attempts = _started(store, TRIALS)
    reports = [_one(step, POINTS) for step in range(1, POINTS + 1)]
    store.record_batch(claim, [TrialReports(n, a, reports) for n, a in attempts.items()])
    done = TrialState.COMPLETE
    store.finish_attempts(
        claim, [AttemptEnd(n, a, done, done, "complete") for n, a in attempts.items()]
    )
    store.release(claim, SweepState.COMPLETE, "all done")
    live = submit(store, trivial_spec(RUNNING, 10**6))
    claim, attempts = _started(store, RUNNING)
    spec = trivial_spec(10, 100).model_dump(mode="json", exclude_defaults=True)
    return Places(full, live, spec), claim, attempts


def _started(store: Store, trials: int) -> tuple[Claim, dict[int, int]]:
    claim = store.claim("benchmark", 3000.0)
    assert claim is not None
    added = store.add_trials(claim, made_up(range(trials)))
    return claim, store.start_attempts(claim, [trial.number for trial in added])


def _one(step: int, steps: int) -> Report:
    metrics = {"validation_error": 1 / step, "train_loss": 3 / step, "train_error": 1 / step}
    return Report(step=step, num_steps=steps, status="running", metrics=metrics)


def _report(store: Store, claim: Claim, attempts: dict[int, int], stop: threading.Event) -> None:
    step = 0
    while not stop.wait(REPORT_EVERY):
        step += 1
        reports = [TrialReports(n, a, [_one(step, 10**6)]) for n, a in attempts.items()]
        store.record_batch(claim, reports)


def _client(
    url: str, places: Places, seen: Seen, stop: threading.Event, pause: float, seed: int
) -> None:
    choices = random.Random(seed)
    with httpx2.Client(base_url=url, timeout=60) as client:
        actions = _actions(client, places, seen, choices)
        names, weights = list(SHARES), list(SHARES.values())
        while not stop.wait(choices.expovariate(1 / pause) if pause else 0.0):
            name = choices.choices(names, weights)[0]
            try:
                actions[name](name)
            except httpx2.HTTPError as error:
                seen.errors[f"{name}: {type(error).__name__} {error!s:.200}"] += 1


def _actions(
    client: httpx2.Client, places: Places, seen: Seen, choices: random.Random
) -> dict[str, Callable[[str], None]]:
    def get(path: str) -> Callable[[str], None]:
        def ask(name: str) -> None:
            with _timed(seen, name):
                client.get(path.format(n=choices.randrange(TRIALS))).raise_for_status()

        return ask

    def submitted(name: str) -> None:
        with _timed(seen, name):
            answer = client.post("/api/v1/sweeps", json=places.spec).raise_for_status()
        with _timed(seen, "POST /sweeps/ID/cancel"):
            client.post(f"/api/v1/sweeps/{answer.json()['id']}/cancel").raise_for_status()

    full = f"/api/v1/sweeps/{places.full}"
    works = (
        submitted,
        get("/api/v1/sweeps?limit=50"),
        get(full),
        get(f"{full}/trials?sort=objective&limit=50"),
        get(f"{full}/trials/{{n}}/metrics"),
        get("/"),
        get(f"/sweeps/{places.full}"),
        get(f"/sweeps/{places.full}/plots/curves.json"),
        lambda name: _watch(client, places.live, seen, name),
    )
    return dict(zip(SHARES, works, strict=True))


def _watch(client: httpx2.Client, sweep: str, seen: Seen, name: str) -> None:
    """Follow a sweep for some seconds, from now on; its first answer is what is timed."""
    end = time.monotonic() + WATCHED
    began, opened = time.perf_counter(), datetime.now(UTC)
    after = {"Last-Event-ID": seen.last_event}
    with client.stream("GET", f"/api/v1/sweeps/{sweep}/events", headers=after) as answer:
        answer.raise_for_status()
        seen.times[name].append((time.perf_counter() - began) * 1000)
        for line in answer.iter_lines():
            if line.startswith("id:"):
                seen.last_event = line[3:].strip()
            if line.startswith("data:") and (at := json.loads(line[5:]).get("at")):
                sent = datetime.fromisoformat(at)
                if sent > opened:
                    late = datetime.now(UTC) - sent
                    seen.times[ARRIVAL].append(late.total_seconds() * 1000)
            if time.monotonic() > end:
                return


@contextlib.contextmanager
def _timed(seen: Seen, name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    seen.times[name].append((time.perf_counter() - began) * 1000)


if __name__ == "__main__":
    main()
