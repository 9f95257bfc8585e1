"""Trials that run a training function of a package's own."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.worker.training.installed import DESCENT, on_path, write_package
from worker.checkpoints.report_journal import ReportJournal
from worker.errors import PackageMismatch
from worker.report import Report
from worker.training.trial import trial_batches, trial_reports

ROOT = Path(__file__).parents[3]


@pytest.fixture
def descent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = write_package(tmp_path_factory.mktemp("descent"))
    with on_path(folder):
        yield folder


def task(folder: Path, **fields: Any) -> dict[str, Any]:
    return {
        "training": "mine",
        "config": {"rate": 0.1, "steps": 20, "seed": 0},
        "device": "cpu",
        "checkpoint_dir": str(folder / "trial"),
        "data_home": None,
        "objective": {"metric": "loss", "direction": "minimize"},
    } | fields


def reached(step: int, folder: Path) -> Callable[[], bool]:
    """A request to stop that comes with the report of a step."""
    journal = ReportJournal(folder / "trial")
    return lambda: any(report.step >= step for report in journal.replay())


def module(source: str, head: str = "") -> str:
    """Text of a module whose training function has this body."""
    body = textwrap.indent(textwrap.dedent(source), "    ")
    return f"""
from dataclasses import dataclass
import ndsweep
{head}
@dataclass
class Config:
    steps: int = 3

@ndsweep.training(metrics={{"loss": ndsweep.Metric("minimize")}})
def train(config: Config, run: ndsweep.Run) -> None:
{body}
"""


def run(source: str, folder: Path, head: str = "", **fields: Any) -> list[Report]:
    """Reports of a trial whose function has this body."""
    with on_path(write_package(folder / "package", module(source, head))):
        return list(trial_reports(task(folder, config={"steps": 3, "seed": 5}, **fields)))


def test_a_function_reports_and_its_end_is_the_last_report(descent: Path, tmp_path: Path) -> None:
    reports = list(trial_reports(task(tmp_path)))
    last = reports[-1]

    assert [report.step for report in reports] == [*range(1, 21), 20]
    assert reports[0].metrics == {"loss": pytest.approx(0.64)}
    assert {report.status for report in reports[:-1]} == {"running"}
    assert (last.status, last.num_steps, last.metrics) == ("complete", 20, {})
    for report in (reports[0], last):
        found = report.provenance
        assert (found["training"], found["package"], found["package_version"]) == (
            "mine",
            "my-package",
            "1.2",
        )
        assert found["versions"]["my-package"] == "1.2"
        assert found["host"]
        assert found["peak_memory_bytes"] > 1e6


def test_a_function_needs_no_torch(descent: Path, tmp_path: Path) -> None:
    code = f"""
        import sys
        sys.path.insert(0, {str(descent)!r})
        from worker.training.trial import trial_reports
        reports = list(trial_reports({task(tmp_path)!r}))
        assert reports[-1].status == "complete"
        sys.exit(bool({{"torch", "ray"}} & set(sys.modules)))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT)

    assert done.returncode == 0


def test_a_stopped_function_goes_on_from_its_checkpoint(
    descent: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="worker")
    whole = list(trial_reports(task(tmp_path / "whole")))
    first = list(trial_reports(task(tmp_path), stop=reached(7, tmp_path)))
    second = list(trial_reports(task(tmp_path)))

    assert (first[-1].step, first[-1].status) == (8, "running")
    assert (tmp_path / "trial" / "saved-000001" / "x").read_text().startswith("7 ")
    assert [(r.step, r.metrics) for r in second] == [(r.step, r.metrics) for r in whole]
    assert second[: len(first)] == first
    assert [text for text in caplog.messages if text.startswith("goes on")] == [
        "goes on from the checkpoint at step 7"
    ]


def test_reports_that_come_quickly_travel_together(tmp_path: Path) -> None:
    source = "for step in range(5000): run.report(step, {'loss': 1.0 / (step + 1)})"
    body = textwrap.indent(source, "    ")
    text = DESCENT.partition("        run.num_steps")[0]
    with on_path(write_package(tmp_path / "package", textwrap.dedent(text) + body)):
        batches = []
        for batch in trial_batches(task(tmp_path)):
            batches.append(batch)
            time.sleep(0.01)  # about what Tune takes

    assert [r.step for batch in batches for r in batch] == [*range(5000), 4999]
    assert len(batches) < 1000


def test_a_function_that_falls_silent_is_said_to_be(tmp_path: Path) -> None:
    source = """
        run.report(step=1, metrics={"loss": 1.0})
        time.sleep(1.5)
        run.report(step=2, metrics={"loss": 0.5})
    """
    with on_path(write_package(tmp_path / "package", module(source, "import time"))):
        batches = trial_batches(task(tmp_path, config={"steps": 3, "seed": 5}))
        steps = [[report.step for report in batch] for batch in batches]
    # The last report and the end may come together.
    assert steps[:2] == [[1], []]
    assert steps[2][0] == 2


def test_a_training_in_turns_that_falls_silent_is_said_to_be(tmp_path: Path) -> None:
    source = """
        import time
        import ndsweep
        from worker.config.train_config import TrainConfig
        from worker.report import Report

        @ndsweep.training()
        def train(config: TrainConfig, run):
            for step in (1, 2):
                run.give(Report(step=step, num_steps=3, status="running", metrics={}))
                yield None
            for pause in (0.0, 1.2, 0.0, 1.2):
                time.sleep(pause)
                yield "a turn"
            run.give(Report(step=3, num_steps=3, status="complete", metrics={}))
            yield None
    """
    with on_path(write_package(tmp_path / "package", source)):
        steps = [[r.step for r in batch] for batch in trial_batches(task(tmp_path, config={}))]

    # Once: Tune then passes on what it held back of the two that came together.
    assert steps == [[1], [2], [], [3]]


def test_weights_that_a_function_saves_are_tensors_by_name(tmp_path: Path) -> None:
    source = """
        import torch
        model = torch.nn.Linear(2, 1)
        wrong = ([1], "list"), ({"a": 1.0}, "float"), ({1: model.bias}, "Parameter")
        for weights, kind in ((model, None), *wrong):
            try:
                run.save_weights(weights)
            except TypeError as error:
                assert kind and f"got {kind}" in str(error), error
            else:
                assert kind is None, kind
        run.save_weights({"w": torch.nn.Parameter(torch.tensor([1.0, run.seed]))})
        run.report(step=1, metrics={"loss": 1.0}, num_steps=1)
    """
    run(source, tmp_path)

    found = torch.load(tmp_path / "trial" / "weights.pt", weights_only=True)
    assert found["config"] == {"steps": 3, "seed": 5}
    assert found["state"]["w"].tolist() == [1.0, 5.0]


def test_what_a_function_raises_is_raised(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        run("run.report(1, {'loss': 1.0})\n1 / 0", tmp_path)

    assert [report.step for report in ReportJournal(tmp_path / "trial").replay()] == [1]


def test_a_function_that_exits_fails_its_trial_alone(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the training function ended with SystemExit: 3"):
        run("raise SystemExit(3)", tmp_path)


def test_a_function_that_reports_nothing_has_no_last_report(tmp_path: Path) -> None:
    assert run("pass", tmp_path) == []


def test_a_loss_that_is_nan_ends_the_run_as_diverged(tmp_path: Path) -> None:
    source = """
    for step in range(1, 9):
        run.report(step, {"loss": float("nan") if step == 3 else 1.0, "size": step})
    raise AssertionError("nobody stopped it")
    """
    reports = run(source, tmp_path)

    assert [report.status for report in reports] == ["running", "running", "diverged"]
    assert reports[-1].diverged_at_step == 3
    assert reports[-1].metrics == {"size": 3.0}


def test_another_metric_may_be_nan(tmp_path: Path) -> None:
    reports = run("run.report(1, {'loss': 1.0, 'ratio': float('nan')})", tmp_path)
    again = list(ReportJournal(tmp_path / "trial").replay())

    assert str(reports[0].metrics["ratio"]) == "nan"
    assert str(again[0].metrics["ratio"]) == "nan"


def test_the_seed_and_the_device_are_the_trial_s(tmp_path: Path) -> None:
    reports = run("run.report(1, {'loss': 0.0, 'seed': run.seed, run.device: 1})", tmp_path)

    assert reports[0].metrics == {"loss": 0.0, "seed": 5.0, "cpu": 1.0}


#: What a function reports -> error and part of its sentence.
WRONG = [
    ("run.report(2, {}); run.report(1, {})", ValueError, "not go backwards: got 1 after 2"),
    ("run.report(1.5, {})", TypeError, "step must be a whole number, got 1.5"),
    ("run.report(True, {})", TypeError, "step must be a whole number, got True"),
    ("run.report(-1, {})", ValueError, "between 0 and 10^15, got -1"),
    ("run.report(1, {'loss': '0.1'})", TypeError, "metric 'loss' must be a number, got '0.1'"),
    ("run.report(1, {'loss': None})", TypeError, "metric 'loss' must be a number, got None"),
    ("run.report(1, {'loss': [1]})", TypeError, "metric 'loss' must be a number, got [1]"),
    ("run.report(1, {'loss': object()})", TypeError, "metric 'loss' must be a number"),
    ("run.report(1, {'': 1})", ValueError, "a text of 1 to 100 characters, got ''"),
    ("run.report(1, {3: 1})", ValueError, "a text of 1 to 100 characters, got 3"),
    ("run.report(1, {'a\\nb': 1})", ValueError, "printable"),
    ("run.report(1, [1])", TypeError, "metrics must be a mapping of names to numbers, got [1]"),
    ("run.report(1, {'test_error': 4.2})", ValueError, "'test_error' is a fraction of the data"),
]


@pytest.mark.parametrize(("source", "error", "sentence"), WRONG)
def test_what_cannot_be_recorded_is_refused_by_name(
    source: str, error: type[Exception], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(error) as caught:
        run(source, tmp_path)

    assert sentence in str(caught.value)


def test_numbers_of_numpy_and_torch_are_numbers(tmp_path: Path) -> None:
    source = """
    import numpy, torch
    run.report(numpy.int64(1), {"loss": numpy.float32(0.5), "a": torch.tensor(2.0), "b": 3})
    """

    assert run(source, tmp_path)[0].metrics == {"loss": 0.5, "a": 2.0, "b": 3.0}


def test_a_million_metrics_are_cut_to_a_thousand_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = "run.report(1, {'loss': 1.0} | {f'm{i}': i for i in range(10**6)})"
    reports = run(source, tmp_path)

    assert len(reports[0].metrics) == 1000
    assert caplog.text.count("a trial may have 1,000 metrics") == 1
    assert caplog.text.count("metric 'm0' is not declared") == 1


def test_two_reports_of_one_step_are_both_kept(tmp_path: Path) -> None:
    run("run.report(1, {'loss': 1.0})\nrun.report(1, {'time': 2.0})", tmp_path)

    kept = [report.metrics for report in ReportJournal(tmp_path / "trial").replay()]
    assert kept == [{"loss": 1.0}, {"time": 2.0}, {}]


# --- Stops ------------------------------------------------------------------------------------

LOOP = """
for step in range(1, 100):
    run.report(step, {"loss": 1.0})
"""


def stopped(source: str, folder: Path, at: int) -> list[Report]:
    """Reports of a run that is asked to stop with its report of step ``at``."""
    body = textwrap.indent(textwrap.dedent(source), "    ")
    text = f"""
from dataclasses import dataclass
import ndsweep

@dataclass
class Config:
    steps: int = 3

@ndsweep.training()
def train(config: Config, run: ndsweep.Run) -> None:
{body}
"""
    asked = task(folder, config={"steps": 3, "seed": 5}, objective=None)
    with on_path(write_package(folder / "package", text)):
        return list(trial_reports(asked, reached(at, folder)))


def test_the_second_report_after_a_request_to_stop_is_the_last(tmp_path: Path) -> None:
    reports = stopped(LOOP, tmp_path, at=5)

    assert [report.step for report in reports] == [1, 2, 3, 4, 5, 6]
    assert reports[-1].status == "running"


def test_after_a_checkpoint_the_next_report_is_the_last(tmp_path: Path) -> None:
    source = LOOP + "    run.checkpoint(lambda folder: (folder / 'x').touch())\n"
    reports = stopped(source, tmp_path, at=5)

    assert [report.step for report in reports] == [1, 2, 3, 4, 5, 6]
    assert (tmp_path / "trial" / "saved-000001" / "x").exists()


def test_a_function_may_look_for_the_request_and_leave(tmp_path: Path) -> None:
    reports = stopped(LOOP + "    if run.should_stop(): return\n", tmp_path, at=5)

    assert [(report.step, report.status) for report in reports][-1] == (5, "running")


def test_a_function_whose_reports_nobody_hears_ends(descent: Path, tmp_path: Path) -> None:
    before = threading.active_count()
    reports = trial_reports(task(tmp_path, config={"steps": 10**9, "seed": 0}))
    next(reports)
    reports.close()

    assert threading.active_count() == before


# --- Packages ---------------------------------------------------------------------------------


def test_another_version_than_at_submission_is_refused(descent: Path, tmp_path: Path) -> None:
    wanted = {"name": "my-package", "version": "1.3"}

    with pytest.raises(PackageMismatch) as caught:
        list(trial_reports(task(tmp_path, package=wanted)))
    assert "was submitted with my-package 1.3, and " in str(caught.value)
    assert str(caught.value).endswith("has my-package 1.2; run pip install my-package==1.3 there")
    assert list(trial_reports(task(tmp_path, package=wanted | {"version": "1.2"})))


# --- kill -9 ----------------------------------------------------------------------------------


def test_a_killed_process_loses_no_report_that_returned(tmp_path: Path) -> None:
    """10,000 reports, killed in the middle: the file has every one that ``report`` returned for."""
    told = tmp_path / "told"
    text = DESCENT.partition("        run.num_steps")[0]
    body = f"""
    import os
    told = os.open({str(told)!r}, os.O_CREAT | os.O_WRONLY)
    for step in range(1, 10_001):
        run.report(step, {{"loss": 1.0 / step}})
        os.pwrite(told, b"%8d" % step, 0)
    """
    source = textwrap.dedent(text) + textwrap.indent(textwrap.dedent(body), "    ")
    package = write_package(tmp_path / "package", source)
    code = f"""
        import sys, time
        sys.path.insert(0, {str(package)!r})
        from worker.training.trial import trial_batches
        for batch in trial_batches({task(tmp_path)!r}):
            time.sleep(0.001)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT)
    while not told.exists() or told.read_bytes() < b"    4000":
        assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    last = int(told.read_bytes())
    kept = [report.step for report in ReportJournal(tmp_path / "trial").replay()]

    assert 4000 <= last < 10_000
    assert kept[:last] == list(range(1, last + 1))
    with on_path(package):
        reports = list(trial_reports(task(tmp_path)))
    assert [report.step for report in reports] == [*range(1, 10_001), 10_000]
