"""Training functions of a package, through Ray Tune: reports, errors, a pause and what follows."""

import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

from sweeps.records import TrialState
from sweeps.spec.sweep_spec import SweepSpec
from tests.sweeps.stack import Stack, running_stack, until
from tests.worker.training.installed import on_path, write_package

pytestmark = [
    pytest.mark.stack,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

SOURCE = """
    import time
    from dataclasses import dataclass
    from typing import Literal
    import ndsweep

    @dataclass(frozen=True)
    class Config:
        rate: float = 0.1
        steps: int = 20
        pause: float = 0.0
        way: Literal["plain", "raise", "exit", "nothing", "nan", "hang"] = "plain"

    @ndsweep.training(metrics={"loss": ndsweep.Metric("minimize")})
    def train(config: Config, run: ndsweep.Run) -> None:
        if config.way == "nothing":
            return
        while config.way == "hang":
            time.sleep(1)
        run.num_steps = config.steps
        folder, start = run.restore(), 0
        if folder is not None:
            start = int((folder / "step").read_text())
            run.log.info("went on from %d", start)
        for step in range(start + 1, config.steps + 1):
            loss = config.rate + 1 / step
            if step == 7 and config.way == "raise":
                raise ValueError("no such luck")
            if step == 7 and config.way == "exit":
                raise SystemExit(3)
            if step == 7 and config.way == "nan":
                loss = float("nan")
            run.report(step, {"loss": loss, "size": config.steps})
            run.checkpoint(lambda folder: (folder / "step").write_text(str(step)))
            time.sleep(config.pause)
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    package = write_package(tmp_path_factory.mktemp("package"), textwrap.dedent(SOURCE))
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch, on_path(package):
        patch.setenv("PYTHONPATH", str(package))
        with running_stack(home, "worker.tune_trainable:trainable") as stack:
            yield stack


def own(version: str = "1.2", **fields: Any) -> SweepSpec:
    spec = {
        "name": "own",
        "training": "mine",
        "base": {"steps": 20},
        "space": {"rate": {"kind": "choice", "values": [0.1, 0.2]}},
        "sampler": "grid",
        "objective": {"metric": "loss"},
        "package": {"name": "my-package", "version": version},
    }
    found = SweepSpec.model_validate(spec | fields)
    return found.model_copy(update={"metrics": found.known_metrics()})


def test_functions_are_trained_in_every_way_that_they_may_end(stack: Stack) -> None:
    ways = {"kind": "choice", "values": ["plain", "raise", "exit", "nothing", "nan"]}
    sweep = stack.submit(own(space={"way": ways}))
    many = stack.submit(own(base={"steps": 3000}))
    other = stack.submit(own(version="1.3"))
    hang = {"way": {"kind": "choice", "values": ["hang"]}}
    hangs = stack.submit(own(space=hang, limits={"wall_seconds": 2.0}))
    ended = stack.finish(sweep)
    trials = {str(trial.params["way"]): trial for trial in stack.trials(sweep)}

    assert ended.reason == "all done; 3 trials failed"
    assert {way: (trial.state.value, trial.exit_cause) for way, trial in trials.items()} == {
        "plain": ("complete", "complete"),
        "raise": ("failed", "ValueError: no such luck"),
        "exit": ("failed", "FunctionExited: the training function ended with SystemExit: 3"),
        "nothing": ("failed", "ended without a report"),
        "nan": ("diverged", "diverged at step 7"),
    }
    plain = trials["plain"]
    assert (plain.step, plain.num_steps, plain.metrics["size"]) == (20, 20, 20.0)
    # What it used of its machine, which has no card that it asks.
    assert (plain.usage.cpu_hours or 0) > 0
    assert (plain.usage.memory_megabytes or 0) > 50
    assert plain.usage.gpu_hours is None
    assert "process_memory_usage_megabytes" in stack.store.usage_curves(sweep, plain.number)
    assert plain.objective == pytest.approx(0.1 + 1 / 20)
    curve = stack.store.metrics(sweep, plain.number, ["loss"])["loss"]
    assert [step for step, _ in curve] == list(range(1, 21))
    (attempt,) = stack.store.trial(sweep, plain.number).attempts
    assert attempt.provenance["training"] == "mine"
    assert attempt.provenance["package_version"] == "1.2"
    assert "ValueError: no such luck" in (
        stack.home / "logs" / sweep / f"{trials['raise'].number}.log"
    ).read_text("utf-8")

    stack.finish(many)
    for trial in stack.trials(many):
        curve = stack.store.metrics(many, trial.number, ["loss"], max_points=10_000)["loss"]
        assert [step for step, _ in curve] == list(range(1, 3001))
        assert trial.state == TrialState.COMPLETE

    stack.finish(hangs)
    assert [trial.exit_cause for trial in stack.trials(hangs)] == ["limit: 2 s of wall time"]

    stack.finish(other)
    for trial in stack.trials(other):
        assert "was submitted with my-package 1.3, and " in trial.exit_cause
        assert trial.exit_cause.endswith("run pip install my-package==1.3 there")


def test_a_paused_function_goes_on_from_its_checkpoint(stack: Stack) -> None:
    sweep = stack.submit(own(base={"steps": 60, "pause": 0.1}, space={"rate": RATE}))
    until(lambda: any(t.step > 5 for t in stack.trials(sweep)), "a trial reports")
    stack.store.request(sweep, "pause")
    stack.wait(sweep, lambda found: found.state.value == "paused", "paused")
    paused_at = [trial.step for trial in stack.trials(sweep)]
    stack.store.resume(sweep)
    stack.finish(sweep)

    assert all(5 < step < 60 for step in paused_at)
    for trial in stack.trials(sweep):
        log = (stack.home / "logs" / sweep / f"{trial.number}.log").read_text("utf-8")
        curve = stack.store.metrics(sweep, trial.number, ["loss"])["loss"]
        assert "went on from" in log
        assert [step for step, _ in curve] == list(range(1, 61))
        assert trial.state == TrialState.COMPLETE


RATE = {"kind": "choice", "values": [0.1]}
