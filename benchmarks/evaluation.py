"""Times the evaluation of held-out images by how many are looked at together.

    python -m benchmarks.evaluation [--device cpu|cuda] [--batches 250 500 528 ...]

A run takes a few steps and then evaluates a tenth of the set (on a CPU, of the digits) as it does
for a report: on a card by replayed graphs. *host* is how long its thread is busy before it waits
for the card. Pixels of a layer are cut into tiles, and tiles are dealt to the processors of the
card, 132 of an H100; a batch whose tiles come out even leaves none without work at the end.
"""

import argparse
import statistics
import time
from pathlib import Path

import torch

from benchmarks.train import data_home, describe_machine
from benchmarks.training.times import NETWORKS, WARM_UP, make_config, synchronize
from worker.steps import evaluation
from worker.steps.device import arithmetic, choose_device
from worker.steps.turns import Turn
from worker.training.run import Run

#: Images looked at together.
BATCHES = {"cpu": (64, 128), "cuda": (250, 264, 396, 500, 528, 792, 1000, 1056)}
ROUNDS = 5
HEAD = """\
| network | images at a time | images | ms | µs/image | host, ms |
| --- | ---: | ---: | ---: | ---: | ---: |"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=["cpu", "cuda"], default=default)
    parser.add_argument("--batches", nargs="*", type=int)
    arguments = parser.parse_args()
    print(
        ", ".join(f"{name} {value}" for name, value in describe_machine(arguments.device).items())
    )
    with data_home(arguments.device) as (home, dataset):
        print(f"images: {dataset}\n\n{HEAD}", flush=True)
        for network in NETWORKS[arguments.device]:
            for size in arguments.batches or BATCHES[arguments.device]:
                print(measure(arguments.device, network, dataset, home, size), flush=True)


def measure(device: str, network: str, dataset: str, home: Path, size: int) -> str:
    """One row: the median of some evaluations."""
    evaluation.BATCH[device] = size
    config = make_config(device, network, "sgd", dataset, validation_fraction=0.1)
    place = choose_device(config)
    with arithmetic(config, place):
        run = Run(config, home, place, None, lambda: False, replay_steps=True)
        for _ in range(WARM_UP[device]):
            run.take_step()
        # Calls, recordings, replays.
        times = [_evaluate(run, device) for _ in range(2 + ROUNDS)][2:]
    count = len(run.data.validation_indices)
    total, host = (statistics.median(column) for column in zip(*times, strict=True))
    return (
        f"| {network} | {size} | {count:,} | {total * 1e3:.2f} | {total / count * 1e6:.2f} | "
        f"{host * 1e3:.2f} |"
    )


def _evaluate(run: Run, device: str) -> tuple[float, float]:
    """Seconds until the result is there, and until the run waits for it."""
    data = run.data
    synchronize(device)
    began = time.perf_counter()
    waits = began
    turns = evaluation.evaluate(
        run.model, run.steps.judge, data.train, data.validation_indices, lambda: False
    )
    for turn in turns:
        if turn is Turn.SETTLE:
            waits = time.perf_counter()
    return time.perf_counter() - began, waits - began


if __name__ == "__main__":
    main()
