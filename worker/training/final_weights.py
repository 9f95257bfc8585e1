"""The final weights of a run in a separate file: all that is needed to use the trained network.

Checkpoints are for resuming; this file is for use elsewhere.
"""

import io
import logging
from collections.abc import Mapping
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
    _write(folder, values)


def save_state(folder: Path, weights: Any, config: Mapping[str, Any]) -> None:
    """Write the weights that a training function keeps: a module's, or a mapping of names.

    Raises TypeError for what ``torch.load(…, weights_only=True)`` would not read as weights.
    """
    state = weights.state_dict() if isinstance(weights, nn.Module) else weights
    if not isinstance(state, Mapping):
        kind = type(weights).__name__
        raise TypeError(f"weights must be a torch module or a mapping of names, got {kind}")
    found: dict[str, torch.Tensor] = {}
    for name, value in state.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise TypeError(
                f"weights must be tensors by name, got {type(value).__name__} for {name!r:.80}"
            )
        # A plain tensor, whatever class it has: others are not read back.
        found[name] = value.detach().cpu().as_subclass(torch.Tensor)
    _write(folder, {"config": dict(config), "state": found})


def _write(folder: Path, values: Mapping[str, Any]) -> None:
    buffer = io.BytesIO()
    torch.save(values, buffer)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with whole_file(folder / FILE) as file:
            file.write(buffer.getbuffer())
    except OSError as error:
        _LOG.warning("the final weights were not written to %s (%s)", folder, error)


def load_network(path: Path) -> tuple[nn.Module, dict[str, Any]]:
    """Return the trained network on the CPU, in evaluation mode, and the file's other values.

    Raises ValueError for weights that the built-in training has not written.
    """
    from worker.networks.build import build_network

    values: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    if "num_classes" not in values:
        raise ValueError(
            "the weights are those of a training that builds its network itself: build it, and "
            "give it to load"
        )
    config = TrainConfig.model_validate(values["config"]).resolved()
    data = values.get("data")
    facts = DataFacts(**data | {"shape": tuple(data["shape"])}) if data is not None else None
    channels = facts.shape[0] if facts is not None else int(values["shape"][2])
    classes = int(values["num_classes"])
    model = build_network(config, classes, channels, torch.device("cpu"), facts)
    model.load_state_dict(values["state"])
    model.eval()
    return model, values
