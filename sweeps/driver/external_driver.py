"""Drives every sweep of agents in one process: ``python -m sweeps.driver.external_driver``.

It claims such sweeps itself, looks ten times a second at what happened to their trials, and leaves
when there are none or its parent is gone. It loads neither Ray nor torch.
"""

import argparse
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pydantic import ValidationError

from sweeps.driver.external_sweep import ExternalSweep
from sweeps.driver.process import add_store
from sweeps.errors import LeaseLost, StoreUnavailable
from sweeps.records import Claim, SweepState
from sweeps.spec.validation_messages import in_words
from sweeps.store.commands.agent_requests import LapsedLease
from sweeps.store.store import Store
from worker.pauses import pauses
from worker.process.logs import log_ids, set_up
from worker.process.stop_signal import set_by_signals

log = logging.getLogger(__name__)

# Seconds.
LEASE = 15.0
_TURN = 0.1
_CLAIM = 0.5
_LOOK = 1.0
#: Without a sweep, until this process leaves.
_IDLE = 30.0

#: Faults in one sweep in a row before it counts as failed.
MAX_FAULTS = 3


class ExternalDriver:
    """Drives the sweeps of agents of one store, those that no other driver has."""

    def __init__(self, store: Store, home: Path, owner: str, lease_seconds: float = LEASE) -> None:
        self._store = store
        self._home = home
        self._owner = owner
        self._lease = lease_seconds
        self._sweeps: dict[str, ExternalSweep] = {}
        self._analyst = ThreadPoolExecutor(1, thread_name_prefix="analysis")
        self._faults: dict[str, int] = {}
        # The last event that was looked at.
        self._seen = 0
        self._next_claim = self._next_renewal = self._next_look = 0.0
        self._idle_since = time.monotonic()
        self._began = time.monotonic()

    def run(self, stop: threading.Event, is_orphan: Callable[[], bool] = lambda: False) -> None:
        """Drive until ``stop`` is set, or there is nothing to drive; leave sweeps queued."""
        waits = pauses(_TURN, 2.0)
        pause = _TURN
        while not stop.wait(pause) and not is_orphan() and not self._is_idle:
            try:
                self.turn()
                waits, pause = pauses(_TURN, 2.0), _TURN
            except StoreUnavailable as error:
                log.warning("%s; trying again", error)
                pause = next(waits)
        self._leave()
        self._analyst.shutdown(wait=False, cancel_futures=True)

    @property
    def driven(self) -> list[str]:
        """Ids of the sweeps that are driven here."""
        return list(self._sweeps)

    def turn(self) -> None:
        """Claim, hear, judge, refill: once for every sweep. Raises StoreUnavailable."""
        now = time.monotonic()
        if now >= self._next_claim:
            self._next_claim = now + _CLAIM
            self._claim()
        if not self._sweeps:
            return
        self._idle_since = now
        claims = [sweep.claim for sweep in self._sweeps.values()]
        if now >= self._next_renewal:
            self._renew(claims)
            self._next_renewal = now + self._lease / 3
        wishes = self._store.wishes(claims)
        seen, touched = self._store.touched(list(self._sweeps), self._seen)
        lapsed = self._lapsed(now)
        for sweep_id, sweep in list(self._sweeps.items()):
            wish = wishes.get(sweep_id)
            if wish is None:
                where = {"sweep": sweep_id}
                log.info("sweep %s: ended, or somebody else drives it", sweep_id, extra=where)
                del self._sweeps[sweep_id]
                continue
            if wish != "none":
                sweep.stop("cancel" if wish == "delete" else wish)
            mine = [lease for lease in lapsed if lease.sweep_id == sweep_id]
            with log_ids(sweep=sweep_id):
                self._turn_of(sweep, touched.get(sweep_id, set()), mine)
        # Only now: what was not taken in is read again.
        self._seen = seen

    @property
    def _is_idle(self) -> bool:
        return not self._sweeps and time.monotonic() - self._idle_since > _IDLE

    def _claim(self) -> None:
        while True:
            claim = self._store.claim(
                self._owner, self._lease, external=True, driven=list(self._sweeps)
            )
            if claim is None:
                return
            log.info(
                "sweep %s: driven for its agents", claim.sweep_id, extra={"sweep": claim.sweep_id}
            )
            if not self._sweeps:
                self._seen = self._store.last_event_id()
            try:
                sweep = ExternalSweep(self._store, claim, self._home, self._analyst)
                sweep.replay()
            except ValidationError as error:
                reason = f"its spec is none that this version runs: {in_words(error)}"
                self._store.release(claim, SweepState.FAILED, reason)
            except LeaseLost:
                continue
            except StoreUnavailable:
                raise
            except Exception as error:
                self._note_fault(claim, error)
            else:
                self._sweeps[claim.sweep_id] = sweep

    def _turn_of(self, sweep: ExternalSweep, touched: set[int], lapsed: list[LapsedLease]) -> None:
        sweep_id = sweep.claim.sweep_id
        try:
            if sweep.turn(touched, lapsed):
                log.info("sweep %s: given back", sweep_id)
                self._faults.pop(sweep_id, None)
                del self._sweeps[sweep_id]
        except StoreUnavailable:
            raise
        except LeaseLost as error:
            log.info("%s", error)
            del self._sweeps[sweep_id]
        except Exception as error:
            # No other sweep of this process may end for it.
            del self._sweeps[sweep_id]
            self._note_fault(sweep.claim, error)

    def _note_fault(self, claim: Claim, error: Exception) -> None:
        where = {"sweep": claim.sweep_id}
        log.error("sweep %s: driving failed", claim.sweep_id, exc_info=error, extra=where)
        faults = self._faults[claim.sweep_id] = self._faults.get(claim.sweep_id, 0) + 1
        state, reason = SweepState.QUEUED, "its driver ended; another takes over"
        if faults >= MAX_FAULTS:
            what = f"{type(error).__name__}: {error}"[:200]
            state = SweepState.FAILED
            reason = f"its driver ended {faults} times ({what}); see logs/drivers.log"
            del self._faults[claim.sweep_id]
        try:
            self._store.release(claim, state, reason)
        except LeaseLost:
            log.info("sweep %s had ended", claim.sweep_id)

    def _renew(self, claims: list[Claim]) -> None:
        with self._store.together():
            for claim in claims:
                try:
                    self._store.renew(claim, self._lease)
                except LeaseLost:
                    # Its wishes are missing then.
                    continue

    def _lapsed(self, now: float) -> list[LapsedLease]:
        """Leases to end; none of before this process began is, until its agent had its time."""
        if now < self._next_look:
            return []
        self._next_look = now + _LOOK
        found = self._store.lapsed_leases(list(self._sweeps))
        lived = now - self._began
        return [lease for lease in found if lease.lease_seconds <= lived]

    def _leave(self) -> None:
        for sweep in self._sweeps.values():
            sweep.stop("leave")
            try:
                sweep.turn(())
            except (LeaseLost, StoreUnavailable) as error:
                log.warning("%s", error)


def main(arguments: list[str] | None = None) -> int:
    """Drive the sweeps of agents in a store."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    add_store(parser)
    parser.add_argument("--home", type=Path, required=True, help="NDSWEEP_HOME")
    parser.add_argument("--lease", type=float, default=LEASE, help="seconds until it may be taken")
    parser.add_argument("--parent", type=int, help="process id of the runner, to leave with it")
    options = parser.parse_args(arguments)
    set_up("agents")
    # Given, because it may have died before this line.
    parent = options.parent or os.getppid()
    store = Store(options.store)
    driver = ExternalDriver(
        store, options.home, f"{socket.gethostname()}-{os.getpid()}-agents", options.lease
    )
    driver.run(set_by_signals(threading.Event()), lambda: os.getppid() != parent)
    store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
