"""Writes a driver's news into the store from a thread of its own, in batches.

Training never waits for the database, unless it is so far behind that memory would grow. While the
store is away the news is kept, in order, and written when it is back.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sweeps.errors import LeaseLost, StoreUnavailable
from sweeps.records import AttemptEnd, Claim, Trial, TrialReports, TrialState
from sweeps.store.store import Store
from worker.pauses import pauses
from worker.report import Report

log = logging.getLogger(__name__)

#: Seconds that news may wait for company.
FLUSH_SECONDS = 0.3
#: Reports that may wait in memory; then trials wait instead.
BACKLOG = 20_000
# Seconds between attempts to reach a store that is away.
_FIRST_PAUSE, _LAST_PAUSE = 0.2, 2.0


@dataclass(frozen=True)
class Ending:
    """How an attempt ended and what that means for its trial."""

    #: Of the attempt.
    state: TrialState
    trial_state: TrialState
    exit_cause: str


@dataclass(eq=False)
class AttemptLog:
    """One attempt at a trial: what is yet to be written of it, in the order start, reports, end."""

    number: int
    #: Tells the store that a start is the one it has already, if a commit was in doubt.
    key: str = field(default_factory=lambda: secrets.token_hex(16))
    #: The store's id, once the start is written.
    attempt_id: int | None = None
    reports: list[Report] = field(default_factory=list)
    ending: Ending | None = None


@dataclass(frozen=True)
class _News:
    """What one transaction writes of one attempt."""

    attempt: AttemptLog
    reports: list[Report]
    ending: Ending | None


class StoreWriter:
    """Takes news without waiting; hands out each trial whose ending is written."""

    def __init__(self, store: Store, claim: Claim, on_failure: Callable[[Exception], None]) -> None:
        """``on_failure`` is called once, from the thread, if nothing more can be written."""
        self._store = store
        self._claim = claim
        self._on_failure = on_failure
        self._changed = threading.Condition()
        # In the order of their first news; a dict because an attempt has news often.
        self._fresh: dict[AttemptLog, None] = {}
        self._held_reports = 0
        self._unwritten_endings = 0
        self._ended: list[Trial] = []
        self._hurry = False
        self._closing = False
        # Whether the last attempt to write met a store that is away.
        self._is_away = False
        self._is_dead = False
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def start(self, number: int) -> AttemptLog:
        """A trial starts to run."""
        attempt = AttemptLog(number)
        with self._changed:
            self._note(attempt)
        return attempt

    def report(self, attempt: AttemptLog, report: Report) -> None:
        """A report arrived. Waits only while the backlog is full."""
        with self._changed:
            self._changed.wait_for(lambda: self._held_reports < BACKLOG or self._is_dead)
            attempt.reports.append(report)
            self._held_reports += 1
            self._note(attempt)

    def end(self, attempt: AttemptLog, ending: Ending) -> None:
        """An attempt ended."""
        with self._changed:
            attempt.ending = ending
            self._unwritten_endings += 1
            self._note(attempt)

    def take_ended(self, wait_seconds: float = 0.0) -> list[Trial]:
        """Trials that ended for good, by what was written since the last call.

        One that waits has been let run again since: nobody here knows that it does.
        With ``wait_seconds``, waits that long until every ending that was handed in is written.
        """
        with self._changed:
            if wait_seconds and self._unwritten_endings:
                self._hurry = True
                self._changed.notify_all()
                done = lambda: not self._unwritten_endings or self._is_dead  # noqa: E731
                self._changed.wait_for(done, wait_seconds)
            ended, self._ended = self._ended, []
            return ended

    @property
    def is_behind(self) -> bool:
        """Whether an ending was handed in that ``take_ended`` has yet to hand out."""
        with self._changed:
            return self._unwritten_endings > 0 or bool(self._ended)

    def close(self, wait_seconds: float, *, away_seconds: float = 0.0) -> bool:
        """Write what is left and stop; say whether all of it was written in time.

        Where the store turns out to be away, that is ``away_seconds`` if they are more.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        began, most = time.monotonic(), wait_seconds
        while self._thread.is_alive():
            if self._is_away:
                most = max(most, away_seconds)
            left = began + most - time.monotonic()
            if left <= 0:
                break
            self._thread.join(min(left, _FIRST_PAUSE))
        return not (self._thread.is_alive() or self._fresh)

    def _note(self, attempt: AttemptLog) -> None:
        self._fresh[attempt] = None
        self._changed.notify_all()

    def _run(self) -> None:
        waits = pauses(_FIRST_PAUSE, _LAST_PAUSE)
        while (batch := self._take()) is not None:
            try:
                self._write(batch)
                self._is_away = False
                waits = pauses(_FIRST_PAUSE, _LAST_PAUSE)
            except StoreUnavailable as error:
                log.warning("%s; trying again", error)
                self._is_away = True
                self._put_back(batch)
                time.sleep(next(waits))
            except Exception as error:
                self._put_back(batch)
                self._die(error)
                return

    def _take(self) -> list[_News] | None:
        """Wait for news and for its company; None when closed and nothing is left."""
        with self._changed:
            self._changed.wait_for(lambda: self._fresh or self._closing)
            self._changed.wait_for(lambda: self._hurry or self._closing, FLUSH_SECONDS)
            self._hurry = False
            # One attempt of a trial at a time: the next may start once the last has ended.
            first: dict[int, AttemptLog] = {}
            for attempt in self._fresh:
                first.setdefault(attempt.number, attempt)
            batch = [_News(a, a.reports, a.ending) for a in first.values()]
            for attempt in first.values():
                attempt.reports, attempt.ending = [], None
                del self._fresh[attempt]
            return batch or None

    def _put_back(self, batch: list[_News]) -> None:
        with self._changed:
            for news in batch:
                news.attempt.reports[:0] = news.reports
                news.attempt.ending = news.ending or news.attempt.ending
            self._fresh = dict.fromkeys(news.attempt for news in batch) | self._fresh

    def _write(self, batch: list[_News]) -> None:
        with self._store.together():
            new = {n.attempt.number: n.attempt.key for n in batch if n.attempt.attempt_id is None}
            made = self._store.start_attempts(self._claim, list(new), new)
            ids = {a: a.attempt_id or made[a.number] for a in (n.attempt for n in batch)}
            reports = [TrialReports(n.attempt.number, ids[n.attempt], n.reports) for n in batch]
            self._store.record_batch(self._claim, [item for item in reports if item.reports])
            ends = [_end(n.attempt.number, ids[n.attempt], n.ending) for n in batch if n.ending]
            self._store.finish_attempts(self._claim, ends)
        for attempt, attempt_id in ids.items():
            attempt.attempt_id = attempt_id
        # The others are tried again, which who handed their endings in sees to.
        over = [end.number for end in ends if end.trial_state.is_finished()]
        trials = self._store.trials_of(self._claim.sweep_id, over)
        with self._changed:
            self._held_reports -= sum(len(news.reports) for news in batch)
            self._unwritten_endings -= len(ends)
            self._ended += trials
            self._changed.notify_all()

    def _die(self, error: Exception) -> None:
        if not isinstance(error, LeaseLost):
            log.error("nothing more can be recorded: %s", error, exc_info=error)
        with self._changed:
            self._is_dead = True
            self._changed.notify_all()
        self._on_failure(error)


def _end(number: int, attempt_id: int, ending: Ending) -> AttemptEnd:
    return AttemptEnd(number, attempt_id, ending.state, ending.trial_state, ending.exit_cause)
