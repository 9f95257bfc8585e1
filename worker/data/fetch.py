"""Downloads CIFAR-10 and CIFAR-100 with torchvision, which checks the archive's checksum."""

import tempfile
from pathlib import Path

from worker.data.import_set import import_dataset
from worker.data.known_sets import KNOWN_SETS
from worker.data.prepared import DatasetInfo
from worker.errors import DatasetRefused


def fetch(name: str, home: Path | str) -> DatasetInfo:
    """Download ``cifar10`` or ``cifar100``, check it, prepare it. Needs a network."""
    if name not in KNOWN_SETS:
        raise DatasetRefused(
            f"only {', '.join(KNOWN_SETS)} can be fetched, got {name!r}; "
            "use `ndsweep data import` for a set of your own"
        )
    from torchvision import datasets

    source = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}[name]
    home = Path(home)
    home.mkdir(parents=True, exist_ok=True)
    # Inside the data home, because the system's temporary folder may be a small memory disk.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=home) as folder:
        try:
            source(folder, train=True, download=True)
        except (OSError, RuntimeError) as error:
            raise DatasetRefused(
                f"{name} could not be downloaded: {error}; where the site cannot be reached, use "
                f"`ndsweep data import {name} FILE`"
            ) from error
        unpacked = Path(folder) / source.base_folder
        return import_dataset(name, unpacked, home)
