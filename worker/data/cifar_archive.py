"""Reads the official CIFAR archives, packed or unpacked, without executing code in them."""

import hashlib
import io
import lzma
import pickle
import re
import tarfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from worker.data.prepared import Arrays
from worker.errors import DatasetRefused

_SIDE, _CHANNELS = 32, 3
_PIXELS = _SIDE * _SIDE * _CHANNELS
Found = tuple[Arrays, tuple[str, ...]]
#: File name -> its bytes.
Files = dict[str, Callable[[], bytes]]


def read_python_archive(path: Path, md5: Mapping[str, str]) -> Found | None:
    """Read CIFAR-10 or CIFAR-100 "python version"; None when ``path`` is something else.

    ``md5`` holds the required md5 by file name.
    """
    files = _files(path)
    train = _numbered(files, r"data_batch_(\d+)")
    if train and "test_batch" in files:
        label, meta, names = "labels", "batches.meta", "label_names"
        test = ["test_batch"]
    elif {"train", "test", "meta"} <= files.keys():
        label, meta, names = "fine_labels", "meta", "fine_label_names"
        train, test = ["train"], ["test"]
    else:
        return None
    parts = {name: _unpickle(name, files[name](), md5.get(name)) for name in (*train, *test)}
    classes: tuple[str, ...] = ()
    if meta in files:
        content = _unpickle(meta, files[meta](), md5.get(meta))
        classes = _class_names(meta, _entry(meta, content, names))
    return _join(parts, train, test, label), classes


def read_binary_archive(path: Path) -> Found | None:
    """Read CIFAR-10 or CIFAR-100 "binary version"; None when ``path`` is something else."""
    files = _files(path)
    train = _numbered(files, r"data_batch_(\d+)\.bin")
    if train and "test_batch.bin" in files:
        # One label byte before the pixels.
        test, label_bytes, names = ["test_batch.bin"], 1, "batches.meta.txt"
    elif {"train.bin", "test.bin"} <= files.keys():
        # A coarse label, then the fine one.
        train, test, label_bytes, names = ["train.bin"], ["test.bin"], 2, "fine_label_names.txt"
    else:
        return None

    def read(part: list[str]) -> tuple[np.ndarray, np.ndarray]:
        rows = [_binary_rows(name, files[name](), label_bytes) for name in part]
        joined = np.concatenate(rows)
        return _as_images(joined[:, label_bytes:]), joined[:, label_bytes - 1].copy()

    classes = tuple(files[names]().decode(errors="replace").split()) if names in files else ()
    return Arrays(*read(train), *read(test)), classes


def _files(path: Path) -> Files:
    """List the files of a folder (at most one level down) or of a tar archive, by file name."""
    if path.is_dir():
        inside = [p for p in (*path.glob("*"), *path.glob("*/*")) if p.is_file()]
        return {p.name: p.read_bytes for p in inside}
    found: Files = {}
    try:
        if not path.is_file() or not tarfile.is_tarfile(path):
            return {}
        with tarfile.open(path) as archive:
            for member in archive:
                if member.isfile() and (stream := archive.extractfile(member)) is not None:
                    data = stream.read()
                    found[Path(member.name).name] = lambda data=data: data  # type: ignore[misc]
            # The checksum of a compressed file is at its end, after the part that tar reads.
            while archive.fileobj is not None and archive.fileobj.read(1 << 20):
                pass
    except (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        raise DatasetRefused(f"{path} is a damaged archive: {error}") from error
    return found


def _numbered(files: Files, pattern: str) -> list[str]:
    matches = [m for name in files if (m := re.fullmatch(pattern, name))]
    return [m.group() for m in sorted(matches, key=lambda m: int(m.group(1)))]


def _binary_rows(name: str, data: bytes, label_bytes: int) -> np.ndarray:
    row = label_bytes + _PIXELS
    if not data or len(data) % row:
        raise DatasetRefused(f"{name} must be rows of {row} bytes, got {len(data)} bytes")
    return np.frombuffer(data, np.uint8).reshape(-1, row)


def _as_images(flat: np.ndarray) -> np.ndarray:  # (N, 3072) -> (N, 32, 32, 3)
    planes = flat.reshape(-1, _CHANNELS, _SIDE, _SIDE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1))


def _join(parts: dict[str, Any], train: list[str], test: list[str], label: str) -> Arrays:
    def images(names: list[str]) -> np.ndarray:
        return np.concatenate([_pixels(name, _entry(name, parts[name], "data")) for name in names])

    def labels(names: list[str]) -> np.ndarray:
        return np.concatenate([_labels(name, _entry(name, parts[name], label)) for name in names])

    return Arrays(images(train), labels(train), images(test), labels(test))


def _pixels(name: str, data: Any) -> np.ndarray:
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (_PIXELS,):
        raise DatasetRefused(
            f"{name} must hold uint8 data of the shape (images, {_PIXELS}), got "
            f"{getattr(data, 'shape', type(data).__name__)}"
        )
    return _as_images(data)


def _labels(name: str, labels: Any) -> np.ndarray:
    try:
        found = np.asarray(labels)
    except ValueError:  # lists of different lengths
        found = np.empty((0, 0))
    if found.ndim != 1:
        raise DatasetRefused(f"{name} must hold a flat list of labels, got another shape")
    return found


def _class_names(name: str, names: Any) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(one, bytes | str) for one in names):
        raise DatasetRefused(f"{name} must hold a list of class names, got {type(names).__name__}")
    return tuple(n.decode(errors="replace") if isinstance(n, bytes) else n for n in names)


def _entry(name: str, batch: Any, key: str) -> Any:
    if isinstance(batch, dict):
        # Python 2 wrote the keys, so they load as bytes.
        for spelling in (key.encode(), key):
            if spelling in batch:
                return batch[spelling]
    raise DatasetRefused(f"{name} must hold an entry {key!r}")


class _ArrayUnpickler(pickle.Unpickler):
    """Builds numpy arrays and plain values; every other name in a pickle is refused."""

    _ALLOWED = frozenset(
        {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        # numpy moved its core; the archives name the old module, whose import warns.
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def _unpickle(name: str, data: bytes, md5: str | None) -> Any:
    if md5 is not None and (found := hashlib.md5(data, usedforsecurity=False).hexdigest()) != md5:
        raise DatasetRefused(
            f"{name} is not the published file: its md5 must be {md5}, got {found}"
        )
    try:
        return _ArrayUnpickler(io.BytesIO(data), encoding="bytes").load()
    except Exception as error:  # a damaged pickle raises almost anything
        raise DatasetRefused(f"{name} is not a CIFAR batch: {error}") from error
