"""Children are restarted, end with their parent, and leave nothing behind."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from service.supervision import processes
from service.supervision.processes import Child, descendants

#: Seconds; generous, for a machine that does other things beside.
PATIENCE = 120.0


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)
    return found


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


GRANDCHILD = "import time; time.sleep(600)"
CHILD = f"""
import pathlib, subprocess, sys, time
process = subprocess.Popen([sys.executable, "-c", {GRANDCHILD!r}], start_new_session=True)
pathlib.Path("grandchild").write_text(str(process.pid))
time.sleep(600)
"""
PARENT = f"""
import pathlib, signal, sys, time
from service.supervision.processes import Child, adopt_orphans, kill_descendants
adopt_orphans()
child = Child("one", [sys.executable, "-c", {CHILD!r}], pathlib.Path("one.log"))
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
child.start_if_due()
pathlib.Path("child").write_text(str(child.pid))
while not stop:
    time.sleep(0.05)
kill_descendants(60)
"""


@pytest.fixture
def parent(tmp_path):
    """A process that looks after a child which starts a grandchild in a session of its own."""
    process = subprocess.Popen([sys.executable, "-c", PARENT], cwd=tmp_path)
    yield process
    process.kill()
    process.wait()
    # Where the test did not come that far: it outlives everybody.
    with contextlib.suppress(OSError, ValueError):
        grandchild = int((tmp_path / "grandchild").read_text())
        if GRANDCHILD.encode() in Path(f"/proc/{grandchild}/cmdline").read_bytes():
            os.kill(grandchild, signal.SIGKILL)


def pids(folder):
    def read():
        files = [folder / name for name in ("child", "grandchild")]
        if all(path.exists() and path.read_text() for path in files):
            return [int(path.read_text()) for path in files]
        return None

    return wait_for(read)


def test_everything_below_is_ended_even_a_grandchild_whose_own_parent_died(parent, tmp_path):
    child, grandchild = pids(tmp_path)
    os.kill(child, signal.SIGKILL)
    wait_for(lambda: not is_alive(child))
    assert is_alive(grandchild)

    parent.terminate()

    assert parent.wait(PATIENCE) == 0
    assert not is_alive(grandchild)


def test_a_child_ends_when_its_parent_is_killed(parent, tmp_path):
    child, grandchild = pids(tmp_path)

    parent.kill()

    wait_for(lambda: not is_alive(child))
    os.kill(grandchild, signal.SIGKILL)  # nobody is left to do it


def test_a_child_that_dies_waits_longer_each_time_until_it_has_lived_a_while(tmp_path, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(processes.time, "monotonic", lambda: now)
    child = Child("quick", ["true"], tmp_path / "quick.log")
    pauses = []
    for _ in range(8):
        child.start_if_due()
        assert child.process is not None
        child.process.wait()
        child.note_end(0)
        child.start_if_due()
        assert child.process is None  # not due yet
        pauses.append(child._not_before - now)
        now = child._not_before

    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert child.restarts == 8

    child.start_if_due()
    child.process.wait()
    now += 60.0
    child.note_end(0)
    assert child._not_before - now == 0.5


def test_what_a_child_prints_is_appended_to_its_log(tmp_path):
    path = tmp_path / "echo.log"
    path.write_text("before\n")
    child = Child("echo", ["echo", "hello"], path, env={"A": "1"})

    child.start_if_due()
    child.process.wait()

    assert path.read_text() == "before\nhello\n"


def test_descendants_are_found_through_generations():
    code = "import subprocess, sys; subprocess.run(['sleep', '600'])"
    with subprocess.Popen([sys.executable, "-c", code]) as child:
        try:
            found = wait_for(lambda: descendants(child.pid))
        finally:
            for pid in [*descendants(child.pid), child.pid]:
                os.kill(pid, signal.SIGKILL)

    assert len(found) == 1
