"""The validation split: stratified, and fixed by ``split_seed`` alone."""

import numpy as np

from worker.config import FieldError


def split_validation(
    labels: np.ndarray,  # (N,)
    fraction: float,
    split_seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the training and of the validation images, both sorted.

    Every class gives its share; the images left over by rounding go to the classes with the largest
    remainders, so that the validation set has round(N x fraction) images in all.
    """
    total = round(len(labels) * fraction)
    if fraction > 0 and total == 0:
        raise FieldError(
            "validation_fraction",
            f"validation_fraction must hold out at least one of {len(labels)} images, "
            f"got {fraction}",
        )
    counts = np.bincount(labels)
    shares = counts * (total / max(len(labels), 1))
    taken = np.floor(shares).astype(np.int64)
    # A stable sort makes ties go to the lower class on every machine.
    largest = np.argsort(taken - shares, kind="stable")
    taken[largest[: total - int(taken.sum())]] += 1
    if np.any((taken >= counts) & (counts > 0)):
        raise FieldError(
            "validation_fraction",
            "validation_fraction must leave a training image of every class; the smallest class "
            f"has {counts[counts > 0].min()}, got {fraction}",
        )
    generator = np.random.Generator(np.random.PCG64(split_seed))
    held_out = [
        generator.permutation(np.flatnonzero(labels == label))[:count]
        for label, count in enumerate(taken)
    ]
    validation = np.sort(np.concatenate(held_out))
    return np.setdiff1d(np.arange(len(labels)), validation), validation
