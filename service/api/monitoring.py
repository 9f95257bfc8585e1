"""Counts for a monitoring system: requests seen by this process, and what the store holds."""

import time
from collections import Counter as Sums
from collections.abc import Iterator

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

from service.version import VERSION
from sweeps.store.store import Store

#: Of what ``Metrics.text`` returns.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

#: Where the API is mounted.
API = "/api/v1"

# A series of times of making beside each series of counts: nobody reads them.
disable_created_metrics()  # type: ignore[no-untyped-call]

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Metrics:
    """The metrics of one application; safe across threads."""

    def __init__(self, store: Store) -> None:
        self._registry = CollectorRegistry()
        Info("ndsweep", "What is running.", registry=self._registry).info({"version": VERSION})
        self._registry.register(_StoreCounts(store))
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
            self.metrics.add(scope["method"], route, status, time.perf_counter() - start)
