"""Reads a folder of images by class."""

from pathlib import Path

import numpy as np

from worker.datasets import Arrays
from worker.errors import DatasetRefused

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


def _common_mode(files: list[Path]) -> str:
    from PIL import Image

    modes = set()
    for file in files:
        try:
            with Image.open(file) as image:
                modes.add(image.mode)
        except OSError as error:
            raise DatasetRefused(f"{file} cannot be read as an image: {error}") from error
    return "L" if modes <= {"L", "1"} else "RGB"


def _read(files: list[tuple[Path, int]], mode: str) -> tuple[np.ndarray, np.ndarray]:
    from PIL import Image

    images = []
    for file, _ in files:
        try:
            with Image.open(file) as image:
                images.append(np.asarray(image.convert(mode)))
        except OSError as error:
            raise DatasetRefused(f"{file} cannot be read as an image: {error}") from error
        if images[-1].shape != images[0].shape:
            raise DatasetRefused(
                f"every image must have the size of the first, {images[0].shape[1]} x "
                f"{images[0].shape[0]}; {file} has {images[-1].shape[1]} x {images[-1].shape[0]}"
            )
    return np.stack(images), np.array([label for _, label in files])
