"""Compares the test error reached in bf16 with the one in float32, on short runs of real images.

    python -m benchmarks.precision [--seeds 4] [--epochs 8] [--margin 0.5] [--json FILE]

Every run trains on all images of CIFAR-10 (of the digits on a CPU) with a cosine over its epochs
and reads the test set once, at its end. Seeds are those of both arms; the arms are compared by
Welch's interval, since rounding parts two runs of one seed within an epoch. *margin*, in points of
test error, is what bf16 may cost: "within the margin" when the whole interval lies inside of it.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.train import data_home, describe_machine
from ndadam.statistics.inference import welch
from worker import TrainConfig, train

#: Deep enough for bf16 to hurt if it does, small enough for a run of seconds.
NETWORKS: dict[str, dict[str, Any]] = {
    "cuda": {"depth": 16, "widen_factor": 2.0, "batch_size": 128},
    "cpu": {"depth": 10, "widen_factor": 1.0, "batch_size": 64, "flip": False, "crop_pad": 1},
}
PRECISIONS = ("fp32", "bf16")
OPTIMIZERS = ("sgd", "ndadam")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=["cpu", "cuda"], default=default)
    parser.add_argument("--seeds", type=int, default=4, help="runs of each arm, at least 2")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--margin", type=float, default=0.5, help="points of test error")
    parser.add_argument("--json", type=Path, help="also write every error to this file")
    arguments = parser.parse_args()
    if arguments.seeds < 2:
        parser.error(f"--seeds must be at least 2 for an interval, got {arguments.seeds}")
    with data_home(arguments.device) as (home, dataset):
        if dataset == "noise32":
            parser.error("CIFAR-10 must be prepared: errors on noise say nothing")
        errors = run_arms(arguments, home, dataset)
    machine = describe_machine(arguments.device)
    print("\n" + ", ".join(f"{name} {value}" for name, value in machine.items()))
    print(table(errors, arguments.margin))
    if arguments.json is not None:
        found = {"machine": machine, "arguments": vars(arguments) | {"json": None}}
        arguments.json.write_text(json.dumps(found | {"errors": errors}, indent=2) + "\n")


def run_arms(
    arguments: argparse.Namespace, home: Path, dataset: str
) -> dict[str, dict[str, list[float]]]:
    """Test errors in percent: optimizer -> precision -> one for each seed."""
    errors: dict[str, dict[str, list[float]]] = {}
    for optimizer in OPTIMIZERS:
        errors[optimizer] = {precision: [] for precision in PRECISIONS}
        for seed in range(arguments.seeds):
            for precision in PRECISIONS:
                fields = NETWORKS[arguments.device] | {
                    "dataset": dataset,
                    "optimizer": optimizer,
                    "epochs": arguments.epochs,
                    "precision": precision,
                    "seed": seed,
                    "validation_fraction": 0.0,
                    "device": arguments.device,
                }
                began = time.perf_counter()
                *_, last = train(TrainConfig.model_validate(fields), data_home=home)
                if last.status != "complete":
                    raise RuntimeError(f"{optimizer} in {precision}, seed {seed}: {last.status}")
                error = 100 * last.metrics["test_error"]
                errors[optimizer][precision].append(error)
                seconds = time.perf_counter() - began
                print(
                    f"{optimizer} {precision} seed {seed}: {error:.2f} %, {seconds:.1f} s",
                    flush=True,
                )
    return errors


def table(errors: dict[str, dict[str, list[float]]], margin: float) -> str:
    """Markdown: mean and deviation of both arms, their difference with its 95 % interval."""
    lines = [
        f"| optimizer | float32, % | bf16, % | bf16 − float32, points | within {margin} points |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    for optimizer, arms in errors.items():
        means = [
            f"{statistics.mean(arms[name]):.2f} ± {statistics.stdev(arms[name]):.2f}"
            for name in PRECISIONS
        ]
        found = welch(arms["bf16"], arms["fp32"])
        verdict = "yes" if -margin < found.low and found.high < margin else "not shown"
        lines.append(
            f"| {optimizer} | {means[0]} | {means[1]} | {found.difference:+z.2f} "
            f"[{found.low:+z.2f}, {found.high:+z.2f}] | {verdict} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
