"""Signals set an event and earlier handlers come back; pauses double; files are whole."""

import os
import signal
import stat
import threading
from itertools import islice

import pytest

from worker.atomic_file import whole_file
from worker.pauses import pauses
from worker.process.stop_signal import STOP_SIGNALS, handled, set_by_signals, stop_requested


@pytest.fixture
def heard():
    """Signals that reach the handlers of before, in the order of their arrival."""
    numbers = []
    before = {n: signal.signal(n, lambda number, _: numbers.append(number)) for n in STOP_SIGNALS}
    yield numbers
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_is_a_request_while_entered_and_what_it_was_before_afterwards(number, heard):
    with stop_requested() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        assert stop.is_set()
    assert heard == []

    os.kill(os.getpid(), number)

    assert heard == [number]


def test_once_noted_the_second_of_a_signal_acts_as_outside(heard):
    with stop_requested(once=True) as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_set()
        assert heard == []
        os.kill(os.getpid(), signal.SIGTERM)  # the first of its own
        assert heard == []
        os.kill(os.getpid(), signal.SIGINT)

    assert heard == [signal.SIGINT]


def test_handlers_come_back_after_an_error(heard):
    with (
        pytest.raises(KeyboardInterrupt),
        handled(signal.default_int_handler, [signal.SIGTERM]),
    ):
        os.kill(os.getpid(), signal.SIGTERM)

    os.kill(os.getpid(), signal.SIGTERM)
    assert heard == [signal.SIGTERM]


def test_an_event_set_by_signals_stays_connected_and_leaves_other_signals_alone(heard):
    stop = set_by_signals(threading.Event(), [signal.SIGTERM])

    os.kill(os.getpid(), signal.SIGINT)
    assert not stop.is_set()
    os.kill(os.getpid(), signal.SIGTERM)

    assert stop.is_set()
    assert heard == [signal.SIGINT]


def test_only_the_main_thread_may_ask():
    refused = []

    def ask():
        with pytest.raises(ValueError, match="main thread"), stop_requested():
            pass
        refused.append(True)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()

    assert refused


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (0.5, 30.0, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]),
        (1.0, 1.0, [1.0, 1.0]),
    ],
)
def test_pauses_double_up_to_the_last(first, last, expected):
    assert list(islice(pauses(first, last), len(expected))) == expected


def test_a_private_file_is_private_from_its_first_byte(tmp_path):
    path = tmp_path / "new" / "token"
    with whole_file(path, mode=0o600) as file:
        (draft,) = path.parent.iterdir()
        file.write(b"secret")
        assert stat.S_IMODE(draft.stat().st_mode) == 0o600

    assert path.read_bytes() == b"secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(("replace", "left"), [(True, b"second"), (False, b"first")])
def test_a_file_that_is_there_is_replaced_or_kept(replace, left, tmp_path):
    path = tmp_path / "one"
    for text in (b"first", b"second"):
        with whole_file(path, replace=replace) as file:
            file.write(text)

    assert path.read_bytes() == left
    assert [file.name for file in tmp_path.iterdir()] == ["one"]
