"""Has packages of trainings imported by other processes, so that the API stays small and quick."""

import json
import logging
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sweeps.match.match_spec import MatchSpec
from sweeps.spec.sweep_spec import SweepSpec
from sweeps.spec.validation_messages import FieldReason
from worker.config.described_config import described, described_part
from worker.config.parts import (
    GROUPS,
    Part,
    find_part,
    part_key,
    read_parts_with,
    registered_part_names,
)
from worker.config.registry import OWN, Registered
from worker.config.training import (
    EXTERNAL,
    IMAGES,
    Training,
    find_training,
    read_trainings_with,
    training_names,
)
from worker.config.trial_config import FieldError

log = logging.getLogger(__name__)

#: Seconds after which a refused package is imported again: it may have been mended.
RETRY_SECONDS = 5.0
#: Seconds for which a package's files are taken to be unchanged.
LOOK_SECONDS = 1.0
#: Packages that are imported at the same time.
_AT_ONCE = 2


class _Ended(Exception):
    """The process that imported a package is gone; the message says how it ended."""


class _Process:
    """A process that has imported a package, or tries to."""

    def __init__(self, names: Sequence[str], seconds: float) -> None:
        self._seconds = seconds
        self._left = b""
        path = os.pathsep.join(part or os.getcwd() for part in sys.path)
        module = "service.submission.training_process"
        # Its words are read where it dies.
        self._words = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, str(seconds), *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            bufsize=0,
            env=os.environ | {"PYTHONPATH": path},
        )

    def ask(self, question: dict[str, Any]) -> Any:
        """Send a line; return the answer. Raises _Ended and TimeoutError."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
        except OSError as error:
            raise _Ended(self._how()) from error
        return self.answer()

    def answer(self) -> Any:
        """Wait for a line of JSON and return it. Raises _Ended and TimeoutError."""
        assert self._process.stdout is not None
        fd, until = self._process.stdout.fileno(), time.monotonic() + self._seconds
        while b"\n" not in self._left:
            left = until - time.monotonic()
            if left <= 0 or not select.select([fd], [], [], left)[0]:
                raise TimeoutError
            chunk = os.read(fd, 1 << 16)
            if not chunk:
                raise _Ended(self._how())
            self._left += chunk
        line, _, self._left = self._left.partition(b"\n")
        return json.loads(line)

    def _how(self) -> str:
        code = self._process.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self._words.seek(0)
        lines = self._words.read()[-10_000:].decode("utf-8", "replace").strip().splitlines()
        return f"{how}: {lines[-1][:300]}" if lines else how

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._words):
            if file is not None:
                file.close()


@dataclass(eq=False)
class _Reading:
    """What is known of a training, or will be."""

    found: Registered
    done: threading.Event = field(default_factory=threading.Event)
    training: Training | Part | None = None
    refusal: str = ""
    has_rules: bool = False
    #: Times of change by file.
    files: dict[str, float] = field(default_factory=dict)
    #: When that was learned, or looked at last.
    at: float = 0.0
    #: Held by whoever talks to the process.
    lock: threading.Lock = field(default_factory=threading.Lock)
    process: _Process | None = None

    def is_old(self, found: Registered) -> bool:
        """Whether the package may be another one by now."""
        if not self.done.is_set():
            return False
        if self.found != found:
            return True
        if self.refusal:
            return time.monotonic() - self.at > RETRY_SECONDS
        if time.monotonic() - self.at < LOOK_SECONDS:
            return False
        self.at = time.monotonic()
        return self.files != _times(self.files)

    def end_of_reading(self) -> None:
        self.at = time.monotonic()
        self.done.set()

    def end(self) -> None:
        with self.lock:
            if self.process is not None:
                self.process.close()
                self.process = None


class TrainingReader:
    """Registered trainings, each read once by a process of its own while its files stay the same.

    Args:
        seconds: How long the import of a package may take.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._known: dict[str, _Reading] = {}
        self._lock = threading.Lock()
        self._turns = threading.Semaphore(_AT_ONCE)

    def __call__(self, found: Registered) -> Training:
        """Return a training, once it is read. Raises FieldError."""
        reading = self._reading(found)
        reading.done.wait()
        return _training_of(reading)

    def part(self, field: str, found: Registered) -> Part:
        """Return a part of the built-in training, once it is read. Raises FieldError."""
        reading = self._reading(found)
        reading.done.wait()
        if not isinstance(reading.training, Part):
            raise FieldError(field, reading.refusal)
        return reading.training

    def look(self, found: Registered) -> Training | None:
        """Return a training if it is read; None while it is. Raises FieldError. Never waits."""
        reading = self._reading(found)
        return _training_of(reading) if reading.done.is_set() else None

    def broken_rules(
        self, found: Registered, spec: SweepSpec | MatchSpec, stored: dict[str, Any]
    ) -> list[Any]:
        """Return fields that break rules which are code of the package, with reasons.

        Raises FieldError where the package cannot say.
        """
        reading = self._reading(found)
        reading.done.wait()
        if not reading.has_rules:
            return []
        question = {"kind": "match" if isinstance(spec, MatchSpec) else "sweep", "spec": stored}
        with reading.lock:
            try:
                reasons: list[FieldReason] = self._ask(reading, question)["reasons"]
                return reasons
            except (TimeoutError, _Ended) as error:
                if reading.process is not None:
                    reading.process.close()
                    reading.process = None
                raise FieldError("training", self._sentence(found, error, "checking")) from error

    def close(self) -> None:
        """End every process."""
        with self._lock:
            for reading in self._known.values():
                reading.end()

    def _ask(self, reading: _Reading, question: dict[str, Any]) -> Any:
        if reading.process is not None:
            try:
                return reading.process.ask(question)
            except _Ended:  # it was idle for long, or short of memory
                reading.process.close()
        reading.process = _Process([_key(reading.found)], self._seconds)
        reading.process.answer()
        return reading.process.ask(question)

    def _reading(self, found: Registered) -> _Reading:
        name = _key(found)
        with self._lock:
            known = self._known.get(name)
            if known is None or known.is_old(found):
                if known is not None:
                    known.end()
                known = self._known[name] = _Reading(found)
                threading.Thread(target=self._read, args=([known],), daemon=True).start()
            return known

    def read_package(self, registered: Sequence[Registered]) -> None:
        """Begin to read what one package registers, in one process."""
        with self._lock:
            readings = [_Reading(found) for found in registered if _key(found) not in self._known]
            self._known |= {_key(reading.found): reading for reading in readings}
        threading.Thread(target=self._read, args=(readings,), daemon=True).start()

    def _read(self, readings: list[_Reading]) -> None:
        with self._turns:
            while readings:
                try:
                    reached = self._import(readings)
                except OSError as error:  # no process could be started
                    readings[0].refusal = _unreadable(readings[0].found, error)
                    readings[0].end_of_reading()
                    reached = 1
                readings = readings[reached:]

    def _import(self, readings: list[_Reading]) -> int:
        """Read trainings of one package until its process fails; return how many were reached."""
        process = _Process([_key(reading.found) for reading in readings], self._seconds)
        kept = False
        try:
            for reached, reading in enumerate(readings, start=1):
                try:
                    self._learn(reading, process.answer())
                except (TimeoutError, _Ended) as error:
                    reading.refusal = self._sentence(reading.found, error, "importing")
                    log.warning("%s", reading.refusal)
                    return reached
                except Exception as error:
                    reading.refusal = _unreadable(reading.found, error)
                finally:
                    if len(readings) == 1 and reading.has_rules:
                        reading.process, kept = process, True
                    reading.end_of_reading()
        finally:
            if not kept:
                process.close()
        return len(readings)

    def _learn(self, reading: _Reading, answer: dict[str, Any]) -> None:
        """Take over what a process says of a training."""
        found = reading.found
        if "reason" in answer:
            reading.refusal = answer["reason"]
            log.warning("%s\n%s", reading.refusal, answer["log"])
            return
        reading.files = _times(answer["files"])
        reading.has_rules = answer["training"]["has_rules"]
        part = part_key(_key(found))
        reading.training = (
            described_part(part[0], found, answer["training"])
            if part
            else described(found, answer["training"])
        )

    def _sentence(self, found: Registered, error: Exception, doing: str) -> str:
        where = f"{doing} {found.entry.value} of {found.package} {found.version}"
        remedy = "import heavy libraries inside the function"
        if isinstance(error, TimeoutError):
            what = f"{where} takes longer than {self._seconds:g} s"
            remedy += ", or raise NDSWEEP_TRAINING_SECONDS"
        else:
            what = f"{where} ended its process ({error})"
        return f"{_title(found)} cannot be used: {what}; {remedy}"


def _key(found: Registered) -> str:
    """The name of a training; of a part ``networks/NAME`` and the like."""
    group = found.entry.group.removeprefix("ndsweep.")
    return found.entry.name if group == "training" else f"{group}/{found.entry.name}"


def _title(found: Registered) -> str:
    part = part_key(_key(found))
    return f"{part[0] if part else 'training'} {found.entry.name!r}"


def _unreadable(found: Registered, error: Exception) -> str:
    log.error("a training could not be read", exc_info=error)
    return f"{_title(found)} could not be read: {error}"


def _training_of(reading: _Reading) -> Training:
    if not isinstance(reading.training, Training):
        raise FieldError("training", reading.refusal)
    return reading.training


def _times(files: Any) -> dict[str, float]:
    return {file: os.stat(file).st_mtime if os.path.exists(file) else 0.0 for file in files}


_current: TrainingReader | None = None


def reader() -> TrainingReader | None:
    """The reader of this process; None where packages are imported."""
    return _current


def _registered() -> Iterator[Registered]:
    """Yield the trainings and parts of other packages, one of each name."""
    finds = [partial(find_training, n) for n in training_names() if n not in (IMAGES, EXTERNAL)]
    finds += [
        partial(find_part, owner, n) for owner in GROUPS for n in registered_part_names(owner)
    ]
    for find in finds:
        try:
            found = find()
        except FieldError:
            continue  # of two packages; whoever names it learns so
        if found.package != OWN:
            yield found


def begin(seconds: float) -> TrainingReader:
    """Have packages read by other processes from now on, and begin with those that are there."""
    global _current
    _current = TrainingReader(seconds)
    read_trainings_with(_current)
    read_parts_with(_current.part)
    packages: dict[str, list[Registered]] = {}
    for found in _registered():
        packages.setdefault(found.package, []).append(found)
    for registered in packages.values():
        _current.read_package(registered)
    return _current


def end() -> None:
    """Import packages here again."""
    global _current
    if _current is not None:
        _current.close()
    _current = None
    read_trainings_with(None)
    read_parts_with(None)
