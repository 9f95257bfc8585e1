"""The run around replayed steps, with a graph that calls its launches again, on a CPU.

What needs a card is in test_cuda.py; the launches themselves are in test_step_program.py.
"""

import gc
import weakref
from functools import partial

import pytest
import torch

import worker
from worker import TrainConfig
from worker.device import choose_device
from worker.graph_steps import GraphSteps
from worker.run_state import Run

#: Deterministic runs take the plain loop all the same.
train = partial(worker.train, replay_steps=True)


class Replay:
    """Stands for a CUDA graph."""

    def __init__(self, program, size):
        self.program, self.size = program, size

    def replay(self):
        self.program.run(self.size)


@pytest.fixture(autouse=True)
def _replays(monkeypatch):
    monkeypatch.setattr(
        "worker.run_state._steps_in_graph", lambda config, *_: not config.deterministic
    )
    # The interpreter's time goes by programs.
    for size in ("norm_act._TILE", "norm_act._SUM_TILE", "conv_layers._COPIED"):
        monkeypatch.setattr(f"worker.{size}", 1 << 15)
    monkeypatch.setattr(GraphSteps, "_run_aside", lambda self, size: self._program.run(size))
    monkeypatch.setattr(GraphSteps, "_capture", lambda self, size: Replay(self._program, size))


def variant(config, **fields):
    base = config.model_dump(exclude_unset=True)
    if fields.get("optimizer", "ndadam") != "ndadam":
        base.pop("alpha_s", None)
    return TrainConfig.model_validate(base | {"device": "cpu"} | fields)


def run(config, home, **options):
    """Reports without what differs from run to run."""
    return [
        (report.step, report.status, {k: v for k, v in report.metrics.items() if "per_s" not in k})
        for report in train(config, data_home=home, **options)
    ]


# Small rates: the two round differently, and large ones turn that into other weights.
@pytest.mark.parametrize(
    "fields",
    [{"alpha_v": 0.005}, {"optimizer": "sgd", "lr": 0.01, "last_batch": "keep", "batch_size": 40}],
    ids=["ndadam", "sgd, kept batch"],
)
def test_a_run_of_replays_reports_what_the_loop_does(fields, data_home, tiny_config):
    config = variant(tiny_config, steps=11, **fields)

    replayed = run(config, data_home)
    loop = run(variant(config, deterministic=True, **fields), data_home)

    for (*progress, metrics), (*expected, others) in zip(replayed, loop, strict=True):
        assert progress == expected
        assert metrics.keys() == others.keys()
        for name, value in others.items():
            assert metrics[name] == pytest.approx(value, rel=1e-3), name


def test_replays_go_on_from_a_checkpoint(data_home, tiny_config, tmp_path):
    """Inside an epoch, before and after the capture."""
    config = variant(tiny_config, steps=8)
    whole = run(config, data_home)
    questions = iter(range(100))
    stop = {"checkpoint_dir": tmp_path, "stop": lambda: next(questions) in (2, 8)}

    parts = [report for _ in range(3) for report in run(config, data_home, **stop)]

    assert parts == whole


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter
def test_a_divergence_is_found_in_the_record(data_home, tiny_config, monkeypatch):
    monkeypatch.setattr("worker.tally.DRAIN_STEPS", 4)
    config = variant(tiny_config, optimizer="sgd", lr=1e12, steps=500, report_every=500)

    (last,) = train(config, data_home=data_home)

    assert last.status == "diverged"
    assert last.diverged_at_step <= 8


def test_a_run_is_freed_as_soon_as_it_is_dropped(data_home, tiny_config):
    """What a card holds for it must not wait for the garbage collector."""
    config = variant(tiny_config).resolved()
    run = Run(config, data_home, choose_device(config), None, lambda: False, replay_steps=True)
    for _ in range(2):
        run.take_step()
    run.tally.drain()
    held = [weakref.ref(x) for x in (run, run.steps, run.model, run.optimizer, run.model.stem)]
    gc.collect()
    gc.disable()

    try:
        del run
        assert [ref() is None for ref in held] == [True] * len(held)
    finally:
        gc.enable()


def test_learning_rates_are_those_of_the_schedule(data_home, tiny_config):
    config = variant(tiny_config, lr_schedule=((0, 0.0), (6, 1.0), (12, 0.1)), steps=12).resolved()
    run = Run(config, data_home, choose_device(config), None, lambda: False, replay_steps=True)

    for step in range(5):
        run.take_step()
        rates = [group["lr"] for group in run.optimizer.param_groups]
        assert all(isinstance(rate, torch.Tensor) for rate in rates)
        assert [float(rate) for rate in rates] == pytest.approx(run._rates.at(step))
