"""A batch with real processes on the CPU: interrupted, killed, out of time, and gone on with."""

import os
import re
import signal
from pathlib import Path

import psutil
import pytest

from sweeps.batch.plan import plan_runs, read_specs
from sweeps.batch.results import (
    RunResult,
    curves_of,
    read_result,
    read_results,
    result_paths,
    write_result,
)
from tests.sweeps.batch.batch_cases import failed_result, finish, outcome, started, write_spec
from tests.sweeps.batch.turns import LONG, run_until, standing_still, wait_for
from worker import TrainConfig, train
from worker.checkpoints.report_journal import ReportJournal
from worker.data.fetch import prepare_digits
from worker.report import Report

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def data_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("data")
    prepare_digits(home)
    return home


def results(out: Path) -> dict[tuple[str, int], RunResult]:
    return {(r.config["optimizer"], r.seed): r for r in read_results(out)}


def workers(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children()]


def is_running(pid: int) -> bool:
    """Whether a process lives; one that has ended and that nobody has waited for does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def has_reported(out: Path) -> bool:
    """Whether any run that has not ended has."""
    return any(list(ReportJournal(folder).replay()) for folder in out.glob("checkpoints/*"))


def trained_in(folder: Path) -> int | None:
    """The process that trains a run, once it has a checkpoint to go on from."""
    steps = [int(path.stem.removeprefix("step-")) for path in folder.glob("step-*.ckpt")]
    pids = [r.provenance["pid"] for r in ReportJournal(folder).replay() if "pid" in r.provenance]
    return pids[0] if pids and any(steps) else None


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
    out = tmp_path / "killed"
    given = (path, "--data-home", data_home, "--processes", 2, "--checkpoint-seconds", 0.1)

    def under_way() -> list[int]:
        found = map(trained_in, out.glob("checkpoints/*"))
        return [pid for pid in found if pid is not None]

    with started(*given, "--out", out) as batch:
        assert batch.stderr is not None
        next(line for line in batch.stderr if ": begins" in line)
        processes = [psutil.Process(pid) for pid in workers(batch.pid)]
        with standing_still(*processes):
            run_until(lambda: has_reported(out), processes)
            # A checkpoint is written beside the training, which a slow disk would let run away.
            run_until(under_way, processes, rest=LONG)
            os.kill(under_way()[0], signal.SIGKILL)
        code, _, progress = outcome(batch)

    assert code == 0, progress
    assert "killed by signal 9; attempt 1 is lost" in progress
    lost = [r for r in read_results(out) if len(r.attempts) == 2]
    assert len(lost) == 1
    assert lost[0].attempts[0].exit_cause == "lost: the process ended, killed by signal 9"
    assert lost[0].attempts[1].from_step > 0
    for result in read_results(out):
        config = TrainConfig.model_validate(result.config | {"device": "cpu"})
        quiet = list(train(config, data_home=data_home))
        timed = {"images_per_second": 0}
        assert result.metrics | timed == quiet[-1].metrics | timed
        (wanted,) = curves_of(quiet)
        assert result.curve("train_loss") == list(
            zip(wanted.steps, wanted.values["train_loss"], strict=True)
        )


def test_a_run_that_loses_three_processes_fails_and_its_neighbour_does_not(
    tmp_path: Path, data_home: Path
) -> None:
    path = write_spec(
        tmp_path, optimizers=["sgd", "adam"], base={"steps": 10**6, "report_every": 5}
    )
    short = write_spec(tmp_path, name="short", optimizers=["ndadam"])
    out = tmp_path / "out"
    for run in plan_runs(read_specs([path]), data_home):
        write_result(out, failed_result(run, "failed the last time"))
    killed: set[int] = set()
    spared = True
    given = (path, short, "--out", out, "--data-home", data_home, "--retry-failed")
    with started(*given) as batch:
        assert batch.stderr is not None
        # The first run never gets past its first report; the next one is stopped by hand.
        for line in batch.stderr:
            if "optimizer=sgd seed 0: begins" in line:
                spared = False
            elif "optimizer=sgd seed 0: step" in line and not spared:
                # Once an attempt: more of its reports may be there to read.
                (pid,) = set(workers(batch.pid)) - killed
                killed.add(pid)
                os.kill(pid, signal.SIGKILL)
                spared = True
            elif "optimizer=adam seed 0: step" in line:
                batch.send_signal(signal.SIGTERM)
                break
        code, table, progress = outcome(batch)

    assert code == 3, progress
    assert len(killed) == 3
    assert "0 diverged, 1 failed" in table
    # Nothing is left of the failures of before, not even where the new attempt was cut short.
    assert "failed the last time" not in table
    (failed,) = [r for r in read_results(out) if r.state == "failed"]
    assert failed.config["optimizer"] == "sgd"
    assert failed.exit_cause == "lost 3 times, the process ended, killed by signal 9"
    assert [attempt.number for attempt in failed.attempts] == [1, 2, 3]
    assert list(out.glob("checkpoints/*/step-*.ckpt"))


def test_a_run_stopped_by_its_time_goes_on_from_there(tmp_path: Path, data_home: Path) -> None:
    path = write_spec(tmp_path, base={"steps": 150, "report_every": 10})
    out = tmp_path / "out"
    given = (path, "--data-home", data_home, "--out", out)
    with started(*given) as batch:
        assert batch.stderr is not None
        next(line for line in batch.stderr if ": begins" in line)
        (process,) = [psutil.Process(pid) for pid in workers(batch.pid)]
        with standing_still(process):  # it goes no further before it has been asked to stop
            run_until(lambda: has_reported(out), [process])
            batch.send_signal(signal.SIGINT)
            asked = "stopping: what runs was asked to write its checkpoint and end"
            next(line for line in batch.stderr if asked in line)
        code, table, progress = outcome(batch)

    assert code == 3, progress
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
    for span in ("5s", "15s", "45s", "135s"):  # the longer ones for a machine that is busy
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
    with started(*given) as first:
        assert first.stderr is not None
        assert "1 runs, 0 of them done before" in first.stderr.readline()
        code, _, refused = finish(*given)
        children = workers(first.pid)
    # Killed with the block; its process sees that nobody is there any more.

    assert code == 2
    assert "another batch runs in" in refused
    wait_for(lambda: not any(map(is_running, children)))


def test_curves_in_a_file_are_thinned_and_keep_their_ends() -> None:
    reports = [
        Report(step=s, num_steps=5000, status="running", metrics={"train_loss": 1 / (s + 1)})
        for s in range(1, 5001)
    ]
    (curves,) = curves_of(reports)

    assert len(curves.steps) == 1000
    assert (curves.steps[0], curves.steps[-1]) == (1, 5000)
    assert curves.values["train_loss"][0] == 0.5
