"""A claimed sweep with a dispatcher and hand-made workers instead of Ray's."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sweeps.driver.dispatcher import Dispatcher
from sweeps.driver.limits import Limits
from sweeps.driver.plan import plan
from sweeps.driver.run import Run
from sweeps.driver.store_writer import StoreWriter
from sweeps.records import Claim, Sweep, SweepState, Trial
from sweeps.retention.places import Places
from sweeps.store.store import Store
from tests.sweeps.store_cases import LEASE
from tests.sweeps.sweep_cases import sweep_spec

Result = dict[str, Any]
#: Seconds until endings must be written; generous, for a disk that does other things beside.
PATIENCE = 300.0


def result(step: int, error: float | None, status: str = "running", **fields: Any) -> Result:
    """What a trainable hands to Tune."""
    metrics = {} if error is None else {"validation_error": error}
    report = {"step": step, "num_steps": 100, "status": status, "metrics": metrics}
    return {"report": report | fields, "objective": 0.0}


class Driving:
    """A claimed sweep with a dispatcher, and the moves of a worker."""

    def __init__(self, store: Store, home: Path, sweep: Sweep, claim: Claim | None = None) -> None:
        self.store = store
        #: Seconds by which the clock of limits is ahead of the machine's.
        self.ahead = 0.0
        claim = claim or store.claim("runner-1", LEASE)
        assert claim is not None
        assert claim.sweep_id == sweep.id
        self.claim: Claim = claim
        self.failures: list[Exception] = []
        self.writer = StoreWriter(store, claim, self.failures.append)
        how = plan(store, sweep)
        self.places = Places(home, sweep.id)
        self.dispatcher = Dispatcher(
            store,
            claim,
            how.proposer,
            self.writer,
            places=self.places,
            scheduler=how.scheduler,
            limits=Limits(
                how.budget,
                gpus=0,
                started_at=None,
                per_trial=how.limits,
                clock=lambda: time.time() + self.ahead,
            ),
            objectives=how.objectives,
            lookahead=how.lookahead,
        )
        self.dispatcher.replay()

    def start(self) -> Run:
        run = self.dispatcher.next()
        assert run is not None
        self.dispatcher.started(run)
        return run

    def finish(self, run: Run, error: float = 0.5) -> None:
        self.dispatcher.report(run, result(100, error, "complete"))
        self.dispatcher.ended(run)

    def trial(self, number: int) -> Trial:
        """The trial once all that is known of it is written."""
        self.dispatcher.take_ended(PATIENCE)
        return self.store.trial(self.claim.sweep_id, number)

    def all_trials(self) -> list[Trial]:
        self.dispatcher.take_ended(PATIENCE)
        return list(self.store.all_trials(self.claim.sweep_id))

    def leave(self, state: SweepState = SweepState.QUEUED) -> None:
        self.writer.close(PATIENCE)
        self.store.release(self.claim, state, "")


Drive = Callable[..., Driving]


@pytest.fixture
def store(sqlite_store: Store) -> Store:
    """SQLite alone: nothing here depends on the database."""
    return sqlite_store


@pytest.fixture
def drive(store: Store, tmp_path: Path) -> Iterator[Drive]:
    """Queues a sweep of a spec and drives it; without fields, drives the one that is queued."""
    drivings: list[Driving] = []

    def start(**fields: Any) -> Driving:
        if fields or not store.list_sweeps().items:
            spec = sweep_spec(**fields)
            store.create_sweep(
                "sweep", spec.model_dump(mode="json"), name="s", num_trials=spec.num_trials()
            )
        (sweep,) = store.list_sweeps().items
        drivings.append(Driving(store, tmp_path, sweep))
        return drivings[-1]

    yield start
    for driving in drivings:
        driving.writer.close(PATIENCE)
