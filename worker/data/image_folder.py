"""Reads a folder of images by class."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from worker.data.prepared import Arrays
from worker.errors import DatasetRefused

if TYPE_CHECKING:
    from PIL.Image import Image

_SUFFIXES = frozenset(
    {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp"}
)
_GREY = frozenset({"1", "L", "LA", "La"})
_OPAQUE = 255
_TEST_NAMES = ("test", "val", "validation")


def read_image_folder(path: Path) -> tuple[Arrays, tuple[str, ...]]:
    """Read ``path/train/<class>/*`` and ``path/test/<class>/*``; every image of one size.

    Images are grey (one channel) when all of them are, else RGB. Classes are sorted by name. Names
    that begin with a dot, which systems and tools create, are ignored.
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
    if empty := {*classes} - {classes[label] for _, label in files[0]}:
        raise DatasetRefused(f"{train / min(empty)} must hold at least one image, got none")
    are_grey = [_is_grey(file) for part in files for file, _ in part]  # each is looked at
    mode = "L" if all(are_grey) else "RGB"
    (x_train, y_train), (x_test, y_test) = (_read(part, mode) for part in files)
    return Arrays(x_train, y_train, x_test, y_test), classes


def _class_names(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(p.name for p in _entries(folder) if p.is_dir()))


def _entries(folder: Path) -> list[Path]:
    """List a folder by name, without dot files such as ``.ipynb_checkpoints`` and ``._1.png``."""
    return sorted(p for p in folder.iterdir() if not p.name.startswith("."))


def _files_by_class(folder: Path, classes: tuple[str, ...]) -> list[tuple[Path, int]]:
    found = []
    for label, name in enumerate(classes):
        for file in _entries(folder / name):
            if file.is_dir():
                raise DatasetRefused(
                    f"{file} must not be there: images lie in the folder of their class itself, "
                    "not in folders inside it"
                )
            if file.suffix.lower() in _SUFFIXES:
                found.append((file, label))
    if not found:
        raise DatasetRefused(f"{folder} must hold images in a folder per class, found none")
    return found


@contextmanager
def _opened(file: Path) -> "Iterator[Image]":
    """Open the image of a file; Pillow's errors while it is read become DatasetRefused."""
    from PIL import Image

    try:
        with Image.open(file) as image:
            yield image
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        if isinstance(error, DatasetRefused):
            raise
        raise DatasetRefused(f"{file} cannot be read as an image: {error}") from error


def _is_grey(file: Path) -> bool:
    """Whether an image has one channel. Refuses images that 8-bit pixels cannot represent."""
    with _opened(file) as image:
        # Pillow would cut such values off at 255.
        if image.mode.startswith(("I", "F")):
            raise DatasetRefused(
                f"{file} must have 8 bits per channel, got the mode {image.mode!r}"
            )
        # Of a file with several photographs (MPO), the first one counts.
        if (frames := getattr(image, "n_frames", 1)) > 1 and image.format != "MPO":
            raise DatasetRefused(f"{file} must hold one image, got {frames}")
        if image.has_transparency_data:
            opacity = image.convert("RGBA").getchannel("A").getextrema()[0]
            if opacity != _OPAQUE:
                raise DatasetRefused(
                    f"{file} must have no transparent pixels, whose colours are unseen: put it on "
                    f"a background first; got an opacity of {opacity} of {_OPAQUE}"
                )
        return image.mode in _GREY


def _read(files: list[tuple[Path, int]], mode: str) -> tuple[np.ndarray, np.ndarray]:
    images = []
    for file, _ in files:
        with _opened(file) as image:
            # Converted to RGBA first, which resolves transparency in a palette.
            whole = image.convert("RGBA") if image.has_transparency_data else image
            images.append(np.asarray(whole.convert(mode)))
        if images[-1].shape != images[0].shape:
            raise DatasetRefused(
                f"every image must have the size of the first, {images[0].shape[1]} x "
                f"{images[0].shape[0]}; {file} has {images[-1].shape[1]} x {images[-1].shape[0]}"
            )
    return np.stack(images), np.array([label for _, label in files])
