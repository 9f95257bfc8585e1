"""Keeps MLflow a live copy of the store: a run per sweep and, below it, a run per attempt.

The store knows what was sent, so nothing is lost while MLflow is away and nothing is sent twice:
times come from the store, and MLflow drops a metric that it already has. Nothing here is ever
read back, and nothing waits for it. With ``mirror_client`` the only door to MLflow.
"""

import argparse
import logging
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from sweeps.errors import NotFound, StoreUnavailable
from sweeps.mirror_client import Gone, MirrorClient, Refused, Unreachable
from sweeps.mirror_names import original_tag
from sweeps.mirror_runs import (
    ATTEMPT_STATUS,
    ATTEMPT_TAG,
    SWEEP_STATUS,
    SWEEP_TAG,
    TRIAL_TAG,
    attempt_params,
    attempt_tags,
    long_params,
    milliseconds,
    sweep_tags,
)
from sweeps.records import Attempt, PendingAttempt, PendingSweep, Sweep, SweepState
from sweeps.store import Store

log = logging.getLogger(__name__)

# Seconds.
_PERIOD = 1.0
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 30.0
#: Between two notes in the store on how far behind the mirror is.
_NOTE = 5.0
#: A sweep whose experiment was deleted is sent again at most this often.
_AGAIN = 60.0
#: Attempts, and sweeps, sent in one turn.
_LIMIT = 50


@dataclass(frozen=True)
class _Place:
    """Where a sweep lies in MLflow."""

    experiment_id: str
    run_id: str


class Mirror:
    """Sends what the store has and MLflow has not. ``run`` never raises."""

    def __init__(
        self, store: Store, tracking_uri: str, *, page_url: str = "", public_url: str = ""
    ) -> None:
        """``page_url``: where the service's pages are, for links back.

        ``public_url``: where a browser finds MLflow, if not at ``tracking_uri``.
        """
        self._store = store
        self._client = MirrorClient(tracking_uri)
        self._page_url = page_url
        self._public_url = (public_url or tracking_uri).rstrip("/")
        self._places: dict[str, _Place] = {}
        #: Sweeps that MLflow shows as going on.
        self._open: dict[str, _Place] = {}
        #: Runs that MLflow has of attempts which the store knows no run of.
        self._unclaimed: dict[int, str] = {}
        self._noted: dict[str, float] = {}
        self._sent_again: dict[str, float] = {}
        self._away_since: float | None = None

    def run(self, stop: threading.Event) -> None:
        """Send for ever, until ``stop`` is set."""
        pause = _FIRST_PAUSE
        while not stop.is_set():
            try:
                more = self.turn()
                pause = _FIRST_PAUSE
                self._away_since = None
                stop.wait(0.0 if more else _PERIOD)
            except Unreachable as error:
                self._note_outage(str(error))
                stop.wait(pause)
                pause = min(2 * pause, _LAST_PAUSE)
            except Exception as error:
                level = logging.WARNING if isinstance(error, StoreUnavailable) else logging.ERROR
                log.log(level, "the mirror goes on: %s", error, exc_info=level == logging.ERROR)
                stop.wait(pause)
                pause = min(2 * pause, _LAST_PAUSE)

    def turn(self) -> bool:
        """Send one round of what is unsent; say whether there is more.

        Raises Unreachable, StoreUnavailable. What was sent until then is acknowledged.
        """
        work = self._store.mirror_pending(_LIMIT)
        for pending in work.sweeps:
            self._guarded(pending.sweep.id, partial(self._send_sweep, pending))
        for attempt in work.attempts:
            self._guarded(attempt.trial.sweep_id, partial(self._send_attempt, attempt))
        for sweep_id in list(self._open):
            self._guarded(sweep_id, partial(self._close_if_deleted, sweep_id))
        self._note_progress(work.attempts)
        full = len(work.attempts) == _LIMIT or len(work.sweeps) == _LIMIT
        return full or any(attempt.more for attempt in work.attempts)

    def _guarded(self, sweep_id: str, send: Callable[[], None]) -> None:
        """Send; a sweep that was deleted on either side does not hold up the others."""
        try:
            send()
        except NotFound:
            self._places.pop(sweep_id, None)
        except Gone as error:
            self._places.pop(sweep_id, None)
            self._open.pop(sweep_id, None)
            if time.monotonic() - self._sent_again.get(sweep_id, -_AGAIN) < _AGAIN:
                return
            log.warning("sweep %s is sent to MLflow again: %s", sweep_id, error)
            self._sent_again[sweep_id] = time.monotonic()
            self._store.mirror_again(sweep_id)
        except Refused as error:
            log.error("MLflow refuses a part of sweep %s: %s", sweep_id, error)
            self._note(sweep_id, 0.0, str(error))

    # --- Sweeps -------------------------------------------------------------------------------

    def _send_sweep(self, pending: PendingSweep) -> None:
        sweep = pending.sweep
        has_started = sweep.started_at is not None and sweep.state != SweepState.QUEUED
        if has_started or (sweep.mirror or {}).get("experiment_id"):
            place = self._place(sweep)
            self._client.set_tags(place.run_id, sweep_tags(sweep, self._page_url))
            self._client.set_status(
                place.run_id,
                SWEEP_STATUS[sweep.state],
                None if sweep.finished_at is None else milliseconds(sweep.finished_at),
            )
            self._open[sweep.id] = place
            if sweep.state.is_finished():
                if sweep.result is not None:
                    self._client.log_json(place.run_id, sweep.result, "result.json")
                self._reconcile(sweep, place)
                del self._open[sweep.id]
        self._store.mirror_sweep_sent(sweep.id, pending.revision)

    def _close_if_deleted(self, sweep_id: str) -> None:
        """End the runs of a sweep that was deleted before MLflow heard of its end."""
        try:
            self._store.get_sweep(sweep_id)
        except NotFound:
            for run in self._client.runs(self._open[sweep_id].experiment_id):
                if run.is_open and run.tags.get(SWEEP_TAG) == sweep_id:
                    self._client.set_status(run.run_id, "KILLED", time.time_ns() // 1_000_000)
            del self._open[sweep_id]

    def _place(self, sweep: Sweep) -> _Place:
        """Find or make the sweep's experiment and its own run."""
        place = self._places.get(sweep.id)
        if place is not None:
            return place
        known = sweep.mirror or {}
        if known.get("experiment_id") and known.get("run_id"):
            place = _Place(known["experiment_id"], known["run_id"])
        else:
            place = self._make_place(sweep)
        self._places[sweep.id] = place
        self._reconcile(sweep, place)
        return place

    def _make_place(self, sweep: Sweep) -> _Place:
        experiment_id = self._client.experiment(f"{sweep.name} ({sweep.id})")
        run_id = next(
            (
                run.run_id
                for run in self._client.runs(experiment_id)
                if run.tags.get(SWEEP_TAG) == sweep.id and ATTEMPT_TAG not in run.tags
            ),
            None,
        )
        if run_id is None:
            tags = sweep_tags(sweep, self._page_url)
            start = milliseconds(sweep.started_at or sweep.created_at)
            run_id = self._client.create_run(experiment_id, start, tags, sweep.name)
            self._client.log_json(run_id, sweep.spec, "spec.json")
        place = _Place(experiment_id, run_id)
        self._store.set_mirror(sweep.id, self._state(place))
        return place

    def _reconcile(self, sweep: Sweep, place: _Place) -> None:
        """Find runs that a mirror made and did not note down; close those that nothing reports to.

        A mirror may be killed between any two of its requests.
        """
        for run in self._client.runs(place.experiment_id):
            if run.tags.get(SWEEP_TAG) != sweep.id or ATTEMPT_TAG not in run.tags:
                continue
            attempt_id, trial = int(run.tags[ATTEMPT_TAG]), int(run.tags[TRIAL_TAG])
            attempt = self._attempt(sweep.id, trial, attempt_id)
            if attempt is not None and attempt.mlflow_run_id is None:
                self._unclaimed.setdefault(attempt_id, run.run_id)
            elif attempt is None or attempt.mlflow_run_id != run.run_id:
                self._client.delete_run(run.run_id)
            elif run.is_open and attempt.state.is_finished() and attempt.finished_at is not None:
                end = milliseconds(attempt.finished_at)
                self._client.set_status(run.run_id, ATTEMPT_STATUS[attempt.state], end)

    def _attempt(self, sweep_id: str, trial: int, attempt_id: int) -> Attempt | None:
        try:
            attempts = self._store.trial(sweep_id, trial).attempts
        except NotFound:
            return None
        return next((attempt for attempt in attempts if attempt.id == attempt_id), None)

    # --- Attempts -----------------------------------------------------------------------------

    def _send_attempt(self, work: PendingAttempt) -> None:
        sweep = self._store.get_sweep(work.trial.sweep_id)
        place = self._place(sweep)
        tags = attempt_tags(work, sweep, self._page_url)
        run_id = work.attempt.mlflow_run_id
        if run_id is None:
            run_id = self._make_run(work, place, tags)
        originals = (original_tag(name) for name in {point.name for point in work.metrics})
        tags |= dict(tag for tag in originals if tag is not None)
        self._client.log(run_id, work.metrics, tags=tags)
        state = work.attempt.state
        if state.is_finished() and not work.more and work.attempt.finished_at is not None:
            end = milliseconds(work.attempt.finished_at)
            self._client.set_status(run_id, ATTEMPT_STATUS[state], end)
        self._store.mirror_sent(work.attempt.id, work.upto, "running" if work.more else state.value)

    def _make_run(self, work: PendingAttempt, place: _Place, tags: dict[str, str]) -> str:
        trial, attempt = work.trial, work.attempt
        name = f"trial {trial.number}" + (f".{attempt.number}" if attempt.number > 1 else "")
        run_id = self._unclaimed.pop(attempt.id, None)
        if run_id is None:
            start = milliseconds(attempt.started_at)
            tags = tags | {"mlflow.parentRunId": place.run_id}
            run_id = self._client.create_run(place.experiment_id, start, tags, name)
        self._client.log(run_id, params=attempt_params(trial))
        for artifact, text in long_params(trial).items():
            self._client.log_text(run_id, text, artifact)
        kept = self._store.set_mlflow_run(attempt.id, run_id)
        if kept != run_id:
            # Another mirror was faster.
            self._client.delete_run(run_id)
        return kept

    # --- What the store says of the mirror ----------------------------------------------------

    def _state(self, place: _Place) -> dict[str, object]:
        return {
            "experiment_id": place.experiment_id,
            "run_id": place.run_id,
            "url": f"{self._public_url}/#/experiments/{place.experiment_id}/runs/{place.run_id}",
            "behind_seconds": 0.0,
            "error": "",
        }

    def _note_progress(self, attempts: list[PendingAttempt]) -> None:
        """Say how old the oldest metric of each sweep was when it was sent."""
        now = time.time()
        oldest: dict[str, float] = {}
        for work in attempts:
            age = now - work.metrics[0].at_ms / 1000 if work.metrics else 0.0
            sweep_id = work.trial.sweep_id
            oldest[sweep_id] = max(age, oldest.get(sweep_id, 0.0))
        for sweep_id, behind in oldest.items():
            self._note(sweep_id, behind, "")

    def _note_outage(self, error: str) -> None:
        log.warning("MLflow: %s", error)
        if self._away_since is None:
            self._away_since = time.time()
            self._noted.clear()
        behind = time.time() - self._away_since
        try:
            work = self._store.mirror_pending(_LIMIT, 1)
            waiting = {a.trial.sweep_id for a in work.attempts} | {p.sweep.id for p in work.sweeps}
            for sweep_id in waiting:
                self._note(sweep_id, behind, error)
        except StoreUnavailable as also:
            log.warning("%s", also)

    def _note(self, sweep_id: str, behind: float, error: str) -> None:
        """Write it down, seldom enough that it costs nothing."""
        due = self._noted.get(sweep_id, 0.0) + _NOTE
        if time.monotonic() < due:
            return
        self._noted[sweep_id] = time.monotonic()
        place = self._places.get(sweep_id)
        try:
            known = self._store.get_sweep(sweep_id).mirror or {"url": None}
            state = known if place is None else self._state(place)
            now = {"behind_seconds": round(behind, 1), "error": error}
            self._store.set_mirror(sweep_id, state | now)
        except NotFound:
            self._places.pop(sweep_id, None)


def main(arguments: list[str] | None = None) -> int:
    """Upload everything that MLflow lacks, then end: for what an outage left behind."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--store", required=True, help="URL of the store")
    parser.add_argument("--mlflow", required=True, help="URL of the MLflow server")
    parser.add_argument("--page", default="", help="URL of the service's pages")
    options = parser.parse_args(arguments)
    store = Store(options.store)
    mirror = Mirror(store, options.mlflow, page_url=options.page)
    try:
        while mirror.turn():
            print(f"{store.mirror_backlog().metrics} metrics left", flush=True)
    except (Unreachable, StoreUnavailable) as error:
        print(error, file=sys.stderr)
        return 1
    print("MLflow has everything")
    return 0


if __name__ == "__main__":
    sys.exit(main())
