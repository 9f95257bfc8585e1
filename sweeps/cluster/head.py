"""A local Ray cluster of our own, and the way to the one that is there.

``start`` puts one Ray head beside this product: without a dashboard page, on free ports, behind a
token, with its sockets below a short temporary folder (Ray refuses paths over 107 bytes). All of
its processes share one session, whose leader ``start`` launched; ``stop`` ends exactly these and
never another Ray of the machine. ``python -m sweeps.cluster.head --home DIR`` keeps one running.
"""

import argparse
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sweeps.cluster.capacity import usable_cpus
from sweeps.cluster.free_port import free_port
from sweeps.cluster.sessions import commands, end_session
from worker.atomic_file import whole_file
from worker.process.stop_signal import set_by_signals

#: Bytes of shared memory; reports and configs are small.
_OBJECT_STORE = 100_000_000
#: Of each log of Ray's own processes, three of each.
_RAY_LOG_BYTES = 20_000_000
#: Ray's switch for nodes on other machines; without them it listens on loopback alone. On Linux it
#: is on, whatever its name says.
ELSEWHERE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
#: Imports torch, which takes 3 s, while a worker starts and not when its first trial does.
PRELOAD = "worker.tune_trainable"
# Seconds.
_START_LIMIT = 60.0
#: A worker that no trial has used for so long ends; the next trial waits until another has started.
_IDLE_SECONDS = 60.0


class ClusterError(RuntimeError):
    """The local cluster did not start. The text ends with what Ray printed."""


@dataclass(frozen=True)
class Head:
    """A running local head, as ``ray.json`` records it."""

    #: Host and port that ``ray.init`` connects to.
    address: str
    #: Session id that all of its processes share.
    session: int
    #: Its temporary folder, removed when it stops.
    folder: str
    #: File that holds the token.
    token_path: str


def start(
    home: Path,
    *,
    num_cpus: int | None = None,
    num_gpus: int | None = None,
    preload: str = PRELOAD,
) -> Head:
    """Start the local head of ``home``, or return the one that runs already.

    ``num_cpus`` defaults to the CPUs this process may use, ``num_gpus`` to what Ray detects;
    ``preload`` is a module that each worker imports before it is needed. Raises ClusterError.
    """
    head = running(home)
    if head is not None:
        return head
    stop(home)
    home.mkdir(parents=True, exist_ok=True)
    token_path = _write_token(home)
    folder = Path(tempfile.mkdtemp(prefix="nds-", dir=_short_temp()))
    port = free_port()
    environment = _head_environment(folder, token_path, preload)
    command = _command(folder, port, num_cpus or usable_cpus(), num_gpus)
    session, host = _launch(home, folder, command, environment)
    head = Head(f"{host}:{port}", session, str(folder), str(token_path))
    _write(_info_path(home), json.dumps(asdict(head)))
    return head


def running(home: Path) -> Head | None:
    """The local head of ``home`` if all of it is alive."""
    head = _recorded(home)
    if head is None:
        return None
    alive = commands(head.session)
    whole = all(any(name in line for line in alive) for name in ("gcs_server", "raylet"))
    return head if whole else None


def recorded_address(home: Path) -> str | None:
    """Host and port of the newest local head of ``home``; None if it was stopped."""
    head = _recorded(home)
    return None if head is None else head.address


def listening(home: Path) -> str | None:
    """Address of the cluster that ``connect`` would call, if something listens there; else None.

    Loads nothing and takes a second at most: to be asked again and again while a cluster starts.
    """
    address = os.environ.get("RAY_ADDRESS") or recorded_address(home)
    if address is None:
        return None
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdigit():  # "auto", which Ray finds by itself
        return address
    try:
        socket.create_connection((host.strip("[]"), int(port)), 1.0).close()
    except OSError:
        return None
    return address


def stop(home: Path) -> None:
    """End the local head of ``home`` and every process of its session. No head: does nothing."""
    head = _recorded(home)
    if head is None:
        return
    # A session id may have been given to somebody else after a restart of the machine.
    if any(head.folder in line for line in commands(head.session)):
        end_session(head.session)
    shutil.rmtree(head.folder, ignore_errors=True)
    _info_path(home).unlink(missing_ok=True)


def connect(home: Path) -> None:
    """Connect this process to the cluster: ``RAY_ADDRESS``, or else the local head of ``home``.

    Raises ClusterError where there is neither, ConnectionError where it does not answer.
    """
    address = os.environ.get("RAY_ADDRESS")
    if not address:
        head = _recorded(home)
        if head is None:
            raise ClusterError(
                f"no Ray cluster: RAY_ADDRESS is unset and {_info_path(home)} absent"
            )
        address = head.address
        os.environ.update(_local_environment(Path(head.token_path)))
    import ray

    # Ray reads its environment when it is imported, which may have been before it was set.
    ray._raylet.Config.initialize("")
    ray._private.ray_constants.ENABLE_RAY_CLUSTER = os.environ.get(ELSEWHERE) != "0"
    ray.init(
        address=address,
        namespace="ndsweep",
        log_to_driver=False,
        logging_level="ERROR",
        ignore_reinit_error=True,
    )


def _command(folder: Path, port: int, num_cpus: int, num_gpus: int | None) -> list[str]:
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head"]
    command += [f"--port={port}", f"--dashboard-port={free_port()}", f"--num-cpus={num_cpus}"]
    command += ["--include-dashboard=false", "--disable-usage-stats", "--no-monitor"]
    command += ["--include-log-monitor=false", f"--temp-dir={folder}"]
    command += [f"--object-store-memory={_OBJECT_STORE}"]
    return command + ([] if num_gpus is None else [f"--num-gpus={num_gpus}"])


def _launch(
    home: Path, folder: Path, command: list[str], environment: dict[str, str]
) -> tuple[int, str]:
    """Run the starter; answer its session and the address that Ray chose for this machine."""
    log = home / "logs" / "ray.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        starter = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | environment,
            start_new_session=True,
        )
        try:
            code: int | None = starter.wait(_START_LIMIT)
        except subprocess.TimeoutExpired:
            code = None
    printed = log.read_text(errors="replace")
    host = re.search(r"Local node IP: (\S+)", printed)
    if code != 0 or host is None:
        end_session(starter.pid)
        starter.wait()
        shutil.rmtree(folder, ignore_errors=True)
        raise ClusterError(
            f"the local Ray cluster did not start (exit code {code}): {printed[-2000:]}"
        )
    return starter.pid, host.group(1)


def _head_environment(folder: Path, token_path: Path, preload: str) -> dict[str, str]:
    return _local_environment(token_path) | {
        # Where Ray notes its newest cluster, which any ray.init() of the machine would then join.
        "RAY_TMPDIR": str(folder),
        "RAY_preload_python_modules": preload,
        # Its own processes' logs: half a GB each, and five older ones, is what Ray keeps by itself.
        "RAY_ROTATION_MAX_BYTES": str(_RAY_LOG_BYTES),
        "RAY_ROTATION_BACKUP_COUNT": "2",
        "RAY_enable_metrics_collection": "0",
        # Ray would keep a worker for each CPU for ever, with torch 420 MB of each.
        "RAY_num_workers_soft_limit": "0",
        "RAY_idle_worker_killing_time_threshold_ms": str(round(1000 * _IDLE_SECONDS)),
        "RAY_CHDIR_TO_TRIAL_DIR": "0",
        # Seconds a stopped trial may take to write its checkpoint before its worker is given up.
        "TUNE_FUNCTION_THREAD_TIMEOUT_S": "30",
    }


def _local_environment(token_path: Path) -> dict[str, str]:
    """What every process of a local cluster has: its token, and loopback as its only network."""
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token_path)}
    return token | {ELSEWHERE: os.environ.get(ELSEWHERE, "0")}


def _write_token(home: Path) -> Path:
    path = (home / "ray.token").resolve()
    if not path.exists():
        _write(path, secrets.token_hex(32))
    return path


def _write(path: Path, text: str) -> None:
    """Write for the owner's eyes only, whole or not at all."""
    with whole_file(path, mode=0o600) as file:
        file.write(text.encode())


def _info_path(home: Path) -> Path:
    return home / "ray.json"


def _recorded(home: Path) -> Head | None:
    try:
        return Head(**json.loads(_info_path(home).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _short_temp() -> str:
    folder = tempfile.gettempdir()
    # Ray appends up to 70 bytes to it.
    return folder if len(folder) < 30 else "/tmp"


def main(arguments: list[str] | None = None) -> int:
    """Keep the local head of a home running until SIGTERM; exit code 1 if it dies on its own."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--num-cpus", type=int)
    parser.add_argument("--num-gpus", type=int)
    parser.add_argument("--preload", default=PRELOAD, help="module that each worker imports")
    options: Any = parser.parse_args(arguments)
    ended = set_by_signals(threading.Event())
    head = start(
        options.home,
        num_cpus=options.num_cpus,
        num_gpus=options.num_gpus,
        preload=options.preload,
    )
    print(f"Ray runs at {head.address}", flush=True)
    while not ended.wait(2.0):
        if running(options.home) is None:
            stop(options.home)
            print("Ray ended by itself", file=sys.stderr, flush=True)
            return 1
    stop(options.home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
