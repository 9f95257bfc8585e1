"""Drives one sweep from where it stands to its end, each in a process of its own.

The process is ``python -m sweeps.driver.driver``.

The main thread runs Tune; a watcher looks every second for what people ask of the sweep, keeps its
result fresh, and makes sure that a stop takes seconds. A driver may die at any moment: what it
did is in the store, and the next one goes on from there.
"""

import argparse
import contextlib
import importlib
import json
import logging
import os
import select
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sweeps.cluster import capacity
from sweeps.cluster import head as cluster
from sweeps.cluster.capacity import ClusterShape
from sweeps.cluster.fair_share import Share, View, keep_looking
from sweeps.cluster.machines import Machines
from sweeps.driver.dispatcher import Dispatcher
from sweeps.driver.limits import Limits
from sweeps.driver.monitor import Watcher
from sweeps.driver.outcomes import outcome_of
from sweeps.driver.plan import SweepPlan, plan
from sweeps.driver.process import FAULT, NO_CLUSTER, NO_STORE, TAKEN, add_store
from sweeps.driver.store_writer import StoreWriter
from sweeps.errors import LeaseLost, StoreUnavailable
from sweeps.records import Claim, Sweep, SweepState
from sweeps.retention.places import Places
from sweeps.spec.validation_messages import in_words
from sweeps.store.store import Store
from worker.process.logs import add_process_ids, set_up
from worker.process.stop_signal import set_by_signals

log = logging.getLogger(__name__)

Trainable = Callable[[dict[str, Any]], None]

# Seconds.
_RETRY, _HASTE = 2.0, 2.0
#: For a cluster to listen, before the runner hears that there is none.
_CLUSTER_LIMIT = 60.0


class Driver:
    """One sweep being driven."""

    def __init__(
        self,
        store: Store,
        claim: Claim,
        home: Path,
        *,
        data_home: str | None = None,
        machines: Machines | None = None,
        trainable: Trainable | None = None,
        leaving: threading.Event | None = None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """``trainable`` is what Tune runs, None = training.

        ``machines``: what is known of the cluster's machines already.

        Once ``leaving`` is set, trials stop and the sweep is left to another driver. ``on_end`` is
        called when the sweep has been given back, while Tune still puts workers away.
        """
        self._store = store
        self._claim = claim
        self._home = home
        self._trainable = trainable
        self._on_end = on_end
        self._tune_folder = home / "tune" / f"{claim.sweep_id}-{claim.token}"
        self._sweep = store.get_sweep(claim.sweep_id)
        self._plan = plan(store, self._sweep)
        self._machines = machines or Machines(home, data_home)
        self._machines.expect(self._plan.datasets, self._plan.packages)
        self._announce = Announcer(self._machines)
        self._writer = StoreWriter(store, claim, self._on_lost)
        asked = self._plan.resources
        self._share = Share(claim.sweep_id, asked.cpus, asked.gpus, self._plan.concurrency)
        self._dispatcher = _dispatcher(
            store,
            claim,
            self._writer,
            self._plan,
            self._sweep,
            home,
            data_home,
            self._share,
            self._machines,
        )
        self._leaving = leaving or threading.Event()
        self._ended = threading.Event()
        self._ending = threading.Lock()
        self._failure: Exception | None = None
        self._watcher = Watcher(
            store,
            claim,
            self._dispatcher,
            leaving=self._leaving,
            analyse=self._current_result,
            no_room=self._no_room,
            machines=self._machines.note,
            on_lost=self._on_lost,
            on_last_moment=self.end,
        )

    @property
    def exit_code(self) -> int:
        """What a process that drove the sweep ends with, once it has ended."""
        match self._failure:
            case None:
                return 0
            case LeaseLost():
                return TAKEN
            case StoreUnavailable():
                return NO_STORE
        return FAULT

    def run(self) -> None:
        """Drive to the end. ``exit_code`` then says how it went."""
        self._watcher.start()
        try:
            self._dispatcher.replay()
            if self._wait_for_resources():
                self._tune()
        except Exception as error:
            log.exception("driving failed")
            self._failure = error
        self.end()

    def end(self) -> None:
        """Write what is left, the result and the sweep's final state. Once, from any thread."""
        with self._ending:
            if self._ended.is_set():
                return
            self._ended.set()
            self._watcher.stop()
            self._give_back()
            # Also what drivers left that were killed.
            for folder in self._tune_folder.parent.glob(f"{self._claim.sweep_id}-*"):
                shutil.rmtree(folder, ignore_errors=True)
            self._machines.close()
        self._on_end()

    # --- Work ---------------------------------------------------------------------------------

    def _tune(self) -> None:
        # Two thirds of a second; a sweep whose resources never come does not need it.
        from sweeps.driver import ray_tune as tuning

        resources = self._plan.resources
        self._share.look(self._view())
        keep_looking(self._share, self._view, self._ended)
        tuning.run(
            self._dispatcher,
            self._trainable or tuning.train,
            cpus=resources.cpus,
            gpus=resources.gpus,
            share=self._share,
            machines=self._machines,
            folder=self._tune_folder,
            on_done=self.end,
            must_abort=lambda: self._dispatcher.is_grace_over,
        )

    def _view(self) -> View:
        shape = self._look_at_machines()
        return View(shape, self._machines.free(), self._store.demands())

    def _look_at_machines(self) -> ClusterShape:
        shape = self._machines.shape()
        with contextlib.suppress(OSError):  # the runner may be gone
            self._announce()
        return shape

    def _no_room(self) -> str:
        asked, view = self._plan.resources, self._view()
        if view.free.fits(asked.cpus, asked.gpus):
            return ""
        others = sum(d.running for d in view.demands if d.sweep_id != self._claim.sweep_id)
        return capacity.occupied(asked.cpus, asked.gpus, view.free, others)

    def _wait_for_resources(self) -> bool:
        """Wait until a trial can run at all; False if told to stop before."""
        resources = self._plan.resources
        while self._dispatcher.stopping is None:
            shape = self._look_at_machines()
            refusal = capacity.why_not(resources.cpus, resources.gpus, shape)
            if refusal is None:
                self._watcher.say("")
                return True
            self._watcher.say(f"waiting for resources: {refusal.reason}")
            self._leaving.wait(_RETRY)
        return False

    def _on_lost(self, error: Exception) -> None:
        self._failure = error
        self._dispatcher.stop("lost")

    # --- End ----------------------------------------------------------------------------------

    def _give_back(self) -> None:
        stop = self._dispatcher.stopping
        in_haste = stop is not None and stop != "limit"
        # While the store is away no sweep can be given back: there is time for its trials then.
        away = 0.0 if stop == "lost" or self._leaving.is_set() else 600.0
        is_written = self._writer.close(_HASTE if in_haste else 600.0, away_seconds=away)
        if stop == "lost" or self._failure is not None:
            return
        if not (is_written or in_haste):
            # Ending the sweep now would cancel trials that are complete; the next driver will know.
            self._failure = StoreUnavailable("the store was away when the last trials ended")
            return
        try:
            self._release()
        except (LeaseLost, StoreUnavailable) as error:
            self._failure = error

    def _final_result(self) -> dict[str, Any] | None:
        if self._plan.analyse is None:
            return self._plan.proposer.result()
        return self._current_result()

    def _current_result(self) -> dict[str, Any] | None:
        """The result as far as it is known. From any thread."""
        if self._plan.analyse is None:
            return self._dispatcher.result
        try:
            return self._plan.analyse()
        except StoreUnavailable:
            raise
        except Exception:
            # A table that cannot be computed must not cost the sweep its trials.
            log.exception("no analysis")
            return None

    def _store_result(self) -> None:
        self._dispatcher.take_ended()
        result = self._final_result()
        if result is not None:
            self._store.set_result(self._claim, result)

    def _release(self) -> None:
        """Give the sweep back with its result, in its final state.

        Keeps trying while the store is away: nobody finds the result out after the end.
        """
        last_try = time.monotonic() + (3.0 if self._leaving.is_set() else 600.0)
        has_result = False
        while True:
            try:
                if not has_result:
                    self._store_result()
                    has_result = True
                sweep = self._store.get_sweep(self._claim.sweep_id)
                state, reason = self._outcome(sweep)
                if self._store.release(self._claim, state, reason, seen=sweep):
                    return
            except StoreUnavailable:
                if time.monotonic() > last_try:
                    raise
                time.sleep(_RETRY / 4)

    def _outcome(self, sweep: Sweep) -> tuple[SweepState, str]:
        return outcome_of(
            sweep,
            self._dispatcher.stopping,
            driven=self._sweep.spec,
            finished=self._dispatcher.finished or "all done",
            has_reopened=self._dispatcher.has_reopened,
        )


def _dispatcher(
    store: Store,
    claim: Claim,
    writer: StoreWriter,
    plan: SweepPlan,
    sweep: Sweep,
    home: Path,
    data_home: str | None,
    share: Share,
    machines: Machines,
) -> Dispatcher:
    gpus = plan.resources.gpus
    return Dispatcher(
        store,
        claim,
        plan.proposer,
        writer,
        places=Places(home.resolve(), claim.sweep_id, data_home),
        scheduler=plan.scheduler,
        limits=Limits(plan.budget, gpus=gpus, started_at=sweep.started_at, per_trial=plan.limits),
        objectives=plan.objectives,
        share=share,
        device="cuda" if gpus > 0 else "cpu",
        trials_per_gpu=plan.resources.trials_per_gpu,
        training=sweep.training,
        package=sweep.package,
        parts=sweep.parts,
        machine=machines.expected,
        lookahead=plan.lookahead,
    )


class Announcer:
    """Prints the shape of the cluster, a line of JSON for the runner, whenever it changes."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self._printed = ""

    def __call__(self) -> None:
        """Print what was last seen, if there is news. Raises OSError once the runner is gone."""
        shape = json.dumps(self._machines.seen().to_json())
        if shape != self._printed:
            print(shape, flush=True)
            self._printed = shape


def leave_process(code: int) -> None:
    """End this process now: threads and Ray's own exit hooks could keep it for half a minute."""
    logging.shutdown()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _by_reference(reference: str) -> Trainable:
    """Import ``module:function``. An operator's setting; no client chooses code."""
    module, _, name = reference.partition(":")
    trainable: Trainable = getattr(importlib.import_module(module), name)
    return trainable


def main(arguments: list[str] | None = None) -> int:
    """Drive one sweep that a runner has claimed.

    Without --sweep: load what a driver needs, connect to the cluster, and wait for a line
    {"sweep": id, "token": n, "owner": name} on standard input. The seconds until a worker has
    imported torch then pass before there is work.
    """
    parser = argparse.ArgumentParser(description=main.__doc__)
    add_store(parser)
    parser.add_argument("--home", type=Path, required=True, help="NDSWEEP_HOME")
    parser.add_argument("--data", help="folder of prepared data sets")
    parser.add_argument("--sweep", help="id of the sweep")
    parser.add_argument("--token", type=int, default=0, help="token of the claim")
    parser.add_argument("--owner", default="", help="who claimed it")
    parser.add_argument("--trainable", help="module:function to run instead of training")
    options = parser.parse_args(arguments)
    set_up("driver")
    leaving = set_by_signals(threading.Event())
    if not options.sweep and not _await_cluster(options.home, leaving):
        return NO_CLUSTER
    try:
        cluster.connect(options.home)
    except (cluster.ClusterError, ConnectionError) as error:
        log.error("%s", error)
        return NO_CLUSTER
    # Once more: connecting puts Ray's own handlers in their place, which end the process.
    set_by_signals(leaving)
    machines = Machines(options.home, options.data)
    try:
        if options.sweep:
            claim: Claim | None = Claim(options.sweep, options.token, options.owner)
        else:
            claim = _wait_for_claim(leaving, machines)
        return 0 if claim is None else _drive(options, claim, leaving, machines)
    finally:
        machines.close()


def _await_cluster(home: Path, leaving: threading.Event) -> bool:
    """Wait until a cluster listens: the local one starts beside this process, and takes longer.

    False after a minute, when the runner is gone, and when this process must leave. Prints a line
    of JSON with the cluster's address before it is called.
    """
    end = time.monotonic() + _CLUSTER_LIMIT
    while not leaving.is_set() and time.monotonic() < end:
        address = cluster.listening(home)
        if address is not None:
            print(json.dumps({"head": address}), flush=True)
            return True
        # A runner gives no sweep to one that waits: what can be read is the end.
        if select.select([sys.stdin], [], [], 0.3)[0]:
            return False
    log.info("no cluster listens yet")
    return False


def _wait_for_claim(leaving: threading.Event, machines: Machines) -> Claim | None:
    """Read the claim from standard input; None if it is closed or this process must leave.

    Prints the shape of the cluster, a line of JSON, now and whenever it changes.
    """
    # Loaded ahead of need.
    import sweeps.driver.ray_tune
    import sweeps.search.optuna_samplers  # noqa: F401

    announce = Announcer(machines)
    while not leaving.is_set():
        machines.shape()
        try:
            announce()
        except BrokenPipeError:
            # Its runner is gone: nobody will give it a sweep.
            return None
        if select.select([sys.stdin], [], [], 1.0)[0]:
            line = sys.stdin.readline()
            if not line.strip():
                return None
            given = json.loads(line)
            return Claim(given["sweep"], given["token"], given["owner"])
    return None


def _drive(
    options: argparse.Namespace,
    claim: Claim,
    leaving: threading.Event,
    machines: Machines | None = None,
) -> int:
    add_process_ids(sweep=claim.sweep_id)
    try:
        driver = _driver(options, claim, leaving, machines)
    except LeaseLost:
        return TAKEN
    except StoreUnavailable as error:
        log.error("%s", error)
        return NO_STORE
    if driver is None:
        return 0
    driver.run()
    return driver.exit_code


def _driver(
    options: argparse.Namespace,
    claim: Claim,
    leaving: threading.Event,
    machines: Machines | None,
) -> Driver | None:
    """The driver of a claim; None for a sweep that it ended, as each of this version would die."""
    store = Store(options.store)
    try:
        driver = Driver(
            store,
            claim,
            options.home,
            data_home=options.data,
            machines=machines,
            trainable=_by_reference(options.trainable) if options.trainable else None,
            leaving=leaving,
            on_end=lambda: leave_process(driver.exit_code),
        )
    except ValidationError as error:
        reason = f"its spec is none that this version runs: {in_words(error)}"
        store.release(claim, SweepState.FAILED, reason)
        return None
    return driver


def _run() -> int:
    try:
        return main()
    except Exception:
        log.exception("the driver failed")
        return FAULT


if __name__ == "__main__":
    leave_process(_run())
