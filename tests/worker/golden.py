"""Writes the golden losses of the first ten steps; `make golden` runs it.

A commit that moves them carries a *Numerics* line in the changelog.
"""

import json
import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch

from worker import TrainConfig, train
from worker.digits import prepare_digits

PATH = Path(__file__).parent / "golden_losses.json"
STEPS = 10

#: Name -> config fields on top of ``BASE``.
RUNS = {
    "ndadam, paper-tf": {"optimizer": "ndadam"},
    "ndadam, paper-wrn, gamma_c": {"optimizer": "ndadam", "recipe": "paper-wrn", "gamma_c": 2.5},
    "sgd, paper-tf": {"optimizer": "sgd"},
    "sgd, paper-wrn, nesterov": {"optimizer": "sgd", "recipe": "paper-wrn", "nesterov": True},
    "adam, paper-tf": {"optimizer": "adam"},
    "adamw, paper-tf, lambda_c": {"optimizer": "adamw", "lambda_c": 0.01},
}
BASE = {
    "dataset": "digits",
    "depth": 10,
    "widen_factor": 1.0,
    "flip": False,
    "crop_pad": 1,
    "batch_size": 32,
    "steps": STEPS,
    "report_every": 1,
    "device": "cpu",
    "deterministic": True,
}


def losses(name: str, home: Path) -> list[float]:
    """Training loss of each of the first ten steps, float32 on one CPU thread."""
    config = TrainConfig.model_validate(BASE | RUNS[name])
    return [report.metrics["train_loss"] for report in train(config, data_home=home)]


def main() -> None:
    if os.environ.get("CI"):
        sys.exit("golden values are made by a person and reviewed, never in CI")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as home:
        prepare_digits(home)
        values = {name: losses(name, Path(home)) for name in RUNS}
    content = {
        "made_by": f"worker.train, float32, CPU, torch {torch.__version__}",
        "command": "make golden",
        "version": version("ndadam-sweeps"),
        "values": values,
    }
    PATH.write_text(json.dumps(content, indent=1) + "\n")
    print(f"wrote {PATH.name}")


if __name__ == "__main__":
    main()
