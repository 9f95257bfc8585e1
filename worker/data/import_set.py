"""Prepares data sets from users' files: ``.npz``, CIFAR archives, folders of images."""

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worker.data.cifar_archive import read_binary_archive, read_python_archive
from worker.data.image_folder import read_image_folder
from worker.data.known_sets import KNOWN_SETS, KnownSet
from worker.data.prepared import (
    Arrays,
    DatasetInfo,
    channel_statistics,
    dataset_path,
    write_dataset,
)
from worker.errors import DatasetRefused

_ARRAY_NAMES = ("x_train", "y_train", "x_test", "y_test")
#: More classes than this are refused: labels are checked against it, and tables stay readable.
MAX_CLASSES = 1000
#: Images of a height of 1 or 3 with more channels than this have their axes in another order.
_CHANNELS = 4


def import_dataset(name: str, path: Path | str, home: Path | str) -> DatasetInfo:
    """Prepare the set ``name`` from ``path``.

    ``path`` may be

    * an ``.npz`` with x_train, y_train, x_test, y_test: images (N, H, W, C) or (N, H, W) uint8,
      integer labels from 0;
    * the official CIFAR-10 or CIFAR-100 archive for Python or in binary form, packed or unpacked;
    * a folder with ``train`` and ``test`` (or ``val``), each with one folder of images per class.

    The names ``cifar10`` and ``cifar100`` are reserved for the published sets; imports are checked.
    Raises DatasetRefused; then nothing was written.
    """
    path = Path(path)
    dataset_path(name, home)
    if not path.exists():
        raise DatasetRefused(f"there is no file or folder {path}")
    known = KNOWN_SETS.get(name)
    arrays, classes = _read(path, known)
    # By the classes of the file, not of the known set, so that another set is reported as such.
    arrays = check_arrays(arrays, num_classes=len(classes) if classes else None, source=str(path))
    check_known(name, arrays)
    if not classes and known is not None:
        classes = known.classes
    if not classes:
        classes = tuple(str(label) for label in range(int(arrays.y_train.max()) + 1))
    return write_dataset(name, home, arrays, classes=classes, source=f"imported from {path.name}")


def _read(path: Path, known: KnownSet | None) -> tuple[Arrays, tuple[str, ...]]:
    """Read the arrays of the source unchanged, and the names of the classes if it has any."""
    if path.is_file() and path.suffix == ".npz":
        return _read_npz(path), ()
    md5 = known.python_md5 if known is not None else {}
    found = read_python_archive(path, md5) or read_binary_archive(path)
    if found is not None:
        return found
    if path.is_dir():
        return read_image_folder(path)
    raise DatasetRefused(
        f"{path} must be an .npz, a CIFAR archive or a folder with train and test images by class"
    )


def _read_npz(path: Path) -> Arrays:
    # numpy would treat any other file as a pickle, and explain how to load one.
    if not zipfile.is_zipfile(path):
        raise DatasetRefused(
            f"{path} must be an .npz, the zip archive that numpy.savez writes; it is something "
            "else, or cut off"
        )
    try:
        # Without allow_pickle an array of objects is refused, so that no file can run code.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            missing = [name for name in _ARRAY_NAMES if name not in file]
            if missing:
                raise DatasetRefused(
                    f"{path} must hold x_train, y_train, x_test and y_test; {', '.join(missing)} "
                    "missing"
                )
            return Arrays(*(_read_array(path, file, name) for name in _ARRAY_NAMES))
    except (ValueError, OSError, EOFError, KeyError) as error:
        if isinstance(error, DatasetRefused):
            raise
        raise DatasetRefused(f"{path} cannot be read as .npz: {error}") from error
    except Exception as error:  # zipfile.BadZipFile and zlib.error share no base class
        raise DatasetRefused(f"{path} is a damaged .npz: {error}") from error


def _read_array(path: Path, file: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    try:
        return file[name]
    except ValueError as error:
        if "Object arrays" not in str(error):
            raise
        raise DatasetRefused(
            f"{path}: {name} must be an array of numbers, got one of Python objects, which could "
            "run code"
        ) from error


def check_arrays(arrays: Arrays, *, num_classes: int | None, source: str) -> Arrays:
    """Return the arrays in the prepared form. Raises DatasetRefused with the first broken rule.

    Args:
        arrays: As read.
        num_classes: Number of classes the source names; none = the largest label + 1.
        source: What to call the source in the sentence.
    """
    x_train = _check_images("x_train", arrays.x_train, source)
    x_test = _check_images("x_test", arrays.x_test, source)
    if x_train.shape[1:] != x_test.shape[1:]:
        raise DatasetRefused(
            f"{source}: x_train and x_test must have images of one shape, got "
            f"{x_train.shape[1:]} and {x_test.shape[1:]}"
        )
    y_train = _check_labels("y_train", arrays.y_train, len(x_train), num_classes, source)
    classes = num_classes or int(y_train.max()) + 1
    y_test = _check_labels("y_test", arrays.y_test, len(x_test), classes, source)
    if not 2 <= classes <= MAX_CLASSES:
        raise DatasetRefused(
            f"{source}: a data set must have 2 to {MAX_CLASSES} classes, got {classes}"
        )
    empty = np.flatnonzero(np.bincount(y_train, minlength=classes) == 0)
    if len(empty):
        raise DatasetRefused(
            f"{source}: y_train must hold every class from 0 to {classes - 1}, class {empty[0]} "
            "has no image"
        )
    return Arrays(x_train, y_train, x_test, y_test)


def _check_images(name: str, images: np.ndarray, source: str) -> np.ndarray:
    if images.dtype != np.uint8:
        raise DatasetRefused(f"{source}: {name} must be uint8 (0..255), got {images.dtype}")
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim == 4 and images.shape[1] in (1, 3) and min(images.shape[2:]) > _CHANNELS:
        raise DatasetRefused(
            f"{source}: {name} must have its channels last, (images, height, width, channels); got "
            f"{images.shape}, which is what channels first look like: save "
            f"{name}.transpose(0, 2, 3, 1)"
        )
    if images.ndim != 4 or 0 in images.shape:
        raise DatasetRefused(
            f"{source}: {name} must have the shape (images, height, width, channels), got "
            f"{images.shape}"
        )
    return np.ascontiguousarray(images)


def _check_labels(
    name: str, labels: np.ndarray, count: int, num_classes: int | None, source: str
) -> np.ndarray:
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]  # Keras keeps CIFAR's labels as a column
    if labels.ndim != 1 or len(labels) != count:
        raise DatasetRefused(
            f"{source}: {name} must have one label for each of {count} images, got the shape "
            f"{labels.shape}"
        )
    if not np.issubdtype(labels.dtype, np.integer):
        raise DatasetRefused(f"{source}: {name} must be integers, got {labels.dtype}")
    top = (num_classes or MAX_CLASSES) - 1
    if labels.min() < 0 or labels.max() > top:
        raise DatasetRefused(
            f"{source}: {name} must lie between 0 and {top}, got {labels.min()} to {labels.max()}"
        )
    return labels.astype("<u2")


def check_known(name: str, arrays: Arrays) -> None:
    """Refuse arrays that are not the published data set of this name."""
    known = KNOWN_SETS.get(name)
    if known is None:
        return
    counts = (len(arrays.x_train), len(arrays.x_test))
    shape = arrays.x_train.shape[1:]
    if counts != (known.num_train, known.num_test) or shape != known.shape:
        raise DatasetRefused(
            f"{name} must have {known.num_train} training and {known.num_test} test images of "
            f"{known.shape}, got {counts[0]} and {counts[1]} of {tuple(shape)}; import it under "
            "another name if it is another set"
        )
    _check_balance(name, arrays, len(known.classes))
    if known.sha256:
        _check_sha256(name, arrays, known)
    _check_statistics(name, arrays, known)


def _check_balance(name: str, arrays: Arrays, num_classes: int) -> None:
    for part, labels in (("training", arrays.y_train), ("test", arrays.y_test)):
        counts = np.bincount(labels, minlength=num_classes)
        if len(counts) != num_classes or counts.min() != counts.max():
            raise DatasetRefused(
                f"{name} must have as many {part} images of each of its {num_classes} classes, "
                f"got {counts.min()} to {counts.max()} over {np.count_nonzero(counts)} classes"
            )


def _check_sha256(name: str, arrays: Arrays, known: KnownSet) -> None:
    names = ("x_train", "y_train", "x_test", "y_test")
    for part, array, digest in zip(names, arrays.parts(), known.sha256, strict=True):
        found = hashlib.sha256(np.ascontiguousarray(array, dtype=np.uint8).tobytes()).hexdigest()
        if digest is not None and found != digest:
            raise DatasetRefused(
                f"{part} is not that of {name}: its sha256 must be {digest}, got {found}"
            )
    if known.unordered_test_sha256 is not None:
        found = unordered_sha256(arrays.x_test, arrays.y_test)
        if found != known.unordered_test_sha256:
            raise DatasetRefused(
                f"the test set is not that of {name}: sha256 over its images in no order must be "
                f"{known.unordered_test_sha256}, got {found}"
            )


def unordered_sha256(images: NDArray[Any], labels: NDArray[Any]) -> str:
    """A digest of labelled images that does not depend on their order.

    Args:
        images: N images of bytes, uint8.
        labels: N labels from 0 to 255.
    """
    digests = sorted(
        hashlib.sha256(bytes([label]) + image.tobytes()).digest()
        for image, label in zip(images, labels, strict=True)
    )
    return hashlib.sha256(b"".join(digests)).hexdigest()


def _check_statistics(name: str, arrays: Arrays, known: KnownSet) -> None:
    found = channel_statistics(arrays.x_train)
    for what, values, expected in zip(
        ("means", "deviations"), found, (known.means, known.deviations), strict=True
    ):
        if not np.allclose(values, expected, rtol=0, atol=0.06):
            rounded = tuple(round(value, 1) for value in values)
            raise DatasetRefused(
                f"{name}'s channel {what} must be {expected}, got {rounded}: colours are swapped "
                "or scaled, or it is another set"
            )
