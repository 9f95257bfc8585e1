"""``ndsweep quickstart``: the whole path on real images, through the public HTTP API.

Everything below ``_show`` could be done by any client of the service. The idempotency key finds the
results of an earlier quickstart on the same home.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

from rich.console import Console
from rich.progress import Progress

from service.cli.terminal.printing import print_match, print_prediction, print_results
from service.cli.terminal.progress import follow, progress_bars
from service.client.client import Client
from service.contract.outputs import SweepOut
from service.settings import Settings, SettingsError
from service.supervision import home as homes
from service.supervision.processes import end_with_parent
from sweeps.records import Kind
from worker.data.prepared import list_datasets
from worker.process.stop_signal import handled

MATCH, SWEEP = "quickstart-match", "quickstart"
#: Seconds until the API must answer, and until everything must have ended. Generous, because a
#: busy machine starts the service slowly, and a service killed too early leaves processes behind.
START_SECONDS, STOP_SECONDS = 180.0, 60.0
#: Largest number of earlier cancelled or failed sweeps; with more, no new one is tried.
MOST_TRIES = 100


class QuickstartError(SettingsError):
    """The quickstart failed; the message names the step and the reason."""


def run(settings: Settings, *, once: bool) -> None:
    """Start the service if needed, train or find the results, print them, and keep serving.

    With ``once`` it ends the processes that it started and returns. Raises QuickstartError when a
    sweep does not end complete, SettingsError when the service cannot start.
    """
    console = Console()
    # SIGTERM ends this process the way Ctrl-C does: with everything that it started.
    with handled(signal.default_int_handler, [signal.SIGTERM]):
        _prepare_digits(settings, console)
        with _service(settings, console) as (endpoints, own):
            with Client(endpoints.url, settings.secret()) as service:
                _show(service, console, endpoints)
            if own is not None and not once:
                console.print(
                    "\nThe service keeps running; [bold]Ctrl-C[/] ends every process it started."
                )
                _wait(own, settings)


def _show(service: Client, console: Console, endpoints: homes.Endpoints) -> None:
    presets = {preset.name: preset for preset in service.presets()}
    match_spec, sweep_spec = presets[MATCH].spec, presets[SWEEP].spec

    console.rule("alpha_v for SGD (lr 0.1, momentum 0.9, weight decay 0.001), in closed form")
    base = match_spec["base"]
    asked = {
        "source": match_spec["source"],
        "target": match_spec["target"],
        "steps": base["steps"],
        "lr_schedule": base["lr_schedule"],
    }
    print_prediction(console, service.predict(asked))

    console.rule("Measured: a match and a sweep on scikit-learn's digits")
    match = find_or_submit(service, "match", match_spec)
    sweep = find_or_submit(service, "sweep", sweep_spec)
    match, sweep = _both(service, console, match, sweep)

    console.rule("The match under every criterion")
    print_match(console, match.result or {})
    console.rule("Tuned with equal budgets: SGD, Adam and ND-Adam")
    print_results(console, service.analysis(sweep.id))
    _print_addresses(console, endpoints, match, sweep)


def find_or_submit(service: Client, kind: Kind, spec: dict[str, Any]) -> SweepOut:
    """Return the sweep of an earlier quickstart with the same spec, or submit a new one.

    If an earlier sweep ended without the results to show, it stays and the next key is tried.
    """
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:12]
    submit = service.match if kind == "match" else service.submit
    for attempt in range(MOST_TRIES):
        sweep = submit(spec, idempotency_key=f"quickstart-{digest}-{attempt}")
        if sweep.state == "paused":
            return service.resume(sweep.id)
        if _shortfall(sweep) is None:
            return sweep
    raise QuickstartError(
        f"{MOST_TRIES} earlier quickstarts ended {sweep.state}; see {service.url}"
    )


def _both(
    service: Client, console: Console, match: SweepOut, sweep: SweepOut
) -> tuple[SweepOut, SweepOut]:
    """Follow both to their ends at the same time."""
    waiting = [one for one in (match, sweep) if one.state != "complete"]
    if not waiting:
        console.print("Found the results of an earlier run; nothing was trained again.")
        return match, sweep
    with progress_bars(console) as bars:
        match, sweep = _follow_together(service, bars, (match, sweep))
    for one in (match, sweep):
        if (shortfall := _shortfall(one)) is not None:
            place = "matches" if one.kind == "match" else "sweeps"
            raise QuickstartError(
                f"the {one.kind} {one.id} {shortfall} ({one.reason or 'no reason given'}); "
                f"see {service.url}/{place}/{one.id}"
            )
    return match, sweep


def _follow_together(service: Client, bars: Progress, sweeps: Sequence[SweepOut]) -> list[SweepOut]:
    """Follow each to its end, a bar for each. Raises what following one of them raised."""
    tasks = [Future[SweepOut]() for _ in sweeps]

    def follow_one(task: Future[SweepOut], sweep: SweepOut) -> None:
        try:
            task.set_result(follow(service, sweep, bars, sweep.kind))
        except BaseException as error:
            task.set_exception(error)

    # Daemon threads, not a pool: with a pool, Ctrl-C would wait for the end of the sweeps.
    for pair in zip(tasks, sweeps, strict=True):
        Thread(target=follow_one, args=pair, daemon=True).start()
    return [task.result() for task in tasks]


def _shortfall(sweep: SweepOut) -> str | None:
    """Say what an ended sweep or match lacks for the quickstart; None if it lacks nothing."""
    if sweep.state in ("queued", "running", "paused"):
        return None
    if sweep.state != "complete":
        return f"ended {sweep.state}"
    if sweep.kind == "match" and not (sweep.result or {}).get("verdict"):
        return "ended without a verdict"
    return None


def _print_addresses(
    console: Console, endpoints: homes.Endpoints, match: SweepOut, sweep: SweepOut
) -> None:
    console.rule("Look at it")
    experiment = (sweep.mirror or {}).get("url") or endpoints.mlflow_url
    for what, where in (
        ("Pages", f"{endpoints.url}/"),
        ("This sweep", f"{endpoints.url}/sweeps/{sweep.id}"),
        ("This match", f"{endpoints.url}/matches/{match.id}"),
        ("API docs", f"{endpoints.url}/docs"),
        ("MLflow", experiment),
    ):
        console.print(f"{what:<11} {where}", soft_wrap=True, highlight=False)


def _prepare_digits(settings: Settings, console: Console) -> None:
    home = settings.data_home()
    if any(info.name == "digits" for info in list_datasets(home)):
        return
    with console.status("preparing the digits of scikit-learn"):
        from worker.data.fetch import prepare_digits

        try:
            home.mkdir(parents=True, exist_ok=True)
            prepare_digits(home)
        except OSError as error:
            raise QuickstartError(
                f"the digits cannot be written to {home} ({error.strerror}); set NDSWEEP_DATA to "
                "a folder that you may write to"
            ) from error


@contextmanager
def _service(
    settings: Settings, console: Console
) -> Iterator[tuple[homes.Endpoints, "subprocess.Popen[bytes] | None"]]:
    """Use the service that runs on the home, or start one that ends with this process."""
    home = settings.home.absolute()
    homes.prepare(home)
    if homes.is_locked(home):
        endpoints = _answering(settings, None)
        console.print(f"Using the service that runs at {endpoints.url}")
        yield endpoints, None
        return
    own = _start(settings, home)
    try:
        with console.status("starting the service"):
            endpoints = _answering(settings, own)
        yield endpoints, own
    finally:
        with console.status("ending every process that was started"):
            _stop(own)


def _start(settings: Settings, home: Path) -> "subprocess.Popen[bytes]":
    homes.remove_endpoints(home)
    options = [] if settings.port is None else ["--port", str(settings.port)]
    parent = os.getpid()
    with (home / "logs" / "serve.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "service", "serve", "--home", str(home), *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: end_with_parent(parent),
        )


def _answering(settings: Settings, own: "subprocess.Popen[bytes] | None") -> homes.Endpoints:
    """Wait until the service answers and return its addresses."""
    home = settings.home.absolute()
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if own is not None and own.poll() is not None:
            lines = (home / "logs" / "serve.log").read_text(errors="replace").splitlines()
            said = lines[-1].removeprefix("ndsweep: ") if lines else "the service logged no reason"
            raise SettingsError(said)
        endpoints = homes.read_endpoints(home)
        if endpoints is not None:
            with Client(endpoints.url, settings.secret()) as service:
                if service.is_ready():
                    return endpoints
        time.sleep(0.1)
    raise QuickstartError(
        f"the service does not answer after {START_SECONDS:.0f} s; see {home / 'logs' / 'api.log'}"
    )


def _wait(own: "subprocess.Popen[bytes]", settings: Settings) -> None:
    try:
        code = own.wait()
    except KeyboardInterrupt:
        return
    raise QuickstartError(f"the service ended with {code}; see {settings.home / 'logs'}")


def _stop(own: "subprocess.Popen[bytes]") -> None:
    own.terminate()
    try:
        own.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        own.kill()
        own.wait()
