"""One long-lived process of a batch: trains run after run, so that what is compiled stays.

It is started by ``sweeps.batch.slot`` and speaks lines of JSON: tasks come in on standard input,
what happens goes out on standard output; what anybody prints goes to standard error, which is a log
file. When standard input ends, or on SIGTERM, it writes a checkpoint and ends.
"""

import gc
import json
import logging
import os
import queue
import shutil
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from sweeps.batch.clock import Stopwatch
from sweeps.batch.plan import Membership
from sweeps.batch.results import (
    AttemptNote,
    RunState,
    attempt_note,
    curves_of,
    result_of,
    write_result,
)
from sweeps.batch.shared_card import hosted_run
from worker.card_sharing.client import HostedError
from worker.checkpoints.report_journal import ReportJournal
from worker.config.train_config import config_key
from worker.errors import HostLost
from worker.process.stop_signal import set_by_signals
from worker.report import Report

Send = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Task:
    """One run as it is handed to a process."""

    #: Stored config, with its seed.
    config: dict[str, Any]
    device: str
    specs: list[dict[str, Any]]
    num_steps: int
    #: AttemptNote as JSON values, one for each attempt before.
    attempts: list[dict[str, Any]]
    from_step: int
    checkpoints: str
    checkpoint_seconds: float
    out: str
    data_home: str
    #: Seconds since the epoch at which to stop with a checkpoint; None = never.
    deadline: float | None
    git_commit: str | None = None
    #: Key of the process that trains it beside others (``sweeps.batch.shared_card``); "" = this.
    host: str = ""
    #: How many share that process.
    trials_per_gpu: int = 1

    def to_line(self) -> dict[str, Any]:
        return asdict(self)


class _Run:
    """One attempt at a run."""

    def __init__(self, task: Task, stopping: threading.Event, send: Send) -> None:
        self._task, self._stopping, self._send = task, stopping, send
        self._reports: dict[int, Report] = {}
        self._provenance: dict[str, Any] = {}
        self._began = time.monotonic()
        self._watch = Stopwatch(task.from_step)

    def train(self) -> bool:
        """Train to an end, or to a checkpoint. False after an error that may have spoilt more."""
        task = self._task
        try:
            last = self._follow()
        except HostLost as error:
            self._send({"event": "lost", "reason": str(error)[-2000:]})
            return True
        except Exception as error:
            logging.getLogger(__name__).error("%s", traceback.format_exc())
            text = f"{type(error).__name__}: {error}"
            if isinstance(error, HostedError):
                text = str(error).splitlines()[-1]  # of its traceback in the host
            self._finish("failed", text[:2000])
            # What broke, broke in the process that trained.
            return bool(task.host)
        if last is None or last.status == "running":
            self._send({"event": "stopped", "step": max(self._reports, default=0)})
        elif last.status == "diverged":
            self._finish("diverged", f"diverged at step {last.diverged_at_step}")
        else:
            self._finish("complete", "complete")
        return True

    def _follow(self) -> Report | None:
        """Train, and take in every report; return the last."""
        # These come first, all at once: they say nothing of how fast this attempt is.
        before = sum(1 for _ in ReportJournal(self._task.checkpoints).replay())
        last = None
        with closing(self._trained()) as reports:
            for index, last in enumerate(reports):
                self._note(last)
                if index >= before:
                    self._tell(last)
        return last

    def _trained(self) -> Generator[Report, None, None]:
        task = self._task
        described = {
            "config": task.config,
            "device": task.device,
            "checkpoint_dir": task.checkpoints,
            "checkpoint_seconds": task.checkpoint_seconds,
            "data_home": task.data_home,
            "trials_per_gpu": task.trials_per_gpu,
        }
        if task.host:
            return hosted_run(described, task.host, self._is_time_to_stop)
        from worker.training.trial import trial_reports  # loads torch

        return trial_reports(described, self._is_time_to_stop)

    def _is_time_to_stop(self) -> bool:
        deadline = self._task.deadline
        return self._stopping.is_set() or (deadline is not None and time.time() >= deadline)

    def _note(self, report: Report) -> None:
        self._reports[report.step] = report
        self._provenance |= report.provenance

    def _tell(self, report: Report) -> None:
        elapsed = time.monotonic() - self._began
        self._watch.note(report.step, elapsed)
        short = {name: v for name, v in report.metrics.items() if "/" not in name}
        self._send({"event": "report", "step": report.step, "elapsed": elapsed, "metrics": short})

    def _finish(self, state: RunState, cause: str) -> None:
        task, pace = self._task, self._watch.pace()
        reports = [self._reports[step] for step in sorted(self._reports)]
        last = reports[-1] if reports else None
        before = [AttemptNote.model_validate(note) for note in task.attempts]
        attempt = attempt_note(
            before, began=self._began, from_step=task.from_step, exit_cause=cause
        )
        result = result_of(
            task.config,
            [*before, attempt],
            specs=[Membership.model_validate(spec) for spec in task.specs],
            state=state,
            exit_cause=cause,
            num_steps=task.num_steps,
            step=last.step if last else 0,
            diverged_at_step=last.diverged_at_step if last else None,
            metrics=last.metrics if last else {},
            curves=curves_of(reports),
            seconds_per_step=pace.seconds_per_step if pace else None,
            start_seconds=pace.start_seconds if pace else None,
            provenance=_with_machine(self._provenance, task.git_commit),
        )
        write_result(Path(task.out), result)
        shutil.rmtree(task.checkpoints, ignore_errors=True)
        self._send({"event": "finished", "state": state, "exit_cause": cause})


def _with_machine(provenance: dict[str, Any], git_commit: str | None) -> dict[str, Any]:
    """Add what only this process knows, and the commit where the run could not tell it."""
    found = dict(provenance)
    if found.get("git_commit") is None:
        found["git_commit"] = git_commit
    torch = sys.modules.get("torch")
    if torch is not None and found.get("device") == "cuda":
        found["cuda"] = torch.version.cuda
    found["process"] = "ndsweep batch"
    return found


def _hello(device: str, *, trains: bool) -> dict[str, Any]:
    """Load what is slow to load, and say what there is to train on."""
    if device == "cpu" and not trains:
        return {"event": "ready", "machine": socket.gethostname()}
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if device == "cuda":
        if not torch.cuda.is_available():
            return {"event": "unusable", "reason": "torch finds no CUDA device here"}
        return {"event": "ready", "machine": torch.cuda.get_device_name(0)}
    return {"event": "ready", "machine": socket.gethostname()}


def _tidy_up(device: str) -> None:
    """Give back what a run held: the next one needs the memory, and its own peak."""
    gc.collect()
    if device == "cuda":
        import torch

        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _read_tasks(tasks: "queue.Queue[Task | None]", stopping: threading.Event) -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("do") == "stop":
            stopping.set()
        else:
            tasks.put(Task(**message["task"]))
    stopping.set()
    tasks.put(None)


def _take_standard_output() -> TextIO:
    """Keep standard output for messages; whatever else is printed goes to the log."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    return channel


def main() -> int:
    """Run tasks until there are no more. Exit code 1 after a run that failed."""
    device, trains = sys.argv[1], "passes-on" not in sys.argv
    channel = _take_standard_output()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    tasks: queue.Queue[Task | None] = queue.Queue()
    stopping = set_by_signals(threading.Event(), [signal.SIGTERM])

    def send(message: dict[str, Any]) -> None:
        try:
            channel.write(json.dumps(message) + "\n")
        except BrokenPipeError:
            stopping.set()  # nobody listens any more

    threading.Thread(target=_read_tasks, args=(tasks, stopping), daemon=True).start()
    hello = _hello(device, trains=trains)
    send(hello)
    if hello["event"] != "ready":
        return 2
    while not stopping.is_set() and (task := tasks.get()) is not None:
        logging.info("run %s seed %d begins", config_key(task.config), task.config["seed"])
        if not _Run(task, stopping, send).train():
            return 1  # a device error outlives the run that met it; a fresh process does not
        if trains:
            _tidy_up(device)
    return 0


if __name__ == "__main__":
    sys.exit(main())
