"""Who starts the next trial on a full cluster, and who puts workers away for it."""

import pytest

from sweeps.cluster.capacity import ClusterShape, NodeShape
from sweeps.cluster.fair_share import IDLE, IDLE_WANTED, LEFT, TURN, Share, View
from sweeps.records import Demand
from sweeps.store.store import Store
from tests.sweeps.store_cases import SPEC, claimed, run, trial

US, THEM = "a" * 12, "b" * 12


def demand(sweep_id: str, running: int, waiting: int = 9, last: int = 0, **fields: float) -> Demand:
    resources = {"cpus": 1.0, "gpus": 0.0, "concurrency": None} | fields
    return Demand(sweep_id, waiting=waiting, running=running, last_start=last, **resources)  # type: ignore[arg-type]


def view(*demands: Demand, cpus: float = 2, free: float = 0, gpus: float = 0) -> View:
    return View(
        ClusterShape((NodeShape(cpus, gpus),)), ClusterShape((NodeShape(free, 0.0),)), demands
    )


def share(cpus: float = 1.0, gpus: float = 0.0, concurrency: int | None = None) -> Share:
    return Share(US, cpus, gpus, concurrency)


def test_a_sweep_alone_uses_what_fits_and_no_more_than_it_asked_for() -> None:
    alone, few = share(), share(concurrency=1)
    for one in (alone, few):
        one.look(view(demand(US, 0), cpus=3))

    assert [alone.allows(n) for n in range(5)] == [True, True, True, False, False]
    assert [few.allows(n) for n in range(2)] == [True, False]
    alone.look(view(demand(US, 3), cpus=4))
    assert alone.allows(3)
    assert alone.idle_seconds == IDLE


class Clock:
    """Seconds that pass when told to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_everybody_has_an_even_part_and_the_rest_goes_round() -> None:
    ours = share()

    ours.look(view(demand(US, 2), demand(THEM, 0)))
    assert ours.allows(0)
    assert not ours.allows(1)
    assert ours.idle_seconds == IDLE_WANTED
    ours.look(view(demand(US, 1), demand(THEM, 2), cpus=3))
    assert ours.allows(1)


def test_trials_of_its_even_part_do_not_prolong_a_turn() -> None:
    clock = Clock()
    ours = Share(US, 1.0, 0.0, None, clock)
    ours.started()
    ours.look(view(demand(US, 2), demand(THEM, 0)))
    clock.now += TURN

    for _ in range(3):
        assert not ours.allows(1)
        assert ours.allows(0)
        ours.started()


def test_on_one_place_they_take_turns() -> None:
    clock = Clock()
    ours = Share(US, 1.0, 0.0, None, clock)
    beside = view(demand(US, 0, last=5), demand(THEM, 0, last=9), cpus=1)
    ours.look(beside)
    assert ours.allows(0)

    ours.started()
    ours.look(beside)
    assert ours.allows(0), "a turn is worth the start of a worker"
    clock.now += TURN
    assert not ours.allows(0)
    # The other has started since, and is asked to give way in its turn.
    later = demand(THEM, 1, last=10**17)
    ours.look(view(demand(US, 0), later, cpus=1))
    assert ours.allows(0)
    ours.started()
    ours.look(view(demand(US, 1), demand(THEM, 0, last=10**15), cpus=1))
    assert ours.allows(0)


@pytest.mark.parametrize(
    "other",
    [
        demand(THEM, 0, waiting=0),
        demand(THEM, 1, concurrency=1),
        demand(THEM, 0, cpus=64.0),
        demand(THEM, 0, gpus=1.0),
    ],
    ids=["wants nothing", "has all it asked for", "never fits", "wants what we do not have"],
)
def test_nobody_gives_way_to_a_sweep_that_gains_nothing(other: Demand) -> None:
    ours = share()
    ours.look(view(demand(US, 2), other, gpus=1))

    assert ours.allows(1)


def test_nobody_gives_way_while_there_is_room() -> None:
    ours = share()
    ours.look(view(demand(US, 2), demand(THEM, 0, waiting=1), cpus=4, free=2))

    assert ours.allows(2)


def test_a_place_that_was_given_up_is_not_taken_back_before_the_other_has_it() -> None:
    clock = Clock()
    ours = Share(US, 1.0, 0.0, None, clock)
    ours.started()
    clock.now += TURN
    given_up = view(demand(US, 1), demand(THEM, 0), free=1)

    ours.look(given_up)
    assert ours.allows(0)
    assert not ours.allows(1)
    clock.now += LEFT - 1
    ours.look(given_up)
    assert not ours.allows(1)

    clock.now += 1
    ours.look(given_up)
    assert ours.allows(1), "the other cannot take it, whatever the reason"
    ours.look(view(demand(US, 2), demand(THEM, 0)))
    ours.look(given_up)
    clock.now += TURN
    assert not ours.allows(1), "another place is another chance"


def test_the_store_knows_who_wants_what(store: Store) -> None:
    spec = SPEC | {"resources": {"cpus": 2, "gpus": 0.5}, "concurrency": 3}
    claim = claimed(store, spec=spec)
    store.add_trials(claim, [trial(0), trial(1)])
    run(store, claim, 0, 0.5)

    (only,) = store.demands()

    started = store.trial(claim.sweep_id, 0).started_at
    assert started is not None
    assert only == Demand(claim.sweep_id, 2.0, 0.5, 3, 1, 0, round(started.timestamp() * 1e6))
    store.request(claim.sweep_id, "pause")
    assert store.demands() == []
