"""``ndsweep serve`` with real processes: up, restarted, and gone without a trace."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import psutil
import pytest

from service.client.client import Client
from service.settings import Settings, is_loopback
from service.supervision import supervisor
from service.supervision.home import Endpoints, read_endpoints
from service.supervision.processes import descendants
from tests.turns import Turns

pytestmark = pytest.mark.stack

NDSWEEP = [sys.executable, "-m", "service"]
#: Seconds; generous, for a machine that does other things beside.
PATIENCE = 180.0


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.1)
    return found


def mentions(text):
    """Command lines of living processes that hold ``text``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line and int(entry.parent.name) != os.getpid():
            found.append(line)
    return found


def part(pid, name):
    """Process id of the part of a service whose command line holds ``name``."""
    for child in descendants(pid):
        try:
            line = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if name in line:
            return child
    return None


def cpu_seconds(pid):
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def listens(host, port):
    with socket.socket() as client:
        return client.connect_ex((host, port)) == 0


def listeners(pid):
    """Addresses at which the processes of a service listen, of every part."""
    found = [
        connection.laddr.ip.removeprefix("::ffff:")
        for one in [pid, *descendants(pid)]
        for connection in psutil.Process(one).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(found) > 6  # API, MLflow, and Ray's processes
    return found


def answers(url):
    with Client(url) as client:
        return client.is_ready()


def end(process):
    """SIGTERM, and SIGKILL of all of it where that does not help."""
    process.terminate()
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        for pid in descendants(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.kill()
        return process.wait()


@pytest.fixture
def serve(home, data, monkeypatch, held_port):
    """Start ``ndsweep serve`` on the test's home; whatever happens, it is gone afterwards."""
    started = []
    # MLflow binds its port seconds after it was chosen: another test beside may take the usual one.
    monkeypatch.setenv("NDSWEEP_MLFLOW_PORT", str(held_port))

    def start():
        process = subprocess.Popen([*NDSWEEP, "serve"], stdout=subprocess.DEVNULL)
        started.append(process)
        endpoints = wait_for(lambda: read_endpoints(home))
        wait_for(lambda: answers(endpoints.url))
        return process, endpoints

    yield start
    for process in started:
        end(process)


def test_serve_brings_everything_up_restarts_what_dies_and_ends_all_of_it(serve, home, store):
    process, endpoints = serve()

    assert endpoints.pid == process.pid
    # Seconds of a core until the API answers, which others on the machine have no part in.
    assert sum(cpu_seconds(one) for one in (process.pid, part(process.pid, "service.api"))) < 10
    # A second one on the same home says who is there.
    second = subprocess.run([*NDSWEEP, "serve"], capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert f"{endpoints.url} (process {process.pid})" in second.stderr
    # The rest comes up beside it: a runner that sees a cluster, and MLflow on loopback alone.
    runner = wait_for(lambda: next((r for r in store.runners() if r.info.get("cluster")), None))
    assert runner.info["cluster"]["nodes"]
    port = int(endpoints.mlflow_url.rpartition(":")[2])
    wait_for(lambda: listens("127.0.0.1", port))
    # Nothing that it started can be reached from another machine.
    assert {is_loopback(ip) for ip in listeners(process.pid)} == {True}
    # Nobody else reads what it keeps, and no command line names its store.
    assert home.stat().st_mode & 0o777 == 0o700
    kept = [home / name for name in ("endpoints.json", "serve.lock", "ray.json", "logs/api.log")]
    assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}
    assert mentions("sqlite:///" + str(home / "store.db")) == []
    # A part that is killed comes back; the API's port was never closed to anybody.
    api = part(process.pid, "service.api")
    os.kill(api, signal.SIGKILL)
    with httpx2.Client(base_url=endpoints.url, timeout=PATIENCE) as client:
        assert client.get("/api/v1/sweeps").json()["items"] == []
    assert part(process.pid, "service.api") not in (None, api)
    # SIGTERM ends every process within ten seconds.
    below = descendants(process.pid)
    assert len(below) >= 4
    with Turns([process.pid, *below]) as stopping:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert stopping.seconds < 10.5
    assert not [pid for pid in below if Path(f"/proc/{pid}").exists()]
    assert mentions(str(home)) == []
    assert read_endpoints(home) is None


def test_ctrl_c_while_everything_is_still_starting_ends_it_too(serve, home):
    process, _ = serve()

    process.send_signal(signal.SIGINT)

    assert process.wait(PATIENCE) == 0
    assert mentions(str(home)) == []


def test_a_second_ctrl_c_does_not_cut_the_stopping_short(home, data, monkeypatch):
    stopped = []

    def stop(children):
        signal.raise_signal(signal.SIGINT)
        stopped.append(children)

    monkeypatch.setattr(supervisor, "adopt_orphans", lambda: None)
    monkeypatch.setattr(supervisor, "stop", stop)

    supervisor.serve(
        Settings(home=home, data=data, port=0), lambda _: signal.raise_signal(signal.SIGINT)
    )

    assert len(stopped) == 1
    assert read_endpoints(home) is None


@pytest.mark.parametrize("command", [["serve", "--only", "api"]])
def test_one_part_runs_alone_in_the_foreground(command, home, data, held_port):
    process = subprocess.Popen([*NDSWEEP, *command, "--port", str(held_port)])
    try:
        wait_for(lambda: answers(f"http://127.0.0.1:{held_port}"))
    finally:
        code = end(process)

    assert code == 0
    assert mentions(str(home)) == []


def test_endpoints_are_written_in_one_go(home):
    from service.supervision.home import write_endpoints

    write_endpoints(home, Endpoints(1, "http://a", "http://b"))

    assert json.loads((home / "endpoints.json").read_text()) == {
        "pid": 1,
        "url": "http://a",
        "mlflow_url": "http://b",
    }
