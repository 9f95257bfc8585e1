"""Images of notes: decoded, written anew without what else was in the file, kept by content.

Below ``images/SWEEP`` of the home. A browser gets nothing but what Pillow wrote itself.
"""

import base64
import hashlib
import io
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeps.errors import ImageRefused
from worker.atomic_file import whole_file

if TYPE_CHECKING:
    from PIL import Image

#: Format of Pillow -> suffix and media type.
FORMATS = {
    "PNG": ("png", "image/png"),
    "JPEG": ("jpg", "image/jpeg"),
    "WEBP": ("webp", "image/webp"),
    "GIF": ("gif", "image/gif"),
}
MEDIA_TYPES = dict(FORMATS.values())

#: Bytes of a file that is sent, and pixels of all its frames together.
MAX_BYTES, MAX_PIXELS = 8_000_000, 25_000_000
#: Of a sweep: images, and bytes of them.
MAX_IMAGES, MAX_SWEEP_BYTES = 100, 50_000_000
#: Seconds for which an image may wait until notes that show it are saved.
_GRACE = 3600.0

NAME = re.compile(r"[0-9a-f]{32}\.(?:png|jpg|webp|gif)")
#: Address of an image, as notes show it.
ADDRESS = re.compile(rf"/api/v1/sweeps/[0-9a-f]{{12}}/images/{NAME.pattern}")

# One at a time: a large image takes a tenth of a gigabyte while it is decoded.
_one = threading.Lock()


@dataclass(frozen=True)
class NoteImage:
    """An image that notes of its sweep may show."""

    name: str
    width: int
    height: int
    size: int


def address_of(sweep_id: str, name: str) -> str:
    """Where pages and notes find an image."""
    return f"/api/v1/sweeps/{sweep_id}/images/{name}"


def add_image(home: Path, sweep_id: str, data: bytes, notes: str = "") -> NoteImage:
    """Keep an image of a sweep; the same image twice is one.

    Where the sweep has too many, those are removed first that ``notes``, its notes, do not show.
    Raises ImageRefused for what is no such image, is too large or does not fit.
    """
    if len(data) > MAX_BYTES:
        raise ImageRefused(f"an image may have at most {MAX_BYTES:,} bytes, got {len(data):,}")
    with _one:
        written, kind, size = _written_anew(data)
        name = f"{hashlib.sha256(written).hexdigest()[:32]}.{FORMATS[kind][0]}"
        path = _folder(home, sweep_id) / name
        if not path.exists():
            _make_room(path.parent, len(written), notes)
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as file:
                file.write(written)
        return NoteImage(name, *size, len(written))


def image_path(home: Path, sweep_id: str, name: str) -> Path | None:
    """The file of an image; None where there is none of that name. The id comes from the store."""
    path = _folder(home, sweep_id) / name
    return path if NAME.fullmatch(name) and path.is_file() else None


def images_as_data(home: Path, sweep_id: str, notes: str) -> dict[str, str]:
    """Address -> ``data:`` address of the sweep's images that its notes show."""
    found = {}
    for match in ADDRESS.finditer(notes):
        owner, _, name = match[0].removeprefix("/api/v1/sweeps/").partition("/images/")
        path = image_path(home, sweep_id, name) if owner == sweep_id else None
        if path is not None:
            coded = base64.b64encode(path.read_bytes()).decode()
            found[match[0]] = f"data:{MEDIA_TYPES[path.suffix[1:]]};base64,{coded}"
    return found


def _folder(home: Path, sweep_id: str) -> Path:
    return home / "images" / sweep_id


def _make_room(folder: Path, size: int, notes: str) -> None:
    files = [(path, path.stat()) for path in folder.glob("*.*")]
    if _fits([about.st_size for _, about in files], size):
        return
    for path, about in files:
        if path.name not in notes and time.time() - about.st_mtime > _GRACE:
            path.unlink(missing_ok=True)
    if not _fits([path.stat().st_size for path in folder.glob("*.*")], size):
        raise ImageRefused(
            f"a sweep may have {MAX_IMAGES} images of {MAX_SWEEP_BYTES // 10**6} MB together, and "
            "this one would be too much; take images out of the notes, and save these"
        )


def _fits(sizes: list[int], one_more: int) -> bool:
    return len(sizes) < MAX_IMAGES and sum(sizes) + one_more <= MAX_SWEEP_BYTES


_TOO_LARGE = f"an image may have at most {MAX_PIXELS:,} pixels in all its frames, got more"


def _written_anew(data: bytes) -> tuple[bytes, str, tuple[int, int]]:
    """Return an image as Pillow writes it, its format and its size in pixels."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data), formats=list(FORMATS)) as image:
            kind = str(image.format)
            _refuse_large(image.width * image.height)
            frames, options = _frames(image, kind)
            out = io.BytesIO()
            frames[0].save(out, kind, **options)
    except ImageRefused:
        raise
    except Image.DecompressionBombError as error:
        raise ImageRefused(_TOO_LARGE) from error
    except UnidentifiedImageError as error:
        raise ImageRefused("it is no PNG, JPEG, WebP or GIF") from error
    except Exception as error:  # Pillow raises what the format's reader raises
        raise ImageRefused(f"the image cannot be decoded: {error!s:.200}") from error
    return out.getvalue(), kind, frames[0].size


def _frames(image: "Image.Image", kind: str) -> tuple[list["Image.Image"], dict[str, Any]]:
    """Pixels alone, of every frame, and how to write them."""
    from PIL import ImageOps, ImageSequence

    if kind in ("PNG", "JPEG"):
        # What a camera says about which side is up goes with the rest of what it says.
        upright = ImageOps.exif_transpose(image)
        return [_bare(upright, kind)], {"quality": 90} if kind == "JPEG" else {}
    frames: list[Image.Image] = []
    times: list[float] = []
    for frame in ImageSequence.Iterator(image):
        _refuse_large((len(frames) + 1) * image.width * image.height)
        times.append(frame.info.get("duration", 100))
        frames.append(_bare(frame, kind))
    options: dict[str, Any] = {"quality": 90} if kind == "WEBP" else {}
    if len(frames) > 1:
        options |= {"save_all": True, "append_images": frames[1:], "duration": times, "loop": 0}
    return frames, options


def _bare(image: "Image.Image", kind: str) -> "Image.Image":
    has_colours = image.mode in ("RGB", "L")
    mode = image.mode if has_colours else "RGB" if kind == "JPEG" else "RGBA"
    bare = image.convert(mode).copy()
    bare.info = {}
    return bare


def _refuse_large(pixels: int) -> None:
    if pixels > MAX_PIXELS:
        raise ImageRefused(_TOO_LARGE)
