"""Calls a training function in a thread and hands out its reports in batches. Imports no torch.

The function never waits for those who receive its reports, unless it is so far ahead that memory
would grow.
"""

import logging
import queue
import threading
from collections.abc import Callable, Generator
from typing import Any

from worker.report import Report
from worker.training.handle import Run, Stopped

_LOG = logging.getLogger(__name__)

#: Reports that may wait; then the function waits.
BACKLOG = 20_000
#: Reports of one batch.
BATCH = 500
#: Seconds without a report after which an empty batch follows. Tune holds a result back until the
#: next one if the two begin within a second, and a function may take hours between two reports.
SILENCE = 1.1
#: Seconds that a function has to end once nobody hears it. Tune gives up its worker after 2.
_GRACE = 10.0


class FunctionExited(RuntimeError):
    """A training function ended its process's interpreter (``sys.exit``), or tried to."""


class Reports:
    """Reports on their way from a function to whoever iterates ``batches``."""

    def __init__(self) -> None:
        # None = the function has ended.
        self._queue: queue.Queue[Report | None] = queue.Queue(BACKLOG)
        self._error: BaseException | None = None

    def send(self, report: Report) -> None:
        """Hand a report over; waits only while the backlog is full."""
        self._queue.put(report)

    def batches(
        self, function: Callable[..., Any], config: Any, run: Run
    ) -> Generator[list[Report], None, None]:
        """Call ``function(config, run)`` in a thread and yield its reports as they come.

        An empty batch says that the function has been silent for ``SILENCE`` since the last one.
        Raises what the function raises. Closing the generator ends the run at its next report.
        """
        thread = threading.Thread(
            target=self._call, args=(function, config, run), name="training", daemon=True
        )
        thread.start()
        try:
            is_open, owes_silence = True, False
            while is_open:
                batch, is_open = self._next(SILENCE if owes_silence else None)
                if batch or (owes_silence and is_open):
                    yield batch
                owes_silence = bool(batch)
        finally:
            run.abandon()
            self._wait_for(thread)
        if self._error is not None:
            raise self._error

    def _call(self, function: Callable[..., Any], config: Any, run: Run) -> None:
        try:
            function(config, run)
        except Stopped:
            pass
        except Exception as error:
            self._error = error
        except BaseException as error:  # a SystemExit would end Tune's thread without a word
            told = f"{type(error).__name__}: {error}"
            self._error = FunctionExited(f"the training function ended with {told}")
        else:
            run.finish()
        self._queue.put(None)

    def _next(self, seconds: float | None) -> tuple[list[Report], bool]:
        """Wait for reports; return those that are there, and whether more may come.

        After ``seconds`` without one, return none.
        """
        batch: list[Report] = []
        try:
            item = self._queue.get(timeout=seconds)
        except queue.Empty:
            return batch, True
        while item is not None:
            batch.append(item)
            if len(batch) == BATCH:
                return batch, True
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return batch, True
        return batch, False

    def _wait_for(self, thread: threading.Thread) -> None:
        """Give the function time to end; what it still reports is on the disk."""
        for _ in range(round(_GRACE / 0.1)):
            while not self._queue.empty():
                self._queue.get_nowait()
            thread.join(0.1)
            if not thread.is_alive():
                return
        _LOG.warning("the training function does not end although nobody hears its reports")
