"""What monitoring asks of the store."""

from datetime import timedelta

import pytest
import sqlalchemy as sa

from sweeps.errors import SweepNotFound
from sweeps.records import SweepState
from sweeps.store.database.people import Actor, Scope, acting_as
from sweeps.store.database.tables import metrics, sweeps
from sweeps.store.store import Store
from tests.sweeps.store_cases import LEASE, claimed, new_sweep, report, trial


def put_back(store: Store, column: sa.Column[int], by: timedelta) -> None:
    """Move every time in a column into the past."""
    change = sa.update(column.table).values({column: column - by // timedelta(microseconds=1)})
    with store._engine.begin() as conn:
        conn.execute(change)


def test_nothing_waits_in_an_empty_store(store: Store) -> None:
    waits = store.waits()

    assert (waits.queue_age, waits.lease_left, waits.mirror_lag) == (0, None, 0)
    assert store.gpu_hours() == {}


def test_the_sweep_that_has_waited_longest_counts(store: Store) -> None:
    new_sweep(store)
    put_back(store, sweeps.c.queued_at, timedelta(hours=1))
    new_sweep(store)

    assert store.waits().queue_age == pytest.approx(3600, abs=60)


def test_the_lease_that_ends_first_counts(store: Store) -> None:
    claimed(store)
    assert store.waits().lease_left == pytest.approx(LEASE, abs=60)

    put_back(store, sweeps.c.lease_until, timedelta(seconds=500))
    claimed(store)
    assert store.waits().lease_left == pytest.approx(LEASE - 500, abs=60)

    put_back(store, sweeps.c.lease_until, timedelta(seconds=LEASE))
    assert store.waits().lease_left == pytest.approx(-500, abs=60)


def test_the_mirror_is_as_far_behind_as_what_it_lacks_longest(store: Store) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial()])
    attempt = store.start_attempt(claim, 0)
    store.record(claim, 0, attempt.id, [report(10)])
    put_back(store, metrics.c.at, timedelta(hours=1))
    store.record(claim, 0, attempt.id, [report(20)])
    assert store.waits().mirror_lag == pytest.approx(3600, abs=60)

    store.mirror_sent(attempt.id, 1, "running")
    assert store.waits().mirror_lag < 60

    store.mirror_sent(attempt.id, 2, "running")
    assert store.waits().mirror_lag == 0


def test_hours_of_cards_are_counted_by_owner_as_quotas_count_them(store: Store) -> None:
    seconds = {"ada": 3600.0, "bea": 7200.0, "": 1800.0}
    for owner, spent in seconds.items():
        with acting_as(Actor(owner, Scope.SUBMIT) if owner else None):
            sweep = new_sweep(store, spec={"resources": {"gpus": 0.5}})
        with store._engine.begin() as conn:
            mine = sa.update(sweeps).where(sweeps.c.id == sweep.id)
            conn.execute(mine.values(trial_seconds=spent, state=SweepState.COMPLETE.value))

    assert list(store.gpu_hours().items()) == [("bea", 1.0), ("ada", 0.5), ("", 0.25)]
    assert store.use_of("ada").gpu_hours == 0.5

    put_back(store, sweeps.c.created_at, timedelta(days=31))
    assert store.gpu_hours() == {}


def test_transactions_are_observed_also_those_that_fail(store: Store) -> None:
    seen: list[tuple[str, float]] = []
    store.observe(lambda kind, seconds: seen.append((kind, seconds)))

    new_sweep(store)
    kinds = [kind for kind, _ in seen]
    with pytest.raises(SweepNotFound):
        store.get_sweep("000000000000")

    assert "write" in kinds
    assert [kind for kind, _ in seen[len(kinds) :]] == ["read"]
    assert all(seconds > 0 for _, seconds in seen)
