"""The validation split: stratified, and fixed by ``split_seed`` alone.

Imports numpy only to split, because a service only checks whether a fraction can be held out.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from worker.config.train_config import FieldError

if TYPE_CHECKING:
    import numpy as np


def held_out_counts(counts: Sequence[int], fraction: float) -> list[int]:
    """Return the number of validation images of each class, of ``counts`` in total.

    Every class gives its share; the images left over by rounding go to the classes with the largest
    remainders, so that the validation set has round(N x fraction) images in total. Raises
    FieldError for a fraction that leaves either side without images.
    """
    size = sum(counts)
    total = round(size * fraction)
    if fraction > 0 and total == 0:
        raise FieldError(
            "validation_fraction",
            f"validation_fraction must hold out at least one of {size} images, got {fraction}",
        )
    shares = [count * (total / max(size, 1)) for count in counts]
    taken = [math.floor(share) for share in shares]
    # A stable sort makes ties go to the lower class on every machine.
    largest = sorted(range(len(counts)), key=lambda label: taken[label] - shares[label])
    for label in largest[: total - sum(taken)]:
        taken[label] += 1
    if any(part >= count > 0 for part, count in zip(taken, counts, strict=True)):
        raise FieldError(
            "validation_fraction",
            "validation_fraction must leave a training image of every class; the smallest class "
            f"has {min(count for count in counts if count)}, got {fraction}",
        )
    return taken


def split_validation(
    labels: "np.ndarray",  # (N,)
    fraction: float,
    split_seed: int,
) -> tuple["np.ndarray", "np.ndarray"]:
    """Return the indices of the training and of the validation images, both sorted."""
    import numpy as np

    taken = held_out_counts(np.bincount(labels).tolist(), fraction)
    generator = np.random.Generator(np.random.PCG64(split_seed))
    held_out = [
        generator.permutation(np.flatnonzero(labels == label))[:count]
        for label, count in enumerate(taken)
    ]
    validation = np.sort(np.concatenate(held_out))
    return np.setdiff1d(np.arange(len(labels)), validation), validation
