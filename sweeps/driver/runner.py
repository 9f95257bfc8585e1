"""Finds sweeps that want to be driven, and drives each in a process of its own.

The process is ``python -m sweeps.driver.runner``.

The runner claims a sweep, gives it to a driver and renews its lease while the driver lives. If the
driver dies the sweep is queued again at once; if the runner itself dies, its drivers go on, and
when a lease has run out another runner takes over. Sweeps whose trials agents run share one process
and need no cluster. The runner loads neither Ray nor torch.
"""

import argparse
import contextlib
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from sweeps.cluster import head as cluster
from sweeps.cluster.capacity import ClusterShape
from sweeps.cluster.node import IMPATIENT, JoinedNode
from sweeps.driver.process import (
    ENDED_BY_RAY,
    NO_CLUSTER,
    NO_STORE,
    TAKEN,
    DriverProcess,
    DriverSettings,
    ExternalProcess,
    add_store,
    describe,
    stop_all,
)
from sweeps.errors import LeaseLost, StoreUnavailable
from sweeps.records import Claim, SweepState
from sweeps.retention.deletion import remove_marked
from sweeps.retention.limits import Keep
from sweeps.retention.log_rotation import LogRotation
from sweeps.retention.plan import keep_within
from sweeps.store.store import Store
from worker.config.parts import GROUPS, registered_part_names
from worker.config.registry import look_again, registrations
from worker.config.training import IMAGES
from worker.process.logs import log_ids, set_up
from worker.process.stop_signal import set_by_signals

if TYPE_CHECKING:
    from sweeps.mlflow_mirror.mirror import Mirror

log = logging.getLogger(__name__)

# Seconds.
LEASE = 15.0
_RENEW = 5.0
_POLL = 0.3
_REPORT = 10.0
#: Between two looks for sweeps to delete and sweeps that wait for a driver.
_SWEEPING = 1.0
#: By which wall time and time since the start may drift apart between two turns.
_JUMP = 1.0
#: After giving a driver its sweep: the next one's start must not compete with the first trial's.
_SPARE = 15.0
#: Between attempts to start a driver when the last one found no cluster.
_NO_CLUSTER_PAUSE = 3.0
#: Within which a local cluster is there; until then its silence is no error.
_BOOT = 15.0
_SILENT = "the cluster does not answer"
#: For all drivers together, then for the mirror: 8 of the 10 in which a part has to stop.
#: Under ``serve`` less: it kills what is left below it 4.5 to 7.5 after it told the runner, when
#: both groups have had their time (service.supervision.supervisor.STOP_SECONDS).
#: Who takes the sweep next goes on from what is recorded.
_STOP, _MIRROR_STOP = 7.0, 1.0
#: For the node of this machine, which holds nothing that anybody needs.
_NODE_STOP = 2.0

#: Why sweeps wait again, by the exit codes of their drivers.
_WHY = {
    ENDED_BY_RAY: "the cluster was away from its driver",
    NO_STORE: "the store was away from its driver",
}
#: Crashes of drivers of one sweep in a row before it counts as failed.
MAX_CRASHES = 3


class WallClock:
    """Notices when somebody sets the machine's clock. Leases on SQLite are told by it."""

    def __init__(self) -> None:
        self._ahead = self._now()

    def has_jumped(self) -> bool:
        """Whether it was set since the last question, or the machine slept."""
        before, self._ahead = self._ahead, self._now()
        return abs(self._ahead - before) > _JUMP

    def _now(self) -> float:
        return time.time() - time.monotonic()


def await_tables(store: Store, stop: threading.Event) -> None:
    """Wait until the API has made the store's tables, or brought them to this version."""
    said = ""
    while not stop.is_set():
        try:
            if store.is_up_to_date():
                return
            why = "the API has yet to make the store's tables or to bring them up to date"
        except StoreUnavailable as error:
            why = str(error)
        if why != said:
            log.info("waiting: %s", why)
            said = why
        stop.wait(_POLL)


class Runner:
    """Drives at most ``max_drivers`` sweeps at a time."""

    def __init__(
        self,
        store: Store,
        settings: DriverSettings,
        *,
        max_drivers: int = 2,
        lease_seconds: float = LEASE,
        node: JoinedNode | None = None,
    ) -> None:
        """``node``: this machine's node of a cluster elsewhere, to be kept by this runner."""
        self._store = store
        self._settings = settings
        self._node = node
        self._max_drivers = max_drivers
        self._lease = lease_seconds
        self.owner = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._clock = WallClock()
        self._drivers: list[DriverProcess] = []
        self._spare: DriverProcess | None = None
        self._external = ExternalProcess(settings, lease_seconds)
        self._next_spare = 0.0
        self._next_report = 0.0
        self._next_sweeping = 0.0
        self._crashes: dict[str, int] = {}
        self._shape: ClusterShape | None = None
        self._cluster_error: str | None = None
        #: Beside it, where there is an MLflow to fill.
        self.mirror: Mirror | None = None
        #: Of what drivers write, where it is kept within bounds.
        self.rotation: LogRotation | None = None

    def run(self, stop: threading.Event) -> None:
        """Run until ``stop`` is set; then stop the drivers, and leave their sweeps queued."""
        await_tables(self._store, stop)
        try:
            while not stop.wait(_POLL):
                try:
                    self._turn()
                except StoreUnavailable as error:
                    log.warning("%s; trying again", error)
                    stop.wait(1.0)
        finally:
            spare = [self._spare] if self._spare else []
            stop_all([self._external, *self._drivers, *spare], _STOP)
            if self._node is not None:
                stop_all([self._node], _NODE_STOP)
            self._give_back()

    def _give_back(self) -> None:
        """Leave no sweep to a lease whose driver was too slow to give it back itself."""
        for driver in self._drivers:
            if driver.claim is None or driver.exit_code in (0, TAKEN):
                continue
            try:
                # Lost: it has ended, or somebody has it already.
                with contextlib.suppress(LeaseLost):
                    self._store.release(driver.claim, SweepState.QUEUED, "its runner stopped")
            except StoreUnavailable as error:
                log.warning("%s; the lease will run out", error)
                return

    def _turn(self) -> None:
        if self._node is not None and self._node.keep():
            self._leave_lost_node()
        self._leave_lost_head()
        self._keep_spare()
        self._look_at_cluster()
        if self._clock.has_jumped():
            # By the new time the leases of living drivers may be over, and would be given away.
            for driver in self._drivers:
                driver.renewed_at -= _RENEW
        for driver in list(self._drivers):
            with log_ids(sweep="" if driver.claim is None else driver.claim.sweep_id):
                self._look_after(driver)
        spare = self._spare
        if spare is not None and not spare.is_waiting and len(self._drivers) < self._max_drivers:
            driven = [driver.claim.sweep_id for driver in self._drivers if driver.claim]
            claim = self._store.claim(self.owner, self._lease, driven=driven)
            if claim is not None:
                with log_ids(sweep=claim.sweep_id):
                    self._assign(spare, claim)
        if time.monotonic() >= self._next_sweeping:
            self._next_sweeping = time.monotonic() + _SWEEPING
            remove_marked(self._store, self._settings.home)
            if self.rotation is not None:
                self.rotation.look_if_due()
            self._external.keep(self._store.has_external)
            self._explain_queue()
        self._report()

    def _explain_queue(self) -> None:
        """Say why sweeps wait that no driver is free for, or no cluster."""
        if len(self._drivers) >= self._max_drivers:
            most = self._max_drivers
            which = "the only driver is" if most == 1 else f"all {most} drivers are"
            self._store.explain_queued(f"waiting for a driver: {which} busy with other sweeps")
        elif self._cluster_error == _SILENT:
            self._store.explain_queued("waiting for Ray: the head of the cluster does not answer")

    def _assign(self, spare: DriverProcess, claim: Claim) -> None:
        log.info("sweep %s: driver %d", claim.sweep_id, spare.pid)
        spare.give(claim)
        spare.renewed_at = time.monotonic()
        self._drivers.append(spare)
        self._next_report = 0.0  # who has which sweep is known at once
        self._spare = None
        self._next_spare = time.monotonic() + _SPARE

    def _leave_lost_node(self) -> None:
        """End drivers whose node has ended: they would wait for minutes for its cluster."""
        log.warning("this machine's node of the cluster has ended and is started again")
        for driver in self._drivers:
            driver.kill()
        if self._spare is not None:
            self._spare.kill()
            self._spare = None

    def _leave_lost_head(self) -> None:
        """End drivers whose head was replaced; they would call the old one for minutes."""
        if os.environ.get("RAY_ADDRESS"):
            return
        head = cluster.recorded_address(self._settings.home)
        for driver in self._drivers:
            if driver.has_lost(head):
                driver.kill()
        if self._spare is not None and self._spare.has_lost(head):
            self._spare.kill()
            self._spare, self._next_spare = None, 0.0

    def _look_at_cluster(self) -> None:
        """Take the cluster as the driver sees it that spoke last, and pass news on at once."""
        drivers = [*self._drivers, *([self._spare] if self._spare else [])]
        newest = max(drivers, key=lambda driver: driver.shape_at, default=None)
        shape = None if newest is None else newest.shape
        if shape is not None and shape != self._shape:
            self._shape, self._next_report = shape, 0.0

    def _keep_spare(self) -> None:
        """Have a driver ready that has loaded what it needs and is connected to the cluster."""
        spare = self._spare
        if spare is not None:
            if spare.shape is not None:
                self._cluster_error = None
            if spare.exit_code is None:
                if spare.is_waiting and time.monotonic() - spare.started_at > _BOOT:
                    self._cluster_error = _SILENT
                return
            self._cluster_error = (
                _SILENT
                if spare.exit_code in (NO_CLUSTER, ENDED_BY_RAY)
                else f"a driver ended with code {spare.exit_code}; see logs/drivers.log"
            )
            log.warning("%s", self._cluster_error)
            spare.close()
            self._spare = None
            self._next_spare = time.monotonic() + _NO_CLUSTER_PAUSE
        is_wanted = len(self._drivers) < self._max_drivers
        if is_wanted and (not self._drivers or time.monotonic() >= self._next_spare):
            if time.monotonic() >= self._next_spare or self._cluster_error is None:
                self._spare = DriverProcess(self._settings)

    def _look_after(self, driver: DriverProcess) -> None:
        claim = driver.claim
        assert claim is not None
        code = driver.exit_code
        if code is not None:
            driver.close()
            self._drivers.remove(driver)
            self._next_report = 0.0
            self._after(claim, code)
        elif time.monotonic() - driver.renewed_at >= min(_RENEW, self._lease / 3):
            try:
                self._store.renew(claim, self._lease)
                driver.renewed_at = time.monotonic()
            except LeaseLost:
                # Ended, or taken over: the driver has noticed too, or will within a second.
                if time.monotonic() - driver.renewed_at > 2 * self._lease:
                    driver.kill()

    def _after(self, claim: Claim, code: int) -> None:
        """A driver has ended: see to it that its sweep goes on, unless it has ended too."""
        log.info("sweep %s: its driver ended with code %d", claim.sweep_id, code)
        # A driver that was killed could not remove it.
        folder = self._settings.home / "tune" / f"{claim.sweep_id}-{claim.token}"
        shutil.rmtree(folder, ignore_errors=True)
        if code in (0, TAKEN):
            self._crashes.pop(claim.sweep_id, None)
            return
        crashes = self._crashes.get(claim.sweep_id, 0) + _is_fault(code)
        self._crashes[claim.sweep_id] = crashes
        why = _WHY.get(code, "its driver ended")
        state, reason = SweepState.QUEUED, f"{why}; another takes over"
        if crashes >= MAX_CRASHES:
            state = SweepState.FAILED
            reason = f"its driver ended {crashes} times with code {code}; see logs/drivers.log"
            self._crashes.pop(claim.sweep_id)
        try:
            self._store.release(claim, state, reason)
        except LeaseLost:
            log.info("sweep %s had ended", claim.sweep_id)

    def _report(self) -> None:
        if time.monotonic() < self._next_report:
            return
        shape = None if self._shape is None else self._shape.to_json()
        self._store.report_runner(
            self.owner,
            {
                "cluster": shape,
                "error": self._cluster_error,
                "drivers": describe(self._drivers),
                "max_drivers": self._max_drivers,
                "lease_seconds": self._lease,
                "mlflow": self.mirror and {"away_seconds": round(self.mirror.away_seconds, 1)},
                "trainings": _trainings(),
                "parts": _parts(),
            },
        )
        # Soon again while something is missing: the API refuses by what it reads here.
        self._next_report = time.monotonic() + (1.0 if shape is None else _REPORT)


def _trainings() -> dict[str, dict[str, str]]:
    """Registered trainings by name, as the workers of this machine have them; none is imported."""
    look_again("training")
    return {
        name: {"package": found[0].package, "version": found[0].version}
        for name, found in registrations("training").items()
        if name != IMAGES
    }


def _parts() -> dict[str, dict[str, str]]:
    """Registered parts of the built-in training, ``networks/mine``; none is imported."""
    return {
        f"{group}/{name}": {"name": found[0].package, "version": found[0].version}
        for field, group in GROUPS.items()
        for name in registered_part_names(field)
        for found in [registrations(group)[name]]
    }


def _is_fault(code: int) -> bool:
    """Whether a driver ended by a fault of its own.

    Killed from outside, or without the store or its cluster, it is not to blame.
    """
    signals = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT)
    return code not in (0, ENDED_BY_RAY, NO_STORE, NO_CLUSTER, TAKEN, *signals)


def run(
    store_url: str,
    home: Path,
    *,
    data_home: str | None = None,
    mlflow_url: str | None = None,
    mlflow_public_url: str = "",
    page_url: str = "",
    max_drivers: int = 2,
    lease_seconds: float = LEASE,
    trainable: str | None = None,
    keep: Keep | None = None,
    join: str | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Run a runner, and the mirror into MLflow beside it, until ``stop`` is set.

    ``page_url`` is where the service's pages are, for links from MLflow; ``mlflow_public_url`` is
    where a browser finds MLflow, for links to it, if not at ``mlflow_url``. ``join`` is the
    address of a cluster's head: this machine gets a node of it.
    """
    stop = stop or threading.Event()
    store = Store(store_url)
    runner = Runner(
        store,
        DriverSettings(store_url, home, data_home, trainable),
        max_drivers=max_drivers,
        lease_seconds=lease_seconds,
        node=None if join is None else JoinedNode(join, home),
    )
    await_tables(store, stop)
    mirror: threading.Thread | None = None
    if mlflow_url:
        # MLflow costs seconds to import; a runner without it need not.
        from sweeps.mlflow_mirror.artifacts import SweepArtifacts
        from sweeps.mlflow_mirror.mirror import Mirror

        mlflow = Mirror(
            store,
            mlflow_url,
            page_url=page_url,
            public_url=mlflow_public_url,
            artifacts=SweepArtifacts(store, home.absolute(), page_url),
        )
        runner.mirror = mlflow
        mirror = threading.Thread(target=mlflow.run, args=(stop,), name="mirror", daemon=True)
        mirror.start()
    if keep is not None:
        runner.rotation = LogRotation(home / "logs", ("drivers",), days=keep.days)
        caretaker = (store, home.absolute(), keep, stop)
        threading.Thread(target=keep_within, args=caretaker, name="keep", daemon=True).start()
    runner.run(stop)
    if mirror is not None:
        # It was told when the drivers were; what it has not sent, the next one sends.
        mirror.join(_MIRROR_STOP)
    store.close()


def main(arguments: list[str] | None = None) -> int:
    """Drive the sweeps of a store until SIGTERM."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    add_store(parser)
    parser.add_argument("--home", type=Path, required=True, help="NDSWEEP_HOME")
    parser.add_argument("--data", help="folder of prepared data sets")
    parser.add_argument("--mlflow", help="URL of an MLflow server to mirror into")
    parser.add_argument("--mlflow-page", default="", help="URL of MLflow for browsers")
    parser.add_argument("--page", default="", help="URL of the service's pages")
    parser.add_argument("--drivers", type=int, default=2, help="sweeps at a time")
    parser.add_argument("--keep-sweep-gb", type=float, default=20.0, help="GB kept of a sweep")
    parser.add_argument("--keep-gb", type=float, default=200.0, help="GB kept of all sweeps")
    parser.add_argument("--keep-days", type=float, default=7.0, help="days that failures are kept")
    parser.add_argument("--lease", type=float, default=LEASE, help="seconds until it may be taken")
    parser.add_argument("--trainable", help="module:function to run instead of training")
    parser.add_argument("--join", help="HOST:PORT of a Ray head; a node of it is kept here")
    options = parser.parse_args(arguments)
    if options.join:
        os.environ.update(IMPATIENT | os.environ | {"RAY_ADDRESS": options.join})
    set_up("runner")
    run(
        options.store,
        options.home,
        data_home=options.data,
        mlflow_url=options.mlflow,
        mlflow_public_url=options.mlflow_page,
        page_url=options.page,
        max_drivers=options.drivers,
        lease_seconds=options.lease,
        trainable=options.trainable,
        keep=Keep(int(options.keep_sweep_gb * 1e9), int(options.keep_gb * 1e9), options.keep_days),
        join=options.join,
        stop=set_by_signals(threading.Event()),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
