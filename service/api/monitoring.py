"""Counts for a monitoring system: requests seen by this process, and what the store holds."""

import threading
import time
from collections import Counter
from collections.abc import Iterator

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.version import VERSION
from sweeps.store.store import Store

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


#: Where the API is mounted.
API = "/api/v1"


class RequestCounts:
    """ASGI middleware that counts answers and the seconds they took, by route."""

    def __init__(self, app: ASGIApp, totals: "Totals") -> None:
        self.app = app
        self.totals = totals

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
            self.totals.add(scope["method"], route, status, time.perf_counter() - start)


class Totals:
    """Requests by (method, route, status) and seconds by (method, route); safe across threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: dict[tuple[str, str], float] = {}

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        method = method if method in _METHODS else "OTHER"
        with self._lock:
            self._requests[method, route, status] += 1
            self._seconds[method, route] = self._seconds.get((method, route), 0.0) + seconds

    def lines(self) -> Iterator[str]:
        with self._lock:
            requests, seconds = dict(self._requests), dict(self._seconds)
        yield "# HELP ndsweep_http_requests_total Requests answered by this process."
        yield "# TYPE ndsweep_http_requests_total counter"
        for (method, route, status), count in sorted(requests.items()):
            labels = f'method="{method}",route="{route}",status="{status}"'
            yield f"ndsweep_http_requests_total{{{labels}}} {count}"
        yield "# HELP ndsweep_http_request_seconds_total Seconds spent answering."
        yield "# TYPE ndsweep_http_request_seconds_total counter"
        for (method, route), total in sorted(seconds.items()):
            labels = f'method="{method}",route="{route}"'
            yield f"ndsweep_http_request_seconds_total{{{labels}}} {total:.6f}"


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def prometheus_text(store: Store, totals: Totals) -> str:
    """Everything that is counted, in the text format of Prometheus."""
    counts = store.counts()
    trials: Counter[str] = Counter()
    for row in counts:
        trials.update(row.trials)
    lines = [
        "# HELP ndsweep_info What is running.",
        "# TYPE ndsweep_info gauge",
        f'ndsweep_info{{version="{VERSION}"}} 1',
        "# HELP ndsweep_sweeps Sweeps and matches in the store.",
        "# TYPE ndsweep_sweeps gauge",
        *(
            f'ndsweep_sweeps{{kind="{row.kind}",state="{row.state}"}} {row.sweeps}'
            for row in counts
        ),
        "# HELP ndsweep_trials Trials in the store.",
        "# TYPE ndsweep_trials gauge",
        *(f'ndsweep_trials{{state="{state}"}} {count}' for state, count in sorted(trials.items())),
        *totals.lines(),
    ]
    return "\n".join(lines) + "\n"
