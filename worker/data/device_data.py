"""A prepared set on a device, as uint8, loaded once per process."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from worker.config.train_config import TrainConfig
from worker.data.augment import Pixels, pixels_on
from worker.data.prepared import DatasetInfo, check_bytes, dataset_path, load
from worker.data.split import split_validation


@dataclass(frozen=True)
class RunData:
    """The images on which one run is trained and evaluated."""

    info: DatasetInfo
    train: Pixels
    train_indices: Tensor  # (N,) int64, on the CPU
    validation_indices: Tensor  # (N,) int64, on the device, into ``train``
    test: Pixels
    test_indices: Tensor  # (N,) int64, on the device


def load_run_data(config: TrainConfig, home: Path, device: torch.device) -> RunData:
    """Load the images of a resolved config's run."""
    info, tensors = _load_cached(config.dataset, home, device)
    return run_data(config, info, tensors, device)


def run_data(
    config: TrainConfig,
    info: DatasetInfo,
    tensors: tuple[Tensor, Tensor, Tensor, Tensor],
    device: torch.device,
) -> RunData:
    """Split images that are on the device, and bind a resolved config's treatment to them."""
    x_train, y_train, x_test, y_test = tensors
    train, validation = split_validation(
        y_train.cpu().numpy(), config.validation_fraction, config.split_seed
    )
    return RunData(
        info=info,
        train=pixels_on(config, info, x_train, y_train),
        train_indices=torch.from_numpy(train),
        validation_indices=torch.from_numpy(validation).to(device),
        test=pixels_on(config, info, x_test, y_test),
        test_indices=torch.arange(len(y_test), device=device),
    )


def _load_cached(
    name: str, home: Path, device: torch.device
) -> tuple[DatasetInfo, tuple[Tensor, Tensor, Tensor, Tensor]]:
    path = dataset_path(name, home)
    stat = path.stat() if path.is_file() else None
    return _load(name, home, device, (stat.st_mtime_ns, stat.st_ino) if stat else None)


# Trials of one process usually share a set; two leave room for a comparison across sets.
@lru_cache(maxsize=2)
def _load(
    name: str, home: Path, device: torch.device, version: tuple[int, int] | None
) -> tuple[DatasetInfo, tuple[Tensor, Tensor, Tensor, Tensor]]:
    prepared = load(name, home)

    def on_device(array: np.ndarray, dtype: type) -> Tensor:
        # The copy detaches the tensor from the read-only mapping.
        return torch.from_numpy(np.array(array, dtype=dtype)).to(device)

    arrays = prepared.arrays
    with ThreadPoolExecutor(1) as pool:
        # Takes half a second for CIFAR, in which the copies wake an idle card.
        check = pool.submit(check_bytes, prepared, dataset_path(name, home))
        loaded = (
            on_device(arrays.x_train, np.uint8),
            on_device(arrays.y_train, np.int64),
            on_device(arrays.x_test, np.uint8),
            on_device(arrays.y_test, np.int64),
        )
        check.result()
    if device.type == "cuda":
        # The next run may read them on another stream.
        torch.cuda.current_stream(device).synchronize()
    return prepared.info, loaded
