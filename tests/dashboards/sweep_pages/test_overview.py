"""The cards above a sweep: what is trained, and how far the best point is to be trusted."""

from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from dashboards.sweep_pages.overview import best_fact, sweep_facts
from sweeps.records import Sweep, SweepState
from sweeps.store.store import Store
from tests.dashboards import seeding
from tests.dashboards.conftest import Seeded
from tests.dashboards.page_reading import open_page


@pytest.fixture
def sweep(seeded: Seeded) -> Sweep:
    return seeded.store.get_sweep(seeded.sweep)


def with_base(sweep: Sweep, base: dict[str, Any], space: dict[str, Any] | None = None) -> Sweep:
    return replace(sweep, spec={**sweep.spec, "base": base, "space": space or {}})


def card(sweep: Sweep, label: str) -> tuple[str, str] | None:
    """Value and detail of one card; None if it is not there."""
    found = [fact for fact in sweep_facts(sweep) if fact.label == label]
    return (str(found[0].value), str(found[0].detail)) if found else None


CHOICE = {"kind": "choice", "values": ["wrn", "mlp"]}


class TestData:
    @pytest.mark.parametrize(
        ("base", "space", "shown"),
        [
            ({}, {}, ("cifar10", "WRN-22-7.5")),
            ({"dataset": "digits", "depth": 10, "widen_factor": 1.0}, {}, ("digits", "WRN-10-1")),
            (
                {"dataset": "digits", "network": "mlp", "depth": 2, "widen_factor": 1.5},
                {},
                ("digits", "MLP, 2 × 96 units"),
            ),
            ({"network": "own-net", "depth": 4}, {}, ("cifar10", "own-net")),
            ({"dataset": "digits"}, {"network": CHOICE}, ("digits", "wrn or mlp")),
            (
                {"dataset": "digits"},
                {"depth": {"kind": "choice", "values": [10, 16]}},
                ("digits", "wrn, depth varied"),
            ),
        ],
    )
    def test_the_card_names_the_network_that_is_trained(
        self, sweep: Sweep, base: dict[str, Any], space: dict[str, Any], shown: tuple[str, str]
    ) -> None:
        assert card(with_base(sweep, base, space), "Data") == shown

    def test_another_training_names_itself_and_its_package(self, sweep: Sweep) -> None:
        # Also with fields that are called like those of images.
        spec = {"training": "trees", "base": {"depth": 3, "network": "wrn"}}
        packaged = {**spec, "package": {"name": "my-trees", "version": "1.2"}}

        assert card(replace(sweep, spec={**sweep.spec, **spec}), "Data") is None
        assert card(replace(sweep, spec=packaged), "Training") == ("trees", "my-trees 1.2")


class TestBest:
    @pytest.mark.parametrize(
        ("state", "n", "chip", "words"),
        [
            (SweepState.RUNNING, 1, "provisional", "1 of 3 seeds so far"),
            (SweepState.PAUSED, 2, "provisional", "2 of 3 seeds so far"),
            (SweepState.RUNNING, 3, "selected", "n = 3"),
            # The other seed failed: no more is to come.
            (SweepState.COMPLETE, 2, "selected", "n = 2"),
        ],
    )
    def test_it_is_provisional_until_every_seed_has_ended(
        self, sweep: Sweep, state: SweepState, n: int, chip: str, words: str
    ) -> None:
        assert sweep.best is not None
        fact = best_fact(replace(sweep, state=state, best={**sweep.best, "n": n}))

        assert fact.chip == chip
        assert words in str(fact.detail)

    def test_every_part_of_the_pages_says_so(
        self, empty_client: TestClient, empty_store: Store
    ) -> None:
        with seeding.stopped_clock(600) as clock:
            sweep = seeding.create(empty_store, "begun", num_points=2)
            claimed = seeding.claim(empty_store)
            params = {"optimizer": "ndadam", "alpha_v": 0.05, "alpha_s": 0.01, "gamma_c": 2.5}
            first, *_ = empty_store.add_trials(claimed, seeding.new_trials(0, params))
            seeding.train(empty_store, claimed, first.number, params, first.seed, clock)

        page = empty_client.get(f"/sweeps/{sweep}").text
        tables = open_page(empty_client, f"/sweeps/{sweep}").tables

        assert "1 of 3 seeds so far" in page
        assert "selected</span>" not in page
        assert tables["Leaderboard"][1][0] == "0 provisional"
        assert "provisional" in open_page(empty_client, "/").tables["Sweeps"][1][3]

    def test_two_seeds_that_differ_much_show_no_error_below_zero(self, sweep: Sweep) -> None:
        best = {"point": 1, "params": {}, "mean": 0.0538, "sd": 0.012276, "n": 2}

        fact = best_fact(replace(sweep, best=best))

        assert str(fact.value) == "5.38 (0.65 to 33.17)\N{NARROW NO-BREAK SPACE}%"
