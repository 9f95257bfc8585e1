"""The final weights of a run in a separate file: all that is needed to use the trained network.

Checkpoints are for resuming; this file is for use elsewhere.
"""

import io
import logging
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from worker.atomic_file import whole_file
from worker.config.part_declarations import DataFacts
from worker.config.train_config import TrainConfig
from worker.data.device_data import RunData
from worker.data.own_data import OwnData

if TYPE_CHECKING:
    from worker.training.run import Run

_LOG = logging.getLogger(__name__)
#: Name of the file in a run's folder.
FILE = "weights.pt"


def save_weights(folder: Path, run: "Run") -> None:
    """Write the network's weights, and the values needed to rebuild it, into ``folder``.

    If the disk is full or unavailable, logs a warning: the run's results do not depend on the file.
    """
    facts = run.facts
    values: dict[str, Any] = {
        "config": run.config.stored(),
        "num_classes": facts.outputs,
        "state": {name: value.detach().cpu() for name, value in run.model.state_dict().items()},
    }
    if isinstance(run.data, RunData):
        channel = run.data.test.channel
        # Height, width, channels.
        values["shape"] = list(run.data.info.shape)
        # For pixels from 0 to 255, per channel: x -> x * scale + shift; None: each image by itself.
        values["channel"] = None if channel is None else [v.tolist() for v in channel]
    if run.config.parts():
        values["data"] = asdict(facts)
    if isinstance(run.data, OwnData):
        values["dtype"] = str(run.data.test.inputs.dtype).removeprefix("torch.")
    buffer = io.BytesIO()
    torch.save(values, buffer)
    try:
        with whole_file(folder / FILE) as file:
            file.write(buffer.getbuffer())
    except OSError as error:
        _LOG.warning("the final weights were not written to %s (%s)", folder, error)


def load_network(path: Path) -> tuple[nn.Module, dict[str, Any]]:
    """Return the trained network on the CPU, in evaluation mode, and the file's other values."""
    from worker.networks.build import build_network

    values: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    config = TrainConfig.model_validate(values["config"]).resolved()
    data = values.get("data")
    facts = DataFacts(**data | {"shape": tuple(data["shape"])}) if data is not None else None
    channels = facts.shape[0] if facts is not None else int(values["shape"][2])
    classes = int(values["num_classes"])
    model = build_network(config, classes, channels, torch.device("cpu"), facts)
    model.load_state_dict(values["state"])
    model.eval()
    return model, values
