"""Puts the trained network of a sweep's best trial into MLflow, in a process of its own.

python -m sweeps.mlflow_mirror.model WEIGHTS FOLDER writes it as MLflow keeps models: for
``mlflow.pytorch.load_model``, with its signature and an example of its input. The process ends and
gives the memory back that torch and MLflow's model flavours take.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

#: Seconds that writing one model may take.
PATIENCE = 600.0
#: Images of the example.
EXAMPLES = 2


def write_model(weights: Path, folder: Path) -> None:
    """Write the model into ``folder`` from a process of its own. Raises OSError with its words."""
    command = [sys.executable, "-m", "sweeps.mlflow_mirror.model", str(weights), str(folder)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"writing the model took over {PATIENCE:.0f} s") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise OSError(f"the model could not be written: {last}")


def main(weights: str, folder: str) -> None:
    """Read the weights, run the network on an example, and save it."""
    import mlflow.pytorch
    import torch
    from mlflow.models import infer_signature

    from worker.training.final_weights import load_network

    model, about = load_network(Path(weights))
    generator = torch.Generator().manual_seed(0)
    if "shape" in about:
        height, width, channels = about["shape"]
        shape = (channels, height, width)
        what = f"float32 images, channels first; {standardised(about)}"
    else:
        shape = tuple(about["data"]["shape"])
        what = f"{about['dtype']} of shape {shape}, as data set {about['data']['name']} has them"
    example = torch.randn(EXAMPLES, *shape, generator=generator)
    if about.get("dtype", "float32") != "float32":
        example = torch.zeros(EXAMPLES, *shape, dtype=getattr(torch, about["dtype"]))
    with torch.no_grad():
        logits = model(example)
    # A graph and its weights. A pickle, which is the default on Databricks, would name the modules
    # of the network, and a later version may have moved them.
    mlflow.pytorch.save_model(
        model,
        folder,
        serialization_format="pt2",
        signature=infer_signature(example.numpy(), logits.numpy()),
        input_example=example.numpy(),
        pip_requirements=[f"torch=={torch.__version__.partition('+')[0]}", "ndadam-sweeps"],
        metadata={
            "input": f"{what}; output: logits",
            "dataset": about["config"]["dataset"],
            "input_norm": about["config"].get("input_norm"),
        },
    )


def standardised(about: dict[str, Any]) -> str:
    """How pixels become what the network wants, for a person."""
    if about.get("channel") is None:
        return (
            "each image less its mean over its deviation, both over all channels of its pixels "
            "from 0 to 255, the deviation at least 1 / sqrt(their number)"
        )
    scale, shift = about["channel"]
    return f"pixels from 0 to 255 per channel times {scale} plus {shift}"


if __name__ == "__main__":
    main(*sys.argv[1:])
