"""What requests ask of the store: a fixed number of statements, however much it holds."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from service.api import readiness
from service.api.access import callers
from sweeps.records import SweepState

SWEEPS = "/api/v1/sweeps"
#: Sweeps beside those that a test is about.
MANY = 30


@pytest.fixture
def statements(store, client, monkeypatch) -> Callable[[], Iterator[list[str]]]:
    """Context manager: the first words of what the database is asked meanwhile, in order.

    Without the looks whether there are tokens by now, and how the service does, which come once
    in a while.
    """
    monkeypatch.setattr(callers, "OPEN_SECONDS", 1e9)
    monkeypatch.setattr(readiness, "KEEP", 1e9)
    client.get("/api/v1/optimizers").raise_for_status()
    client.get("/readyz").raise_for_status()

    @contextmanager
    def watched() -> Iterator[list[str]]:
        asked: list[str] = []

        def note(_conn, _cursor, text, *_):
            asked.append(text.split(None, 1)[0].upper())

        sa.event.listen(store._engine, "before_cursor_execute", note)
        try:
            yield asked
        finally:
            sa.event.remove(store._engine, "before_cursor_execute", note)

    return watched


@pytest.fixture
def fill(client, store, spec):
    """Submits sweeps and ends them without a trial."""

    def run(count=MANY):
        for _ in range(count):
            client.post(SWEEPS, json=spec).raise_for_status()
        for _ in range(count):
            store.release(store.claim("tester"), SweepState.COMPLETE, "all done")

    return run


def test_a_submission_writes_in_one_transaction(client, spec, statements):
    with statements() as asked:
        client.post(SWEEPS, json=spec).raise_for_status()

    # The transactions of reads end before the one that writes begins, and that is the last: the
    # sweep, its tags, its event.
    writes = [place for place, word in enumerate(asked) if word in ("INSERT", "UPDATE")]
    begins = [place for place, word in enumerate(asked) if word == "BEGIN"]
    assert len(writes) == 3
    assert writes[0] > begins[-1]
    assert len(asked) <= 8, asked


@pytest.mark.parametrize("path", [f"{SWEEPS}/validate", SWEEPS])
def test_a_spec_costs_the_same_however_many_sweeps_there_are(client, spec, statements, fill, path):
    with statements() as few:
        client.post(path, json=spec).raise_for_status()
    fill()
    with statements() as many:
        client.post(path, json=spec).raise_for_status()

    assert many == few


@pytest.mark.parametrize("path", [SWEEPS, "/"])
def test_a_list_costs_the_same_however_long_it_is(client, statements, fill, path):
    fill(2)
    client.get(path).raise_for_status()
    with statements() as few:
        client.get(path).raise_for_status()
    fill()
    with statements() as many:
        client.get(path).raise_for_status()

    assert many == few
    assert len(many) <= 8, many
