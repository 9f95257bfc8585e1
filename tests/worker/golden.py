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
from worker.data.fetch import prepare_digits
from worker.training.run import Run

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


def losses(name: str, home: Path, dtype: torch.dtype) -> list[float]:
    """Training loss of each of the first ten steps on one CPU thread."""
    config = TrainConfig.model_validate(BASE | RUNS[name]).resolved()
    if dtype == torch.float32:
        return [report.metrics["train_loss"] for report in train(config, data_home=home)]
    return take_losses(make_run(config, home, dtype), STEPS)


def make_run(config: TrainConfig, home: Path, dtype: torch.dtype) -> Run:
    """A run of a resolved config with its weights and everything after the images in ``dtype``.

    No config asks for float64, which no training gains from; here it leaves out the rounding that
    differs between machines. So the weights are drawn and normed in it too.
    """
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        run = Run(config, home, torch.device("cpu"), None, lambda: False)
    finally:
        torch.set_default_dtype(default)
    assert all(p.dtype == dtype for p in run.model.parameters())
    run.model.register_forward_pre_hook(lambda _, images: (images[0].to(dtype),))
    return run


def take_losses(run: Run, count: int) -> list[float]:
    """Loss of each of ``count`` steps, taken now."""
    found = []
    for _ in range(count):
        run.take_step()
        run.tally.drain()
        found.append(run.tally.metrics()["train_loss"])
        run.tally.reset()
    return found


def main() -> None:
    if os.environ.get("CI"):
        sys.exit("golden values are made by a person and reviewed, never in CI")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as home:
        prepare_digits(home)
        values = {
            str(dtype).removeprefix("torch."): {
                name: losses(name, Path(home), dtype) for name in RUNS
            }
            for dtype in (torch.float64, torch.float32)
        }
    content = {
        "made_by": f"worker, float64 and float32, CPU, torch {torch.__version__}",
        "command": "make golden",
        "version": version("ndadam-sweeps"),
        "values": values,
    }
    PATH.write_text(json.dumps(content, indent=1) + "\n")
    print(f"wrote {PATH.name}")


if __name__ == "__main__":
    main()
