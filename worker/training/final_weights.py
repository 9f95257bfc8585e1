"""The final weights of a run in a separate file: all that is needed to use the trained network.

Checkpoints are for resuming; this file is for use elsewhere.
"""

import io
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from worker.atomic_file import whole_file
from worker.config.train_config import TrainConfig

if TYPE_CHECKING:
    from worker.training.run import Run

_LOG = logging.getLogger(__name__)
#: Name of the file in a run's folder.
FILE = "weights.pt"


def save_weights(folder: Path, run: "Run") -> None:
    """Write the network's weights, and the values needed to rebuild it, into ``folder``.

    If the disk is full or unavailable, logs a warning: the run's results do not depend on the file.
    """
    info, channel = run.data.info, run.data.test.channel
    values = {
        "config": run.config.stored(),
        "num_classes": info.num_classes,
        # Height, width, channels.
        "shape": list(info.shape),
        # For pixels from 0 to 255, per channel: x -> x * scale + shift; None: each image by itself.
        "channel": None if channel is None else [values.tolist() for values in channel],
        "state": {name: value.detach().cpu() for name, value in run.model.state_dict().items()},
    }
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
    channels = int(values["shape"][2])
    model = build_network(config, int(values["num_classes"]), channels, torch.device("cpu"))
    model.load_state_dict(values["state"])
    model.eval()
    return model, values
