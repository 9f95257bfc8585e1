"""What parts of packages cost: the same network, loss and optimizer, built in and from a package.

    python -m benchmarks.training.parts [--device cpu|cuda] [--network WRN-22-7.5]

The parts do what the built-in ones do, in other classes, so that only the way of taking steps
differs. Images per second between reports, the median of five after the first.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.train import data_home, describe_machine
from benchmarks.training.times import make_config
from worker.config.train_config import TrainConfig
from worker.training.train import train

_STEPS, _EVERY = 720, 120
_PACKAGE = """
from dataclasses import dataclass
import torch
from torch import nn
from ndadam.networks.wide_resnet import WideResNet

class Same(WideResNet):
    pass

def network(config, num_classes, in_channels):
    from worker.networks.build import wide_resnet
    made = wide_resnet(config, num_classes, in_channels)
    made.__class__ = Same
    return made

@dataclass
class Fields:
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-3

def sgd(config: Fields, groups):
    return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum, fused=True)

def loss(data):
    return nn.functional.cross_entropy
"""
_ENTRY_POINTS = """
[ndsweep.networks]
same-network = parts_of_benchmark:network
[ndsweep.optimizers]
same-sgd = parts_of_benchmark:sgd
[ndsweep.losses]
same-loss = parts_of_benchmark:loss
"""
_ROWS = {
    "built in": {},
    "optimizer of a package": {"optimizer": "same-sgd", "nesterov": None},
    "loss of a package": {"loss": "same-loss"},
    "network of a package": {"network": "same-network"},
}


def install(folder: Path) -> None:
    """Write the package as pip would, and put it on the path."""
    (folder / "parts_of_benchmark.py").write_text(_PACKAGE)
    info = folder / "parts_of_benchmark-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: parts-of-benchmark\nVersion: 1.0\n"
    )
    (info / "entry_points.txt").write_text(_ENTRY_POINTS)
    sys.path.insert(0, str(folder))


def speed(config: TrainConfig, home: Path) -> float:
    """Images per second of a run."""
    reports = list(train(config, data_home=home))
    return statistics.median(report.metrics["images_per_second"] for report in reports[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=["cpu", "cuda"], default=default)
    parser.add_argument("--network", default="WRN-22-7.5" if default == "cuda" else "WRN-10-1")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, data_home(arguments.device) as (home, dataset):
        install(Path(folder))
        print(describe_machine(arguments.device))
        print("| parts | images/s | × built in |\n| --- | ---: | ---: |")
        first = None
        config = make_config(arguments.device, arguments.network, "sgd", dataset)
        base = config.model_dump(exclude_unset=True) | {
            "steps": _STEPS,
            "report_every": _EVERY,
            "epochs": None,
            "validation_fraction": 0.02,
        }
        for name, changes in _ROWS.items():
            found = speed(TrainConfig.model_validate(base | changes), home)
            first = first or found
            print(f"| {name} | {found:,.0f} | {found / first:.2f} |", flush=True)


if __name__ == "__main__":
    main()
