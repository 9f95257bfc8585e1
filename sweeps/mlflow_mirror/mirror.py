"""Keeps MLflow a live copy of the store: a run per sweep and, below it, a run per attempt.

The store knows what was sent, so nothing is lost while MLflow is away and nothing is sent twice:
times come from the store, and MLflow drops a metric that it already has. Nothing here is ever
read back, and nothing waits for it. With ``client`` the only door to MLflow.
"""

import argparse
import contextlib
import logging
import math
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from sweeps.errors import NotFound, StoreUnavailable
from sweeps.mlflow_mirror.artifacts import SweepArtifacts
from sweeps.mlflow_mirror.client import Gone, Holds, Key, MirrorClient, MlflowRefused, Unreachable
from sweeps.mlflow_mirror.names import original_tag
from sweeps.mlflow_mirror.orphans import end_deleted, reconcile, run_of_sweep
from sweeps.mlflow_mirror.run_fields import (
    ATTEMPT_STATUS,
    SWEEP_STATUS,
    attempt_params,
    attempt_tags,
    experiment_name,
    experiment_tags,
    long_params,
    milliseconds,
    run_address,
    run_name,
    sweep_tags,
)
from sweeps.records import (
    DeletedSweep,
    MirrorWork,
    PendingAttempt,
    PendingSweep,
    Sweep,
    SweepState,
)
from sweeps.store.store import Store
from worker.pauses import pauses
from worker.process.logs import log_ids

log = logging.getLogger(__name__)

# Seconds.
_PERIOD = 1.0
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 10.0
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
        self,
        store: Store,
        tracking_uri: str,
        *,
        page_url: str = "",
        public_url: str = "",
        artifacts: SweepArtifacts | None = None,
    ) -> None:
        """``page_url``: where the service's pages are, for links back.

        ``public_url``: where a browser finds MLflow, if not at ``tracking_uri``.
        ``artifacts``: makes what a finished sweep leaves beside its metrics; None = nothing.
        """
        self._store = store
        self._client = MirrorClient(tracking_uri)
        self._artifacts = artifacts
        self._page_url = page_url
        self._public_url = (public_url or tracking_uri).rstrip("/")
        self._places: dict[str, _Place] = {}
        #: State and end of sweeps' own runs, as last sent.
        self._shown: dict[str, tuple[str, int | None]] = {}
        #: Runs that MLflow has of attempts which the store knows no run of.
        self._unclaimed: dict[int, str] = {}
        self._holds = Holds()
        #: The last refusal of each sweep.
        self._errors: dict[str, str] = {}
        #: Sweeps that the store says are behind, and whether it was asked what an earlier one left.
        self._behind: set[str] = set()
        self._has_asked = False
        self._noted: dict[str, float] = {}
        self._sent_again: dict[str, float] = {}
        self._away_since: float | None = None

    @property
    def away_seconds(self) -> float:
        """For how long MLflow has not answered; 0 where it does. From any thread."""
        since = self._away_since
        return 0.0 if since is None else max(0.0, time.time() - since)

    def run(self, stop: threading.Event) -> None:
        """Send for ever, until ``stop`` is set."""
        waits = pauses(_FIRST_PAUSE, _LAST_PAUSE)
        while not stop.is_set():
            try:
                more = self.turn()
                waits = pauses(_FIRST_PAUSE, _LAST_PAUSE)
                self._away_since = None
                stop.wait(0.0 if more else _PERIOD)
            except Unreachable as error:
                self._note_outage(str(error))
                stop.wait(next(waits))
            except Exception as error:
                level = logging.WARNING if isinstance(error, StoreUnavailable) else logging.ERROR
                log.log(level, "the mirror goes on: %s", error, exc_info=level == logging.ERROR)
                stop.wait(next(waits))

    def turn(self) -> bool:
        """Send one round of what is unsent; say whether there is more.

        Raises Unreachable, StoreUnavailable. What was sent until then is acknowledged.
        """
        if not self._has_asked:
            self._store.mirror_moved(self._public_url)
            self._behind |= set(self._store.mirror_behind())
            self._has_asked = True
        work = self._store.mirror_pending(
            _LIMIT, without_sweeps=self._holds.sweeps(), without_attempts=self._holds.attempts()
        )
        began = time.monotonic()
        # Attempts first: curves are live, and the figures of a sweep that has ended take seconds.
        for attempt in work.attempts:
            send, done = partial(self._send_attempt, attempt), partial(self._acknowledge, attempt)
            self._send(attempt.attempt.id, attempt.trial.sweep_id, send, done)
        for pending in work.sweeps:
            if self._sent_again.get(pending.sweep.id, -math.inf) >= began:
                continue  # its experiment was found deleted since it was read
            self._send(
                pending.sweep.id,
                pending.sweep.id,
                partial(self._send_sweep, pending),
                partial(self._store.mirror_sweep_sent, pending.sweep.id, pending.revision),
            )
        held = set(self._holds.sweeps())
        for gone in self._store.mirror_deleted(_LIMIT):
            if gone.sweep_id not in held:
                done = partial(self._store.mirror_deleted_sent, gone.sweep_id)
                self._send(gone.sweep_id, gone.sweep_id, partial(self._end_deleted, gone), done)
        self._note_progress(work.attempts)
        self._note_caught_up(work)
        full = len(work.attempts) == _LIMIT or len(work.sweeps) == _LIMIT
        return full or any(attempt.more for attempt in work.attempts)

    def _send(
        self, key: Key, sweep_id: str, send: Callable[[], None], give_up: Callable[[], None]
    ) -> None:
        """Send; what is refused, or whose sweep was deleted, does not hold up the others."""
        with log_ids(sweep=sweep_id):
            self._try_to_send(key, sweep_id, send, give_up)

    def _try_to_send(
        self, key: Key, sweep_id: str, send: Callable[[], None], give_up: Callable[[], None]
    ) -> None:
        try:
            send()
            self._holds.accepted(key)
        except NotFound:
            self._places.pop(sweep_id, None)
        except Gone as error:
            self._send_again(sweep_id, error)
        except (Unreachable, StoreUnavailable):
            raise
        except Exception as error:
            log.error(
                "MLflow lacks a part of sweep %s: %s",
                sweep_id,
                error,
                exc_info=not isinstance(error, MlflowRefused),
            )
            self._errors[sweep_id] = str(error)[:500]
            self._note(sweep_id, 0.0, self._errors[sweep_id])
            if self._holds.refused(key):
                with contextlib.suppress(NotFound):
                    give_up()

    def _send_again(self, sweep_id: str, error: Gone) -> None:
        """The experiment was deleted in MLflow: all of the sweep is sent anew, now or soon."""
        self._places.pop(sweep_id, None)
        wait = self._sent_again.get(sweep_id, -_AGAIN) + _AGAIN - time.monotonic()
        if wait > 0:
            self._holds.wait(sweep_id, wait)
            return
        log.warning("sweep %s is sent to MLflow again: %s", sweep_id, error)
        self._sent_again[sweep_id] = time.monotonic()
        self._store.mirror_again(sweep_id)

    # --- Sweeps -------------------------------------------------------------------------------

    def _send_sweep(self, pending: PendingSweep) -> None:
        sweep = pending.sweep
        has_started = sweep.started_at is not None and sweep.state != SweepState.QUEUED
        if has_started or (sweep.mirror or {}).get("experiment_id"):
            place = self._place(sweep)
            self._client.set_tags(place.run_id, sweep_tags(sweep, self._page_url))
            self._show_state(place.run_id, sweep)
            if sweep.state.is_finished():
                if sweep.result is not None:
                    self._client.log_json(place.run_id, sweep.result, "result.json")
                self._reconcile(sweep, place)
                if self._artifacts is not None:
                    self._artifacts.send(self._client, sweep, place.run_id)
        self._store.mirror_sweep_sent(sweep.id, pending.revision)

    def _show_state(self, run_id: str, sweep: Sweep) -> None:
        """Set the state of a sweep's own run, which changes less often than what is best."""
        status = SWEEP_STATUS[sweep.state]
        end = None if sweep.finished_at is None else milliseconds(sweep.finished_at)
        if self._shown.get(run_id) != (status, end):
            self._client.set_status(run_id, status, end)
            self._shown[run_id] = (status, end)

    def _end_deleted(self, deleted: DeletedSweep) -> None:
        """End the runs of a sweep that was deleted before MLflow heard of its end."""
        # Gone with its experiment: nothing of it runs on.
        with contextlib.suppress(Gone):
            end_deleted(self._client, deleted)
        self._places.pop(deleted.sweep_id, None)
        self._store.mirror_deleted_sent(deleted.sweep_id)

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
        experiment_id = self._client.experiment(
            experiment_name(sweep.name, sweep.id), experiment_tags(sweep, self._page_url)
        )
        run_id = run_of_sweep(self._client, sweep.id, experiment_id)
        if run_id is None:
            tags = sweep_tags(sweep, self._page_url)
            start = milliseconds(sweep.started_at or sweep.created_at)
            run_id = self._client.create_run(experiment_id, start, tags, sweep.name)
            self._client.log_json(run_id, sweep.spec, "spec.json")
        place = _Place(experiment_id, run_id)
        self._store.set_mirror(sweep.id, self._state(place))
        return place

    def _reconcile(self, sweep: Sweep, place: _Place) -> None:
        attempts = self._store.attempts(sweep.id)
        found = reconcile(self._client, sweep.id, place.experiment_id, attempts)
        self._unclaimed |= found

    # --- Attempts -----------------------------------------------------------------------------

    def _send_attempt(self, work: PendingAttempt) -> None:
        sweep = self._store.get_sweep(work.trial.sweep_id)
        place = self._place(sweep)
        tags = attempt_tags(work, sweep, self._page_url)
        originals = (original_tag(name) for name in {point.name for point in work.metrics})
        tags |= dict(tag for tag in originals if tag is not None)
        run_id = work.attempt.mlflow_run_id
        if run_id is None:
            run_id = self._make_run(work, place, tags)
        else:
            self._client.log(run_id, [*work.metrics, *work.usage], tags=tags)
        state = work.attempt.state
        if state.is_finished() and not work.more and work.attempt.finished_at is not None:
            end = milliseconds(work.attempt.finished_at)
            self._client.set_status(run_id, ATTEMPT_STATUS[state], end)
        self._acknowledge(work)

    def _acknowledge(self, work: PendingAttempt) -> None:
        state = "running" if work.more else work.attempt.state.value
        self._store.mirror_sent(work.attempt.id, work.upto, state, work.usage_upto)

    def _make_run(self, work: PendingAttempt, place: _Place, tags: dict[str, str]) -> str:
        """Make an attempt's run with all there is to send of it; return the run's id.

        The store hears of the run last: a mirror that dies before sends everything again, and
        MLflow drops what it has.
        """
        trial, attempt = work.trial, work.attempt
        run_id = self._unclaimed.pop(attempt.id, None)
        if run_id is None:
            start = milliseconds(attempt.started_at)
            parent = {"mlflow.parentRunId": place.run_id}
            run_id = self._client.create_run(
                place.experiment_id, start, tags | parent, run_name(trial, attempt.number)
            )
            tags = {}
        try:
            found = [*work.metrics, *work.usage]
            self._client.log(run_id, found, params=attempt_params(trial), tags=tags)
            for artifact, text in long_params(trial).items():
                self._client.log_text(run_id, text, artifact)
            kept = self._store.set_mlflow_run(attempt.id, run_id)
        except (Unreachable, StoreUnavailable):
            self._unclaimed[attempt.id] = run_id  # the next turn goes on with it
            raise
        if kept != run_id:  # another mirror was faster
            self._client.delete_run(run_id)
            self._client.log(kept, found)
        return kept

    # --- What the store says of the mirror ----------------------------------------------------

    def _state(self, place: _Place) -> dict[str, object]:
        return {
            "experiment_id": place.experiment_id,
            "run_id": place.run_id,
            "url": run_address(self._public_url, place.experiment_id, place.run_id),
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
            self._note(sweep_id, behind, self._errors.get(sweep_id, ""))

    def _note_caught_up(self, work: MirrorWork) -> None:
        """Say of sweeps of which nothing is left to send that the mirror is not behind."""
        busy = {a.trial.sweep_id for a in work.attempts} | {p.sweep.id for p in work.sweeps}
        if len(work.attempts) == _LIMIT:
            return
        for sweep_id in self._behind - busy - set(self._holds.sweeps()):
            self._noted.pop(sweep_id, None)
            self._note(sweep_id, 0.0, self._errors.get(sweep_id, ""))

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
            self._behind.discard(sweep_id)
            if now["behind_seconds"] or error != self._errors.get(sweep_id, ""):
                self._behind.add(sweep_id)
        except NotFound:
            self._places.pop(sweep_id, None)
            self._behind.discard(sweep_id)


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
