"""Attempts at a run: what is noted of each, and that a batch counts losses as a driver does."""

import time

import pytest

from sweeps.batch.results import AttemptNote, attempt_note
from sweeps.records import (
    DRIVER_LOST,
    LOST,
    MAX_ATTEMPTS,
    RUNNER_LOST,
    SUPERSEDED,
    TrialState,
    losses,
)

DIED = f"{LOST}the process ended, killed by signal 9"


def noted(*causes: str) -> list[AttemptNote]:
    """Attempts that ended so, one after the other."""
    found: list[AttemptNote] = []
    for cause in causes:
        began = time.monotonic() - 2.0
        found.append(attempt_note(found, began=began, from_step=0, exit_cause=cause))
    return found


def test_an_attempt_is_noted_with_its_number_and_its_time() -> None:
    first, second = noted("stopped in time", "complete")

    assert (first.number, second.number) == (1, 2)
    assert first.seconds == pytest.approx(2.0, abs=0.5)
    assert first.started_at < first.finished_at
    assert first.finished_at.endswith("Z")


@pytest.mark.parametrize(
    ("causes", "count"),
    [
        ([], 0),
        ([DIED], 1),
        ([DIED, "stopped in time", DIED], 2),
        (["cut off with the whole batch", "stopped in time"], 0),
    ],
    ids=["untried", "died", "stopped between two deaths", "only stopped"],
)
def test_a_batch_counts_the_processes_that_died_under_a_run(causes: list[str], count: int) -> None:
    assert losses((note.state, note.exit_cause) for note in noted(*causes)) == count


@pytest.mark.parametrize(
    ("causes", "count"),
    [
        ([DIED, DRIVER_LOST, SUPERSEDED, DIED], 2),
        ([DIED, f"{RUNNER_LOST}: the lease of a ran out at 09:12:18 UTC", DIED], 2),
        ([DIED, "ValueError: no such layer", DIED], 1),
        ([DIED] * MAX_ATTEMPTS, 0),
    ],
    ids=["its driver went", "its runner went", "failed by itself", "let run again by a person"],
)
def test_who_is_to_blame_and_what_settles_a_trial_decide_the_count(
    causes: list[str], count: int
) -> None:
    assert losses((TrialState.FAILED, cause) for cause in causes) == count
