"""``ndsweep agent``: any command trains; its lines of JSON are the reports."""

import io
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from service.client import Agent, Client
from service.client.command import filled_in, report_in, run_command, unknown_placeholder
from sweeps.store.store import Store
from tests.service.external_sweeps import SPEC, driven

Command = Callable[..., Result]

TRAIN = """
import argparse, json, os, sys
parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int)
parser.add_argument("--x", type=float)
parser.add_argument("--seed", type=int)
asked = parser.parse_args()
config = json.load(open(os.environ["NDSWEEP_CONFIG"]))
assert config == vars(asked), (config, asked)
assert os.environ["NDSWEEP_SEED"] == str(asked.seed)
print("a line that is no report")
for step in range(3):
    print(json.dumps({"step": step, "num_steps": 3, "loss": asked.x / (step + 1), "note": "text"}))
"""


@pytest.fixture
def sweep_id(live: str, store: Store, home: Path) -> Iterator[str]:
    with Client(live) as service:
        found = service.submit(SPEC).id
    with driven(store, home):
        yield found


def script(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "train.py"
    path.write_text(text)
    return [sys.executable, str(path)]


def test_a_command_trains_every_trial(
    ndsweep: Command, live: str, sweep_id: str, tmp_path: Path
) -> None:
    answer = ndsweep("agent", sweep_id, "--", *script(tmp_path, TRAIN), "{args}")

    assert answer.exit_code == 0, answer.output
    assert answer.stdout.count("a line that is no report") == 4
    assert "the sweep is complete: all done" in answer.stderr
    with Client(live) as service:
        assert service.get(sweep_id).trials["complete"] == 4
        trial = service.trial(sweep_id, 0)
        assert trial.metrics == {"loss": trial.params["x"] / 3}
        assert (trial.step, trial.num_steps) == (2, 3)


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("import sys; print('no disk', file=sys.stderr); sys.exit(3)", "no disk"),
        ("import sys; sys.exit(3)", "exit code 3"),
        ("def f(): raise ValueError('one\\ntwo')\nf()", "two"),
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        ("pass", "no line of its output had the objective"),
        (
            'print(\'{"step": 5, "loss": 1}\'); print(\'{"step": 4, "loss": 1}\')',
            "step must not go backwards: trial 0 is at step 5, got 4",
        ),
        (
            # More output follows than a pipe holds: somebody must go on reading.
            'print(\'{"step": 1, "loss": \' + "9" * 400 + "}"); print("text\\n" * 50_000)',
            "metric 'loss' must be a number, got 999",
        ),
        (
            'print(\'{"step": 1, "loss": 1, "test_error": 12.5}\')',
            "reports.0.metrics.test_error: test_error must be a fraction from 0 to 1, got 12.5",
        ),
    ],
    ids=["stderr", "code", "lines", "signal", "silent", "backwards", "huge", "percent"],
)
def test_why_a_command_failed(
    ndsweep: Command, live: str, sweep_id: str, code: str, cause: str
) -> None:
    ndsweep("agent", sweep_id, "--count", "1", "--", sys.executable, "-c", code)

    with Client(live) as service:
        trial = service.trial(sweep_id, 0)
        log = service.log(sweep_id, 0)
    assert trial.state == "failed"
    assert cause in trial.exit_cause
    assert "\n" not in trial.exit_cause
    # The page shows the last line, the log all of them.
    assert ("Traceback (most recent call last):" in log and "ValueError: one\ntwo\n" in log) == (
        cause == "two"
    )


def test_a_command_that_always_fails_costs_three_trials(ndsweep: Command, sweep_id: str) -> None:
    answer = ndsweep("agent", sweep_id, "--", "false")

    assert answer.exit_code == 1
    assert f"mend the command, then `ndsweep retry {sweep_id}`" in answer.stderr


def test_a_file_that_cannot_be_run_fails_its_trial(
    ndsweep: Command, live: str, sweep_id: str, tmp_path: Path
) -> None:
    path = tmp_path / "train.sh"
    path.write_text("echo no interpreter line")
    path.chmod(0o755)

    ndsweep("agent", sweep_id, "--count", "1", "--", str(path))

    with Client(live) as service:
        trial = service.trial(sweep_id, 0)
    assert trial.state == "failed"
    assert "train.sh' cannot be run: Exec format error" in trial.exit_cause


def test_what_is_refused_before_a_trial(ndsweep: Command, live: str, sweep_id: str) -> None:
    unknown = ndsweep("agent", sweep_id, "--", "echo", "{lr}")
    missing = ndsweep("agent", sweep_id, "--", "no-such-command")
    within = ndsweep("agent", sweep_id, "--", "bash", "-c", "./train.sh {args}")

    assert (unknown.exit_code, missing.exit_code, within.exit_code) == (2, 2, 2)
    assert "{args} must be a word of its own, got './train.sh {args}'" in within.stderr
    assert (
        "names {lr}, which is no field of the sweep; there are {args}, {config}" in unknown.stderr
    )
    assert missing.stderr == "ndsweep: there is no command 'no-such-command'\n"
    with Client(live) as service:
        assert service.get(sweep_id).trials["failed"] == 0


@pytest.mark.parametrize("why", ["cancel", "stopping"])
def test_a_command_is_ended_when_its_trial_must_stop(live: str, sweep_id: str, why: str) -> None:
    stopping = threading.Event()
    with Client(live) as service:
        trial = Agent(service, sweep_id, lease_seconds=5).ask()
        assert trial is not None
        trial._agent.__class__ = type("Quick", (Agent,), {"_beat_seconds": 0.1})

        def stop() -> None:
            time.sleep(0.5)
            if why == "cancel":
                service.cancel(sweep_id)
            else:
                stopping.set()

        threading.Thread(target=stop).start()
        began = time.monotonic()
        ended = run_command(
            trial,
            [sys.executable, "-c", "import time; time.sleep(600)"],
            url=live,
            stopping=stopping,
            out=io.StringIO(),
            err=io.StringIO(),
        )

        assert time.monotonic() - began < 60
        wanted = {"cancel": "stopped: ", "stopping": "given back: this agent was stopped"}
        assert ended.startswith(wanted[why])
        found = service.trial(sweep_id, trial.number)
        assert found.state == {"cancel": "cancelled", "stopping": "waiting"}[why]
        if why == "stopping":
            assert found.exit_cause == "given back by its agent: the agent was stopped"


def test_how_values_stand_in_a_command() -> None:
    config: dict[str, Any] = {"lr": 0.1, "name": "a b", "on": True, "none": None, "sizes": [1, 2]}
    words = filled_in(["run", "{args}", "lr={lr}", "{config}", "{print}"], config, Path("/c.json"))

    assert words == [
        "run", "--lr", "0.1", "--name", "a b", "--on", "true", "--sizes", "[1, 2]",
        "lr=0.1", "/c.json", "{print}",
    ]  # fmt: skip
    assert unknown_placeholder(["{lr}-{name}", "{args}"], list(config)) is None


@pytest.mark.parametrize(
    "line",
    ["", "text", "{", "[1]", '{"loss": 1}', '{"step": 1}', '{"step": 1.5, "loss": 1}',
     '{"step": true, "loss": 1}', '{"step": -1, "loss": 1}', '{"step": 1, "loss": "1"}',
     '{"step": 1, "loss": {"a": 1}}'],
)  # fmt: skip
def test_lines_that_are_no_report(line: str) -> None:
    assert report_in(line) is None


def test_a_line_that_is_a_report() -> None:
    line = json.dumps({"step": 3, "loss": float("nan"), "ok": True, "n": 2, "num_steps": 9})

    report = report_in(f"  {line}\n")
    assert report is not None
    assert (report["step"], report["num_steps"], sorted(report["metrics"])) == (3, 9, ["loss", "n"])
