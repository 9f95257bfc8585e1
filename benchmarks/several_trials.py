"""Times several trials at once on one card, in one process.

    python -m benchmarks.several_trials [--device cpu|cuda] [--json FILE]
        [--networks WRN-16-1 ...] [--steps-per-turn 10 ...] [--depth 3 ...]

One thread gives every run its turn (``worker.card_sharing.round_robin``). Every run is what
``worker.train`` does, on CIFAR-10 or on noise of its shape where that is not prepared, with
augmentation, diagnostics, a report and an evaluation of a tenth of the set per epoch. Images per
second are those of all runs together, while all of them train: from the last second report to the
first last but one. *of each* is the part of their steps that each run took, *host idle* the part of
that time in which no run could go on. Memory is the most that was held, beside what
``worker.steps.memory_estimate`` says, CUDA's context apart. Several steps per turn and depths
(turns that may wait for the card) are tried each with each.
"""

import argparse
import json
import time
from collections.abc import Callable, Hashable
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import torch

from benchmarks.train import BATCH, data_home, describe_machine
from worker import Report, TrainConfig
from worker.card_sharing.round_robin import DEPTH, RoundRobin, Turns
from worker.data.prepared import dataset_info
from worker.steps.device import choose_device
from worker.steps.memory_estimate import CONTEXT, memory_plan
from worker.steps.turns import STEPS_PER_TURN
from worker.training.train import train_in_turns

#: Depth, widening factor and numbers of trials at once.
NETWORKS: dict[str, dict[str, tuple[int, float, tuple[int, ...]]]] = {
    "cuda": {
        "WRN-16-1": (16, 1.0, (1, 2, 4)),
        "WRN-16-4": (16, 4.0, (1, 2, 4)),
        "WRN-22-7.5": (22, 7.5, (1, 2)),
    },
    "cpu": {"WRN-10-1": (10, 1.0, (1, 2))},
}
#: Epochs of a run on a card: about six seconds each way.
EPOCHS = {"WRN-16-1": 12, "WRN-16-4": 6, "WRN-22-7.5": 4}
HEAD = """\
| network | at once | steps × turns | images/s, all | × one | of each | host idle | allocated | \
reserved | planned |
| --- | ---: | --- | ---: | ---: | --- | ---: | ---: | ---: | ---: |"""

Seen = dict[Hashable, list[tuple[float, int]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=["cpu", "cuda"], default=default)
    parser.add_argument("--steps-per-turn", nargs="*", type=int, default=[STEPS_PER_TURN])
    parser.add_argument("--depth", nargs="*", type=int, default=[DEPTH])
    parser.add_argument("--optimizer", choices=["sgd", "ndadam"], default="ndadam")
    parser.add_argument("--networks", nargs="*", help="only these")
    parser.add_argument("--json", type=Path, help="also write every figure to this file")
    arguments = parser.parse_args()
    machine = describe_machine(arguments.device)
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    ways = list(product(arguments.steps_per_turn, arguments.depth))
    rows = []
    with data_home(arguments.device) as (home, dataset):
        print(
            f"images: {dataset}, batch {BATCH[arguments.device]}, {arguments.optimizer}\n\n{HEAD}",
            flush=True,
        )
        for network in arguments.networks or NETWORKS[arguments.device]:
            make = config_maker(arguments.device, network, arguments.optimizer, dataset)
            one: dict[tuple[int, int], float] = {}
            for count in NETWORKS[arguments.device][network][2]:
                for how in ways:
                    row = measure(how, count, make, home)
                    ratio = row["images_per_second"] / one.setdefault(how, row["images_per_second"])
                    rows.append({"network": network, "ratio": ratio} | row)
                    print(line(rows[-1]), flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")


def config_maker(
    device: str, network: str, optimizer: str, dataset: str
) -> Callable[[int], TrainConfig]:
    """The config of the run of a number: a seed each."""
    depth, widen_factor, _ = NETWORKS[device][network]
    length = {"epochs": EPOCHS[network]} if device == "cuda" else {"steps": 30, "report_every": 6}

    def make(number: int) -> TrainConfig:
        return TrainConfig(
            dataset=dataset,
            depth=depth,
            widen_factor=widen_factor,
            optimizer=optimizer,
            batch_size=BATCH[device],
            precision="bf16" if device == "cuda" else "fp32",
            device=device,
            seed=number,
            validation_fraction=0.1 if device == "cuda" else 0.002,
            **length,
        )

    return make


def measure(
    how: tuple[int, int], count: int, make: Callable[[int], TrainConfig], home: Path
) -> dict[str, Any]:
    """Train so many runs at once, with so many steps in a turn and turns in a queue."""
    steps, depth = how
    device = choose_device(make(0).resolved())
    if device.type == "cuda":
        # Of the streams that runs before had; a host gives them to the next.
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    seen: Seen = {number: [] for number in range(count)}

    def start(number: int) -> Turns:
        return train_in_turns(make(number), data_home=home, steps_per_turn=steps)

    idle = by_turns(count, start, seen, device, depth)
    images = rate(seen) * BATCH[device.type]
    row = {
        "at_once": count,
        "steps_per_turn": steps,
        "depth": depth,
        "images_per_second": images,
        "host_idle": idle,
    }
    config = make(0).resolved()
    plan = memory_plan(config, dataset_info(config.dataset, home))
    if device.type == "cuda" and plan is not None:
        row["planned"] = plan.total(count) - CONTEXT
        row["peak_allocated"] = torch.cuda.max_memory_allocated()
        row["peak_reserved"] = torch.cuda.max_memory_reserved()
    row["shares"] = shares(seen)
    return row


def by_turns(
    count: int, start: Callable[[int], Turns], seen: Seen, device: torch.device, depth: int
) -> float:
    """Train the runs; the part of the time in which every one waited, while all of them train."""
    failures: list[Exception] = []

    def on_report(key: Hashable, report: Report) -> None:
        seen[key].append((time.perf_counter(), report.step))

    def on_end(key: Hashable, error: Exception | None) -> None:
        failures.extend([error] if error is not None else [])

    runs = RoundRobin(device, on_report=on_report, on_end=on_end, depth=depth)
    for number in range(count):
        runs.add(number, lambda number=number: start(number))
    waits: list[tuple[float, float]] = []
    while runs.keys and not failures:
        if not runs.turn():
            began = time.perf_counter()
            time.sleep(2e-4)
            waits.append((began, time.perf_counter()))
    if failures:
        raise failures[0]
    began, ended = span(seen)
    return sum(stop - go for go, stop in waits if began <= go < ended) / (ended - began)


def span(seen: Seen) -> tuple[float, float]:
    """When all runs train."""
    # The first report is behind the start; the last one reads the test set.
    began = max(reports[1][0] for reports in seen.values())
    return began, min(reports[-2][0] for reports in seen.values())


def rate(seen: Seen) -> float:
    """Steps per second of all runs together, while all of them train."""
    began, ended = span(seen)
    steps = sum(step_at(reports, ended) - step_at(reports, began) for reports in seen.values())
    return steps / (ended - began)


def shares(seen: Seen) -> list[float]:
    """What part of all steps each run took while all of them trained."""
    began, ended = span(seen)
    steps = [step_at(reports, ended) - step_at(reports, began) for reports in seen.values()]
    return [count / sum(steps) for count in steps]


def step_at(reports: list[tuple[float, int]], moment: float) -> float:
    """Steps done at a moment, on the straight line between the reports around it."""
    for (t0, step0), (t1, step1) in pairwise(reports):
        if t0 <= moment <= t1:
            return step0 + (step1 - step0) * (moment - t0) / (t1 - t0)
    raise ValueError(f"no report on both sides of {moment}")


def line(row: dict[str, Any]) -> str:
    """One measurement, in Markdown."""
    memory = [
        f"{row[name] / 2**30:.2f} GiB" if name in row else ""
        for name in ("peak_allocated", "peak_reserved", "planned")
    ]
    return (
        f"| {row['network']} | {row['at_once']} | "
        f"{row['steps_per_turn']} × {row['depth']} | "
        f"{row['images_per_second']:,.0f} | {row['ratio']:.2f} | "
        f"{' '.join(f'{part:.0%}' for part in row['shares'])} | "
        f"{row['host_idle']:.0%} | {' | '.join(memory)} |"
    )


if __name__ == "__main__":
    main()
