"""Times training, beside a plain script on the same card and in the same process.

    python -m benchmarks.train [--device cpu|cuda] [--networks WRN-22-7.5 ...] [--json FILE]
                               [--only interface] [--rounds 5]

The plain script is what one writes first: eager, TF32, channels first, torch's fused SGD, a random
batch that already is on the device, no augmentation, no schedule, no logging; on a CPU it is the
faster of channels first and last, with the engine's optimizer. The engine trains on CIFAR-10, or on
noise of its shape where that is not prepared, with augmentation and schedule, as ``worker.train``
does; on a CPU on the digits, as the quickstart does. Rows:

* *steps*: the engine's steps, losses recorded, and what a checkpoint every 30 s costs;
* *steps, measured once per epoch* and *every 100 steps*: the same with all diagnostics of a report,
  and what they cost;
* *one of two trials at once* (on a CPU): each in a process of its own, with one thread;
* *whole run*: ``worker.train`` over epochs with a report and the evaluation of a tenth of the set
  each, what evaluations take of it, and what 80,000 steps take with the start of the process.

Below the table, or alone with ``--only interface``: the same whole run through the interface of
training functions, as workers run it, beside the plain call, in turn.
"""

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.training.interface import HEAD as INTERFACE_HEAD
from benchmarks.training.interface import ROUNDS, interface_line, interface_row
from benchmarks.training.times import (
    BATCH,
    DETAILED,
    FULL_RUN,
    NETWORKS,
    OPTIMIZERS,
    REPORT_EVERY,
    engine_seconds,
    full_run_seconds,
    make_config,
    plain_seconds,
    seconds_of_two,
    whole_run,
)
from benchmarks.training_starts import starts
from worker.config.train_config import TrainConfig
from worker.data.fetch import prepare_digits
from worker.data.prepared import Arrays, dataset_info, default_home, list_datasets, write_dataset

Row = dict[str, Any]
#: Seconds between two checkpoints, as ``worker.train`` has them.
CHECKPOINT_EVERY = 30.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=["cpu", "cuda"], default=default)
    known = sorted({name for networks in NETWORKS.values() for name in networks})
    parser.add_argument("--networks", nargs="*", choices=known, help="only these")
    parser.add_argument("--json", type=Path, help="also write every figure to this file")
    parser.add_argument("--only", choices=["interface"], help="leave the long table out")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of the interface, each way")
    arguments = parser.parse_args()
    networks = arguments.networks or list(NETWORKS[arguments.device])
    with data_home(arguments.device) as (home, dataset):
        figures: Row = {}
        if arguments.only is None:
            figures = measure(arguments.device, networks, home, dataset)
        detailed = [name for name in networks if name in DETAILED]
        rows = beside_interface(arguments.device, detailed, home, dataset, arguments.rounds)
        figures["interface"] = rows
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


def measure(device: str, networks: list[str], home: Path, dataset: str) -> Row:
    """Every figure of the benchmark, as JSON values; prints each row as soon as it is there."""
    machine = describe_machine(device)
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    print(f"images: {dataset}, batch {BATCH[device]}", flush=True)
    start, rows = [], []
    with tempfile.TemporaryDirectory() as cache:
        if device == "cuda":
            # First, while this process holds nothing of the card; what they compile is used here.
            for network in DETAILED:
                if network in networks:
                    start.append(starts(network, dataset, home, Path(cache)))
            os.environ["TRITON_CACHE_DIR"] = cache
            print(f"\n{start_table(start)}", flush=True)
        print(f"\n{HEAD}", flush=True)
        started = {one["network"]: one for one in start}
        for row in throughput(device, networks, home, dataset, started):
            rows.append(row)
            print(table_line(row, BATCH[device]), flush=True)
    return {"machine": machine, "dataset": dataset, "start": start, "throughput": rows}


def beside_interface(
    device: str, networks: list[str], home: Path, dataset: str, rounds: int
) -> list[Row]:
    """The built-in training through the interface of training functions; prints each row."""
    print(f"\n{INTERFACE_HEAD}", flush=True)
    rows = []
    for network in networks:
        for optimizer in OPTIMIZERS:
            config = make_config(device, network, optimizer, dataset)
            rows.append({"network": network} | interface_row(config, home, rounds))
            print(interface_line(network, rows[-1]), flush=True)
    return rows


def throughput(
    device: str, networks: list[str], home: Path, dataset: str, start: dict[str, Row]
) -> Iterator[Row]:
    """Rows of the table, network by network."""
    shape = dataset_info(dataset, home).shape
    for network in networks:
        plain = None
        for optimizer in OPTIMIZERS:
            config = make_config(device, network, optimizer, dataset)
            if plain is None or device == "cpu":
                layouts = (False,) if device == "cuda" else (False, True)
                plain = min(plain_seconds(config, shape, channels_last=last) for last in layouts)
                yield {
                    "network": network,
                    "optimizer": optimizer,
                    "who": "plain script",
                    "seconds": plain,
                    "ratio": 1.0,
                }
            for row in engine_rows(config, home, network in DETAILED, start.get(network)):
                named = {"network": network, "optimizer": optimizer} | row
                yield named | {"ratio": plain / row["seconds"]}


def engine_rows(
    config: TrainConfig, home: Path, is_detailed: bool, start: Row | None
) -> Iterator[Row]:
    """The engine's rows for one network and optimizer."""
    share = 0.0
    for every in REPORT_EVERY if is_detailed else REPORT_EVERY[:1]:
        found = engine_seconds(config.model_copy(update={"report_every": every}), home)
        if every is None:
            share = found["checkpoint"] / CHECKPOINT_EVERY
            yield {"who": "steps", "seconds": found["off"], "checkpoints": share}
        span = "once per epoch" if every is None else f"every {every} steps"
        yield {
            "who": f"steps, measured {span}",
            "seconds": found["on"],
            "diagnostics": found["on"] / found["off"] - 1,
        }
    if not is_detailed:
        return
    if config.device == "cpu":
        yield {"who": "steps, one of two trials at once", "seconds": seconds_of_two(config, home)}
    run: Row = {"who": "whole run", **whole_run(config, home)}
    if start is not None:
        run |= {
            f"full_run_{name}_minutes": full_run_seconds(run, start[name], share) / 60
            for name in ("warm", "cold")
        }
    yield run


@contextmanager
def data_home(device: str) -> Iterator[tuple[Path, str]]:
    """A data home and the set in it: CIFAR-10 where it is prepared, else noise of its shape."""
    with tempfile.TemporaryDirectory() as folder:
        if device == "cpu":
            prepare_digits(folder)
            yield Path(folder), "digits"
            return
        home = default_home()
        if "cifar10" in [info.name for info in list_datasets(home)]:
            yield home, "cifar10"
            return
        generator = np.random.default_rng(0)

        def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
            images = generator.integers(0, 256, (count, 32, 32, 3), np.uint8)
            return images, (np.arange(count) % 10).astype("<u2")

        arrays = Arrays(*draw(50_000), *draw(10_000))
        classes = tuple("0123456789")
        write_dataset("noise32", Path(folder), arrays, classes=classes, source="random")
        yield Path(folder), "noise32"


HEAD = f"""\
| network | optimizer | | ms/step | images/s | × plain | checkpoints | diagnostics | evaluation | \
{FULL_RUN:,} steps, min (cold) |
| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""


#: Shares of the time, each a column.
PARTS = ("checkpoints", "diagnostics", "evaluation")


def table_line(row: Row, batch: int) -> str:
    """One measurement, in Markdown."""
    parts = [f"{row[name]:.1%}" if name in row else "" for name in PARTS]
    whole = ""
    if "full_run_warm_minutes" in row:
        whole = f"{row['full_run_warm_minutes']:.2f} ({row['full_run_cold_minutes']:.2f})"
    return (
        f"| {row['network']} | {row['optimizer']} | {row['who']} | {row['seconds'] * 1e3:.3f} | "
        f"{batch / row['seconds']:,.0f} | {row['ratio']:.2f} | {' | '.join(parts)} | {whole} |"
    )


def start_table(rows: list[Row]) -> str:
    """Markdown: seconds to step 1."""
    lines = [
        "| start | what is compiled | process to step 1 | imports | building | first step | "
        "second trial to step 1 | to replayed steps |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    of_second = ("second_trial_step_1", "second_trial_replaying")
    columns = ("process", "imports", "build", "first_step", *of_second)
    for row in rows:
        for name, kernels in (("cold", "none"), ("warm", "cached")):
            values = " | ".join(f"{row[name][column]:.2f} s" for column in columns)
            lines.append(f"| {row['network']} | {kernels} | {values} |")
        lines += ["", f"Most of a start of {row['network']} with all cached, in a profile:", ""]
        lines += [f"    {seconds:6.2f} s  {name}" for name, seconds in row["largest"].items()]
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
