"""Reads a folder of images by class."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from worker.datasets import Arrays
from worker.errors import DatasetRefused

if TYPE_CHECKING:
    from PIL.Image import Image

_SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp"}
)
_TEST_NAMES = ("test", "val", "validation")


def read_image_folder(path: Path) -> tuple[Arrays, tuple[str, ...]]:
    """``path/train/<class>/*`` and ``path/test/<class>/*``; every image of one size.

    Images are grey (one channel) when all of them are, else RGB. Classes are sorted by name.
    """
    train = path / "train"
    test = next((path / name for name in _TEST_NAMES if (path / name).is_dir()), path / "test")
    for folder in (train, test):
        if not folder.is_dir():
            raise DatasetRefused(
                f"{path} must hold the folders train and test, each with a folder of images per "
                f"class; {folder.name} is missing"
            )
    classes = _class_names(train)
    if _class_names(test) != classes:
        different = sorted(set(_class_names(test)) ^ set(classes))
        raise DatasetRefused(
            f"{path}: train and test must have the same classes, {different[0]!r} is only in one"
        )
    files = [_files_by_class(folder, classes) for folder in (train, test)]
    mode = _common_mode([file for part in files for file, _ in part])
    (x_train, y_train), (x_test, y_test) = (_read(part, mode) for part in files)
    return Arrays(x_train, y_train, x_test, y_test), classes


def _class_names(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(p.name for p in folder.iterdir() if p.is_dir()))


def _files_by_class(folder: Path, classes: tuple[str, ...]) -> list[tuple[Path, int]]:
    found = [
        (file, label)
        for label, name in enumerate(classes)
        for file in sorted((folder / name).iterdir())
        if file.suffix.lower() in _SUFFIXES
    ]
    if not found:
        raise DatasetRefused(f"{folder} must hold images in a folder per class, found none")
    return found


@contextmanager
def _opened(file: Path) -> "Iterator[Image]":
    """The image of a file; what Pillow raises while it is read becomes DatasetRefused."""
    from PIL import Image

    try:
        with Image.open(file) as image:
            yield image
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        if isinstance(error, DatasetRefused):
            raise
        raise DatasetRefused(f"{file} cannot be read as an image: {error}") from error


def _common_mode(files: list[Path]) -> str:
    modes = set()
    for file in files:
        with _opened(file) as image:
            # Pillow would cut such values off at 255.
            if image.mode.startswith(("I", "F")):
                raise DatasetRefused(
                    f"{file} must have 8 bits per channel, got the mode {image.mode!r}"
                )
            modes.add(image.mode)
    return "L" if modes <= {"L", "1"} else "RGB"


def _read(files: list[tuple[Path, int]], mode: str) -> tuple[np.ndarray, np.ndarray]:
    images = []
    for file, _ in files:
        with _opened(file) as image:
            images.append(np.asarray(image.convert(mode)))
        if images[-1].shape != images[0].shape:
            raise DatasetRefused(
                f"every image must have the size of the first, {images[0].shape[1]} x "
                f"{images[0].shape[0]}; {file} has {images[-1].shape[1]} x {images[-1].shape[0]}"
            )
    return np.stack(images), np.array([label for _, label in files])
