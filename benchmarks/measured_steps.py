"""Times the steps of runs that record how far weights move, beside runs that do not.

    python -m benchmarks.measured_steps [--device cpu|cuda] [--networks ...] [--json FILE]

Each row is a short run of ``worker.train`` with its reports: milliseconds per step between its
second and its last report but one. *shadow* also feeds the projected gradients to the moments of
ND-Adam, as the source of a match does; *closed loop* sets alpha^v by what it measures.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.train import data_home, describe_machine
from worker import Measurement, TrainConfig, train

#: Depth, width and steps.
NETWORKS: dict[str, dict[str, tuple[int, float, int]]] = {
    "cuda": {"WRN-22-7.5": (22, 7.5, 400), "WRN-10-1": (10, 1.0, 1500)},
    "cpu": {"WRN-10-1": (10, 1.0, 50)},
}
SHADOW = (0.9, 0.999)
MEASUREMENTS: dict[str, Measurement | None] = {
    "nothing": None,
    "every step": Measurement(),
    "every 4 steps, layers": Measurement(every=4, per_layer=True),
    "every step, shadow": Measurement(shadow_betas=SHADOW),
    "every 4 steps, layers, shadow": Measurement(every=4, per_layer=True, shadow_betas=SHADOW),
}
#: alpha^s of a closed loop, and the effective learning rate that it follows.
ALPHA_S, FOLLOWED = 0.001, 0.01
REPORTS = 5
HEAD = """\
| network | optimizer | measured | ms/step | × nothing |
| --- | --- | --- | ---: | ---: |"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=["cpu", "cuda"], default=default)
    parser.add_argument("--networks", nargs="*", help="only these")
    parser.add_argument("--json", type=Path, help="also write every figure to this file")
    arguments = parser.parse_args()
    machine = describe_machine(arguments.device)
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    rows = []
    with data_home(arguments.device) as (home, dataset):
        print(f"images: {dataset}\n\n{HEAD}", flush=True)
        for network in arguments.networks or NETWORKS[arguments.device]:
            for row in network_rows(arguments.device, network, home, dataset):
                rows.append(row)
                print(
                    f"| {network} | {row['optimizer']} | {row['measured']} | {row['ms']:.3f} | "
                    f"{row['ratio']:.2f} |",
                    flush=True,
                )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")


def network_rows(device: str, network: str, home: Path, dataset: str) -> Iterator[dict[str, Any]]:
    """Every row of a network, one after the other."""
    depth, widen_factor, steps = NETWORKS[device][network]
    shared = {
        "dataset": dataset,
        "device": device,
        "depth": depth,
        "widen_factor": widen_factor,
        "precision": "bf16" if device == "cuda" else "fp32",
        "validation_fraction": 0.0,
        "steps": steps,
        "report_every": steps // REPORTS,
    }
    for optimizer in ("sgd", "ndadam"):
        config = TrainConfig(**shared, optimizer=optimizer)
        plain = 0.0
        for name, measurement in MEASUREMENTS.items():
            if optimizer == "ndadam" and measurement is not None and measurement.shadow_betas:
                continue  # Sources of matches are other optimizers.
            ms = milliseconds(config, measurement, home)
            plain = plain or ms
            yield {
                "network": network,
                "optimizer": optimizer,
                "measured": name,
                "ms": ms,
                "ratio": ms / plain,
            }
    loop = TrainConfig(
        **shared, optimizer="ndadam", alpha_s=ALPHA_S, follow=((0, FOLLOWED), (steps, FOLLOWED))
    )
    ms = milliseconds(loop, None, home)
    yield {
        "network": network,
        "optimizer": "ndadam",
        "measured": "closed loop",
        "ms": ms,
        "ratio": ms / plain,
    }


def milliseconds(config: TrainConfig, measurement: Measurement | None, home: Path) -> float:
    """Of a step, between the second report and the last but one."""
    seen = [
        (time.perf_counter(), report.step)
        for report in train(config, data_home=home, measurement=measurement)
    ]
    (began, first), (ended, last) = seen[1], seen[-2]
    return 1000 * (ended - began) / (last - first)


if __name__ == "__main__":
    main()
