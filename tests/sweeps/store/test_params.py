"""Listings sorted by a sampled value: right in both databases, and read from an index."""

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from sweeps.errors import InvalidSort
from sweeps.records import NewTrial
from sweeps.store.store import Store
from tests.sweeps.store_cases import claimed

#: Conditional, a choice with none, words, and a list.
PARAMS: list[dict[str, Any]] = [
    {"optimizer": "sgd", "lr": 0.3, "gamma_c": None},
    {"optimizer": "ndadam", "alpha_v": 0.05, "gamma_c": 2.5, "betas": [0.9, 0.99]},
    {"optimizer": "sgd", "lr": 1, "gamma_c": 1.0},
    {"optimizer": "adam", "lr": 0.01, "gamma_c": 2.5, "betas": [0.9, 0.999]},
]


@pytest.fixture
def sweep_id(store: Store) -> str:
    claim = claimed(store)
    for point, params in enumerate(PARAMS):
        for seed in range(2):
            store.add_trials(
                claim, [NewTrial(point, seed, params, params | {"seed": seed}, f"key-{point}")]
            )
    return claim.sweep_id


def pages(listing: Any, sweep_id: str, sort: str, limit: int) -> list[int]:
    numbers: list[int] = []
    cursor = None
    while True:
        page = listing(sweep_id, sort=sort, cursor=cursor, limit=limit)
        numbers += [item.number for item in page.items]
        cursor = page.next
        if cursor is None:
            return numbers


@pytest.mark.parametrize("limit", [1, 3, 50])
@pytest.mark.parametrize(
    ("sort", "points"),
    [
        ("params.lr", [3, 0, 2, 1]),
        ("-params.lr", [2, 0, 3, 1]),
        ("params.optimizer", [3, 1, 0, 2]),
        ("params.gamma_c", [2, 1, 3, 0]),
        ("params.betas", [3, 1, 0, 2]),
        ("-params.alpha_v", [1, 3, 2, 0]),
    ],
)
def test_every_row_comes_once_in_order_and_those_without_the_value_last(
    store: Store, sweep_id: str, sort: str, points: list[int], limit: int
) -> None:
    found = pages(store.points, sweep_id, sort, limit)
    by_trial = pages(store.trials, sweep_id, sort, limit)

    both = (1, 0) if sort.startswith("-") else (0, 1)
    assert found == points
    assert by_trial == [2 * point + seed for point in points for seed in both]


def test_a_field_that_no_point_has_is_refused_with_those_there_are(
    store: Store, sweep_id: str
) -> None:
    with pytest.raises(InvalidSort, match=r"params\.lr") as refused:
        store.trials(sweep_id, sort="params.momentum")

    assert "params.alpha_v" in refused.value.allowed


# PostgreSQL reads a table of eight rows in whole, rightly.
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_the_order_comes_from_an_index_on_every_page(store: Store, sweep_id: str) -> None:
    plans: list[str] = []

    def explain(_: Any, cursor: Any, statement: str, parameters: Any, *__: Any) -> None:
        if "ORDER BY param_values" in statement:
            rows = cursor.connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            plans.append(" ".join(row[3] for row in rows))

    event.listen(store._engine, "before_cursor_execute", explain)
    pages(store.trials, sweep_id, "params.lr", 2)
    pages(store.points, sweep_id, "-params.optimizer", 2)

    assert len(plans) >= 4
    for plan in plans:
        assert "ix_param_values" in plan
        assert "TEMP B-TREE" not in plan


def test_a_store_of_the_version_before_is_filled(store: Store, sweep_id: str) -> None:
    from alembic import command

    from sweeps.store.database.schema import configuration

    engine = sa.create_engine(store.url)
    config = configuration()
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0002")
    store.migrate()
    engine.dispose()

    assert pages(store.points, sweep_id, "params.lr", 50) == [3, 0, 2, 1]
    assert pages(store.trials, sweep_id, "params.gamma_c", 50)[:2] == [4, 5]


def test_the_values_go_with_their_sweep(store: Store, sweep_id: str) -> None:
    store.claim("nobody")
    with store._writing() as write:
        write.conn.execute(sa.text("DELETE FROM sweeps"))
        left = write.conn.execute(sa.text("SELECT count(*) FROM param_values")).scalar()

    assert left == 0
