"""A batch whose runs share a process, as they share a GPU: on the CPU, with real processes."""

import os
import re
import signal
import threading
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from sweeps.batch import process as batch_process
from sweeps.batch.plan import BatchRefused, read_specs
from sweeps.batch.results import read_results
from sweeps.batch.shared_card import host_key, runs_at_once
from tests.sweeps.batch.batch_cases import outcome, started, write_spec
from tests.sweeps.batch.turns import run_until, standing_still, wait_for
from worker import TrainConfig, train
from worker.card_sharing.client import HostedError
from worker.card_sharing.protocol import host_address
from worker.checkpoints.report_journal import ReportJournal
from worker.data.fetch import prepare_digits
from worker.report import Report

SHARED = {"gpus": 1, "trials_per_gpu": 2}


@pytest.fixture(scope="module")
def data_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("data")
    prepare_digits(home)
    return home


def host_of(out: Path) -> psutil.Process | None:
    """The process that trains a batch's runs on the CPU, once who started it has gone.

    Before that it must not stand still: a group whose last parent ends while a member stands still
    is hung up by the kernel.
    """
    address = str(host_address(host_key(out, "None 0")))
    for process in psutil.process_iter(["cmdline"]):
        if address in (process.info["cmdline"] or []):
            # Who starts it has the same command line, and while it ends none.
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                above = psutil.Process(process.ppid()).cmdline()
                if os.getpgid(process.pid) == process.pid and above and address not in above:
                    return process
    return None


def reported(out: Path) -> dict[str, int]:
    """The last step that each run which has not ended has reported."""
    folders = (out / "checkpoints").glob("*")
    return {f.name: max((r.step for r in ReportJournal(f).replay()), default=0) for f in folders}


@pytest.mark.stack
def test_runs_of_one_process_stop_lose_their_host_and_are_what_they_are_alone(
    tmp_path: Path, data_home: Path
) -> None:
    out = tmp_path / "out"
    path = write_spec(
        tmp_path,
        optimizers=["sgd", "ndadam"],
        base={"steps": 150, "report_every": 5},
        resources=SHARED,
    )
    # The third diverges in its first steps; its neighbours must not notice.
    bad = write_spec(tmp_path, name="bad", base={"optimizer": "sgd", "lr": 1e30}, resources=SHARED)
    given = (path, bad, "--out", out, "--data-home", data_home, "--checkpoint-seconds", 0.1)
    with started(*given) as batch:
        assert batch.stderr is not None
        host = wait_for(lambda: host_of(out))
        with standing_still(host):  # so that it begins with both at once, and neither ends
            begun = (line for line in batch.stderr if ": begins" in line)
            assert [next(begun) for _ in range(2)]
            run_until(lambda: sum(map(bool, reported(out).values())) == 2, [host])
            batch.send_signal(signal.SIGINT)
            wait_for(lambda: len(list(out.glob("checkpoints/*/stop"))) == 2)
        code, _, progress = outcome(batch)
    assert code == 3, progress
    assert len(re.findall(r"stopped at step [\d,]+ with a checkpoint", progress)) == 2, progress
    with suppress(psutil.NoSuchProcess):
        host.terminate()  # it would wait for more runs
    wait_for(lambda: host_of(out) is None)

    stopped_at = reported(out)
    with started(*given) as batch:
        host = wait_for(lambda: host_of(out))
        with standing_still(host):
            run_until(
                lambda: any(n > stopped_at.get(r, n) for r, n in reported(out).items()), [host]
            )
            host.kill()
        code, table, progress = outcome(batch)

    assert code == 0, progress
    assert "2 complete, 1 diverged, 0 failed, 0 left of 3 runs" in table
    whole = [result for result in read_results(out) if result.state == "complete"]
    # One at least was under way; on a busy machine the other may have ended before.
    lost = "lost: the host of the card's trials has ended"
    assert any(a.exit_cause.startswith(lost) for result in whole for a in result.attempts)
    assert {result.provenance["pid"] for result in whole}.isdisjoint({batch.pid, os.getpid()})
    for result in whole:
        causes = [attempt.exit_cause for attempt in result.attempts]
        assert [causes[0], causes[-1]] == ["stopped in time", "complete"]
        assert result.attempts[-1].from_step > 0
        config = TrainConfig.model_validate(result.config | {"device": "cpu"})
        reports = list(train(config, data_home=data_home))
        timed = {"images_per_second": 0}
        assert result.metrics | timed == reports[-1].metrics | timed
        assert [step for step, _ in result.curve("train_loss")] == [r.step for r in reports]


def test_specs_that_want_different_shares_are_refused(tmp_path: Path) -> None:
    shared = write_spec(tmp_path, name="shared", resources=SHARED)
    alone = write_spec(tmp_path, name="alone")

    assert runs_at_once(read_specs([shared])) == 2
    assert runs_at_once(read_specs([alone])) == 1
    with pytest.raises(BatchRefused, match="must be the same in all specs of a batch, got 2 in sh"):
        runs_at_once(read_specs([shared, alone]))


def hosted_task(folder: Path, from_step: int = 0) -> batch_process.Task:
    """A run that the host of its card trains."""
    return batch_process.Task(
        config=TrainConfig(dataset="digits", steps=4).resolved().stored(),
        device="cpu",
        specs=[],
        num_steps=4,
        attempts=[],
        from_step=from_step,
        checkpoints=str(folder / "checkpoints"),
        checkpoint_seconds=60.0,
        out=str(folder),
        data_home=str(folder),
        deadline=None,
        host="host",
    )


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (HostedError("Traceback ...\nValueError: no such layer"), "ValueError: no such layer"),
        (OSError(), "OSError: "),
    ],
    ids=["in the host", "without a text"],
)
def test_a_run_that_fails_in_the_host_says_why_and_leaves_its_process_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, cause: str
) -> None:
    def fail(*args: object, **kwargs: object) -> object:
        raise error

    monkeypatch.setattr(batch_process, "hosted_run", fail)
    told: list[dict[str, object]] = []

    assert batch_process._Run(hosted_task(tmp_path), threading.Event(), told.append).train()
    assert [(t["event"], t["state"], t["exit_cause"]) for t in told] == [
        ("finished", "failed", cause)
    ]


def test_reports_of_the_attempt_before_are_no_measure_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint is of step 1; steps 2 and 3 were reported before the attempt was lost."""
    steps = [
        Report(step=n, num_steps=4, status="complete" if n == 4 else "running", metrics={"a": n})
        for n in (1, 2, 3, 4)
    ]
    task = hosted_task(tmp_path, from_step=1)
    journal = ReportJournal(task.checkpoints)
    for report in steps[:3]:
        journal.append(report)
    monkeypatch.setattr(
        batch_process, "hosted_run", lambda *_: (r for r in [*steps[:3], *steps[1:]])
    )
    told: list[dict[str, object]] = []

    assert batch_process._Run(task, threading.Event(), told.append).train()
    assert [t["step"] for t in told if t["event"] == "report"] == [2, 3, 4]
    (result,) = read_results(tmp_path)
    assert result.curve("a") == [(1, 1), (2, 2), (3, 3), (4, 4)]
