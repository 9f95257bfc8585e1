"""Runs any command as the training of a trial: the config goes in, lines of JSON come out."""

import contextlib
import json
import math
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from service.client.agents import AgentTrial
from service.client.client import ServiceError, ServiceRefused

#: Stands for all fields as ``--name value``.
ARGS = "{args}"
#: Stands for the path of a JSON file with all fields.
CONFIG = "{config}"
#: Seconds that a command has to end after SIGTERM.
GRACE = 10.0
_POLL = 0.05
#: Of what a command prints to standard error, so many lines go with its failure.
_ERROR_LINES = 100
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]*)\}")
#: Characters of a line that are read; longer ones are no reports.
_MAX_LINE = 1_000_000


def unknown_placeholder(command: Sequence[str], fields: Sequence[str]) -> str | None:
    """Say in a sentence which ``{name}`` of a command is no field of the config, if one is."""
    known = {"args", "config", *fields}
    for word in command:
        if ARGS in word and word != ARGS:
            return (
                f"{{args}} must be a word of its own, got {word!r:.80}; within a word there are "
                "{config} and {name}"
            )
        for name in _PLACEHOLDER.findall(word):
            if name not in known:
                return (
                    f"the command names {{{name}}}, which is no field of the sweep; there are "
                    f"{{args}}, {{config}} and {', '.join(f'{{{n}}}' for n in sorted(fields))}"
                )
    return None


def filled_in(command: Sequence[str], config: Mapping[str, Any], path: Path) -> list[str]:
    """Return a command with a config in place of ``{args}``, ``{config}`` and ``{name}``.

    A field that is none is left out of ``{args}``.
    """
    texts = {name: _text(value) for name, value in config.items()} | {"config": str(path)}
    words: list[str] = []
    for word in command:
        if word == ARGS:
            given = [(name, texts[name]) for name, value in config.items() if value is not None]
            words += [part for name, text in given for part in (f"--{name}", text)]
        else:
            words.append(_PLACEHOLDER.sub(lambda found: texts.get(found[1], found[0]), word))
    return words


def run_command(
    trial: AgentTrial,
    command: Sequence[str],
    *,
    url: str,
    stopping: threading.Event,
    out: IO[str],
    err: IO[str],
) -> str:
    """Run a command for a trial and tell how it ended; return that in words.

    Its standard output goes to ``out`` and is searched for reports: lines that are a JSON object
    with a whole number ``step`` and other numbers. ``num_steps`` says how many steps there will be.
    Once the trial must stop, or ``stopping`` is set, the command gets SIGTERM and ten seconds.
    With ``stopping`` the trial is given back, and free for others at once.
    """
    with tempfile.TemporaryDirectory(prefix="ndsweep-") as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(trial.config))
        words = filled_in(command, trial.config, path)
        try:
            run = _Run(trial, words, _environment(trial, path, url))
        except OSError as error:
            reason = f"{words[0]!r:.300} cannot be run: {error.strerror or error}"
            return f"{trial.tell(state='failed', reason=reason)}: {reason}"
        try:
            run.watch(stopping, out, err)
        finally:
            run.kill()
    if stopping.is_set() and not trial.should_stop:
        trial.give_back("the agent was stopped")
        return "given back: this agent was stopped"
    if trial.should_stop:
        trial.leave()
        return f"stopped: {trial.stop_reason}"
    failure = run.failure()
    if failure is None:
        try:
            return trial.tell()
        except ServiceRefused as error:
            if error.status != 422:
                raise
            failure = str(error)
            if any(field.path == "metrics" for field in error.fields):
                failure = f"no line of its output had the objective and 'step': {error}"
    state = trial.tell(state="failed", reason=failure)
    return f"{state}: {failure.splitlines()[-1]}"


class _Run:
    """A command at work."""

    def __init__(self, trial: AgentTrial, words: list[str], environment: dict[str, str]) -> None:
        self._trial = trial
        self._errors: deque[str] = deque(maxlen=_ERROR_LINES)
        self._wrong = ""
        self._readers: list[threading.Thread] = []
        # A group of its own: what it started ends with it.
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def watch(self, stopping: threading.Event, out: IO[str], err: IO[str]) -> None:
        """Wait for its end, and end it where that is due."""
        for read, to in ((self._read_output, out), (self._read_errors, err)):
            reader = threading.Thread(target=read, args=(to,), daemon=True)
            self._readers.append(reader)
            reader.start()
        kill_at = math.inf
        while self._process.poll() is None:
            must_end = stopping.is_set() or self._trial.should_stop or self._wrong
            if must_end and kill_at == math.inf:
                self._signal(signal.SIGTERM)
                kill_at = time.monotonic() + GRACE
            if time.monotonic() > kill_at:
                self._signal(signal.SIGKILL)
            stopping.wait(_POLL) if not stopping.is_set() else time.sleep(_POLL)
        for reader in self._readers:
            # What it started may hold its output open.
            reader.join(GRACE)

    def kill(self) -> None:
        """End what is left of it."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        for reader, pipe in zip(
            self._readers, (self._process.stdout, self._process.stderr), strict=True
        ):
            reader.join(1.0)
            # What left its group may hold the pipe; closing it would wait for that.
            if pipe is not None and not reader.is_alive():
                pipe.close()

    def failure(self) -> str | None:
        """Why it counts as failed; None if it does not."""
        code = self._process.returncode
        if self._wrong:
            return self._wrong
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        if code:
            return "\n".join(self._errors) or f"exit code {code}"
        return None

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _read_output(self, out: IO[str]) -> None:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline(_MAX_LINE):
            out.write(line)
            out.flush()
            report = report_in(line)
            if report is None or self._wrong:
                continue
            try:
                self._trial.report(**report)
            except (TypeError, ValueError, ServiceError) as error:
                self._wrong = str(error)

    def _read_errors(self, err: IO[str]) -> None:
        assert self._process.stderr is not None
        while line := self._process.stderr.readline(_MAX_LINE):
            err.write(line)
            err.flush()
            if line.strip():
                self._errors.append(line.rstrip()[:500])


def report_in(line: str) -> dict[str, Any] | None:
    """Return the report in a line of output: step, metrics, num_steps; None where it is none."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    step = values.pop("step", None)
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        return None
    num_steps = values.pop("num_steps", None)
    metrics = {
        name: value
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    if not metrics:
        return None
    known = num_steps if isinstance(num_steps, int) and num_steps >= 0 else None
    return {"step": step, "metrics": metrics, "num_steps": known}


def _environment(trial: AgentTrial, path: Path, url: str) -> dict[str, str]:
    """Return this process's variables, and those that tell a command of its trial."""
    return os.environ | {
        "NDSWEEP_URL": url,
        "NDSWEEP_SWEEP": trial.sweep_id,
        "NDSWEEP_TRIAL": str(trial.number),
        "NDSWEEP_POINT": str(trial.point),
        "NDSWEEP_SEED": str(trial.seed),
        "NDSWEEP_CONFIG": str(path),
    }


def _text(value: Any) -> str:
    """Return a value as an argument: words as they are, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)
