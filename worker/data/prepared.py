"""Prepared data sets: one checked, memory-mapped file each. Imports no torch.

A prepared file is a JSON header followed by four arrays. Letters: N images of H x W pixels with C
channels, K classes.

    bytes 0-7     b"NDSWEEP1"
    bytes 8-15    length of the header, little-endian
    header        JSON: ``DatasetInfo``
    from the next multiple of 4,096: x_train (N, H, W, C) uint8, y_train (N,) uint16, x_test, y_test
"""

import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from worker.atomic_file import whole_file
from worker.data.known_sets import KNOWN_SETS
from worker.errors import DatasetNotFound, DatasetRefused

if TYPE_CHECKING:
    import numpy as np

_MAGIC = b"NDSWEEP1"
_ALIGNMENT = 4096
_SUFFIX = ".ndset"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
#: A header of 1,000 classes with long names stays far below this.
_MAX_HEADER = 1 << 22


@dataclass(frozen=True)
class DatasetInfo:
    """Properties of a prepared set that are known without reading its images."""

    name: str
    num_train: int
    num_test: int
    #: Height, width, channels.
    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    #: Images per class, in the order of ``classes``.
    train_counts: tuple[int, ...]
    test_counts: tuple[int, ...]
    #: Mean and deviation of each channel over the training pixels, 0..255.
    channel_means: tuple[float, ...]
    channel_deviations: tuple[float, ...]
    #: sha256 of the four arrays' bytes, in the order of the file.
    checksum: str
    #: Origin of the images, as text.
    source: str

    @property
    def num_classes(self) -> int:
        return len(self.classes)


@dataclass(frozen=True)
class Arrays:
    """The four arrays of a set."""

    x_train: "np.ndarray"  # (N, H, W, C) uint8
    y_train: "np.ndarray"  # (N,) uint16
    x_test: "np.ndarray"  # (N, H, W, C) uint8
    y_test: "np.ndarray"  # (N,) uint16

    def parts(self) -> tuple["np.ndarray", ...]:
        return self.x_train, self.y_train, self.x_test, self.y_test


@dataclass(frozen=True)
class PreparedSet:
    """A prepared set with its arrays mapped into memory, read-only."""

    info: DatasetInfo
    arrays: Arrays


def default_home() -> Path:
    """``NDSWEEP_DATA``, or a folder in the user's cache.

    Raises DatasetRefused where neither is known.
    """
    if home := os.environ.get("NDSWEEP_DATA"):
        return Path(home)
    if cache := os.environ.get("XDG_CACHE_HOME"):
        return Path(cache) / "ndsweep"
    try:
        return Path.home() / ".cache" / "ndsweep"
    except RuntimeError as error:
        raise DatasetRefused(
            "HOME is not set and this user has no home folder; set NDSWEEP_DATA to a folder for "
            "the data sets"
        ) from error


def dataset_path(name: str, home: Path | str) -> Path:
    """Return the path of a prepared set. Refuses names that are not plain words."""
    if not _NAME.fullmatch(name):
        raise DatasetRefused(
            "a data set's name must be lower-case letters, digits, '-' and '_', at most 63, "
            f"got {name!r}"
        )
    return Path(home) / f"{name}{_SUFFIX}"


def list_datasets(home: Path | str) -> list[DatasetInfo]:
    """List every readable prepared set of a data home, by name."""
    found = []
    for path in sorted(Path(home).glob(f"*{_SUFFIX}")):
        try:
            found.append(_read_header(path)[0])
        except DatasetRefused:
            continue  # a damaged file is not a data set; dataset_info gives the reason
    return found


def dataset_info(name: str, home: Path | str) -> DatasetInfo:
    """Read a prepared set's header. Raises DatasetNotFound, or DatasetRefused if it is damaged."""
    path = dataset_path(name, home)
    if not path.is_file():
        known = ", ".join(info.name for info in list_datasets(home)) or "none"
        is_published = name in ("digits", *KNOWN_SETS)
        fetched = f"`ndsweep data fetch {name}` or " if is_published else ""
        raise DatasetNotFound(
            f"dataset {name!r} is not prepared in {home} (prepared: {known}); "
            f"run {fetched}`ndsweep data import {name} PATH`"
        )
    return _read_header(path)[0]


def load(name: str, home: Path | str, *, verify: bool = False) -> PreparedSet:
    """Map a prepared set into memory.

    Args:
        name: Name of the set.
        home: The data home.
        verify: Read every byte once and compare the checksum.
    """
    info = dataset_info(name, home)
    path = dataset_path(name, home)
    _, start = _read_header(path)
    prepared = PreparedSet(info, _map(path, info, start))
    if verify:
        check_bytes(prepared, path)
    return prepared


def check_bytes(prepared: PreparedSet, path: Path) -> None:
    """Read every byte of a mapped set once. Raises DatasetRefused unless it has its checksum."""
    if _checksum(prepared.arrays) != prepared.info.checksum:
        raise DatasetRefused(
            f"{path} is damaged: its images do not have the checksum of its header; prepare "
            f"{prepared.info.name!r} again"
        )


def write_dataset(
    name: str,
    home: Path | str,
    arrays: Arrays,
    *,
    classes: tuple[str, ...],
    source: str,
) -> DatasetInfo:
    """Write a prepared file: temporary name, fsync, rename. Replaces a set of the same name.

    The arrays must have passed ``worker.data.import_set.check_arrays``.
    """
    path = dataset_path(name, home)
    info = describe(name, arrays, classes, source)
    header = json.dumps(asdict(info)).encode()
    with whole_file(path) as file:
        file.write(_MAGIC + len(header).to_bytes(8, "little") + header)
        file.write(bytes(-file.tell() % _ALIGNMENT))
        for part in arrays.parts():
            part.tofile(file)
    return info


def describe(name: str, arrays: Arrays, classes: tuple[str, ...], source: str) -> DatasetInfo:
    """Return the properties of a set's arrays."""
    import numpy as np

    means, deviations = channel_statistics(arrays.x_train)

    def counts(labels: "np.ndarray") -> tuple[int, ...]:
        return tuple(np.bincount(labels, minlength=len(classes)).tolist())

    _, height, width, channels = arrays.x_train.shape
    return DatasetInfo(
        name=name,
        num_train=len(arrays.y_train),
        num_test=len(arrays.y_test),
        shape=(height, width, channels),
        classes=classes,
        train_counts=counts(arrays.y_train),
        test_counts=counts(arrays.y_test),
        channel_means=means,
        channel_deviations=deviations,
        checksum=_checksum(arrays),
        source=source,
    )


def channel_statistics(
    images: "np.ndarray",  # (N, H, W, C) uint8
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and (population) deviation of each channel over all pixels, exact to rounding."""
    import numpy as np

    # Counting the 256 values keeps the sums exact and needs no float copy of the set.
    values = np.arange(256, dtype=np.float64)
    means, deviations = [], []
    for channel in range(images.shape[-1]):
        counts = np.bincount(images[..., channel].ravel(), minlength=256)
        mean = float((counts * values).sum() / counts.sum())
        variance = float((counts * (values - mean) ** 2).sum() / counts.sum())
        means.append(mean)
        deviations.append(variance**0.5)
    return tuple(means), tuple(deviations)


def _checksum(arrays: Arrays) -> str:
    digest = hashlib.sha256()
    for part in arrays.parts():
        digest.update(part.data)
    return digest.hexdigest()


def _read_header(path: Path) -> tuple[DatasetInfo, int]:
    """Read the header, and the offset of the first array."""
    with path.open("rb") as file:
        prefix = file.read(16)
        length = int.from_bytes(prefix[8:], "little")
        if prefix[:8] != _MAGIC or length > _MAX_HEADER:
            raise DatasetRefused(f"{path} is not a prepared data set; prepare it again")
        text = file.read(length)
    try:
        fields: dict[str, Any] = json.loads(text)
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in fields.items()
        }
        info = DatasetInfo(**values)
    except (ValueError, TypeError, AttributeError) as error:
        raise DatasetRefused(f"{path} has a damaged header; prepare it again") from error
    if info.name != path.name.removesuffix(_SUFFIX):  # checks by name would be bypassed
        raise DatasetRefused(
            f"{path} holds the set {info.name!r}: call it {info.name}{_SUFFIX} again, or import "
            "its source under another name"
        )
    start = 16 + length
    return info, start + -start % _ALIGNMENT


def _map(path: Path, info: DatasetInfo, start: int) -> Arrays:
    import numpy as np

    parts = []
    offset = start
    for count in (info.num_train, info.num_test):
        for shape, dtype in (((count, *info.shape), "u1"), ((count,), "<u2")):
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            parts.append((shape, dtype, offset))
            offset += size
    if path.stat().st_size != offset:
        raise DatasetRefused(
            f"{path} must have {offset:,} bytes, got {path.stat().st_size:,}; prepare it again"
        )
    return Arrays(*(np.memmap(path, dtype, "r", at, shape) for shape, dtype, at in parts))
