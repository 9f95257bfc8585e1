"""When trials ran, and on which worker."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from dashboards.plots.answers import Plot, Row
from dashboards.plots.views import time_unit
from sweeps.figures.plotly_values import LEGEND_BELOW, figure
from sweeps.records import TrialState
from sweeps.store.queries.timeline import Span

#: Lanes that a reader can distinguish; with more workers, trials share lanes of their host.
MOST_LANES = 32
#: Shortest bar, as a part of the whole time: about two pixels.
LEAST_BAR = 0.002
COLOURS = {
    TrialState.COMPLETE: "#009E73",
    TrialState.RUNNING: "#0072B2",
    TrialState.PRUNED: "#CC79A7",
    TrialState.DIVERGED: "#D55E00",
    TrialState.FAILED: "#B3261E",
    TrialState.CANCELLED: "#8A8F98",
    TrialState.WAITING: "#8A8F98",
}


def timeline_plot(spans: Sequence[Span], now: datetime) -> Plot:
    """A bar for each attempt on the lane of the process that ran it, coloured by its end.

    Args:
        spans: Attempts in the order they started.
        now: Where the bars of running attempts end.
    """
    lanes = lanes_of(spans, now)
    start = min((span.started_at for span in spans), default=now)
    end = max((span.finished_at or now for span in spans), default=now)
    length = (end - start).total_seconds()
    unit, seconds = time_unit(length)
    least = LEAST_BAR * max(length, 0.6) / seconds
    by_state: dict[TrialState, list[int]] = {}
    for index, span in enumerate(spans):
        by_state.setdefault(span.state, []).append(index)
    traces = [
        _trace(
            state,
            [(spans[i], lanes[i]) for i in by_state[state]],
            start,
            now,
            least,
            (unit, seconds),
        )
        for state in TrialState
        if state in by_state
    ]
    names = list(dict.fromkeys(lanes))
    drawn = figure(
        traces,
        x={"title": f"time since the first start ({unit})", "rangemode": "tozero"},
        y={
            "title": "worker process",
            "type": "category",
            "categoryorder": "array",
            "categoryarray": sorted(names, key=_natural),
            "autorange": "reversed",
        },
        name="timeline",
        height=max(200, 120 + 22 * len(names)),
        **LEGEND_BELOW,
    )
    rows: list[Row] = [
        (
            span.trial,
            span.attempt,
            span.state.value,
            span.host,
            span.pid,
            span.started_at.isoformat(),
            "" if span.finished_at is None else span.finished_at.isoformat(),
        )
        for span in spans
    ]
    columns = ("trial", "attempt", "state", "host", "pid", "started_at", "finished_at")
    return Plot(drawn, columns, rows)


def lanes_of(spans: Sequence[Span], now: datetime) -> list[str]:
    """The lane of each span: its process, or, of many processes, the first free one of its host."""
    processes = [f"{span.host} · {span.pid or '?'}" if span.host else "not known" for span in spans]
    if len(set(processes)) <= MOST_LANES:
        return processes
    free: dict[str, list[datetime]] = {}
    lanes = []
    for span in spans:
        ends = free.setdefault(span.host or "not known", [])
        at = next((i for i, end in enumerate(ends) if end <= span.started_at), len(ends))
        ends[at : at + 1] = [span.finished_at or now]
        lanes.append(f"{span.host or 'not known'} · slot {at + 1}")
    return lanes


def _trace(
    state: TrialState,
    spans: Sequence[tuple[Span, str]],
    start: datetime,
    now: datetime,
    least: float,
    scale: tuple[str, float],
) -> dict[str, Any]:
    """Bars of one state, at least ``least`` of the unit long, so that failures are visible."""
    unit, seconds = scale
    begins = [(span.started_at - start).total_seconds() / seconds for span, _ in spans]
    lengths = [_seconds(span, now) / seconds for span, _ in spans]
    return {
        "type": "bar",
        "orientation": "h",
        "name": state.value,
        "y": [lane for _, lane in spans],
        "base": begins,
        "x": [max(length, least) for length in lengths],
        "offset": -0.4,
        "width": 0.8,
        "marker": {"color": COLOURS[state], "line": {"width": 0.5, "color": "rgba(0,0,0,0.35)"}},
        "customdata": [
            [span.trial, span.attempt, span.device, length]
            for (span, _), length in zip(spans, lengths, strict=True)
        ],
        "hovertemplate": (
            f"trial %{{customdata[0]}}, attempt %{{customdata[1]}}: {state.value}<br>"
            f"from %{{base:.2f}} {unit} for %{{customdata[3]:.2f}} {unit}<br>"
            "%{y} %{customdata[2]}<extra></extra>"
        ),
    }


def _seconds(span: Span, now: datetime) -> float:
    return max(((span.finished_at or now) - span.started_at).total_seconds(), 0.0)


def _natural(lane: str) -> tuple[str, int, str]:
    host, _, rest = lane.partition(" · ")
    digits = "".join(c for c in rest if c.isdigit())
    return host, int(digits or 0), rest
