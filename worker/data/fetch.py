"""Fetches data sets: CIFAR-10 and CIFAR-100 by torchvision, digits from scikit-learn.

torchvision checks the archive's checksum. The digits are 1,797 real 8 x 8 images, with a fixed test
split.
"""

import tempfile
from pathlib import Path

import numpy as np

from worker.data.import_set import check_arrays, import_dataset
from worker.data.known_sets import KNOWN_SETS
from worker.data.prepared import Arrays, DatasetInfo, write_dataset
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


#: scikit-learn's digits have 17 grey values, 0..16; times 15 they span 0..240 without rounding.
_SCALE = 15

#: Every fifth image of each class, in the order of the set, is a test image.
_TEST_EVERY = 5


def prepare_digits(home: Path | str) -> DatasetInfo:
    """Prepare ``digits``: 8 x 8 x 1, ten classes, 1,442 training and 355 test images.

    Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits" (UCI, 1998), as distributed by
    scikit-learn. The split is stratified and fixed: image number 5, 10, 15, … of each class is for
    the test.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images * _SCALE).astype(np.uint8)[..., None]
    labels = digits.target.astype(np.uint16)
    is_test = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        is_test[np.flatnonzero(labels == label)[_TEST_EVERY - 1 :: _TEST_EVERY]] = True
    arrays = check_arrays(
        Arrays(images[~is_test], labels[~is_test], images[is_test], labels[is_test]),
        num_classes=10,
        source="scikit-learn's digits",
    )
    return write_dataset(
        "digits",
        home,
        arrays,
        classes=tuple("0123456789"),
        source="scikit-learn load_digits (UCI Optical Recognition of Handwritten Digits)",
    )
