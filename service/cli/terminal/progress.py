"""Progress on a terminal: of a sweep, from its events (trials done, rate, time left); of copies."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from service.client.client import Client
from service.contract.outputs import EventOut, SweepOut
from sweeps.records import TrialState


@dataclass
class TrialCounts:
    """Progress of a sweep's trials, updated by its events."""

    #: Number of planned trials, None if unknown.
    planned: int | None
    #: Trial number -> (steps done, steps of its run).
    steps: dict[int, tuple[int, int]] = field(default_factory=dict)
    states: dict[int, TrialState] = field(default_factory=dict)

    def note(self, event: EventOut) -> None:
        if event.kind == "progress":
            number = event.data["trial"]
            self.steps[number] = (event.data["step"], event.data["num_steps"])
        elif event.kind == "trial":
            self.states[event.data["trial"]] = TrialState(event.data["state"])

    @property
    def total(self) -> int:
        """Trials planned, or seen so far."""
        return max(self.planned or 0, len(self.states), 1)

    @property
    def finished(self) -> int:
        return sum(state.is_finished() for state in self.states.values())

    @property
    def running(self) -> int:
        return sum(state == TrialState.RUNNING for state in self.states.values())

    @property
    def work(self) -> float:
        """Trials done, counting running ones by the share of their steps."""
        done = 0.0
        for number, state in self.states.items():
            at, of = self.steps.get(number, (0, 1))
            done += 1.0 if state.is_finished() else min(at / max(of, 1), 1.0)
        return done

    @property
    def steps_done(self) -> int:
        return sum(at for at, _ in self.steps.values())


class StepRate(ProgressColumn):
    """Optimizer steps per second over all trials, since the bar started."""

    def render(self, task: Task) -> Text:
        steps = task.fields["steps_done"] - task.fields["steps_before"]
        if not task.elapsed or not steps:
            return Text("– steps/s", style="progress.data.speed")
        return Text(f"{steps / task.elapsed:,.0f} steps/s", style="progress.data.speed")


def planned_trials(sweep: SweepOut) -> int | None:
    """Return the number of trials of a sweep; for a match, the smallest possible number."""
    if sweep.kind == "sweep":
        return sweep.num_trials
    spec = sweep.spec
    return int(
        2 * spec["replicates"] + min(spec["max_corrections"], 1) * spec["calibration_replicates"]
    )


def progress_bars(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(finished_text="[green]✓"),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[counts]}"),
        StepRate(),
        TextColumn("ETA"),
        TimeRemainingColumn(),
        console=console,
        refresh_per_second=4,
    )


@contextmanager
def byte_counts(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show how many bytes have passed, on a terminal; yields what is called with some more."""
    columns = (DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn())
    left = () if total is None else (BarColumn(), TextColumn("ETA"), TimeRemainingColumn())
    with _quiet(SpinnerColumn(), TextColumn("{task.description}"), *columns, *left) as bars:
        bar = bars.add_task(what, total=total)
        yield lambda size: bars.advance(bar, size)


@contextmanager
def row_counts() -> Iterator[Callable[[str, int, int], None]]:
    """Show rows of tables as they are copied, on a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with _quiet(*columns, TimeRemainingColumn()) as bars:
        known: dict[str, TaskID] = {}

        def note(table: str, done: int, rows: int) -> None:
            if table not in known:
                known[table] = bars.add_task(table)
            bars.update(known[table], completed=done, total=rows)

        yield note


def _quiet(*columns: ProgressColumn) -> Progress:
    # A log gets the lines that come afterwards, not a bar.
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def follow(
    service: Client,
    sweep: SweepOut,
    bars: Progress,
    label: str,
    note: Callable[[EventOut], None] = lambda event: None,
) -> SweepOut:
    """Show a progress bar for ``sweep`` until it is finished; return its final state."""
    tally, began, steps_before = TrialCounts(planned_trials(sweep)), datetime.now(UTC), 0
    bar = bars.add_task(escape(label), total=1.0, counts="queued", steps_done=0, steps_before=0)
    for event in service.watch(sweep.id):
        tally.note(event)
        note(event)
        if event.at < began:
            steps_before = tally.steps_done
        bars.update(
            bar,
            total=tally.total,
            completed=tally.work,
            steps_done=tally.steps_done,
            steps_before=steps_before,
            counts=f"{tally.finished}/{tally.total} trials, {tally.running} running",
        )
    sweep = service.get(sweep.id)
    done = tally.total if sweep.state == "complete" else tally.work
    bars.update(bar, completed=done, counts=f"{tally.finished} trials, {sweep.state}")
    return sweep
