"""Metrics of a monitoring system: requests of this process, and how the service does."""

import logging
import time
from collections import Counter as Sums
from collections.abc import Iterator
from typing import get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    Info,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.readiness import Readiness
from service.contract.outputs import PartState
from service.version import VERSION
from sweeps.store.store import Store
from worker.process.logs import REQUESTS

#: Of what ``Metrics.text`` returns.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

#: Where the API is mounted.
API = "/api/v1"

# A series of times of making beside each series of counts: nobody reads them.
disable_created_metrics()  # type: ignore[no-untyped-call]

#: From a read of SQLite to a writer that waits for another.
_STORE_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
#: Owners with a series of their own; values of ``owner`` for the others, and for sweeps of nobody.
MOST_OWNERS = 50
OTHERS, NOBODY = "(others)", "(nobody)"

_requests = logging.getLogger(REQUESTS)
#: Below it are public links, whose addresses are secrets.
SHARED = "/shared/"
_MOST_PATH = 200
#: Asked every few seconds, and not written down.
_PROBES = frozenset({"/healthz", "/readyz", "/metrics"})

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Metrics:
    """The metrics of one application; safe across threads."""

    def __init__(self, store: Store, readiness: Readiness) -> None:
        self._registry = CollectorRegistry()
        Info("ndsweep", "What is running.", registry=self._registry).info({"version": VERSION})
        self._registry.register(_StoreCounts(store))
        self._registry.register(_GpuHours(store))
        self._registry.register(_Status(readiness))
        transactions = Histogram(
            "ndsweep_store_transaction_seconds",
            "Seconds of this process's transactions with the store, waiting included.",
            ["kind"],
            buckets=_STORE_BUCKETS,
            registry=self._registry,
        )
        by_kind = {kind: transactions.labels(kind) for kind in ("read", "write")}
        store.observe(lambda kind, seconds: by_kind[kind].observe(seconds))
        self._requests = Counter(
            "ndsweep_http_requests",
            "Requests answered by this process.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._seconds = Counter(
            "ndsweep_http_request_seconds",
            "Seconds spent answering.",
            ["method", "route"],
            registry=self._registry,
        )
        self._durations = Histogram(
            "ndsweep_http_request_duration_seconds",
            "Seconds from a request to the end of its answer.",
            ["method", "route"],
            registry=self._registry,
        )

        # By method, route and status: to look them up costs as much as to count.
        self._series: dict[tuple[str, str, int], tuple[Counter, Counter, Histogram]] = {}

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer to a route's template, and the seconds that it took."""
        key = method if method in _METHODS else "OTHER", route, status
        if key not in self._series:
            method, route, status = key
            self._series[key] = (
                self._requests.labels(method, route, status),
                self._seconds.labels(method, route),
                self._durations.labels(method, route),
            )
        count, total, duration = self._series[key]
        count.inc()
        total.inc(seconds)
        duration.observe(seconds)

    def text(self) -> bytes:
        """Everything that is counted, in the text format of Prometheus."""
        return generate_latest(self._registry)


class _StoreCounts(Collector):
    """Sweeps and trials by state, asked for when they are read."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def collect(self) -> Iterator[GaugeMetricFamily]:
        sweeps = GaugeMetricFamily(
            "ndsweep_sweeps", "Sweeps and matches in the store.", labels=["kind", "state"]
        )
        trials = GaugeMetricFamily("ndsweep_trials", "Trials in the store.", labels=["state"])
        by_state: Sums[str] = Sums()
        for row in self._store.counts():
            sweeps.add_metric([row.kind, row.state], row.sweeps)
            by_state.update(row.trials)
        for state, count in sorted(by_state.items()):
            trials.add_metric([state], count)
        yield sweeps
        yield trials


class _GpuHours(Collector):
    """Hours of cards by owner, as quotas count them. Who used little is counted together."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def collect(self) -> Iterator[GaugeMetricFamily]:
        text = "Hours of cards of sweeps that were submitted in the last 30 days, by owner."
        family = GaugeMetricFamily("ndsweep_gpu_hours", text, labels=["owner"])
        # Most first: a proxy may name any number of people, and each would be a series.
        hours = list(self._store.gpu_hours().items())
        for owner, found in hours[:MOST_OWNERS]:
            family.add_metric([owner or NOBODY], found)
        rest = hours[MOST_OWNERS:]
        if rest:
            family.add_metric([OTHERS], sum(found for _, found in rest))
        yield family


class _Status(Collector):
    """The parts of the service as ``/readyz`` shows them, and what they wait for."""

    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness

    def collect(self) -> Iterator[GaugeMetricFamily]:
        status = self._readiness.look()
        parts = GaugeMetricFamily(
            "ndsweep_part_state", "1 for the state that a part is in.", labels=["part", "state"]
        )
        for part in status.parts:
            for state in get_args(PartState):
                parts.add_metric([part.name, state], float(part.state == state))
        yield parts
        gauges: tuple[tuple[str, str, float | None], ...] = (
            ("queue_age_seconds", "Age of the oldest queued sweep.", status.waits.queue_age),
            ("runner_age_seconds", "Since the last report of a runner.", status.runner_age),
            ("lease_age_seconds", "Since leases of sweeps were renewed.", status.lease_age),
            ("mirror_lag_seconds", "Age of what MLflow lacks longest.", status.mirror_lag),
            ("disk_free_bytes", "Free on the disk of the home.", status.disk_free),
            ("disk_size_bytes", "Size of the disk of the home.", status.disk_total),
        )
        for name, text, value in gauges:
            # What nobody knows has no sample.
            if value is not None:
                yield GaugeMetricFamily(f"ndsweep_{name}", text, value=value)


class RequestMetrics:
    """ASGI middleware that counts answers and the seconds they took, by route."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, note_status)
        finally:
            # The route's template, never the path: ids would make one line each.
            route = getattr(scope.get("route"), "path", "")
            if route and scope["path"].startswith(f"{API}/"):
                route = API + route  # an included router's routes do not know their prefix
            seconds = time.perf_counter() - start
            self.metrics.add(scope["method"], route, status, seconds)
            if _requests.isEnabledFor(logging.INFO) and route not in _PROBES:
                _note(scope, route, status, seconds)


def _note(scope: Scope, route: str, status: int, seconds: float) -> None:
    """Write an answered request into the log."""
    method, place = scope["method"], route or scope["path"][:_MOST_PATH]
    if place.startswith(SHARED):
        place = f"{SHARED}…"  # what follows opens a sweep to whoever reads it
    answer = {"method": method, "route": route, "status": status, "seconds": round(seconds, 4)}
    _requests.info("%s %s %d", method, place, status, extra=answer)
