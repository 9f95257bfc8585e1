"""Times training, beside a plain script on the same card and in the same process.

    python -m benchmarks.train [--device cpu|cuda] [--json FILE]

The plain script is what one writes first: eager, TF32, channels first, torch's fused SGD, a random
batch that already is on the device, no augmentation, no schedule, no logging. The engine trains on
CIFAR-10, or on noise of its shape where that is not prepared, with augmentation and schedule, as
``worker.train`` does; diagnostics are what is measured around the steps and read once per epoch.
*run* is ``worker.train`` over a whole epoch, evaluation of a tenth of the set included.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from ndadam import WideResNet
from worker import TrainConfig, train
from worker.datasets import Arrays, default_home, list_datasets, write_dataset
from worker.device import arithmetic, choose_device
from worker.run_state import Run

NETWORKS = {
    "cuda": {"WRN-22-7.5": (22, 7.5), "WRN-28-10": (28, 10.0)},
    "cpu": {"WRN-10-1": (10, 1.0)},
}
#: The network whose runs and starts are timed too.
DETAILED = "WRN-22-7.5"
OPTIMIZERS = ("sgd", "ndadam")
BATCH = 128
#: Steps of one timed round, and rounds.
STEPS = {"cuda": 40, "cpu": 3}
ROUNDS = 5
#: Steps before the first round: the engine captures its graph in them.
WARM_UP = {"cuda": 8, "cpu": 1}
#: Of a run; the first starts it up and the last reads the test set.
EPOCHS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=["cpu", "cuda"], default=default)
    parser.add_argument("--json", type=Path, help="also write every figure to this file")
    parser.add_argument("--start-of", choices=list(NETWORKS["cuda"]), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    device = arguments.device
    with data_home() as (home, dataset):
        if arguments.start_of is not None:
            print(json.dumps(start_times(arguments.start_of, home, dataset)))
            return
        figures = measure(device, home, dataset)
    if figures["start"]:
        print()
        print(start_table(figures["start"]))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


def measure(device: str, home: Path, dataset: str) -> dict[str, Any]:
    """Every figure of the benchmark, as JSON values; prints each row as soon as it is there."""
    machine = describe_machine(device)
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    print(f"images: {dataset}, batch {BATCH}\n\n{THROUGHPUT_HEAD}", flush=True)
    throughput: list[dict[str, Any]] = []

    def add(row: dict[str, Any], plain: float) -> None:
        throughput.append(row | {"ratio": plain / row["seconds"]})
        print(throughput_line(throughput[-1]), flush=True)

    for network in NETWORKS[device]:
        plain = plain_step_seconds(device, network)
        row = {"network": network, "who": "plain script", "optimizer": "sgd", "seconds": plain}
        add(row, plain)
        for optimizer in OPTIMIZERS:
            for row in engine_rows(device, network, optimizer, home, dataset):
                add(row, plain)
    start = []
    if device == "cuda":
        start = [first_steps(DETAILED, home)]
    return {
        "machine": machine,
        "dataset": dataset,
        "throughput": throughput,
        "start": start,
    }


def step_seconds(take: Callable[[], object], device: str) -> float:
    """Median over rounds of the time of one step."""
    for _ in range(WARM_UP[device]):
        take()
    rounds = []
    for _ in range(ROUNDS):
        synchronize(device)
        began = time.perf_counter()
        for _ in range(STEPS[device]):
            take()
        synchronize(device)
        rounds.append((time.perf_counter() - began) / STEPS[device])
    return statistics.median(rounds)


def plain_step_seconds(device: str, network: str) -> float:
    """The plain script."""
    if device == "cuda":
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        conv: Any = torch.backends.cudnn
        conv.conv.fp32_precision = "tf32"
        torch.backends.cudnn.benchmark = True
    model = WideResNet(
        *NETWORKS[device][network],
        10,
        activation="leaky_relu",
        shortcut="pool_pad",
        init="fan_in_normal",
        bn_eps=1e-3,
    ).to(device)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3, fused=True
    )
    images = torch.randn(BATCH, 3, 32, 32, device=device)
    labels = torch.randint(10, (BATCH,), device=device)

    def take() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step_seconds(take, device)


def make_config(
    device: str, network: str, optimizer: str, dataset: str, **more: Any
) -> TrainConfig:
    """A paper-tf run of a network, as fast as the device can do it."""
    depth, widen_factor = NETWORKS[device][network]
    return TrainConfig(
        dataset=dataset,
        depth=depth,
        widen_factor=widen_factor,
        optimizer=optimizer,
        batch_size=BATCH,
        precision="bf16" if device == "cuda" else "fp32",
        device=device,
        **more,
    )


def engine_rows(
    device: str, network: str, optimizer: str, home: Path, dataset: str
) -> Iterator[dict[str, Any]]:
    """The engine: its steps, its steps with diagnostics, and whole runs."""
    row = {"network": network, "optimizer": optimizer}
    config = make_config(
        device, network, optimizer, dataset, steps=80_000, validation_fraction=0.0
    ).resolved()
    chosen = choose_device(config)
    with arithmetic(config, chosen):
        run = Run(config, home, chosen, None, lambda: False, replay_steps=True)

        def bare() -> None:
            run.steps.take(run.step)
            run.step += 1

        yield row | {"who": "engine, diagnostics off", "seconds": step_seconds(bare, device)}
        run.tally.drain()
        yield row | {"who": "engine", "seconds": epoch_seconds(run, device)}
    if device == "cuda" and network == DETAILED:
        yield row | {"who": "engine, run"} | run_seconds(network, optimizer, home, dataset)


def epoch_seconds(run: Run, device: str) -> float:
    """Time of one step in epochs that measure and read what a report holds."""
    steps = run.length.steps_per_epoch if device == "cuda" else STEPS[device]
    rounds = []
    for _ in range(2):
        # To the start of an epoch, so that each round has one report at its end.
        while run.step % steps:
            run.take_step()
        synchronize(device)
        began = time.perf_counter()
        for _ in range(steps):
            run.take_step()
        run.tally.drain()
        run.dynamics.metrics()
        synchronize(device)
        rounds.append((time.perf_counter() - began) / steps)
    return min(rounds)


def run_seconds(network: str, optimizer: str, home: Path, dataset: str) -> dict[str, float]:
    """Wall time of a step in ``worker.train``, and the part of it that is evaluation."""
    config = make_config("cuda", network, optimizer, dataset, epochs=EPOCHS)
    reports = train(config, data_home=home, replay_steps=True)
    next(reports)
    began = time.perf_counter()
    wall, training, steps = 0.0, 0.0, 0
    for report in reports:
        if report.status != "running":
            break
        wall = time.perf_counter() - began
        steps += report.num_steps // EPOCHS
        images = report.num_steps // EPOCHS * BATCH
        training += images / report.metrics["images_per_second"]
    reports.close()
    return {"seconds": wall / steps, "evaluation": 1 - training / wall}


def start_times(network: str, home: Path, dataset: str) -> dict[str, float]:
    """Seconds from ``train`` to step 1, of the first and of a second trial of this process."""
    torch.zeros(1, device="cuda")

    def first_step(seed: int, lr: float) -> float:
        began = time.perf_counter()
        config = make_config(
            "cuda", network, "sgd", dataset, steps=1000, report_every=1, lr=lr, seed=seed
        ).resolved()
        device = choose_device(config)
        with arithmetic(config, device):
            run = Run(config, home, device, None, lambda: False, replay_steps=True)
            run.take_step()
            torch.cuda.synchronize()
        return time.perf_counter() - began

    return {"first_trial": first_step(0, 0.1), "second_trial": first_step(1, 0.05)}


def first_steps(network: str, home: Path) -> dict[str, Any]:
    """Start times of a process with an empty compile cache, and of the next with a full one."""
    row: dict[str, Any] = {"network": network}
    with tempfile.TemporaryDirectory() as cache:
        for name in ("cold", "warm"):
            environment = os.environ | {"TRITON_CACHE_DIR": cache, "NDSWEEP_DATA": str(home)}
            command = [sys.executable, "-m", "benchmarks.train", "--start-of", network]
            began = time.perf_counter()
            done = subprocess.run(command, env=environment, capture_output=True, check=True)
            whole = time.perf_counter() - began
            times = json.loads(done.stdout.splitlines()[-1])
            row[name] = times | {"process": whole}
    return row


@contextmanager
def data_home() -> Iterator[tuple[Path, str]]:
    """A data home and the set in it: CIFAR-10 where it is prepared, else noise of its shape."""
    home = default_home()
    names = [info.name for info in list_datasets(home)]
    for name in ("cifar10", "noise32"):
        if name in names:
            yield home, name
            return
    generator = np.random.default_rng(0)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        images = generator.integers(0, 256, (count, 32, 32, 3), np.uint8)
        return images, (np.arange(count) % 10).astype("<u2")

    with tempfile.TemporaryDirectory() as folder:
        arrays = Arrays(*draw(50_000), *draw(10_000))
        classes = tuple("0123456789")
        write_dataset("noise32", Path(folder), arrays, classes=classes, source="random")
        yield Path(folder), "noise32"


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


THROUGHPUT_HEAD = """\
| network | optimizer | | ms/step | images/s | × plain | evaluation |
| --- | --- | --- | ---: | ---: | ---: | ---: |"""


def throughput_line(row: dict[str, Any]) -> str:
    """One measurement, in Markdown."""
    evaluation = f"{row['evaluation']:.1%}" if "evaluation" in row else ""
    return (
        f"| {row['network']} | {row['optimizer']} | {row['who']} | {row['seconds'] * 1e3:.3f} | "
        f"{BATCH / row['seconds']:,.0f} | {row['ratio']:.2f} | {evaluation} |"
    )


def start_table(rows: list[dict[str, Any]]) -> str:
    """Markdown: seconds to step 1."""
    lines = [
        "| network | cold | warm cache, new process | second trial of a process |",
        "| --- | ---: | ---: | ---: |",
    ]
    for row in rows:
        cold, warm = row["cold"]["first_trial"], row["warm"]["first_trial"]
        again = row["warm"]["second_trial"]
        lines.append(f"| {row['network']} | {cold:.1f} s | {warm:.1f} s | {again:.2f} s |")
    return "\n".join(lines)


def describe_machine(device: str) -> dict[str, str]:
    """Card or processor, and versions."""
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    if device == "cpu":
        return {"device": f"{platform.machine()}, {torch.get_num_threads()} threads"} | versions
    import triton

    cudnn = str(torch.backends.cudnn.version())
    card = {"device": torch.cuda.get_device_name()}
    return card | versions | {"triton": triton.__version__, "cudnn": cudnn}


if __name__ == "__main__":
    main()
