"""Drives a sweep whose trials agents run: keeps trials waiting, judges them, ends the sweep.

Agents lease trials from the store and report to it; this driver hears of it there. It proposes,
stops points that do badly, takes trials back from agents that fell silent, and holds everything to
its limits. It starts nothing itself, so it needs no cluster, and a dozen sweeps cost one process.
"""

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from sweeps.driver import outcomes
from sweeps.driver.limits import Limits
from sweeps.driver.outcomes import STRENGTH, Stop
from sweeps.driver.plan import plan
from sweeps.driver.store_writer import Ending
from sweeps.driver.trial_queue import TrialQueue
from sweeps.records import AttemptEnd, Claim, Trial, TrialState, losses
from sweeps.retention.places import Places
from sweeps.store.commands.agent_requests import LapsedLease
from sweeps.store.store import Store

log = logging.getLogger(__name__)

#: Most trials that wait for agents, by whether the next one depends on results.
_MOST_OF_A_MODEL, _MOST = 32, 4096
# Seconds.
_RESULT_AGE = 5.0
_LOOK = 1.0
#: After which people are told that no agent asks.
_LONELY = 3.0
#: Without a question that found none waiting; then fewer wait.
_CALM = 10.0


class ExternalSweep:
    """One claimed sweep of agents. ``replay`` once, then ``turn`` until it says that it is over.

    May raise StoreUnavailable; calling again then goes on where it was. Raises LeaseLost.
    """

    def __init__(self, store: Store, claim: Claim, home: Path, analyst: Executor) -> None:
        """``analyst`` computes results, beside the turns."""
        self._store = store
        self.claim = claim
        self._analyst = analyst
        self._sweep = store.get_sweep(claim.sweep_id)
        self._plan = plan(store, self._sweep)
        self._scheduler = self._plan.scheduler
        self._limits = Limits(
            self._plan.budget,
            gpus=self._plan.resources.gpus,
            started_at=self._sweep.started_at,
            per_trial=self._plan.limits,
        )
        objective = next(iter(self._plan.objectives), None)
        self._metric = None if objective is None else objective.metric
        self._queue = TrialQueue(
            store,
            claim,
            self._plan.proposer,
            places=Places(home.resolve(), claim.sweep_id),
            scheduler=self._scheduler,
            limits=self._limits,
            metric=self._metric,
            lookahead=self._plan.lookahead,
        )
        self._waiting: dict[int, Trial] = {}
        self._running: dict[int, Trial] = {}
        # Trial -> agents that fell silent over it in a row.
        self._losses: dict[int, int] = {}
        # Attempt -> the last step whose objective the scheduler has heard.
        self._heard: dict[int, int] = {}
        self._wanted = self._plan.lookahead
        self._drained_at = time.monotonic()
        self._stop: Stop | None = None
        self._reason = ""
        self._asked_at = time.monotonic()
        self._next_look = self._next_result = 0.0
        self._told = 0
        self._result: Future[dict[str, Any] | None] | None = None
        self._result_began = 0.0
        self._is_ending = False

    def replay(self) -> None:
        """Learn what the store has: trials that ended, wait, and run at agents."""
        tried = self._store.open_attempts(self.claim.sweep_id)
        self._losses = {
            number: losses((attempt.state, attempt.exit_cause) for attempt in attempts)
            for number, attempts in tried.items()
        }
        self._queue.replay()
        self._told = self._queue.told
        for trial in self._queue.take_all():
            self._place(trial)

    def stop(self, why: Stop) -> None:
        """End the sweep early; agents hear of it when they next report."""
        if self._stop is None or STRENGTH[why] > STRENGTH[self._stop]:
            self._stop = why

    def turn(self, touched: Collection[int], lapsed: Collection[LapsedLease] = ()) -> bool:
        """Take in what happened to trials, then do what follows; say whether the sweep is over."""
        if self._stop == "leave":
            return self._give_back()
        self._hear(touched)
        self._take_back(lapsed)
        self._check_limits()
        if self._stop is not None:
            ending = outcomes.stopped(self._stop)
            self._end_running(dict.fromkeys(self._running, ending))
            return self._give_back()
        self._refill()
        self._prune()
        if self._queue.is_empty and not (self._waiting or self._running):
            return self._give_back()
        self._is_ending = False
        self._refresh_result()
        self._say_what_is_missing()
        return False

    # --- In -----------------------------------------------------------------------------------

    def _hear(self, numbers: Collection[int]) -> None:
        if not numbers:
            return
        trials = self._store.trials_of(self.claim.sweep_id, sorted(numbers))
        self._hear_objectives(trials)
        for trial in trials:
            if self._queue.holds(trial.number):
                self._hear_of(trial)
            elif not trial.state.is_finished():
                # It failed, and people let it run again.
                self._losses.pop(trial.number, None)
                self._queue.reopen(trial)
                for reopened in self._queue.take_all():
                    self._place(reopened)

    def _hear_of(self, trial: Trial) -> None:
        self._limits.reported(trial, trial.step)
        if not trial.state.is_finished():
            self._place(trial)
            return
        self._waiting.pop(trial.number, None)
        self._leave_running(trial)
        self._scheduler.ended(trial, trial.state)
        for attempt in trial.attempts:
            self._heard.pop(attempt.id, None)
        self._queue.tell(trial)

    def _place(self, trial: Trial) -> None:
        """Sort an unfinished trial by whether an agent has it."""
        if trial.state == TrialState.RUNNING:
            self._waiting.pop(trial.number, None)
            if trial.number not in self._running:
                self._scheduler.started(trial)
                self._limits.started(trial)
                self._asked_at = time.monotonic()
            self._running[trial.number] = trial
        else:
            self._leave_running(trial)
            self._waiting[trial.number] = trial

    def _leave_running(self, trial: Trial) -> None:
        if self._running.pop(trial.number, None) is not None:
            self._limits.ended(trial)

    def _hear_objectives(self, trials: Collection[Trial]) -> None:
        """Let the scheduler judge by the objectives that were reported since the last turn."""
        if not self._scheduler.is_active or self._metric is None:
            return
        newest = {trial.attempts[-1].id: trial for trial in trials if trial.attempts}
        after = {attempt: self._heard.get(attempt, -1) for attempt in newest}
        news = self._store.values_after(self.claim.sweep_id, self._metric, after)
        for attempt, curve in news.items():
            trial = newest[attempt]
            self._scheduler.started(trial)
            for step, value in curve:
                self._scheduler.reported(trial, step, value)
            self._heard[attempt] = curve[-1][0]

    def _take_back(self, lapsed: Collection[LapsedLease]) -> None:
        """Let trials wait again whose agents fell silent."""
        ends: list[AttemptEnd] = []
        for lease in lapsed:
            count = self._losses.get(lease.number, 0) + 1
            cause = f"agent {lease.agent} was silent for {lease.seconds:.0f} s"
            ends.append(_end(lease.number, lease.attempt_id, outcomes.lost(cause, count)))
        self._finish(ends)
        for end in ends:
            self._losses[end.number] = self._losses.get(end.number, 0) + 1

    # --- Out ----------------------------------------------------------------------------------

    def _refill(self) -> None:
        """Keep as many trials waiting as agents ask for between two turns."""
        now, had = time.monotonic(), len(self._waiting)
        is_model = self._queue.needs_results
        if not had:
            if self._running:
                most = _MOST_OF_A_MODEL if is_model else _MOST
                self._wanted = min(2 * self._wanted, most)
            self._drained_at = now
        elif is_model and now - self._drained_at > _CALM:
            # What waits was proposed without the results since.
            self._wanted = max(self._plan.lookahead, self._wanted // 2)
            self._drained_at = now
        wanted = self._wanted
        if self._plan.concurrency is not None:
            wanted = min(wanted, self._plan.concurrency)
        while len(self._waiting) < wanted and self._queue.grow():
            for trial in self._queue.take_all():
                self._place(trial)

    def _prune(self) -> None:
        """End the trials of points that were stopped, whether they wait or run."""
        if not self._scheduler.is_active:
            return
        endings = {}
        for number, trial in self._running.items():
            if (cause := self._scheduler.cause(trial.point)) is not None:
                endings[number] = outcomes.reached(TrialState.PRUNED, cause)
        self._end_running(endings)
        for trial in list(self._waiting.values()):
            if (cause := self._scheduler.cause(trial.point)) is not None:
                self._store.finish_waiting(self.claim, trial.number, TrialState.PRUNED, cause)

    def _check_limits(self) -> None:
        if self._stop is None and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK
            cause = self._limits.overrun()
            if cause is not None:
                self._queue.finished = cause
                self.stop("limit")
        overruns = {n: self._limits.overrun_of(trial) for n, trial in self._running.items()}
        self._end_running({n: outcomes.failed(why) for n, why in overruns.items() if why})

    def _end_running(self, endings: Mapping[int, Ending]) -> None:
        """End attempts that agents have; they are told when they next report."""
        if not endings:
            return
        current = self._store.trials_of(self.claim.sweep_id, list(endings))
        self._finish(
            [
                _end(trial.number, trial.attempts[-1].id, endings[trial.number])
                for trial in current
                if trial.attempts and trial.attempts[-1].state == TrialState.RUNNING
            ]
        )

    def _finish(self, ends: Sequence[AttemptEnd]) -> None:
        self._store.finish_attempts(self.claim, ends)
        # Heard of in the next turn as well, which then knows it already.
        self._hear([end.number for end in ends])

    # --- Result and end -----------------------------------------------------------------------

    def _refresh_result(self) -> None:
        now = time.monotonic()
        if self._result is None:
            if self._queue.told != self._told and now >= self._next_result:
                self._told, self._result_began = self._queue.told, now
                self._result = self._analyst.submit(self._analysis)
        elif self._result.done():
            self._store_result()
            # A result that takes long to find out is found out less often.
            self._next_result = now + max(_RESULT_AGE, 20 * (now - self._result_began))

    def _analysis(self) -> dict[str, Any] | None:
        try:
            return None if self._plan.analyse is None else self._plan.analyse()
        except Exception:
            # A table that cannot be computed must not cost the sweep its trials.
            log.exception("no analysis of sweep %s", self.claim.sweep_id)
            return None

    def _store_result(self) -> None:
        if self._result is not None:
            found = self._result.result()
            if found is not None:
                self._store.set_result(self.claim, found)
            self._result = None

    def _give_back(self) -> bool:
        """Store the last result and release the sweep; say whether that is done."""
        if self._stop == "leave":
            return self._release()
        if not self._is_ending:
            self._is_ending = True
            self._result = self._analyst.submit(self._analysis)
        if self._result is not None:
            if not self._result.done():
                return False
            self._store_result()
        if self._release():
            return True
        # People asked for more meanwhile: what follows is found out from how it stands now.
        self._is_ending = False
        return False

    def _release(self) -> bool:
        sweep = self._store.get_sweep(self.claim.sweep_id)
        state, reason = outcomes.outcome_of(
            sweep,
            self._stop,
            driven=self._sweep.spec,
            finished=self._queue.finished or "all done",
            has_reopened=self._queue.has_reopened,
        )
        return self._store.release(self.claim, state, reason, seen=sweep)

    def _say_what_is_missing(self) -> None:
        is_lonely = self._waiting and not self._running
        if not is_lonely or time.monotonic() - self._asked_at > _LONELY:
            how = f"waiting for agents: ndsweep agent {self.claim.sweep_id} -- COMMAND"
            self._say(how if is_lonely else "")

    def _say(self, reason: str) -> None:
        if reason != self._reason:
            self._store.set_reason(self.claim, reason)
            self._reason = reason


def _end(number: int, attempt_id: int, ending: Ending) -> AttemptEnd:
    return AttemptEnd(number, attempt_id, ending.state, ending.trial_state, ending.exit_cause)
