"""A batch's handle on one of its processes: starts it, talks to it, ends it."""

import json
import os
import queue
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sweeps.batch.clock import Stopwatch
from sweeps.batch.plan import PlannedRun
from sweeps.batch.process import Task
from sweeps.batch.results import AttemptNote
from sweeps.cluster.capacity import usable_cpus

_ROOT = Path(__file__).resolve().parents[2]

#: What arrives from a process: which slot, which of its processes, a message or None at its end.
Arrival = tuple["Slot", int, dict[str, Any] | None]


@dataclass(eq=False)
class Job:
    """A run that is being trained in a slot."""

    run: PlannedRun
    attempts: list[AttemptNote]
    from_step: int
    began: float
    watch: Stopwatch
    step: int = 0
    metrics: dict[str, float] = field(default_factory=dict)


class Slot:
    """One place where a process trains; a process that ends can be started again."""

    def __init__(
        self,
        index: int,
        *,
        gpu: str | None,  # as CUDA_VISIBLE_DEVICES names it; None = train on the CPU
        threads: int,
        log: Path,
        arrivals: "queue.Queue[Arrival]",
        host: str = "",
        sharing: int = 1,
    ) -> None:
        """``host``: key of the process that trains its runs beside those of ``sharing`` slots."""
        self.index, self._gpu, self._threads, self._log = index, gpu, threads, log
        self._arrivals = arrivals
        self.host, self.sharing = host, sharing
        self._process: subprocess.Popen[str] | None = None
        self.state: Literal["starting", "idle", "busy", "ending", "closed"] = "closed"
        self.job: Job | None = None
        #: Counts its processes; what an older one still says is ignored.
        self.generation = 0
        #: Processes in a row that ended before they were ready.
        self.false_starts = 0

    @property
    def device(self) -> str:
        return "cpu" if self._gpu is None else "cuda"

    @property
    def name(self) -> str:
        return f"process {self.index}" if self._gpu is None else f"gpu {self._gpu}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start a process; ``ready`` arrives when it can train."""
        self.generation += 1
        self.state = "starting"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "sweeps.batch.process", self.device]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "passes-on"] if self.host else command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                env=self._environment(),
                # Ctrl-C reaches us alone: it is for us to say what becomes of the runs.
                start_new_session=True,
            )
        threading.Thread(target=self._read, args=(self._process, self.generation)).start()

    def give(self, job: Job, task: Task) -> None:
        """Hand a run to the idle process."""
        self.job, self.state = job, "busy"
        self._send({"do": "run", "task": task.to_line()})

    def ask_to_stop(self) -> None:
        """Let the process write a checkpoint and end."""
        if self.state != "busy":
            self.state = "ending"
        self._send({"do": "stop"})
        self.close_input()

    def close_input(self) -> None:
        """Tell the process that nothing more comes: it ends after what it does."""
        if self._process and self._process.stdin:
            try:
                self._process.stdin.close()
            except BrokenPipeError:
                pass  # it has ended already

    def kill(self) -> None:
        """End the process at once."""
        if self._process and self._process.poll() is None:
            self._process.kill()

    def reap(self) -> str:
        """Wait for the ended process and say how it ended."""
        assert self._process is not None
        self.close_input()
        code = self._process.wait()
        return f"killed by signal {-code}" if code < 0 else f"exit code {code}"

    def log_end(self, lines: int = 5) -> str:
        """The last lines of its log."""
        try:
            text = self._log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass  # it has ended; its end is on its way as an arrival

    def _read(self, process: "subprocess.Popen[str]", generation: int) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                try:
                    message = json.loads(line)
                except ValueError:
                    continue  # killed while it wrote this line
                self._arrivals.put((self, generation, message))
        self._arrivals.put((self, generation, None))

    def _environment(self) -> dict[str, str]:
        path = os.environ.get("PYTHONPATH")
        found = dict(os.environ) | {
            "PYTHONPATH": f"{_ROOT}{os.pathsep}{path}" if path else str(_ROOT),
            "OMP_NUM_THREADS": str(self._threads),
        }
        if self._gpu is not None:
            found["CUDA_VISIBLE_DEVICES"] = self._gpu
        return found


def gpu_names(count: int) -> list[str]:
    """The first GPUs of those that this process may use, as CUDA names them."""
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = allowed.split(",") if allowed else [str(index) for index in range(count)]
    return [name.strip() for name in names[:count]]


def cpu_threads(processes: int) -> int:
    """Torch threads of each of so many processes: what was asked for, or all cores shared."""
    if asked := os.environ.get("OMP_NUM_THREADS", "").strip():
        return max(1, int(asked)) if asked.isdigit() else 1
    return max(1, usable_cpus() // processes)
