"""``Run``: what a training function gets beside its config. Imports no torch.

Reports are checked, appended to the trial's journal and handed on; the function does not wait for
those who receive them. When ``report`` has returned, its values survive a kill -9.
"""

import logging
import math
import numbers
import operator
import threading
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worker.checkpoints.report_journal import ReportJournal
from worker.checkpoints.saved_folders import SavedFolders
from worker.config.training import FRACTIONS, Metric
from worker.report import Measurement, Report, Series, Status

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from ndadam.invariance.probe import ProbeResult
    from worker.training.recording import Recording

_LOG = logging.getLogger(__name__)

#: Seconds between two checkpoints of a run.
CHECKPOINT_SECONDS = 30.0
#: Names of metrics that one trial may have.
MAX_METRICS = 1000
_LONGEST_NAME = 100
_MOST_STEPS = 10**15


class Stopped(BaseException):
    """The trial must end. Raised by ``Run.report``; not an error, and best left alone."""


class Run:
    """One attempt at a trial, as its training function sees it.

    Attributes:
        seed: The trial's seed: the same point is trained once on each.
        device: "cpu" or "cuda:0".
        num_steps: Steps of the whole run, for progress; None = not known. May be set.
        log: Logger into the trial's log file.
    """

    def __init__(
        self,
        *,
        seed: int,
        device: str,
        folder: Path,
        config_key: str,
        journal: ReportJournal,
        stop: Callable[[], bool],
        send: Callable[[Report], None],
        metrics: Mapping[str, Metric] | None = None,
        objectives: Collection[str] = (),
        reported: int = -1,
        provenance: Callable[[], dict[str, Any]] = dict,
        config: Mapping[str, Any] | None = None,
        measurement: Measurement | None = None,
        data_home: str | None = None,
        threads: int = 0,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
    ) -> None:
        """``reported``: the last step that earlier attempts have reported, -1 = none.

        ``config``: as it is stored, for whoever reads the weights.
        """
        self._config = config or {}
        self.seed, self.device = seed, device
        self.num_steps: int | None = None
        self.log = logging.getLogger("worker.function")
        #: Of the trial; the built-in training keeps its checkpoints there in its own way.
        self.folder, self.data_home, self.threads = folder, data_home, threads
        self.measurement, self.checkpoint_seconds = measurement, checkpoint_seconds
        self._saved = SavedFolders(folder, f"{config_key} seed {seed}")
        self._journal, self._send, self._provenance = journal, send, provenance
        self._stop = stop
        self._declared, self._objectives = metrics or {}, tuple(objectives)
        # Reports and stops may come from several threads of a function.
        self._lock = threading.RLock()
        self._known: set[str] = set()
        self._warned: set[str] = set()
        self._reported = reported
        self._step = -1
        self._saved_at = time.monotonic()
        self._over = False
        # Whether the function knows of a request to stop, and its reports since.
        self._was_told = False
        self._late_reports = 0
        self._saved_for_stop = False
        self._owes_provenance = True
        self._recording: Recording | None = None
        self._restored: Path | None = None

    # --- For training functions -----------------------------------------------------------------

    def report(
        self,
        step: int,
        metrics: Mapping[str, float] | None = None,
        num_steps: int | None = None,
    ) -> None:
        """Record metrics of a step. Returns when they are on the disk, without waiting for more.

        Once the trial must stop, the second report from then on raises ``Stopped``, or the first
        one after a checkpoint was written. Steps that an earlier attempt has reported are left out.

        Args:
            step: Steps done so far; never less than in the report before.
            metrics: Numbers by name.
            num_steps: Steps of the whole run, if known by now.

        Raises ValueError for a step that goes backwards and for an error outside 0 to 1, TypeError
        for what is no number.
        """
        with self._lock:
            if self._over:
                raise Stopped
            step = _whole("step", step)
            if num_steps is not None:
                self.num_steps = _whole("num_steps", num_steps)
            if step < self._step:
                raise ValueError(f"step must not go backwards: got {step} after {self._step}")
            values = self._checked(metrics or {})
            if self._recording is not None:
                layers = self._recording.metrics()
                values |= {name: layers[name] for name in layers if self._has_room_for(name)}
            self._step = step
            if step > self._reported:
                self._take(step, values)
            elif self._recording is not None:
                self._recording.take_series()  # reported by an earlier attempt too
            if self._stop_is_due():
                self._was_told = True
                raise Stopped

    def checkpoint(self, save: Callable[[Path], None]) -> bool:
        """Call ``save(folder)`` if a checkpoint is due, and keep the files that it writes.

        One is due every 30 s, and when the trial is asked to stop. A ``save`` that raises leaves
        the checkpoint before as it was; the first such error is logged, and training goes on.

        Returns whether a checkpoint was written.
        """
        with self._lock:
            stopping = self._stop() and not self._saved_for_stop
            if not stopping and time.monotonic() - self._saved_at < self.checkpoint_seconds:
                return False
            self._saved_at = time.monotonic()
            try:
                self._saved.save(max(self._step, 0), partial(self._write, save))
            except Exception as error:  # save is not ours; a full disk stops no training either
                told = f"{type(error).__name__}: {error}"
                self._warn_once("checkpoint", "no checkpoint was written (%s)", told)
                return False
            finally:
                self._saved_at = time.monotonic()
            self._saved_for_stop = stopping or self._saved_for_stop
            return True

    def restore(self) -> Path | None:
        """Return the folder of the newest whole checkpoint; None if the run begins.

        Raises CheckpointError if there are checkpoints and none can be used.
        """
        self._restored = self._saved.newest()
        if self._restored is not None:
            step = self._saved.step_of(self._restored)
            _LOG.info("goes on from the checkpoint at step %d", step)
        return self._restored

    def record(
        self,
        model: "nn.Module",
        optimizer: "Optimizer",
        every: int = 1,
        *,
        probe: "ProbeResult | None" = None,
    ) -> None:
        """Report how fast each step turns the weights of each layer, beside the metrics reported.

        Call it once, before the first step and after ``restore``. The metrics are those of the
        built-in training: ``effective_lr/LAYER``, ``angular_update/LAYER``, ``weight_norm/LAYER``,
        and ``projection_ratio/LAYER`` of SGD with weight decay.

        Args:
            model: A torch module; see ``ndadam.weight_vectors`` for which weights are measured.
            optimizer: Any torch optimizer of the model.
            every: Steps between two measurements. One costs a copy of the weights.
            probe: Result of ``ndadam.probe``, if scale invariance matters.

        Raises ValueError for a model without weight vectors, TypeError for another optimizer.
        """
        from worker.training.recording import Recording  # not earlier: it loads torch

        if self._recording is not None:
            self._recording.detach()
        self._recording = Recording(
            model,
            optimizer,
            every,
            probe=probe,
            measurement=self.measurement,
            resumed=self._restored,
        )

    def save_weights(self, weights: "nn.Module | Mapping[str, Tensor]") -> None:
        """Keep weights for use elsewhere: ``sweep.best().load(model)`` has those of the best trial.

        Call it at the end, or whenever they are better than before: the last call counts. Of a
        sweep the weights of one trial are kept, the complete one with the best objective.

        Args:
            weights: A torch module, or its ``state_dict()``: tensors by name.

        Raises TypeError for anything else. A full disk is logged and stops nothing.
        """
        from worker.training.final_weights import save_state  # not earlier: it loads torch

        save_state(self.folder, weights, self._config)

    def should_stop(self) -> bool:
        """Whether the trial was asked to stop: write a checkpoint and return."""
        stopping = self._over or self._stop()
        self._was_told = self._was_told or stopping
        return stopping

    # --- For whoever runs the function ------------------------------------------------------------

    def give(self, report: Report) -> None:
        """Record a report that is complete, of the built-in training."""
        with self._lock:
            if report.provenance:
                added = report.provenance | self._provenance()
                report = report.model_copy(update={"provenance": added})
            self._step = report.step
            self._journal.append(report)
            self._send(report)

    def abandon(self) -> None:
        """Nobody hears the run any more: its next report raises ``Stopped``."""
        self._over = True

    def finish(self) -> None:
        """Record the end of a function that returned by itself.

        Nothing is recorded of one that reported nothing, or that left because it was told to.
        """
        with self._lock:
            is_whole = self.num_steps is not None and self._step >= self.num_steps
            stopped = self._over or (self._was_told and not is_whole)
            last = max(self._step, self._reported)
            if not stopped and last >= 0:
                whole = self._recording.final_metrics() if self._recording is not None else {}
                self._record(last, whole, "complete")

    # --- Inside -----------------------------------------------------------------------------------

    def _take(self, step: int, values: dict[str, float]) -> None:
        if all(math.isfinite(values.get(name, 0.0)) for name in self._objectives):
            self._record(step, values, "running")
            return
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        self._over = True
        self._record(step, finite, "diverged")
        raise Stopped

    def _record(self, step: int, values: dict[str, float], status: Status) -> None:
        found: dict[str, Any] = {}
        series: dict[str, Series] = {}
        if self._recording is not None:
            series = self._recording.take_series()
        if self._owes_provenance or status != "running":
            found = self._provenance()
            if self._recording is not None:
                found |= self._recording.provenance()
            self._owes_provenance = False
        report = Report(
            step=step,
            num_steps=self.num_steps,
            status=status,
            metrics=values,
            series=series,
            diverged_at_step=step if status == "diverged" else None,
            provenance=found,
        )
        self._journal.append(report)
        self._send(report)

    def _write(self, save: Callable[[Path], None], folder: Path) -> None:
        save(folder)
        if self._recording is not None:
            self._recording.save(folder)

    def _stop_is_due(self) -> bool:
        if not self._stop():
            return False
        self._late_reports += 1
        return self._saved_for_stop or self._late_reports > 1

    def _checked(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Return the metrics as floats; names beyond the limit are left out."""
        if not isinstance(metrics, Mapping):
            raise TypeError(f"metrics must be a mapping of names to numbers, got {metrics!r:.80}")
        values = {}
        for name, value in metrics.items():
            if name not in self._known and not self._admit(name):
                continue
            values[name] = _number(name, value)
        return values

    def _admit(self, name: Any) -> bool:
        """Whether a metric that is new to this run may be recorded."""
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
            raise ValueError(
                f"a metric's name must be a text of 1 to {_LONGEST_NAME} characters, "
                f"got {name!r:.120}"
            )
        if not name.isprintable():
            raise ValueError(f"a metric's name must be printable text, got {name!r:.120}")
        if not self._has_room_for(name):
            return False
        if self._declared and name not in self._declared:
            self._warn_once(
                "undeclared",
                "metric %r is not declared: it has no direction and can be no objective; further "
                "ones are not named",
                name,
            )
        return True

    def _has_room_for(self, name: str) -> bool:
        """Count a metric's name; False beyond the largest number of a trial."""
        if name not in self._known and len(self._known) >= MAX_METRICS:
            self._warn_once(
                "many",
                "a trial may have %s metrics; further ones are left out, the first is %r",
                f"{MAX_METRICS:,}",
                name,
            )
            return False
        self._known.add(name)
        return True

    def _warn_once(self, about: str, text: str, *arguments: object) -> None:
        if about not in self._warned:
            self._warned.add(about)
            _LOG.warning(text, *arguments)


def _whole(name: str, value: Any) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        found = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {value!r:.80}") from None
    if not 0 <= found <= _MOST_STEPS:
        raise ValueError(f"{name} must be between 0 and 10^15, got {found}")
    return found


def _number(name: str, value: Any) -> float:
    """Return a metric's value as a float: numbers, and arrays and tensors that hold one."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number and (isinstance(value, str | bytes | bool) or not hasattr(value, "__float__")):
        raise TypeError(f"metric {name!r} must be a number, got {value!r:.80}")
    try:
        found = float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise TypeError(f"metric {name!r} must be a number, got {value!r:.80}: {error}") from None
    if name in FRACTIONS and not 0 <= found <= 1 and math.isfinite(found):
        raise ValueError(
            f"metric {name!r} is a fraction of the data and must be between 0 and 1, got "
            f"{found:g}; report percent under another name"
        )
    return found
