"""Drives the processes of a batch: hands out runs in order, and keeps what ends from what goes on.

A run whose process dies is tried again, three times in all; a run that fails is recorded so. No
run is started that would not finish in time; what runs at the end of the time writes a checkpoint.
"""

import queue
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sweeps.batch.clock import Paces, Stopwatch
from sweeps.batch.plan import PlannedRun
from sweeps.batch.process import Task
from sweeps.batch.results import (
    AttemptNote,
    RunResult,
    attempt_note,
    read_attempts,
    result_of,
    result_path,
    write_attempts,
    write_result,
)
from sweeps.batch.slot import Arrival, Job, Slot
from sweeps.records import LOST, MAX_ATTEMPTS, losses
from sweeps.spec.step_shape import exact_shape

#: Processes of a slot that may end before they are ready.
MAX_FALSE_STARTS = 3
#: Seconds that a process has to write a checkpoint and end.
GRACE_SECONDS = 60.0


@dataclass(frozen=True)
class Places:
    """Where a batch keeps its files."""

    out: Path
    checkpoints: Path
    data_home: Path

    def run_folder(self, run: PlannedRun) -> Path:
        return self.checkpoints / run.name


@dataclass(frozen=True)
class Limits:
    """When a batch checkpoints and ends."""

    #: Seconds since the epoch; None = when everything is done.
    until: float | None = None
    checkpoint_seconds: float = 120.0
    #: Seconds between two progress lines of a process.
    progress_seconds: float = 10.0


@dataclass
class BatchLoop:
    """One batch under way. ``run`` returns when nothing more can be done."""

    slots: list[Slot]
    pending: list[PlannedRun]
    places: Places
    limits: Limits
    paces: Paces
    arrivals: "queue.Queue[Arrival]"
    #: Shows a person one line.
    say: Callable[[str], None]
    git_commit: str | None = None
    #: Learns paces from earlier results, once it is known what they must have run on.
    learn_from: Callable[[Paces, str], None] = lambda paces, machine: None
    is_stopping: bool = False
    #: Why the batch cannot go on, if so.
    broken: str = ""
    total: int = 0
    finished: int = 0
    _said_at: dict[int, float] = field(default_factory=dict)
    _stop_by: float | None = None

    def run(self) -> None:
        """Train until all is done, the time is over, or ``stop`` was called."""
        self.total = len(self.pending)
        # After its time a batch only says what is left.
        for slot in [] if self._is_over() else self.slots[: len(self.pending)]:
            slot.start()
        while any(slot.state != "closed" for slot in self.slots):
            self._hand_out()
            try:
                self._handle(self.arrivals.get(timeout=0.2))
            except queue.Empty:
                pass
            self._keep_time()

    def stop(self) -> None:
        """Have every process write a checkpoint and end. May be called by a signal."""
        self.is_stopping = True

    def _hand_out(self) -> None:
        for slot in self.slots:
            if slot.state != "idle":
                continue
            run = None if self.is_stopping else self._next_run()
            if run is not None:
                self._give(slot, run)
            elif self.is_stopping or not self._may_get_more():
                slot.state = "ending"
                slot.close_input()
        if self.is_stopping and self._stop_by is None:
            self._stop_by = time.time() + GRACE_SECONDS
            for slot in self.slots:
                if slot.state != "closed":
                    slot.ask_to_stop()
            self.say("stopping: what runs was asked to write its checkpoint and end")

    def _may_get_more(self) -> bool:
        """Whether an idle process may yet be needed: for a run that another process loses."""
        return any(slot.state == "busy" for slot in self.slots) and not self._is_over()

    def _is_over(self) -> bool:
        return self.limits.until is not None and time.time() >= self.limits.until

    def _next_run(self) -> PlannedRun | None:
        """The first run that would finish in time; a shape that was never seen may try."""
        if self._is_over():
            return None
        return next((run for run in self.pending if self._fits(run)), None)

    def _fits(self, run: PlannedRun) -> bool:
        if self.limits.until is None:
            return True
        steps = run.num_steps - newest_step(self.places.run_folder(run))
        needed = self.paces.estimate(exact_shape(run.config.stored()), steps)
        return needed is None or time.time() + needed <= self.limits.until

    def _give(self, slot: Slot, run: PlannedRun) -> None:
        self.pending.remove(run)
        # A failure of before ends here: until this attempt ends the run has no result.
        result_path(self.places.out, run.config_key, run.config.seed).unlink(missing_ok=True)
        folder = self.places.run_folder(run)
        folder.mkdir(parents=True, exist_ok=True)
        attempts = [_closed(attempt) for attempt in read_attempts(folder)]
        from_step = newest_step(folder)
        job = Job(run, attempts, from_step, time.monotonic(), Stopwatch(from_step), from_step)
        write_attempts(folder, [*attempts, _note(job, "")])
        task = Task(
            config=run.config.stored(),
            device=slot.device,
            specs=[member.model_dump() for member in run.specs],
            num_steps=run.num_steps,
            attempts=[attempt.model_dump() for attempt in attempts],
            from_step=from_step,
            checkpoints=str(folder),
            checkpoint_seconds=self.limits.checkpoint_seconds,
            out=str(self.places.out),
            data_home=str(self.places.data_home),
            deadline=self.limits.until,
            git_commit=self.git_commit,
            host=slot.host,
            trials_per_gpu=slot.sharing,
        )
        slot.give(job, task)
        where = f" from step {from_step:,}" if from_step else ""
        self._say(slot, f"begins{where}, attempt {len(attempts) + 1}")

    def _handle(self, arrival: Arrival) -> None:
        slot, generation, message = arrival
        if generation != slot.generation:
            return
        if message is None:
            self._process_ended(slot)
            return
        event = message["event"]
        if event == "ready":
            slot.state, slot.false_starts = "idle", 0
            self.learn_from(self.paces, message["machine"])
        elif event == "unusable":
            self.broken = message["reason"]
            self.stop()
        elif event == "report" and slot.job is not None:
            self._note_report(slot, slot.job, message)
        elif event in ("finished", "stopped") and slot.job is not None:
            self._attempt_ended(slot, slot.job, message)
        elif event == "lost" and slot.job is not None:
            self._lose(slot, slot.job, message["reason"])
            slot.job, slot.state = None, "idle"

    def _note_report(self, slot: Slot, job: Job, message: dict[str, object]) -> None:
        job.step = int(str(message["step"]))
        metrics = message["metrics"]
        assert isinstance(metrics, dict)
        job.metrics = metrics
        job.watch.note(job.step, float(str(message["elapsed"])))
        self.paces.learn(exact_shape(job.run.config.stored()), job.watch.pace())
        if time.monotonic() - self._said_at.get(slot.index, 0.0) >= self.limits.progress_seconds:
            self._said_at[slot.index] = time.monotonic()
            self._say(slot, _progress(job))

    def _attempt_ended(self, slot: Slot, job: Job, message: dict[str, object]) -> None:
        if message["event"] == "stopped":
            folder = self.places.run_folder(job.run)
            write_attempts(folder, [*job.attempts, _note(job, "stopped in time")])
            self.pending.insert(0, job.run)
            self._say(slot, f"stopped at step {message['step']:,} with a checkpoint")
        else:
            self.finished += 1
            seconds = time.monotonic() - job.began
            self._say(slot, f"{message['exit_cause']} after {seconds:,.0f} s  {_metrics(job)}")
        # A process in which a run failed ends: what the run broke must not meet the next one.
        is_broken = message.get("state") == "failed" and not slot.host
        slot.state = "ending" if is_broken else "idle"
        slot.job = None

    def _process_ended(self, slot: Slot) -> None:
        how, job, was = slot.reap(), slot.job, slot.state
        slot.state = "closed"
        if job is not None:
            self._lose(slot, job, f"the process ended, {how}")
            slot.job = None
        elif was == "starting" and not self.is_stopping:
            slot.false_starts += 1
            if slot.false_starts >= MAX_FALSE_STARTS:
                self._give_up(slot, how)
                return
        if self.pending and not self.is_stopping and self._next_run() is not None:
            slot.start()

    def _give_up(self, slot: Slot, how: str) -> None:
        self.say(f"{slot.name}: no process can start here ({how}):\n{slot.log_end()}")
        if all(other.state == "closed" for other in self.slots):
            self.broken = f"no process could start, the last ended with {how}"

    def _lose(self, slot: Slot, job: Job, why: str) -> None:
        """Count the attempt, and try the run again or record that it failed."""
        folder = self.places.run_folder(job.run)
        if result_path(self.places.out, job.run.config_key, job.run.config.seed).exists():
            return  # it died after its work was done
        attempts = [*job.attempts, _note(job, f"{LOST}{why}")]
        lost = losses((attempt.state, attempt.exit_cause) for attempt in job.attempts) + 1
        self._say(slot, f"{why}; attempt {len(attempts)} is lost")
        if lost < MAX_ATTEMPTS:
            write_attempts(folder, attempts)
            self.pending.insert(0, job.run)
            return
        self.finished += 1
        write_result(self.places.out, _failed(job, attempts, f"lost {lost} times, {why}"))
        shutil.rmtree(folder, ignore_errors=True)

    def _keep_time(self) -> None:
        """End processes that should have ended by themselves long ago."""
        stop_by = self._stop_by
        if stop_by is None and self.limits.until is not None:
            stop_by = self.limits.until + GRACE_SECONDS
        if stop_by is not None and time.time() > stop_by:
            for slot in self.slots:
                if slot.state != "closed":
                    slot.kill()

    def _say(self, slot: Slot, text: str) -> None:
        label = slot.job.run.label if slot.job else ""
        self.say(f"[{slot.name}] {self.finished}/{self.total} done | {label}: {text}")


def newest_step(folder: Path) -> int:
    """The step of a run's newest checkpoint; 0 where there is none."""
    steps = [path.stem.removeprefix("step-") for path in folder.glob("step-*.ckpt")]
    return max((int(step) for step in steps if step.isdigit()), default=0)


def _note(job: Job, exit_cause: str) -> AttemptNote:
    return attempt_note(
        job.attempts, began=job.began, from_step=job.from_step, exit_cause=exit_cause
    )


def _closed(attempt: AttemptNote) -> AttemptNote:
    """An attempt that nobody saw the end of was cut off with its machine."""
    if attempt.exit_cause:
        return attempt
    return attempt.model_copy(update={"exit_cause": "cut off with the whole batch"})


def _failed(job: Job, attempts: list[AttemptNote], cause: str) -> RunResult:
    return result_of(
        job.run.config.stored(),
        attempts,
        specs=job.run.specs,
        state="failed",
        exit_cause=cause,
        num_steps=job.run.num_steps,
        step=job.step,
        metrics=job.metrics,
        curves=[],
        provenance={"process": "ndsweep batch"},
    )


def _progress(job: Job) -> str:
    steps = f"step {job.step:,}/{job.run.num_steps:,}"
    pace = job.watch.pace()
    left = (job.run.num_steps - job.step) * pace.seconds_per_step / 60 if pace else 0.0
    return f"{steps}  {_metrics(job)}  {left:,.1f} min left"


def _metrics(job: Job) -> str:
    shown = []
    for name, value in job.metrics.items():
        if name.endswith("_error"):
            shown.append(f"{name} {100 * value:.2f} %")
        elif name == "images_per_second":
            shown.append(f"{value:,.0f} images/s")
        elif name == "train_loss":
            shown.append(f"{name} {value:.4g}")
    return "  ".join(shown)
