"""A second machine of the Ray cluster, on this machine: its own session and temporary folder."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.sweep.parts import import_path
from sweeps.cluster import head as cluster
from sweeps.cluster.sessions import end_session
from tests.faults.processes import PATIENCE, in_session, kill, until
from tests.faults.serve import WORKLOAD

#: Environment of a local head that nodes may join, and of these.
OPEN = {cluster.ELSEWHERE: "1"}


class Node:
    """A Ray node with one CPU that joined the head of a home."""

    def __init__(self, home: Path, code: Path | None = None) -> None:
        """``code``: folder of packages that are found there first."""
        head = json.loads((home / "ray.json").read_text())
        self.folder = Path(tempfile.mkdtemp(prefix="ndn-", dir="/tmp"))
        token = Path(head["token_path"])
        command = [sys.executable, "-m", "ray.scripts.scripts", "start"]
        command += [f"--address={head['address']}", "--num-cpus=1", "--num-gpus=0"]
        command += ["--disable-usage-stats", "--include-log-monitor=false"]
        command += ["--object-store-memory=100000000"]
        environment = os.environ | cluster._head_environment(self.folder, token, WORKLOAD)
        environment |= OPEN
        if code is not None:
            environment["PYTHONPATH"] = f"{code}{os.pathsep}{import_path()}"
        # Seconds that it looks for the head; by itself it gives up after twenty.
        environment |= {"RAY_gcs_server_port_wait_time_s": str(int(PATIENCE))}
        with (self.folder / "start.log").open("wb") as log:
            starter = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        self.session = starter.pid
        try:
            assert starter.wait(PATIENCE) == 0, (self.folder / "start.log").read_text()[-2000:]
        except BaseException:
            self.stop()
            starter.wait()
            raise

    def raylet(self) -> int:
        """The process that makes it a node; those that it is about to start look alike."""
        return next(pid for pid in in_session(self.session) if "raylet/raylet" in _name(pid))

    def kill(self) -> None:
        """SIGKILL its raylet, as a machine that loses power; nothing of it may stay."""
        kill(self.raylet())
        until(lambda: not in_session(self.session), "the node's processes end with it")
        shutil.rmtree(self.folder, ignore_errors=True)

    def stop(self) -> None:
        """End it at the end of the tests."""
        end_session(self.session)
        shutil.rmtree(self.folder, ignore_errors=True)


def _name(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""
