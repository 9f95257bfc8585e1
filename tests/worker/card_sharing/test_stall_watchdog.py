"""Who holds up the runs that share a thread, and that it is noticed."""

import threading
import time

import pytest
import torch

from worker.card_sharing.round_robin import RoundRobin, _Lane
from worker.card_sharing.stall_watchdog import StallWatchdog
from worker.steps.turns import Turn

CPU = torch.device("cpu")
#: Seconds; generous, for a machine that does other things beside.
PATIENCE = 60.0


@pytest.fixture(autouse=True)
def armed(monkeypatch):
    """Seconds after which this process was to end unless the watch looks again."""
    seconds = []
    monkeypatch.setattr(
        "worker.card_sharing.stall_watchdog.faulthandler.dump_traceback_later",
        lambda after, exit: seconds.append(after) if exit else None,
    )
    return seconds


@pytest.fixture
def watching(armed):
    """Starts a watch that ends with its test: one that goes on would end this process for real."""
    watches = []

    def start(held, on_stuck, limit):
        watches.append(watch := StallWatchdog(held, on_stuck, limit=limit))
        watch.start()
        return watch

    yield start
    for watch in watches:
        watch.end()
        watch.join(PATIENCE)


def test_the_first_of_those_that_stay_is_to_blame_and_only_once(armed, watching):
    stuck, seen = [], threading.Event()
    begin = time.monotonic()
    watch = watching(
        lambda: [("changes", time.monotonic()), ("turn", 1.0), ("lane", 0.5)],
        lambda key: (stuck.append(key), seen.set()),
        limit=0.2,
    )

    assert seen.wait(PATIENCE)
    watch.join(PATIENCE)

    assert stuck == ["turn"]
    assert time.monotonic() - begin >= 0.2
    # Renewed in each look: a thread that keeps Python's lock is not looked at.
    assert armed == [0.4] * len(armed)
    assert len(armed) > 10


def test_turns_that_change_are_nobodys_fault(watching):
    stuck, looks = [], []
    many = threading.Event()

    def held():
        looks.append(0)
        if len(looks) > 30:
            many.set()
        return [("run", float(len(looks) // 5))]

    watch = watching(held, stuck.append, limit=0.1)
    assert many.wait(PATIENCE)
    watch.end()
    watch.join(PATIENCE)

    assert stuck == []


def test_a_run_is_held_to_have_the_turn_while_it_has_it():
    seen = []

    def turns():
        for _ in range(2):
            seen.append([key for key, _ in runs.held()])
            yield Turn.NEXT

    runs = RoundRobin(CPU, on_report=lambda *_: None, on_end=lambda *_: None)
    runs.add("a", turns)
    runs.add("b", turns)
    while runs.turn():
        assert runs.held() == []

    assert seen == [["a"], ["b"], ["a"], ["b"]]


class Queue:
    """Stands for a stream: a mark is passed when the test says so."""

    def __init__(self):
        self.passed = set()
        self.marks = []

    def record_event(self):
        self.marks.append(mark := Mark(self, len(self.marks)))
        return mark


class Mark:
    def __init__(self, queue, number):
        self.queue, self.number = queue, number

    def query(self):
        return self.number in self.queue.passed


def test_a_card_that_gets_on_begins_anew_with_each_turn(monkeypatch):
    monkeypatch.setattr(torch.cuda, "stream", lambda _: torch.no_grad())
    lane = _Lane(CPU)
    lane._stream = queue = Queue()
    assert lane.since is None
    for _ in range(2):
        with lane.in_use():
            pass
    first = lane.since

    assert lane.waiting() == 2
    assert lane.since == first
    queue.passed.add(0)
    assert lane.waiting() == 1
    assert lane.since > first
    queue.passed.add(1)
    assert lane.waiting() == 0
    assert lane.since is None


def test_a_card_that_gets_on_with_anybodys_work_is_not_stuck():
    runs = RoundRobin(CPU, on_report=lambda *_: None, on_end=lambda *_: None)
    for key in "abc":
        runs.add(key, lambda: iter(()))
    a, b, _ = (running.lane for running in runs._running)
    assert runs.held() == []

    a.since, b.since = 3.0, 7.0
    assert runs.held() == [("a", 7.0)]
    runs._turn = ("c", 8.0)
    assert runs.held() == [("c", 8.0), ("a", 7.0)]
