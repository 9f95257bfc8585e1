"""What ``benchmarks.train`` times: a plain script, the engine's steps, whole runs and starts."""

import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ndadam import NDAdam, WideResNet, param_groups
from worker import TrainConfig, train
from worker.steps.device import arithmetic, choose_device
from worker.training.run import Run

#: (device, network) -> config fields. The network of a CPU is the quickstart's.
NETWORKS: dict[str, dict[str, dict[str, Any]]] = {
    "cuda": {
        "WRN-22-7.5": {"depth": 22, "widen_factor": 7.5},
        "WRN-28-10": {"depth": 28, "widen_factor": 10.0},
    },
    "cpu": {
        "WRN-10-1": {
            "depth": 10,
            "widen_factor": 1.0,
            "recipe": "paper-wrn",
            "flip": False,
            "crop_pad": 1,
            "last_batch": "drop",
        }
    },
}
OPTIMIZERS = ("sgd", "ndadam")
#: Networks whose starts, whole runs and finer curves are timed too.
DETAILED = ("WRN-22-7.5", "WRN-10-1")
BATCH = {"cuda": 128, "cpu": 64}
FULL_RUN = 80_000
#: Steps between two reports: an epoch, and what somebody asks who wants finer curves.
REPORT_EVERY = (None, 100)
#: Rounds of steps with and without diagnostics, in turn, so that a drift of the clock meets both.
ROUNDS = {"cuda": 3, "cpu": 20}
#: What is reported of them. Other programs take their part of a CPU, now and then.
TYPICAL: dict[str, Callable[[list[float]], float]] = {"cuda": statistics.median, "cpu": min}
#: Steps of a round without diagnostics; with them, a round is the span of one report.
STEPS = {"cuda": 60, "cpu": 18}
#: Steps before the first round: the engine captures its graph in them.
WARM_UP = {"cuda": 8, "cpu": 3}
#: Of a run; the first starts it up and the last reads the test set.
EPOCHS = 4


def make_config(
    device: str, network: str, optimizer: str, dataset: str, **more: Any
) -> TrainConfig:
    """A run of a network as fast as the device can do it."""
    fields = NETWORKS[device][network] | {
        "dataset": dataset,
        "optimizer": optimizer,
        "batch_size": BATCH[device],
        "precision": "bf16" if device == "cuda" else "fp32",
        "device": device,
    }
    return TrainConfig.model_validate(fields | more).resolved()


def seconds_per_step(take: Callable[[], object], device: str, count: int) -> float:
    """Time of one of ``count`` steps."""
    synchronize(device)
    began = time.perf_counter()
    for _ in range(count):
        take()
    synchronize(device)
    return (time.perf_counter() - began) / count


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def plain_seconds(
    config: TrainConfig, shape: tuple[int, int, int], *, channels_last: bool = False
) -> float:
    """A step of the plain script: eager, a random batch that already is on the device."""
    device = config.device
    if device == "cuda":
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        cudnn: Any = torch.backends.cudnn
        cudnn.conv.fp32_precision = "tf32"
        torch.backends.cudnn.benchmark = True
    fields = config.model_dump(
        include={"activation", "shortcut", "init", "bn_eps", "bn_momentum", "bn_scale"}
    )
    height, width, channels = shape
    model = WideResNet(config.depth, config.widen_factor, 10, channels, **fields).to(device)
    images = torch.randn(config.batch_size, channels, height, width, device=device)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (config.batch_size,), device=device)
    optimizer = _plain_optimizer(config, model)

    def take() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    for _ in range(WARM_UP[device]):
        take()
    rounds = range(ROUNDS[device])
    return TYPICAL[device]([seconds_per_step(take, device, STEPS[device] // 2) for _ in rounds])


def _plain_optimizer(config: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    if config.optimizer == "ndadam":
        assert config.alpha_v is not None
        assert config.alpha_s is not None
        return NDAdam(param_groups(model, alpha_v=config.alpha_v, alpha_s=config.alpha_s))
    assert config.lr is not None
    return torch.optim.SGD(
        model.parameters(),
        lr=config.lr,
        momentum=config.momentum or 0.0,
        weight_decay=config.weight_decay or 0.0,
        fused=True,
    )


def engine_seconds(config: TrainConfig, home: Path) -> dict[str, float]:
    """A step of the engine without and with diagnostics, in turn, and what a checkpoint costs."""
    device = choose_device(config)
    kind = device.type
    with arithmetic(config, device):
        run = Run(config, home, device, None, lambda: False, replay_steps=True)

        def bare() -> None:
            run.steps.take(run.step)
            run.step += 1

        for _ in range(WARM_UP[kind]):
            bare()
        rounds: dict[str, list[float]] = {"off": [], "on": []}
        for _ in range(ROUNDS[kind]):
            run.tally.drain()
            rounds["off"].append(seconds_per_step(bare, kind, STEPS[kind]))
            rounds["on"].append(_report_span(run, kind, bare))
        found = {name: TYPICAL[kind](values) for name, values in rounds.items()}
        found["checkpoint"] = _checkpoint_seconds(run, kind, found["off"], bare)
    return found


def _checkpoint_seconds(run: Run, device: str, step: float, bare: Callable[[], None]) -> float:
    """What steps take longer when a checkpoint is written in their midst."""
    found = []
    with tempfile.TemporaryDirectory() as folder, closing(run.writer):
        # The first finds no memory that was used for one before.
        for _ in range(1 + ROUNDS["cuda"]):
            synchronize(device)
            began = time.perf_counter()
            run.save(Path(folder), wait=False)
            for _ in range(STEPS[device]):
                bare()
            synchronize(device)
            found.append(time.perf_counter() - began - STEPS[device] * step)
            run.writer.finish()
    return statistics.median(found[1:])


def _report_span(run: Run, device: str, bare: Callable[[], None]) -> float:
    """A step in the span of one report, all that is measured for it and read from it included."""
    every = run.config.report_every or run.length.steps_per_epoch
    while run.step % every:
        bare()
    run.tally.drain()
    run.tally.reset()
    left = every

    def take() -> None:
        nonlocal left
        run.take_step()
        left -= 1
        if left == 0:
            run.tally.drain()
            run.tally.metrics()
            run.dynamics.metrics()

    return seconds_per_step(take, device, every)


def whole_run(config: TrainConfig, home: Path) -> dict[str, float]:
    """``worker.train``: wall time of a step, and what evaluations take of it."""
    config = config.model_copy(update={"steps": None, "epochs": EPOCHS})
    reports = train(config, data_home=home, replay_steps=True)
    length = next(reports).num_steps // EPOCHS
    began = time.perf_counter()
    wall, training, epochs = 0.0, 0.0, 0
    for report in reports:
        if report.status != "running":
            break
        wall = time.perf_counter() - began
        epochs += 1
        training += length * config.batch_size / report.metrics["images_per_second"]
    reports.close()
    return {
        "seconds": wall / (epochs * length),
        "evaluation": 1 - training / wall,
        "evaluation_seconds": (wall - training) / epochs,
    }


def seconds_of_two(config: TrainConfig, home: Path) -> float:
    """A step of one of two trials at once in processes of their own, a thread each."""
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(2), context.Queue()
    arguments = (config, home, barrier, answers)
    processes = [context.Process(target=_one_of_two, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()
    found = [answers.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    return max(found)


def _one_of_two(config: TrainConfig, home: Path, barrier: Any, answers: Any) -> None:
    torch.set_num_threads(1)
    device = choose_device(config)
    with arithmetic(config, device):
        run = Run(config, home, device, None, lambda: False)
        for _ in range(WARM_UP["cpu"]):
            run.take_step()
        barrier.wait()
        rounds = range(ROUNDS["cpu"])
        answers.put(min(seconds_per_step(run.take_step, "cpu", STEPS["cpu"]) for _ in rounds))
        barrier.wait()


def full_run_seconds(run: dict[str, float], start: dict[str, float], checkpoints: float) -> float:
    """A run of ``FULL_RUN`` steps: start, steps, evaluations, and the test set at its end.

    ``checkpoints`` is their share of the time of steps.
    """
    # 10,000 test images are twice the validation images.
    steps = FULL_RUN * run["seconds"] * (1 + checkpoints)
    return start["process"] + steps + 2 * run["evaluation_seconds"]
