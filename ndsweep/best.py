"""The best point of a sweep, and the weights of its best trial."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from service.client.client import Client as Service
from service.contract.outputs import BestOut, BestTrialOut

if TYPE_CHECKING:
    from torch import nn

M = TypeVar("M")


@dataclass(frozen=True)
class Best:
    """The point with the best mean so far, and the way to the weights of the best single trial.

    The two need not belong together: a point is judged by its mean over seeds, while of all trials
    only the weights of the one with the best objective are kept; ``weights`` says which.
    """

    sweep_id: str
    #: Number of the point, and its sampled values.
    point: int
    params: dict[str, Any]
    #: Mean of the objective over ``n`` seeds and its deviation (None for one seed), in the
    #: metric's own unit.
    mean: float
    sd: float | None
    n: int
    #: "selected, optimistic", or "confirmed on fresh seeds"; "by the first objective alone" where
    #: there are several.
    label: str
    _service: Service = field(repr=False)

    @property
    def weights(self) -> BestTrialOut:
        """The trial whose weights are kept: ``trial``, ``point``, ``seed``, ``params``,
        ``objective``, ``bytes``, ``sha256``. Raises ServiceRefused, which says why none are.
        """
        return self._service.best(self.sweep_id)

    @overload
    def load(self) -> "nn.Module": ...
    @overload
    def load(self, model: M) -> M: ...
    def load(self, model: Any = None) -> Any:
        """Load the kept weights into ``model``, and return it on its own device.

        Without a model, the network of the best trial is built, on the CPU and in evaluation mode;
        that needs the packages of the worker here, and the built-in training. The mode of a given
        model stays as it is. Of other trainings there are weights if they call
        ``run.save_weights``.

        Raises:
            ServiceRefused: No weights are kept; the sentence says why.
            DamagedDownload: What arrived does not have the checksum of the file.
            ValueError: The weights belong to another network than ``model``.
        """
        if model is None:
            from worker.training.final_weights import load_network

            with tempfile.TemporaryDirectory() as folder:
                return load_network(self._downloaded(folder))[0]
        values = self.values()
        try:
            model.load_state_dict(values["state"])
        except RuntimeError as error:
            first = " ".join(str(error).split())[:300]
            is_known = "num_classes" in values
            remedy = (
                "load() without a model builds the network that they belong to"
                if is_known
                else f"build it with the settings of their trial, {self.weights.params}"
            )
            raise ValueError(
                f"the weights of sweep {self.sweep_id} do not fit this model ({first}); {remedy}"
            ) from error
        return model

    def values(self) -> dict[str, Any]:
        """Everything in the file of weights, read with ``weights_only=True``, on the CPU.

        Of the built-in training: ``config``, ``state`` (name -> tensor), ``num_classes``, ``shape``
        (height, width, channels), and ``channel``: (scale, shift) of each channel, which the
        network expects to be applied to pixels from 0 to 255; None where each image is normalised
        by itself. Of other trainings: ``config`` and ``state``. Errors as of ``load``.
        """
        import torch

        with tempfile.TemporaryDirectory() as folder:
            path = self._downloaded(folder)
            found: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            return found

    def _downloaded(self, folder: str) -> Path:
        path = Path(folder) / "weights.pt"
        self._service.best_weights(self.sweep_id, path)
        return path


def best_of(service: Service, sweep_id: str, best: BestOut) -> Best:
    """Of the API's answer."""
    return Best(sweep_id, **best.model_dump(), _service=service)
