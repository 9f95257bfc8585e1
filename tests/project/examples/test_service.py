"""Every example through a real service: installed, submitted over REST, trained, shown."""

import math
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import httpx2
import pytest

from service.client.client import Client
from service.contract.analysis import FindingsOut
from service.contract.outputs import SweepOut, TrialOut
from service.supervision.home import read_endpoints
from sweeps.spec.text import load_spec_text
from tests.project.examples.packages import EXAMPLES, ROOT, Example, install

pytestmark = [pytest.mark.stack, pytest.mark.filterwarnings("ignore::ResourceWarning")]

NDSWEEP = [sys.executable, "-m", "service"]
#: Seconds; generous, for a machine that does other things beside.
PATIENCE = 600.0
#: Seconds that the quickest trial of an example may take. Of the processor where they are measured:
#: what else the machine does is no fault of the example.
SECONDS = 30.0
#: Name -> the worst mean of the best point that shows that something was learnt.
GOOD = {
    "gradient-boosting": 0.1,
    "hf-trainer": 3.0,
    "lightning-module": 0.2,
    "own-parts": 0.9,
    "shell-script": 0.1,
    "tabular-mlp": 0.3,
    "timm-model": 0.3,
}
#: Paused while it is trained, and resumed.
PAUSED = "hf-trainer"


@dataclass(frozen=True)
class Seen:
    """What the service has of an example's sweep at the end."""

    sweep: SweepOut
    trials: list[TrialOut]
    findings: FindingsOut
    page: str
    metrics: dict[str, Any]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all examples whose packages are there, installed."""
    target = tmp_path_factory.mktemp("installed")
    wanted = [one for one in EXAMPLES if one.is_package and not one.missing()]
    install(wanted, target, tmp_path_factory.mktemp("source"))
    return target


@pytest.fixture(scope="module")
def service(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """The one service of this file: API, runner, Ray and MLflow, with the examples installed."""
    home = tmp_path_factory.mktemp("home")
    settings = {name: value for name, value in os.environ.items() if name[:8] != "NDSWEEP_"}
    with socket.socket() as holder, (home / "serve.log").open("wb") as log:
        # Nobody else gets the port meanwhile; MLflow binds beside it with the same option.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        settings |= {
            "NDSWEEP_HOME": str(home),
            "NDSWEEP_DATA": str(home / "data"),
            "NDSWEEP_MLFLOW_PORT": str(holder.getsockname()[1]),
            "PYTHONPATH": str(packages),
            "NDSWEEP_TRAINING_SECONDS": "300",
        }
        process = subprocess.Popen(
            [*NDSWEEP, "serve"], cwd=ROOT, env=settings, stdout=log, stderr=log
        )
        try:
            found = wait_for(lambda: read_endpoints(home), "the service says where it is")
            with Client(found.url) as client:
                wait_for(client.is_ready, "the service answers")
                yield client
        finally:
            process.terminate()
            process.wait(PATIENCE)


@pytest.fixture(scope="module")
def seen(service: Client) -> dict[str, Seen]:
    """Submit all examples at once, run an agent for the script, and wait for the last."""
    ids = {
        one.name: submit(service.url, one.read("sweep.yaml"))
        for one in EXAMPLES
        if not one.missing()
    }
    if not matched_example().missing():
        match_of(service)
    pause_in_the_middle(service, ids[PAUSED])
    service.resume(ids[PAUSED])
    (script,) = [one for one in EXAMPLES if not one.is_package]
    agent = [*NDSWEEP, "agent", ids[script.name], "--url", service.url, "--"]
    binaries = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [*agent, str(script.program), "{args}"],
        env=os.environ | {"PATH": binaries},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return {name: look(service, sweep_id) for name, sweep_id in ids.items()}


def submit(url: str, spec: str) -> str:
    """Submit a spec as anybody would over REST, and return the id of the sweep."""
    headers = {"Content-Type": "application/yaml"}
    answer = httpx2.post(f"{url}/api/v1/sweeps", content=spec, headers=headers, timeout=300)
    assert answer.status_code == 201, answer.text
    found: str = answer.json()["id"]
    return found


def matched_example() -> Example:
    (found,) = [one for one in EXAMPLES if (one.folder / "match.yaml").exists()]
    return found


def match_of(service: Client) -> SweepOut:
    """Submit the match of an example, or find it again by its key."""
    spec = load_spec_text(matched_example().read("match.yaml"))
    return service.match(spec, idempotency_key="the-match")


def pause_in_the_middle(service: Client, sweep_id: str) -> None:
    """Pause a sweep while a trial is between two reports; it stays paused."""
    while True:
        wait_for(lambda: trials_on_their_way(service, sweep_id, "running"), "a trial reports")
        assert not service.get(sweep_id).finished_at
        service.pause(sweep_id)
        wait_for(lambda: service.get(sweep_id).state == "paused", "the sweep is paused")
        if trials_on_their_way(service, sweep_id, "waiting"):
            return
        service.resume(sweep_id)  # those that ran had just begun, or ended with their last report


def trials_on_their_way(service: Client, sweep_id: str, state: str) -> list[TrialOut]:
    return [one for one in service.all_trials(sweep_id) if one.step and one.state == state]


def look(service: Client, sweep_id: str) -> Seen:
    wait_for(lambda: service.get(sweep_id).finished_at, f"sweep {sweep_id} ends")
    page = httpx2.get(f"{service.url}/sweeps/{sweep_id}", timeout=60)
    assert page.status_code == 200
    trials = list(service.all_trials(sweep_id))
    return Seen(
        service.get(sweep_id),
        trials,
        service.analysis(sweep_id),
        page.text,
        service.metrics(sweep_id, trials[0].number),
    )


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, f"not in {PATIENCE:g} s: {what}"
        time.sleep(0.1)
    return found


@pytest.fixture(params=EXAMPLES, ids=lambda one: one.name)
def example(request: pytest.FixtureRequest) -> Example:
    found: Example = request.param
    if missing := found.missing():
        pytest.skip(f"{', '.join(missing)} not installed, `make install` does it")
    return found


def test_an_example_is_trained_and_shown(example: Example, seen: dict[str, Seen]) -> None:
    found = seen[example.name]
    sweep, spec = found.sweep, found.sweep.spec
    per_point, metric = spec["replicates"], spec["objective"]["metric"]

    assert (sweep.state, sweep.reason) == ("complete", "all done")
    assert {trial.state for trial in found.trials} == {"complete"}
    assert all(math.isfinite(trial.objective or math.nan) for trial in found.trials)
    assert len({trial.point for trial in found.trials}) * per_point == len(found.trials)
    assert len({(trial.point, trial.seed) for trial in found.trials}) == len(found.trials)
    assert all(trial.step == trial.num_steps for trial in found.trials)

    (arm, *_) = sorted(
        (arm for arm in found.findings.arms if arm.objective),
        key=lambda arm: arm.objective.mean if arm.objective else 0.0,
        reverse=spec["objective"]["direction"] == "maximize",
    )
    best = arm.objective
    assert best is not None
    assert best.n == per_point
    assert best.low is not None
    assert best.high is not None
    assert best.low < best.mean < best.high
    worst = GOOD[example.name]
    is_good = (
        best.mean > worst if spec["objective"]["direction"] == "maximize" else best.mean < worst
    )
    assert is_good, best

    assert sweep.name in found.page
    assert metric.replace("_", " ") in found.page.lower().replace("_", " ")
    for field in spec["space"]:
        assert field in found.page


def test_an_example_takes_seconds_and_says_what_ran(
    example: Example, seen: dict[str, Seen]
) -> None:
    found = seen[example.name]
    assert min(map(seconds_of, found.trials)) < SECONDS
    curve = found.metrics[found.sweep.spec["objective"]["metric"]]
    assert len(curve) >= 4
    assert [step for step, _ in curve] == sorted({step for step, _ in curve})
    if example.is_package:
        package = {"name": example.project["name"], "version": example.project["version"]}
        spec = found.sweep.spec
        named = [spec["package"]] if example.has_training else [*spec["parts"].values()]
        assert named
        assert all(one == package for one in named)


def seconds_of(trial: TrialOut) -> float:
    if trial.usage.cpu_hours is not None:
        return 3600 * trial.usage.cpu_hours
    assert trial.finished_at is not None
    assert trial.started_at is not None
    return (trial.finished_at - trial.started_at).total_seconds()


def test_a_paused_example_goes_on_from_its_checkpoints(
    service: Client, seen: dict[str, Seen]
) -> None:
    found = seen[PAUSED]
    sweep_id, spec = found.sweep.id, found.sweep.spec
    logs = {one.number: service.log(sweep_id, one.number) for one in found.trials}
    told = re.compile(r"attempt 2 .*goes on from the checkpoint at step (\d+)", re.DOTALL)
    saved = {n: int(at[1]) for n, text in logs.items() if (at := told.search(text))}

    assert saved
    assert all(0 < step < found.trials[0].step for step in saved.values())
    for number in saved:
        first, *later = service.trial(sweep_id, number).attempts
        assert (first.state, first.exit_cause) == ("cancelled", "paused")
        assert later[-1].state == "complete"
        curve = service.metrics(sweep_id, number)[spec["objective"]["metric"]]
        assert [step for step, _ in curve] == [20, 40, 60, 80, 100]
    # Every trial was told once.
    assert found.sweep.trials["complete"] == len(found.trials) == 4


def test_the_optimizers_of_an_example_are_matched(service: Client, seen: dict[str, Seen]) -> None:
    if missing := matched_example().missing():
        pytest.skip(f"{', '.join(missing)} not installed, `make install` does it")
    sweep_id = match_of(service).id
    wait_for(lambda: service.get_match(sweep_id).finished_at, "the match ends")
    match = service.get_match(sweep_id)
    assert match.result is not None
    verdict = match.result["verdict"]
    ratio, within = verdict["log_ratio"], math.log1p(match.spec["tolerance"])
    (rate,) = [row["measured"] for row in match.result["criteria"] if row["chosen"]]

    assert (match.state, match.reason) == ("complete", "all done")
    assert verdict["state"] == "matched"
    assert -within < ratio["low"] < ratio["value"] < ratio["high"] < within
    assert 0.02 < rate["low"] < rate["value"] < rate["high"] < 0.1
    # What a norm follows is blind to its length, the output is not.
    assert match.result["classes"]["jointly_invariant"] == 32
    page = httpx2.get(f"{service.url}/matches/{sweep_id}", timeout=60).text
    assert verdict["sentence"] in unescape(page)


def test_recorded_layers_are_panels(seen: dict[str, Seen]) -> None:
    for name in ("own-parts", "tabular-mlp", "timm-model"):
        if name in seen:
            assert any(metric.startswith("effective_lr/") for metric in seen[name].metrics), name
