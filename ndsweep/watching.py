"""Progress of a sweep: a live table in Jupyter, a progress bar in a terminal."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, cast

from dashboards.wording.formatting import duration
from service.cli.terminal.progress import TrialCounts, follow, planned_trials, progress_bars
from service.client.client import Client as Service
from service.contract.outputs import PointOut, SweepOut
from sweeps.analysis.formatting import NOTHING, Mean, estimate_text, metric_title, word
from sweeps.figures.quantities import quantity
from sweeps.records import objective_of
from worker.config.training import IMAGES

#: Seconds between two updates of the table at least.
PAUSE = 1.0
#: Rows of the table, the best points first.
ROWS = 8


def watch(service: Service, sweep: SweepOut) -> None:
    """Show progress until the sweep is finished, or until a person interrupts it."""
    try:
        if in_notebook():
            _in_notebook(service, sweep)
        else:
            _in_terminal(service, sweep)
    except KeyboardInterrupt:
        print(f"not watching any more; sweep {sweep.id} goes on")


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which shows HTML."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def _in_terminal(service: Service, sweep: SweepOut) -> None:
    from rich.console import Console

    with progress_bars(Console()) as bars:
        follow(service, sweep, bars, sweep.name)


def _in_notebook(service: Service, sweep: SweepOut) -> None:
    from IPython.display import HTML, display

    shown = display(HTML(table(service, sweep)), display_id=True)
    follow_table(service, sweep, lambda text: shown.update(HTML(text)))


def follow_table(service: Service, sweep: SweepOut, show: Callable[[str], Any]) -> None:
    """Call ``show`` with the table as HTML, at most once a second, and once at the end."""
    tally, next_at = TrialCounts(planned_trials(sweep)), 0.0
    for event in service.watch(sweep.id):
        tally.note(event)
        if time.monotonic() >= next_at:
            show(table(service, service.get(sweep.id), tally))
            next_at = time.monotonic() + PAUSE
    show(table(service, service.get(sweep.id), tally))


def table(service: Service, sweep: SweepOut, tally: TrialCounts | None = None) -> str:
    """The state of a sweep as HTML: its progress, and the best points with their intervals."""
    objective = objective_of(sweep.spec)
    points = service.points(sweep.id, sort=objective.best_first, limit=ROWS).items
    done = sum(count for state, count in sweep.trials.items() if state.is_finished())
    share = 1.0 if sweep.state == "complete" else _share(sweep, done, tally)
    counts = ", ".join(f"{count} {state}" for state, count in sweep.trials.items() if count)
    left = "" if sweep.eta_seconds is None else f" · {duration(sweep.eta_seconds)} left"
    head = (
        f"<b>{escape(sweep.name)}</b> {sweep.state}{left}<br>"
        f'<progress value="{share:.4f}" max="1" style="width:100%"></progress><br>'
        f"{escape(counts or 'no trial yet')}"
    )
    if sweep.reason:
        head += f" · {escape(sweep.reason)}"
    return f"<div>{head}{_leaderboard(sweep.spec, points)}</div>"


def _share(sweep: SweepOut, done: int, tally: TrialCounts | None) -> float:
    """Trials done, those that run by the share of their steps."""
    if tally is not None and tally.states:
        return tally.work / tally.total
    return done / sweep.num_trials if sweep.num_trials else 0.0


def _leaderboard(spec: Mapping[str, Any], points: Sequence[PointOut]) -> str:
    metric = objective_of(spec).metric
    unit = quantity(metric, spec.get("metrics"), spec.get("training") or IMAGES).unit
    found = [point for point in points if point.mean is not None]
    if not found:
        return ""
    fields = list(dict.fromkeys(name for point in found for name in point.params))
    titles = ("point", f"{metric_title(metric, unit)} (95 %)", "seeds", *fields)
    rows = [
        [
            str(point.number),
            estimate_text(metric, cast(Mean, point)),
            str(point.n),
            *(word(point.params[name]) if name in point.params else NOTHING for name in fields),
        ]
        for point in found
    ]
    return (
        f"<table><thead>{_row('th', titles)}</thead>"
        f"<tbody>{''.join(_row('td', row) for row in rows)}</tbody></table>"
        f"<small>the best {len(found)} points so far: selected, optimistic</small>"
    )


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
