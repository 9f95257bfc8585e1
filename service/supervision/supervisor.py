"""``ndsweep serve``: runs the parts of a service as child processes and looks after them.

    serve ─┬─ api      service.api, on a socket that serve holds: a restart refuses nobody
           ├─ runner   sweeps.driver.runner, with its drivers
           ├─ mlflow   a local tracking server, unless NDSWEEP_MLFLOW_URL names one
           └─ ray      sweeps.cluster.head, a local head, unless RAY_ADDRESS or NDSWEEP_JOIN is set

Each part has its log below ``logs/`` of the home. One that dies is started again after a pause
that doubles up to half a minute. Ctrl-C or SIGTERM ends every process below this one.
"""

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from service.settings import (
    DEFAULT_MLFLOW_PORT,
    DEFAULT_PORT,
    Settings,
    SettingsError,
    require_token_off_loopback,
)
from service.supervision import home as homes
from service.supervision.ports import address, claimed_port, listen
from service.supervision.processes import (
    Child,
    adopt_orphans,
    descendants,
    kill_descendants,
    reap,
    send,
)
from service.supervision.shell import require_bash
from sweeps.cluster import head as cluster
from sweeps.errors import StoreDamaged, StoreIsNewer, StoreUnavailable
from sweeps.retention.log_rotation import LogRotation
from sweeps.store.database.sqlite_file import sqlite_url
from sweeps.store.store import Store
from worker.process.logs import is_json, set_up
from worker.process.stop_signal import stop_requested

log = logging.getLogger(__name__)

#: Seconds that each group of parts gets to stop by itself; all is over within 10, on a busy machine
#: too: ending what is left takes a second or two there.
STOP_SECONDS = (4.5, 3.0)
#: After which what was killed is given up on. Only a machine that gives nobody a turn needs them,
#: and to leave earlier would leave it behind, and the folder of Ray.
KILL_SECONDS = 5.0
#: The runner records where its trials stand while Ray and MLflow still answer.
STOP_ORDER = (("api", "runner"), ("mlflow", "ray"))
LOOP_SECONDS = 0.1

#: Parts whose logs grow for as long as they run; that of drivers is the runner's to rotate.
ROTATED = ("api", "runner", "mlflow")

#: Called with the addresses as soon as the API is being started.
Announce = Callable[[homes.Endpoints], None]


def serve(settings: Settings, announce: Announce) -> None:
    """Run every part until SIGINT or SIGTERM. Raises SettingsError when that cannot begin."""
    if is_json():
        set_up("serve")
    require_token_off_loopback(settings)
    homes.require_restored(settings.home.absolute())
    require_store(settings)
    require_bash()
    home = settings.home.absolute()
    homes.prepare(home)
    homes.keep_private(home)
    with (
        homes.locked(home),
        listen(settings.host, settings.port, DEFAULT_PORT) as server,
        _mlflow_port(settings) as mlflow_port,
    ):
        children, endpoints = plan(settings, home, server, mlflow_port)
        homes.write_endpoints(home, endpoints)
        adopt_orphans()
        # Held to the very end: an impatient second Ctrl-C must not leave processes behind.
        with stop_requested() as stopping:
            try:
                announce(endpoints)
                rotation = LogRotation(home / "logs", ROTATED, days=settings.keep_days)
                _look_after(children, stopping, rotation)
            finally:
                homes.remove_endpoints(home)
                stop(children)
                if any(child.name == "ray" for child in children):
                    # Ended before it was through, on a busy machine, it left its folder.
                    cluster.stop(home)


def _mlflow_port(settings: Settings) -> contextlib.AbstractContextManager[int | None]:
    """The port of an MLflow server that runs here; None where one runs elsewhere."""
    if settings.mlflow_url is not None:
        return contextlib.nullcontext()
    return claimed_port("127.0.0.1", settings.mlflow_port, DEFAULT_MLFLOW_PORT)


def plan(
    settings: Settings, home: Path, server: socket.socket, mlflow_port: int | None
) -> tuple[list[Child], homes.Endpoints]:
    """The parts that have to run here, and the addresses they will answer at."""
    mlflow_url = settings.mlflow_url or address("127.0.0.1", mlflow_port or DEFAULT_MLFLOW_PORT)
    number = server.getsockname()[1]
    endpoints = homes.Endpoints(os.getpid(), address(settings.host, number), mlflow_url)
    env = environment(settings, home, mlflow_url)

    def child(name: str, argv: list[str], fds: tuple[int, ...] = ()) -> Child:
        path = home / "logs" / f"{name}.log"
        return Child(name, argv, path, env | EXTRA_ENVIRONMENT.get(name, {}), fds)

    children = [child("api", api_command(server.fileno()), (server.fileno(),))]
    if not (settings.join or os.environ.get("RAY_ADDRESS")):
        children.append(child("ray", ray_command(home)))
    if mlflow_port is not None:
        children.append(child("mlflow", mlflow_command(home, "127.0.0.1", mlflow_port)))
    children.append(child("runner", runner_command(settings, home, mlflow_url, endpoints.url)))
    return children, endpoints


def require_store(settings: Settings) -> None:
    """Refuse a store that no part could use, ever.

    Raises SettingsError, StoreIsNewer, StoreDamaged.
    """
    try:
        store = Store(settings.database_url())
    except ValueError as error:
        raise SettingsError(f"NDSWEEP_STORE_URL: {error}") from error
    try:
        store.require_known_tables()
        store.require_whole()
    except (StoreIsNewer, StoreDamaged):
        raise
    except StoreUnavailable:
        pass  # Every part waits for it.
    finally:
        store.close()


def environment(settings: Settings, home: Path, mlflow_url: str) -> dict[str, str]:
    """Settings for the parts; the token comes with the environment that they inherit.

    What may hold a password stands here and in no command line, which everybody could read.
    """
    found = {
        "NDSWEEP_HOME": str(home),
        "NDSWEEP_HOST": settings.host,
        "NDSWEEP_STORE_URL": settings.database_url(),
        "NDSWEEP_MLFLOW_URL": mlflow_url,
        "NDSWEEP_DATA": str(settings.data_home()),
        "PYTHONUNBUFFERED": "1",
    }
    return found


#: MLflow's job execution is a second set of processes that nothing here uses.
EXTRA_ENVIRONMENT = {
    "mlflow": {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
}


def api_command(fd: int | None = None) -> list[str]:
    where = [] if fd is None else ["--fd", str(fd)]
    return [sys.executable, "-m", "service.api", *where]


def runner_command(settings: Settings, home: Path, mlflow_url: str, page_url: str) -> list[str]:
    return [
        *(sys.executable, "-m", "sweeps.driver.runner"),
        *("--home", str(home)),
        *("--data", str(settings.data_home())),
        *("--mlflow", mlflow_url),
        *("--mlflow-page", settings.mlflow_public_url or ""),
        *("--page", page_url),
        *("--drivers", str(settings.drivers)),
        *("--keep-sweep-gb", str(settings.keep_sweep_gb)),
        *("--keep-gb", str(settings.keep_gb)),
        *("--keep-days", str(settings.keep_days)),
        *(("--join", settings.join) if settings.join else ()),
    ]


def ray_command(home: Path) -> list[str]:
    return [sys.executable, "-m", "sweeps.cluster.head", "--home", str(home)]


def mlflow_command(home: Path, host: str, port: int, allowed_hosts: str | None = None) -> list[str]:
    """One MLflow server with one worker: 0.5 GB instead of the 2.4 GB of its default."""
    names = allowed_hosts or f"127.0.0.1:{port},localhost:{port}"
    database = home / "mlflow" / "mlflow.db"
    url = sqlite_url(database)
    if not url.endswith(str(database)):
        # MLflow makes the folder that a plain sqlite URL seems to name, %25 and all.
        url = url.replace("sqlite:", "sqlite+pysqlite:", 1)
    return [
        *(sys.executable, "-m", "mlflow", "server"),
        *("--host", host, "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", url),
        # As a URI: of a path MLflow would read %41 as A.
        *("--artifacts-destination", (home / "mlflow" / "artifacts").as_uri()),
        *("--allowed-hosts", names),
    ]


def _look_after(children: list[Child], stopping: threading.Event, rotation: LogRotation) -> None:
    while not stopping.is_set():
        rotation.look_if_due()
        for child in children:
            child.start_if_due()
        for child, code in _ended(children):
            child.note_end(code)
            log.warning(
                "%s ended with %d and is restarted; see %s", child.name, code, child.log_path
            )
        time.sleep(LOOP_SECONDS)


def _ended(children: list[Child]) -> Iterator[tuple[Child, int]]:
    by_pid = {child.pid: child for child in children}
    for pid, code in reap().items():
        if pid in by_pid:
            yield by_pid[pid], code


def stop(children: list[Child]) -> None:
    """Ask the parts to stop, in order; then end every process that is left below this one."""
    for names, seconds in zip(STOP_ORDER, STOP_SECONDS, strict=True):
        deadline = time.monotonic() + seconds
        asked = {child.pid for child in children if child.name in names and child.pid is not None}
        send(asked, signal.SIGTERM)
        while asked & descendants(os.getpid()) and time.monotonic() < deadline:
            for child, code in _ended(children):
                child.note_end(code)
            time.sleep(0.05)
    kill_descendants(KILL_SECONDS)
    for child in children:
        if child.process is not None:
            child.note_end(-signal.SIGKILL)


def run_part(settings: Settings, part: str) -> None:
    """Become one part: the same program that ``serve`` would start, in the foreground."""
    homes.require_restored(settings.home.absolute())
    require_store(settings)
    home = settings.home.absolute()
    homes.prepare(home)
    homes.keep_private(home)
    mlflow_url = settings.mlflow_url or address("127.0.0.1", DEFAULT_MLFLOW_PORT)
    env = environment(settings, home, mlflow_url) | EXTRA_ENVIRONMENT.get(part, {})
    if part == "api":
        require_token_off_loopback(settings)
        env["NDSWEEP_PORT"] = str(DEFAULT_PORT if settings.port is None else settings.port)
        argv = api_command()
    elif part == "runner":
        page_url = settings.url or address(settings.host, settings.port or DEFAULT_PORT)
        argv = runner_command(settings, home, mlflow_url, page_url)
    elif part == "mlflow":
        argv = mlflow_command(
            home,
            settings.host,
            settings.mlflow_port or DEFAULT_MLFLOW_PORT,
            settings.mlflow_allowed_hosts,
        )
    else:
        require_bash()
        argv = ray_command(home)
    os.execve(argv[0], argv, os.environ | env)
