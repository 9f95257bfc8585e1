"""The file of a backup: a zip archive whose manifest lists every file with size and SHA-256.

Read with suspicion: what is not listed, differs, or would lie outside a home is refused before
anything is written.
"""

import hashlib
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, BinaryIO, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from service.version import VERSION
from worker.atomic_file import whole_file

FORMAT = 1
MANIFEST = "manifest.json"
#: A manifest of a million files has some 150 MB.
_MOST_MANIFEST_BYTES = 400_000_000
_CHUNK = 1 << 20
#: What a home may be made of. Addresses, locks and secrets of processes are not among it.
PARTS = ("store.db", "checkpoints", "models", "images", "logs", "mlflow")

#: Called with the bytes that were read or written just now.
Note = Callable[[int], None]


class BackupRefused(Exception):
    """A backup cannot be made or used; the sentence says why and what to do."""


class Entry(BaseModel):
    """A file of a backup."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: Below the home, with slashes.
    path: str
    bytes: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Manifest(BaseModel):
    """What a backup holds, and of what."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["ndsweep backup"] = "ndsweep backup"
    format: int = FORMAT
    #: Of the program that wrote it.
    version: str = VERSION
    created_at: datetime
    #: Of the store's tables.
    migration: str
    #: "sqlite" or "postgresql": where the store was.
    database: str
    sweeps: int
    trials: int
    #: Sentences on what is not in it.
    left_out: tuple[str, ...] = ()
    files: tuple[Entry, ...]

    def bytes(self) -> int:
        """Of all files, as they were."""
        return sum(entry.bytes for entry in self.files)


class Writer:
    """Writes a backup; what is added comes after another."""

    def __init__(self, archive: zipfile.ZipFile, note: Note) -> None:
        self._archive = archive
        self._note = note
        self.entries: list[Entry] = []

    def add(self, path: str, file: BinaryIO, *, compress: bool = False) -> None:
        """Add what is left to read of a file, however long it is by then."""
        digest, size = hashlib.sha256(), 0
        with self._opened(path, compress=compress) as out:
            while chunk := file.read(_CHUNK):
                out.write(chunk)
                digest.update(chunk)
                size += len(chunk)
                self._note(len(chunk))
        self.entries.append(Entry(path=path, bytes=size, sha256=digest.hexdigest()))

    def finish(self, manifest: Manifest) -> None:
        with self._opened(MANIFEST, compress=True) as out:
            out.write(manifest.model_dump_json(indent=1).encode())

    def _opened(self, path: str, *, compress: bool) -> IO[bytes]:
        self._archive.compression = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
        return self._archive.open(path, "w", force_zip64=True)


@contextmanager
def writing(path: Path, note: Note) -> Iterator[Writer]:
    """Write a backup that only its owner can read; it is whole or absent."""
    # Level 1: databases become four times smaller, and disks are not much faster.
    with (
        whole_file(path, mode=0o600) as file,
        zipfile.ZipFile(file, "w", compresslevel=1) as archive,
    ):
        yield Writer(archive, note)


@dataclass(frozen=True)
class Reader:
    """A backup whose list of files is what the archive has."""

    path: Path
    manifest: Manifest
    _archive: zipfile.ZipFile

    def verify(self, note: Note) -> None:
        """Read every file and compare it with the list. Raises BackupRefused."""
        for entry in self.manifest.files:
            for chunk in self._read(entry):
                note(len(chunk))

    def extract(self, folder: Path, note: Note) -> None:
        """Write every file below a folder, each compared once more; nothing is synced.

        Raises BackupRefused.
        """
        for entry in self.manifest.files:
            target = folder / entry.path
            for above in reversed(PurePosixPath(entry.path).parents):
                (folder / above).mkdir(mode=0o700, exist_ok=True)
            with open(target, "xb", opener=_private) as file:
                for chunk in self._read(entry):
                    file.write(chunk)
                    note(len(chunk))

    def _read(self, entry: Entry) -> Iterator[bytes]:
        digest, size = hashlib.sha256(), 0
        with _refused_if_broken(self.path), self._archive.open(entry.path) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
                if size > entry.bytes:
                    break
                yield chunk
        if size != entry.bytes or digest.hexdigest() != entry.sha256:
            raise _broken(self.path, f"{entry.path} is not the file that was backed up")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@contextmanager
def reading(path: Path) -> Iterator[Reader]:
    """Open a backup and check its list. Raises BackupRefused, OSError."""
    with path.open("rb") as file:
        try:
            archive = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, *_BROKEN) as error:
            raise BackupRefused(
                f"{path} is no backup, or its end is missing ({error}); name a file that "
                "`ndsweep backup` has written"
            ) from error
        with archive:
            manifest = _manifest(path, archive)
            _check_names(path, manifest, archive)
            yield Reader(path, manifest, archive)


#: What Python raises where an archive contradicts itself.
_BROKEN = (
    *(zlib.error, EOFError, struct.error, IndexError, KeyError, ValueError, OverflowError),
    *(NotImplementedError, RuntimeError),
)


@contextmanager
def _refused_if_broken(path: Path) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, *_BROKEN) as error:
        raise _broken(path, str(error) or type(error).__name__) from error


def _broken(path: Path, why: str) -> BackupRefused:
    return BackupRefused(f"{path} is damaged ({why}); use another backup")


def _manifest(path: Path, archive: zipfile.ZipFile) -> Manifest:
    if MANIFEST not in archive.namelist():
        raise BackupRefused(
            f"{path} is an archive, but no backup: it has no {MANIFEST}; name a file that "
            "`ndsweep backup` has written"
        )
    with _refused_if_broken(path), archive.open(MANIFEST) as file:
        text = file.read(_MOST_MANIFEST_BYTES + 1)
        found = json.loads(text) if len(text) <= _MOST_MANIFEST_BYTES else None
    if not isinstance(found, dict):
        raise _broken(path, f"{MANIFEST} is no list of files")
    form = found.get("format")
    if isinstance(form, int) and form > FORMAT:
        raise BackupRefused(
            f"{path} has format {form}, and this version reads {FORMAT}; restore it with the "
            f"version that wrote it ({str(found.get('version'))[:40]}) or a newer one"
        )
    try:
        return Manifest.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise _broken(path, f"{MANIFEST}: {where}: {first['msg']}") from error


def _check_names(path: Path, manifest: Manifest, archive: zipfile.ZipFile) -> None:
    """Refuse names that would lie elsewhere, and an archive with other files than its list's."""
    listed = [entry.path for entry in manifest.files]
    for name in listed:
        if not _is_below_a_home(name):
            raise _broken(path, f"a file would be written to {name[:200]!r}, outside of the home")
    there = archive.namelist()
    if sorted(there) != sorted([*listed, MANIFEST]):
        odd = sorted(set(there) ^ {*listed, MANIFEST}) or [n for n in there if there.count(n) > 1]
        raise _broken(path, f"its list and its files differ, first in {odd[0][:200]!r}")
    if "store.db" not in listed:
        raise _broken(path, "it has no store.db")
    names = set(listed)
    for name in listed:
        if any(str(above) in names for above in PurePosixPath(name).parents):
            raise _broken(path, f"{name[:200]!r} lies below a file")


def _is_below_a_home(name: str) -> bool:
    words = name.split("/")
    is_plain = all(word not in ("", ".", "..") for word in words)
    is_part = words[0] in PARTS and (words[0] == "store.db") == (len(words) == 1)
    return is_plain and is_part and "\0" not in name
