"""Hands out the trials of one sweep and takes in what becomes of them. Knows nothing of Ray.

``Dispatcher`` is the state of a sweep inside its driver: what waits, what runs, whether to stop.
Everything but ``stop`` is called from one thread, the one that runs Tune.
"""

import logging
import math
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from sweeps.cluster.fair_share import Share
from sweeps.driver import outcomes
from sweeps.driver.limits import Limits
from sweeps.driver.outcomes import (
    STRENGTH,
    MalformedReport,
    Stop,
    describe_error,
    is_divergent,
    read_reports,
)
from sweeps.driver.run import Run
from sweeps.driver.store_writer import AttemptLog, Ending, StoreWriter
from sweeps.driver.trial_queue import TrialQueue
from sweeps.errors import StoreUnavailable
from sweeps.records import Claim, SweepObjective, Trial, TrialState, losses
from sweeps.retention.places import Places
from sweeps.search.early_stopping import PointScheduler
from sweeps.search.protocol import Proposer
from sweeps.store.store import Store
from worker.checkpoints.report_journal import ReportJournal
from worker.checkpoints.stop_file import request_stop, withdraw_stop
from worker.config.training import IMAGES
from worker.errors import WrongMachine
from worker.process.logs import is_json
from worker.report import Report

log = logging.getLogger(__name__)

# Seconds.
#: How long endings may take to be written before a proposer that needs them is asked.
_ENDING_WAIT = 2.0
_RESULT_AGE = 5.0
#: Between two looks for failed trials that people have let run again.
_REOPENING = 1.0
#: How long a trial that was told to stop has for its checkpoint; SIGTERM promises 10 in all, and
#: a service that ends grants its runner about 5.
_GRACE, _GRACE_TO_LEAVE = 8.0, 3.0


class Dispatcher:
    """The trials of one sweep, from the store to the workers and back."""

    def __init__(
        self,
        store: Store,
        claim: Claim,
        proposer: Proposer,
        writer: StoreWriter,
        *,
        places: Places,
        scheduler: PointScheduler,
        limits: Limits,
        objectives: Sequence[SweepObjective] = (),
        share: Share | None = None,
        device: str = "cpu",
        trials_per_gpu: int = 1,
        training: str = IMAGES,
        package: dict[str, str] | None = None,
        parts: Mapping[str, Mapping[str, str]] | None = None,
        machine: Mapping[str, Any] | None = None,
        lookahead: int = 1,
    ) -> None:
        """``lookahead``: proposals that may be asked for before earlier ones have ended.

        ``machine``: what a worker's machine must have, see ``worker.data.machine_check``.
        ``share``: how much of the cluster may be used; None = as much as Tune finds.
        """
        self._store = store
        self._sweep_id = claim.sweep_id
        # Names its requests to stop: another driver's are none of its trials' business.
        self._name = str(claim.token)
        self._proposer = proposer
        self._writer = writer
        self._places = places
        self._scheduler = scheduler
        self._limits = limits
        self._objective = next(iter(objectives), None)
        self._share = share
        self._objectives = [one.metric for one in objectives]
        # What early stopping goes by, which there is for one objective alone.
        self._metric = next(iter(self._objectives), None)
        self._device = device
        self._trials_per_gpu = trials_per_gpu
        self._training, self._package, self._parts = training, package, parts or {}
        self._machine = None if machine is None else dict(machine)
        self._queue = TrialQueue(
            store,
            claim,
            proposer,
            places=places,
            scheduler=scheduler,
            limits=limits,
            metric=self._metric,
            lookahead=lookahead,
        )
        # Trial -> workers that died under it in a row, earlier drivers' included.
        self._losses: dict[int, int] = {}
        self._running: set[Run] = set()
        # Trials that ended and that the queue has yet to hear of: the store may go away meanwhile.
        self._untold: list[Trial] = []
        self._lock = threading.Lock()
        self._stop: Stop | None = None
        self._stop_since = math.inf
        #: Workers that Ray is starting and that have taken no trial yet, as Tune last said.
        self.workers_starting = 0
        #: What the proposer knows, at most ``_RESULT_AGE`` old.
        self.result: dict[str, Any] | None = None
        self._result_told = -1
        self._next_result = 0.0
        self._next_reopening = 0.0

    def replay(self) -> None:
        """Feed the proposer with what the store has; queue what is unfinished."""
        tried = self._store.open_attempts(self._sweep_id)
        self._losses = {
            number: losses((attempt.state, attempt.exit_cause) for attempt in attempts)
            for number, attempts in tried.items()
        }
        self._queue.replay()

    @property
    def finished(self) -> str | None:
        """Why nothing more will be proposed, once that is so."""
        return self._queue.finished

    @property
    def told(self) -> int:
        """Endings that the proposer was told of so far."""
        return self._queue.told

    # --- Out ----------------------------------------------------------------------------------

    def next(self) -> Run | None:
        """The next trial to run, or None: nothing now, or (``is_done``) nothing ever."""
        try:
            self.take_ended()
            self._take_reopened()
            self._refresh_result()
            self._check_limits()
            trial = self._queue.next_waiting() or self._propose() if self._may_start() else None
        except StoreUnavailable as error:
            log.warning("%s; trying again", error)
            return None
        if trial is None:
            return None
        withdraw_stop(self._places.checkpoints(trial.number), self._name)
        run = Run(trial)
        with self._lock:
            self._running.add(run)
        return run

    def task(self, run: Run) -> dict[str, Any]:
        """What the trainable is told, as JSON values."""
        number, first = run.trial.number, self._objective
        return {
            "config": run.trial.config,
            "device": self._device,
            "measurement": run.trial.measurement,
            "checkpoint_dir": str(self._places.checkpoints(number)),
            "stopped_by": self._name,
            "data_home": self._places.data_home,
            "log_path": str(self._places.log(number)),
            "log_ids": {"sweep": self._sweep_id, "trial": number} if is_json() else None,
            "objective": first and {"metric": first.metric, "direction": first.direction},
            "objectives": self._objectives,
            "trials_per_gpu": self._trials_per_gpu,
            "training": self._training,
            "package": self._package,
            "parts": self._parts,
            "machine": self._machine,
        }

    @property
    def is_done(self) -> bool:
        """Whether nothing runs here and nothing will."""
        over = self._stop is not None or self._queue.is_empty
        return over and not self._running

    @property
    def is_starved(self) -> bool:
        """Whether trials were handed out and none of them has found a worker."""
        with self._lock:
            return bool(self._running) and all(run.attempt is None for run in self._running)

    @property
    def stopping_for(self) -> float:
        """Seconds since the first call of ``stop``; 0 before."""
        return max(0.0, time.monotonic() - self._stop_since)

    @property
    def is_grace_over(self) -> bool:
        """Whether trials that still run have had the time to stop by themselves."""
        if self._stop is not None and self.is_starved:
            # None has a worker that could write anything.
            return True
        grace = _GRACE_TO_LEAVE if self._stop == "leave" else _GRACE
        return self.stopping_for > grace

    @property
    def stopping(self) -> Stop | None:
        """Why the sweep ends early, if it does."""
        return self._stop

    def stop(self, why: Stop) -> None:
        """Start nothing more and tell running trials to stop. From any thread, at any time."""
        with self._lock:
            if self._stop is None or STRENGTH[why] > STRENGTH[self._stop]:
                self._stop_since = min(self._stop_since, time.monotonic())
                self._stop = why
            running = list(self._running)
        for run in running:
            self._ask_to_stop(run)

    # --- In -----------------------------------------------------------------------------------

    def started(self, run: Run) -> None:
        """A worker has taken the trial."""
        run.attempt = self._writer.start(run.trial.number)
        if self._share is not None:
            self._share.started()
        self._scheduler.started(run.trial)
        self._limits.started(run.trial)
        if self._stop is not None:
            self._ask_to_stop(run)

    def report(self, run: Run, result: dict[str, Any]) -> bool:
        """Take a report in, or several that came together; say whether the trial must stop."""
        if run.verdict is None and run.attempt is not None:
            try:
                for report in read_reports(result):
                    self._take(run, run.attempt, report)
                    if run.verdict is not None:
                        break
            except MalformedReport as error:
                run.verdict = outcomes.failed(f"malformed report: {error}")
        return run.verdict is not None or self._must_stop_now()

    def _take(self, run: Run, attempt: AttemptLog, report: Report) -> None:
        run.last = report
        run.reported.update(name for name in self._objectives if name in report.metrics)
        self._writer.report(attempt, report)
        self._limits.reported(run.trial, report.step)
        run.verdict = self._judge(run, report)

    def ended(self, run: Run, error: BaseException | None = None, *, lost: bool = False) -> None:
        """A trial no longer runs: it returned, was stopped, raised, or (``lost``) its worker died.

        A trial may be lost before it started.
        """
        with self._lock:
            self._running.discard(run)
        self._limits.ended(run.trial)
        if run.attempt is None and error is None:
            # Told to stop before a worker took it: it was not tried.
            self._queue.put_back(run.trial, first=True)
            return
        attempt = run.attempt or self._writer.start(run.trial.number)
        ending = self._ending(run, error, lost=lost)
        self._scheduler.ended(run.trial, ending.trial_state)
        if self._scheduler.cause(run.trial.point) is not None:
            self._stop_point(run.trial.point)
        if error is not None and ending.trial_state in (TrialState.FAILED, TrialState.CANCELLED):
            self._take_unheard(run, attempt)
        self._writer.end(attempt, ending)
        if ending.trial_state == TrialState.WAITING:
            self._queue.put_back(run.trial)

    def _take_unheard(self, run: Run, attempt: AttemptLog) -> None:
        """Record reports that a trial made and that did not get here: Tune drops some."""
        heard = -1 if run.last is None else run.last.step
        try:
            for report in ReportJournal(self._places.checkpoints(run.trial.number)).replay():
                if report.step > heard:
                    self._writer.report(attempt, report)
        except OSError as error:
            number = run.trial.number
            where = {"trial": number}
            log.warning("trial %d: its last reports cannot be read: %s", number, error, extra=where)

    def take_ended(self, wait_seconds: float = 0.0) -> None:
        """Tell the proposer of every trial whose ending has been written."""
        untold, self._untold = self._untold, []
        untold += self._writer.take_ended(wait_seconds)
        try:
            while untold:
                if untold[0].state.is_finished():
                    self._queue.tell(untold[0])
                else:
                    self._queue.reopened_untold(untold[0])
                del untold[0]
        finally:
            self._untold[:0] = untold

    # --- Inside -------------------------------------------------------------------------------

    def has_reopened(self) -> bool:
        """Whether people have let failed trials run again, and they were not taken up here."""
        return self._queue.has_reopened()

    def _take_reopened(self) -> None:
        if self._stop is not None or time.monotonic() < self._next_reopening:
            return
        for trial in self._queue.take_reopened():
            self._losses.pop(trial.number, None)
        self._next_reopening = time.monotonic() + _REOPENING

    def _may_start(self) -> bool:
        if self._stop is not None:
            return False
        return self._share is None or self._share.allows(len(self._running))

    def _refresh_result(self) -> None:
        now = time.monotonic()
        if self.told != self._result_told and now >= self._next_result:
            self.result = self._proposer.result()
            self._result_told = self.told
            # A result that takes long to find out is found out less often.
            self._next_result = time.monotonic() + max(_RESULT_AGE, 20 * (time.monotonic() - now))

    def look(self) -> None:
        """Hold everything to its limits in time, also while no trial reports. Once a second."""
        self._check_limits()
        for run in list(self._running):
            overrun = None if run.attempt is None else self._limits.overrun_of(run.trial)
            if overrun is not None and run.verdict is None:
                self._end_early(run, outcomes.failed(overrun))

    def hung(self) -> list[Run]:
        """Trials that were told to stop and have not, though they had time for a checkpoint.

        Stuck inside a step, they would hold their resources for ever.
        """
        now = time.monotonic()
        return [
            run
            for run in list(self._running)
            if run.stop_asked_at is not None and now - run.stop_asked_at > _GRACE
        ]

    def _check_limits(self) -> None:
        cause = self._limits.overrun()
        if cause is not None and self._stop is None:
            self._queue.finished = cause
            self.stop("limit")

    def _propose(self) -> Trial | None:
        """Ask the proposer, once it knows what it must."""
        if self._writer.is_behind and self._queue.needs_results:
            self.take_ended(_ENDING_WAIT)
            if self._writer.is_behind:
                return None
        return self._queue.propose()

    def _judge(self, run: Run, report: Report) -> Ending | None:
        """How the run ends because of a report; None while it goes on."""
        metric = self._metric
        if is_divergent(report, self._objectives):
            step = report.step if report.diverged_at_step is None else report.diverged_at_step
            return outcomes.reached(TrialState.DIVERGED, f"diverged at step {step}")
        if report.status == "complete":
            return outcomes.returned(report, self._objectives, run.reported)
        overrun = self._limits.overrun_of(run.trial)
        if overrun is not None:
            return outcomes.failed(overrun)
        if metric is not None and metric in report.metrics:
            self._scheduler.reported(run.trial, report.step, report.metrics[metric])
        cause = self._scheduler.cause(run.trial.point)
        if cause is None:
            return None
        self._stop_point(run.trial.point)
        return outcomes.reached(TrialState.PRUNED, cause)

    def _stop_point(self, point: int) -> None:
        """Stop the replicates of a point without waiting for their next reports."""
        for run in list(self._running):
            if run.trial.point == point and run.verdict is None:
                cause = self._scheduler.cause(point) or ""
                self._end_early(run, outcomes.reached(TrialState.PRUNED, cause))

    def _end_early(self, run: Run, verdict: Ending) -> None:
        run.verdict = verdict
        run.stop_asked_at = time.monotonic()
        self._ask_to_stop(run)

    def _ending(self, run: Run, error: BaseException | None, *, lost: bool) -> Ending:
        if run.verdict is not None:
            return run.verdict
        if self._stop is not None and (error is None or lost):
            return outcomes.stopped(self._stop)
        if isinstance(error, WrongMachine):
            return outcomes.misplaced(error)
        if lost and error is not None:
            number = run.trial.number
            self._losses[number] = self._losses.get(number, 0) + 1
            return outcomes.lost(error, self._losses[number])
        if error is not None:
            return outcomes.failed(describe_error(error))
        return outcomes.returned(run.last, self._objectives, run.reported)

    def _must_stop_now(self) -> bool:
        """Whether a reporting trial is cut off. For a pause it may write its checkpoint first."""
        if self._stop in ("cancel", "limit", "lost"):
            return True
        return self.is_grace_over

    def _ask_to_stop(self, run: Run) -> None:
        request_stop(self._places.checkpoints(run.trial.number), self._name)
