"""The end of a local cluster: whatever its processes start meanwhile ends with them."""

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from sweeps.cluster import sessions
from tests.sweeps.stack import is_running

#: Leads a session; does not end when it is told to, and starts a process for each line it reads.
PARENT = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in sys.stdin:
    print(subprocess.Popen(["sleep", "3600"]).pid, flush=True)
"""


@pytest.fixture
def parent() -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [sys.executable, "-S", "-c", PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        yield process
        for member in sessions.members(process.pid):
            member.kill()


def start_child(parent: "subprocess.Popen[str]") -> int:
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write("\n")
    parent.stdin.flush()
    return int(parent.stdout.readline())


def test_a_process_that_starts_while_its_session_is_killed_is_killed_too(
    parent: "subprocess.Popen[str]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "STOP_LIMIT", 0.0)
    monkeypatch.setattr(sessions, "KILL_LIMIT", 300.0)
    children = [start_child(parent)]
    members = sessions.members

    def and_then_another(session: int) -> set[psutil.Process]:
        found = members(session)
        if parent.pid in {member.pid for member in found}:
            children.append(start_child(parent))
        return found

    monkeypatch.setattr(sessions, "members", and_then_another)
    sessions.end_session(parent.pid)

    assert len(children) > 2
    assert members(parent.pid) == set()
    assert not any(is_running(child) for child in children)
