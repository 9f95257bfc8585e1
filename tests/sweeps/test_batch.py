"""A batch with real processes on the CPU: interrupted, killed, out of time, and gone on with."""

import os
import re
import signal
import time
from pathlib import Path

import psutil
import pytest

from sweeps.batch_plan import plan_runs, read_specs
from sweeps.batch_results import RunResult, curves_of, read_result, read_results, result_paths
from tests.sweeps.batch_cases import finish, start, write_spec
from worker.digits import prepare_digits
from worker.measurement import Report

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def data_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("data")
    prepare_digits(home)
    return home


def results(out: Path) -> dict[tuple[str, int], RunResult]:
    return {(r.config["optimizer"], r.seed): r for r in read_results(out)}


def wait_for(condition: object, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def workers(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children()]


def test_two_processes_run_two_specs_and_a_second_start_has_nothing_to_do(
    tmp_path: Path, data_home: Path
) -> None:
    a = write_spec(tmp_path, name="a", optimizers=["sgd", "ndadam"])
    b = write_spec(tmp_path, name="b", optimizers=["ndadam"], replicates=2)
    # Its first batch makes the loss infinite; its neighbours must not notice.
    bad = write_spec(tmp_path, name="bad", base={"optimizer": "sgd", "lr": 1e30})
    given = (a, b, bad, "--out", tmp_path / "out", "--data-home", data_home, "--processes", 2)
    code, table, progress = finish(*given)

    assert code == 0, progress
    assert "3 complete, 1 diverged, 0 failed, 0 left of 4 runs" in table
    found = [read_result(path) for path in result_paths(tmp_path / "out")]
    shared = next(r for r in found if r.config["optimizer"] == "ndadam" and r.seed == 0)
    assert [member.spec for member in shared.specs] == ["a", "b"]
    assert shared.curve("test_error")[-1] == (6, pytest.approx(shared.metrics["test_error"]))
    assert [step for step, _ in shared.curve("train_loss")] == [2, 4, 6]
    assert shared.provenance["data"]["name"] == "digits"
    assert shared.provenance["versions"]["torch"]
    assert not list((tmp_path / "out" / "checkpoints").iterdir())
    # Warm: two processes did all four.
    assert len({r.provenance["pid"] for r in found}) == 2
    c = write_spec(tmp_path, name="c", optimizers=["sgd"])
    code, table, progress = finish(*given[:3], c, *given[3:])
    assert code == 0
    assert "begins" not in progress
    again = next(
        r
        for r in read_results(tmp_path / "out")
        if r.state == "complete" and r.specs[-1].spec == "c"
    )
    assert [member.spec for member in again.specs] == ["a", "c"]


def test_a_killed_process_costs_one_attempt_and_no_result(tmp_path: Path, data_home: Path) -> None:
    path = write_spec(
        tmp_path, optimizers=["sgd", "ndadam"], base={"steps": 150, "report_every": 5}
    )
    given = (path, "--data-home", data_home, "--processes", 2, "--checkpoint-seconds", 0.1)
    batch = start(*given, "--out", tmp_path / "killed")
    checkpoints = tmp_path / "killed" / "checkpoints"
    wait_for(lambda: len({p.parent for p in checkpoints.glob("*/step-*.ckpt")}) == 2)
    victim = workers(batch.pid)[0]
    os.kill(victim, signal.SIGKILL)
    _, progress = batch.communicate(timeout=240)

    assert batch.returncode == 0, progress
    assert "killed by signal 9; attempt 1 is lost" in progress
    lost = [r for r in read_results(tmp_path / "killed") if len(r.attempts) == 2]
    assert len(lost) == 1
    assert lost[0].attempts[0].exit_cause == "lost: the process ended, killed by signal 9"
    assert lost[0].attempts[1].from_step > 0
    code, _, _ = finish(*given, "--out", tmp_path / "quiet")
    assert code == 0
    quiet = results(tmp_path / "quiet")
    for key, result in results(tmp_path / "killed").items():
        timed = "images_per_second"
        assert result.metrics | {timed: 0} == quiet[key].metrics | {timed: 0}
        assert result.curve("train_loss") == quiet[key].curve("train_loss")


def test_a_run_that_loses_three_processes_fails_and_its_neighbour_does_not(
    tmp_path: Path, data_home: Path
) -> None:
    path = write_spec(
        tmp_path, optimizers=["sgd", "adam"], base={"steps": 10**6, "report_every": 5}
    )
    short = write_spec(tmp_path, name="short", optimizers=["ndadam"])
    out = tmp_path / "out"
    batch = start(path, short, "--out", out, "--data-home", data_home)
    killed: set[int] = set()
    assert batch.stderr is not None
    # The first run never gets past its first report; the next one is stopped by hand.
    for line in batch.stderr:
        if "optimizer=sgd seed 0: step" in line and not killed.issuperset(workers(batch.pid)):
            pid = workers(batch.pid)[0]
            killed.add(pid)
            os.kill(pid, signal.SIGKILL)
        elif "optimizer=adam seed 0: step" in line:
            batch.send_signal(signal.SIGTERM)
            break
    batch.communicate(timeout=240)

    assert batch.returncode == 3
    assert len(killed) == 3
    (failed,) = [r for r in read_results(out) if r.state == "failed"]
    assert failed.config["optimizer"] == "sgd"
    assert failed.exit_cause == "lost 3 times, the process ended, killed by signal 9"
    assert [attempt.number for attempt in failed.attempts] == [1, 2, 3]
    assert list(out.glob("checkpoints/*/step-*.ckpt"))


def test_a_run_stopped_by_its_time_goes_on_from_there(tmp_path: Path, data_home: Path) -> None:
    path = write_spec(tmp_path, base={"steps": 150, "report_every": 10})
    given = (path, "--data-home", data_home, "--out", tmp_path / "out")
    batch = start(*given)
    assert batch.stderr is not None
    for line in batch.stderr:
        if "step 30/150" in line:
            batch.send_signal(signal.SIGINT)
            break
    table, progress = batch.communicate(timeout=240)

    assert batch.returncode == 3, progress
    assert "1 left of 1 runs" in table
    code, table, progress = finish(*given)
    assert code == 0
    (began,) = re.findall(r"begins from step ([\d,]+), attempt 2", progress)
    (result,) = read_results(tmp_path / "out")
    assert [a.exit_cause for a in result.attempts] == ["stopped in time", "complete"]
    assert result.attempts[1].from_step == int(began.replace(",", ""))
    assert [step for step, _ in result.curve("train_loss")] == list(range(10, 151, 10))


def test_no_run_is_started_that_would_not_finish_in_time(tmp_path: Path, data_home: Path) -> None:
    measured = write_spec(tmp_path, name="measured", base={"steps": 40, "report_every": 10})
    long = write_spec(tmp_path, name="long", base={"steps": 10**6, "report_every": 10})
    out = tmp_path / "out"
    code, table, progress = finish(
        measured, long, "--out", out, "--data-home", data_home, "--until", "10m"
    )

    # The shape is known from the first run: a million steps of it do not fit into ten minutes.
    assert code == 3, progress
    assert progress.count("begins") == 1
    assert "1 complete, 0 diverged, 0 failed, 1 left of 2 runs" in table


def test_what_runs_when_the_time_is_over_writes_a_checkpoint(
    tmp_path: Path, data_home: Path
) -> None:
    path = write_spec(tmp_path, base={"steps": 10**6, "report_every": 10})
    out = tmp_path / "out"
    for span in ("10s", "30s", "90s"):  # the longer ones for a machine that is busy
        code, _, progress = finish(path, "--out", out, "--data-home", data_home, "--until", span)
        if "begins" in progress:
            break

    assert code == 3
    assert "with a checkpoint" in progress
    assert len(list(out.glob("checkpoints/*/step-*.ckpt"))) == 1


def test_a_run_that_cannot_be_trained_is_recorded_and_can_be_tried_again(
    tmp_path: Path, data_home: Path
) -> None:
    # A checkpoint folder that holds only damaged files is refused by the trainer.
    path = write_spec(tmp_path, optimizers=["sgd", "ndadam"])
    out = tmp_path / "out"
    given = (path, "--out", out, "--data-home", data_home)
    first = plan_runs(read_specs([path]), data_home)[0]
    folder = out / "checkpoints" / first.name
    folder.mkdir(parents=True)
    (folder / "step-0000000002.ckpt").write_bytes(b"torn")
    code, table, progress = finish(*given)

    assert code == 1, progress
    assert "1 complete, 0 diverged, 1 failed, 0 left of 2 runs" in table
    failed = results(out)["sgd", 0]
    assert failed.exit_cause.startswith("CheckpointError: none of the 1 checkpoints")
    assert finish(*given)[0] == 1
    assert finish(*given, "--retry-failed")[0] == 0


def test_two_batches_in_one_folder_are_refused(tmp_path: Path, data_home: Path) -> None:
    path = write_spec(tmp_path, base={"steps": 10**6})
    given = (path, "--out", tmp_path / "out", "--data-home", data_home)
    first = start(*given)
    assert first.stderr is not None
    assert "1 runs, 0 of them done before" in first.stderr.readline()
    code, _, refused = finish(*given)
    children = workers(first.pid)
    first.kill()  # its process sees that nobody is there any more
    first.wait(10)
    with first.stderr, first.stdout:  # type: ignore[union-attr]
        pass

    assert code == 2
    assert "another batch runs in" in refused
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in children), 30)


def test_curves_in_a_file_are_thinned_and_keep_their_ends() -> None:
    reports = [
        Report(step=s, num_steps=5000, status="running", metrics={"train_loss": 1 / (s + 1)})
        for s in range(1, 5001)
    ]
    (curves,) = curves_of(reports)

    assert len(curves.steps) == 1000
    assert (curves.steps[0], curves.steps[-1]) == (1, 5000)
    assert curves.values["train_loss"][0] == 0.5
