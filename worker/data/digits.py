"""The digits that ship with scikit-learn: 1,797 real 8 x 8 images, with a fixed test split."""

from pathlib import Path

import numpy as np

from worker.data.import_set import check_arrays
from worker.data.prepared import Arrays, DatasetInfo, write_dataset

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
