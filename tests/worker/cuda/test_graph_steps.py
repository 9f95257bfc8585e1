"""The run around replayed steps, with a graph that calls its launches again, on a CPU.

What needs a card is in test_cuda.py; the launches themselves are in test_step_program.py.
"""

import gc
import math
import os
import weakref
from functools import partial
from typing import ClassVar

import pytest
import torch
from torch.overrides import TorchFunctionMode

import worker
from tests.worker.conftest import made_up_arrays, result_of
from worker import Measurement, TrainConfig
from worker.checkpoints.background_writer import CheckpointWriter
from worker.cuda.graph_recorder import GraphRecorder
from worker.cuda.step_inputs import DevicePlan, RecordRead
from worker.data.augment import plain
from worker.data.prepared import write_dataset
from worker.steps import evaluation
from worker.steps.device import choose_device
from worker.steps.turns import Turn
from worker.training.run import Run

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1",
    reason="needs Triton's interpreter, as there is without a card or with TRITON_INTERPRET=1",
)

#: Deterministic runs take the plain loop all the same.
train = partial(worker.train, replay_steps=True)


class Replay:
    """Stands for a CUDA graph, of whose steps no hook of the optimizer is called."""

    under_way = False

    def __init__(self, launches):
        self.launches = launches

    def replay(self):
        Replay.under_way = True
        try:
            self.launches()
        finally:
            Replay.under_way = False


@pytest.fixture(autouse=True)
def _replays(monkeypatch):
    monkeypatch.setattr(
        "worker.training.run._steps_in_graph", lambda config, *_: not config.deterministic
    )
    # The interpreter's time goes by programs.
    for size in ("norm_layers._TILE", "norm_layers._SUM_TILE", "conv_layers._COPIED"):
        monkeypatch.setattr(f"worker.cuda.{size}", 1 << 15)
    monkeypatch.setattr(
        "ndadam.dynamics.effective_lr.is_capturing", lambda device: Replay.under_way
    )
    monkeypatch.setattr(GraphRecorder, "run_aside", lambda self, launches: launches())
    monkeypatch.setattr(GraphRecorder, "_capture", lambda self, launches: Replay(launches))


@pytest.fixture(scope="module")
def few_home(tmp_path_factory):
    """A data home with ``few``: a quarter of ``colours``. The interpreter takes image by image."""
    home = tmp_path_factory.mktemp("few")
    arrays = made_up_arrays(train=26, test=6)
    write_dataset("few", home, arrays, classes=tuple("abcd"), source="made up")
    return home


@pytest.fixture
def few_config(tiny_config):
    """``tiny_config`` with batches a quarter as large: as many of them make an epoch."""
    return variant(tiny_config, dataset="few", batch_size=5)


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
    [{"alpha_v": 0.005}, {"optimizer": "sgd", "lr": 0.01, "last_batch": "keep", "batch_size": 10}],
    ids=["ndadam", "sgd, kept batch"],
)
def test_a_run_of_replays_reports_what_the_loop_does(fields, few_home, few_config):
    config = variant(few_config, steps=11, **fields)

    replayed = run(config, few_home)
    loop = run(variant(config, deterministic=True, **fields), few_home)

    for (*progress, metrics), (*expected, others) in zip(replayed, loop, strict=True):
        assert progress == expected
        assert metrics.keys() == others.keys()
        for name, value in others.items():
            assert metrics[name] == pytest.approx(value, rel=1e-3), name


def test_replays_go_on_from_a_checkpoint(few_home, few_config, tmp_path):
    """Inside an epoch, before and after the capture."""
    config = variant(few_config, steps=8)
    whole = run(config, few_home)
    questions = iter(range(100))
    stop = {"checkpoint_dir": tmp_path, "stop": lambda: next(questions) in (2, 8)}

    parts = [report for _ in range(3) for report in run(config, few_home, **stop)]

    assert parts == whole


def test_no_checkpoint_is_written_beside_a_recording(few_home, few_config, monkeypatch):
    recorded = []
    monkeypatch.setattr(
        CheckpointWriter, "finish", lambda self: recorded.append(len(run.steps._graphs))
    )
    config = variant(few_config).resolved()
    run = Run(config, few_home, choose_device(config), None, lambda: False, replay_steps=True)

    for _ in range(6):
        run.take_step()

    assert recorded == [0]
    assert len(run.steps._graphs) == 1


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, in the interpreter
def test_a_divergence_is_found_in_the_record(few_home, few_config, monkeypatch):
    monkeypatch.setattr("worker.steps.metrics.DRAIN_STEPS", 4)
    config = variant(few_config, optimizer="sgd", lr=1e12, steps=500, report_every=500)

    (last,) = train(config, data_home=few_home)

    assert last.status == "diverged"
    assert last.diverged_at_step <= 8


def test_a_run_is_freed_as_soon_as_it_is_dropped(few_home, few_config):
    """What a card holds for it must not wait for the garbage collector."""
    config = variant(few_config).resolved()
    run = Run(config, few_home, choose_device(config), None, lambda: False, replay_steps=True)
    for _ in range(2):
        run.take_step()
        result_of(run._evaluate())
    run.tally.drain()
    held = [weakref.ref(x) for x in (run, run.steps, run.model, run.optimizer, run.model.stem)]
    gc.collect()
    gc.disable()

    try:
        del run
        assert [ref() is None for ref in held] == [True] * len(held)
    finally:
        gc.enable()


def test_learning_rates_are_those_of_the_schedule(few_home, few_config):
    config = variant(few_config, lr_schedule=((0, 0.0), (6, 1.0), (12, 0.1)), steps=12).resolved()
    run = Run(config, few_home, choose_device(config), None, lambda: False, replay_steps=True)

    for step in range(5):
        run.take_step()
        rates = [group["lr"] for group in run.optimizer.param_groups]
        assert all(isinstance(rate, torch.Tensor) for rate in rates)
        assert [float(rate) for rate in rates] == pytest.approx(run._rates.at(step))


class NoWait(TorchFunctionMode):
    """Refuses what would make a host wait for a card, or copies from its ordinary memory."""

    REFUSED: ClassVar = {
        torch.tensor,
        torch.as_tensor,
        torch.from_numpy,
        torch.nonzero,
        torch.masked_select,
        *(
            getattr(torch.Tensor, name)
            for name in (
                "new_tensor item tolist numpy cpu nonzero masked_select __bool__ __int__ __float__ "
                "__index__ __contains__"
            ).split()
        ),
    }

    def __torch_function__(self, func, types, args=(), kwargs=None):
        assert func not in self.REFUSED, func
        if func is torch.Tensor.__getitem__:
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            assert not any(isinstance(i, torch.Tensor | list) for i in index), "waits for its size"
        return func(*args, **(kwargs or {}))


@pytest.fixture
def _host_work(monkeypatch):
    """What reads the host's own memory may do all that, and in a graph the host does nothing."""

    def on_host(owner, name):
        method = getattr(owner, name)

        def unwatched(*args):
            with torch._C.DisableTorchFunction():
                return method(*args)

        monkeypatch.setattr(owner, name, unwatched)

    on_host(DevicePlan, "_draw")
    on_host(RecordRead, "records")
    on_host(Replay, "replay")


@pytest.mark.usefixtures("_host_work")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("optimizer", ["sgd", "ndadam"])
def test_nothing_waits_for_a_card_before_a_run_settles(optimizer, few_home, few_config):
    """Steps, what a report measures in them, and the evaluation behind it."""
    config = variant(few_config, optimizer=optimizer, steps=20).resolved()
    run = Run(config, few_home, choose_device(config), None, lambda: False, replay_steps=True)
    for _ in range(5):
        run.take_step()
    for _ in range(2):  # The second evaluation is all replays.
        turns = run._evaluate()
        with NoWait():
            while not run.is_report_due():
                run.take_step()
            assert next(turns) is Turn.SETTLE
        with pytest.raises(AssertionError):
            with NoWait():
                next(turns)
        run.tally.drain()
        run.tally.reset()
    assert run.dynamics.metrics()


def test_a_replayed_evaluation_is_that_of_single_calls_to_the_bit(
    data_home, tiny_config, monkeypatch
):
    """Several sizes of batch, sets in turn, weights and statistics that change in between."""
    monkeypatch.setitem(evaluation.BATCH, "cpu", 10)
    config = variant(
        tiny_config, batch_size=5, test_evaluation="curve", steps=9, report_every=3
    ).resolved()
    run = Run(config, data_home, choose_device(config), None, lambda: False, replay_steps=True)
    data, program = run.data, run.steps._program
    for _ in range(3):
        run.take_step()
        found = result_of(run._evaluate())
        run.model.eval()
        for name, pixels, indices in (
            ("validation_error", data.train, data.validation_indices),
            ("test_error", data.test, data.test_indices),
        ):
            with torch.no_grad():
                logits = [program.logits(plain(pixels, part)) for part in torch.split(indices, 10)]
            wrong = torch.cat(logits).argmax(1) != pixels.labels[indices]
            assert found[name] == wrong.sum().item() / len(indices)
        run.model.train()
    recorded = run.steps._evaluation._batches.values()
    # 12 and 24 images in batches of 10.
    assert sorted(len(batch._indices) for batch in recorded) == [2, 4, 10, 10]
    assert all(batch._graph is not None for batch in recorded)


def test_weights_that_are_not_finite_are_seen_by_a_replayed_evaluation(few_home, few_config):
    config = variant(few_config).resolved()
    run = Run(config, few_home, choose_device(config), None, lambda: False, replay_steps=True)
    for spoilt in (False, True):
        if spoilt:
            run.model.head.weight.data[0] = math.nan
        for _ in range(2):
            found = result_of(run._evaluate())
            assert (found is None) == spoilt


SGD = {"optimizer": "sgd", "lr": 0.01, "last_batch": "keep", "batch_size": 40}
#: Gains are known from the seventh step on.
SHADOW = (0.2, 0.99)


@pytest.fixture
def _captures_early(monkeypatch):
    """A graph of each kind from its second step on, so that few steps see them all."""
    monkeypatch.setattr("worker.cuda.graph_steps._WARM_STEPS", 1)


@pytest.mark.usefixtures("_captures_early")
@pytest.mark.parametrize(
    ("steps", "fields", "measurement"),
    [
        (9, SGD, Measurement(shadow_betas=SHADOW, per_layer=True, start=2)),
        (9, SGD, Measurement(shadow_betas=SHADOW, stop=7, every=2)),
        (6, {"alpha_v": 0.005}, Measurement(every=2)),
    ],
    ids=["all of it", "part of it", "steps that nobody looks at"],
)
def test_a_measured_run_of_replays_records_what_the_loop_does(
    steps, fields, measurement, data_home, tiny_config
):
    config = variant(tiny_config, steps=steps, **fields)

    replayed = list(train(config, data_home=data_home, measurement=measurement))
    exact = variant(config, deterministic=True, **fields)
    loop = list(train(exact, data_home=data_home, measurement=measurement))

    for report, other in zip(replayed, loop, strict=True):
        assert report.series.keys() == other.series.keys()
        for name, series in other.series.items():
            assert report.series[name].start == series.start
            assert report.series[name].values == pytest.approx(series.values, rel=5e-3), name
    assert any(report.series for report in loop)
    assert ("gain" in loop[-1].metrics) == (measurement.shadow_betas is not None)
    for name, value in loop[-1].metrics.items():
        if name.split("/")[0] in ("gain", "gradient_memory", "kappa", "train_loss"):
            # Gains are means of few steps, whose gradients round differently.
            assert replayed[-1].metrics[name] == pytest.approx(value, rel=2e-2), name


@pytest.mark.usefixtures("_captures_early")
def test_a_measured_run_has_a_graph_for_each_thing_done_around_a_step(few_home, few_config):
    measurement = Measurement(shadow_betas=SHADOW, stop=4, every=2)
    config = variant(few_config, steps=40, optimizer="sgd", lr=0.01).resolved()
    run = Run(config, few_home, choose_device(config), measurement, lambda: False)

    for _ in range(6):
        run.take_step()

    assert {phase.value for _, phase in run.steps._graphs} == {"passed", "carried", "recorded"}


def test_a_measured_run_goes_on_from_a_checkpoint(few_home, few_config, tmp_path):
    measurement = Measurement(shadow_betas=SHADOW, every=2)
    config = variant(few_config, steps=10, optimizer="sgd", lr=0.01)
    whole = list(train(config, data_home=few_home, measurement=measurement))
    questions = iter(range(100))
    stop = {"checkpoint_dir": tmp_path, "stop": lambda: next(questions) == 7}

    parts = [
        report
        for _ in range(2)
        for report in train(config, data_home=few_home, measurement=measurement, **stop)
    ]

    assert [r.series for r in parts] == [r.series for r in whole]
    for name in ("gain", "gradient_memory", "train_loss"):
        assert parts[-1].metrics[name] == whole[-1].metrics[name], name


def test_a_closed_loop_of_replays_does_what_the_loop_does(few_home, few_config):
    """Its rate follows from what was measured, step by step."""
    fields = {"follow": ((0, 0.004), (12, 0.002)), "alpha_s": 0.001}
    config = variant(few_config, steps=12, **fields)

    replayed = list(train(config, data_home=few_home, measurement=Measurement()))
    exact = variant(config, deterministic=True)
    loop = list(train(exact, data_home=few_home, measurement=Measurement()))

    for report, other in zip(replayed, loop, strict=True):
        assert report.metrics["alpha_v"] == pytest.approx(other.metrics["alpha_v"], rel=2e-3)
        values, expected = (r.series["effective_lr"].values for r in (report, other))
        assert values == pytest.approx(expected, rel=5e-3)
        assert report.metrics["train_loss"] == pytest.approx(other.metrics["train_loss"], rel=1e-3)
