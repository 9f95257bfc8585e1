"""The quickstart: finds what it trained before, and runs the whole path on real parts."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from rich.console import Console

from service.cli import quickstart as module
from service.cli.quickstart import find_or_submit
from service.client.client import Client
from sweeps.records import SweepState

ROOT = Path(__file__).parents[3]
#: Seconds; generous, for a machine that does other things beside.
PATIENCE = 900
#: Three significant digits of a rate between 0.01 and 1.
NUMBER = r"0\.\d{3,4}"


@pytest.fixture
def service(live):
    with Client(live) as client:
        yield client


def finish(store, state, result=None):
    """Take the queued sweep and end it the way a driver does."""
    claim = store.claim("driver")
    if result is not None:
        store.set_result(claim, result)
    store.release(claim, SweepState(state), "as the test wants it")


def test_the_same_spec_is_submitted_once(service, spec):
    first = find_or_submit(service, "sweep", spec)

    assert find_or_submit(service, "sweep", spec).id == first.id
    assert find_or_submit(service, "sweep", spec | {"replicates": 3}).id != first.id


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_one_that_ended_badly_stays_and_a_new_one_is_submitted(service, store, spec, state):
    first = find_or_submit(service, "sweep", spec)
    finish(store, state)

    second = find_or_submit(service, "sweep", spec)

    assert second.id != first.id
    assert find_or_submit(service, "sweep", spec).id == second.id
    assert service.get(first.id).state == state


def test_a_paused_one_goes_on(service, store, spec):
    first = find_or_submit(service, "sweep", spec)
    store.request(first.id, "pause")

    again = find_or_submit(service, "sweep", spec)

    assert (again.id, again.state) == (first.id, "queued")


def test_a_match_without_a_verdict_is_tried_again_and_one_with_it_is_kept(
    service, store, match_spec
):
    first = find_or_submit(service, "match", match_spec)
    finish(store, "complete", {"stage": "calibration", "verdict": None})
    second = find_or_submit(service, "match", match_spec)
    finish(store, "complete", {"stage": "done", "verdict": {"state": "matched"}})

    third = find_or_submit(service, "match", match_spec)

    assert first.id != second.id == third.id


def test_ctrl_c_does_not_wait_for_the_end_of_what_it_follows(
    service, spec, match_spec, monkeypatch
):
    sweep, match = service.submit(spec), service.match(match_spec)
    over, both_followed, ended = threading.Event(), threading.Barrier(3), []

    def endless(*_):
        both_followed.wait(PATIENCE)
        over.wait(PATIENCE)
        ended.append(sweep)
        return sweep

    def press():
        both_followed.wait(PATIENCE)
        # To the process, as a terminal does it: a signal to this thread would wake nobody. Again
        # until it is heard: it may come just before the wait that it is to end.
        while not over.wait(0.2):
            os.kill(os.getpid(), signal.SIGINT)

    def hear_once(*_):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "follow", endless)
    pressing = threading.Thread(target=press)
    pressing.start()
    # A process that a script starts in the background is born ignoring SIGINT.
    before = signal.signal(signal.SIGINT, hear_once)
    try:
        with pytest.raises(KeyboardInterrupt):
            module._both(service, Console(quiet=True), match, sweep)
        assert ended == []
    finally:
        over.set()
        pressing.join()
        signal.signal(signal.SIGINT, before)


@pytest.mark.stack
def test_the_quickstart_trains_once_prints_what_it_found_and_leaves_nothing_running(home):
    """Real HTTP, Ray, Optuna and MLflow, on real images; the second run trains nothing."""

    def quickstart():
        done = subprocess.run(
            [sys.executable, "-m", "tests.service.cli.short_quickstart", "quickstart", "--once"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env=os.environ | {"COLUMNS": "120", "NO_COLOR": "1"},
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    first, second = quickstart(), quickstart()

    for output in (first, second):
        for criterion in ("stationary", "least_squares", "equal_rotation", "equal_mean"):
            assert re.search(rf"{criterion}.* {NUMBER} \[{NUMBER}, {NUMBER}\]", output), output
        for arm in ("sgd", "adam", "ndadam"):
            assert re.search(rf"^ {arm} +\d+\.\d\d \(", output, re.MULTILINE), output
        for what in ("/sweeps/", "/matches/", "/docs", "/#/experiments/"):
            assert what in output
    assert "nothing was trained again" in second
    left = [
        path
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if path.parent.name != str(os.getpid()) and str(home) in _text(path)
    ]
    assert left == []


def _text(path):
    try:
        return path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
