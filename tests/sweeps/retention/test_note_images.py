"""Images of notes: only pixels are kept, once for each content, within bounds."""

import io
import os
import struct
import zlib
from pathlib import Path

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from sweeps.errors import ImageRefused
from sweeps.retention import note_images
from sweeps.retention.note_images import add_image, address_of, image_path, images_as_data

SWEEP = "0123456789ab"


def picture(
    kind: str = "PNG", size: tuple[int, int] = (40, 30), shade: int = 90, **options
) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, (shade, 20, 200)).save(out, kind, **options)
    return out.getvalue()


def bomb() -> bytes:
    """A small file that says it has 3.6 thousand million pixels."""
    said = b"IHDR" + struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    whole = picture()
    return whole[:12] + said + struct.pack(">I", zlib.crc32(said)) + whole[12 + len(said) + 4 :]


@pytest.mark.parametrize(
    ("kind", "suffix"), [("PNG", "png"), ("JPEG", "jpg"), ("WEBP", "webp"), ("GIF", "gif")]
)
def test_each_format_is_kept_as_what_it_is(tmp_path: Path, kind: str, suffix: str) -> None:
    kept = add_image(tmp_path, SWEEP, picture(kind))

    path = image_path(tmp_path, SWEEP, kept.name)
    assert path is not None
    assert path.suffix == f".{suffix}"
    with Image.open(path) as image:
        assert (image.format, image.size) == (kind, (40, 30))
    assert (kept.width, kept.height, kept.size) == (40, 30, path.stat().st_size)


def test_what_else_a_file_says_is_left_out(tmp_path: Path) -> None:
    about = PngInfo()
    about.add_text("place", "my kitchen")
    exif = Image.Exif()
    exif[0x010F] = "my kitchen"
    exif[0x0112] = 6  # turned by 90 degrees
    files = [
        picture(pnginfo=about) + b"my kitchen",
        picture("JPEG", exif=exif, comment=b"my kitchen"),
        picture("WEBP", exif=exif),
        picture("GIF", comment=b"my kitchen"),
    ]

    kept = [add_image(tmp_path, SWEEP, data) for data in files]

    written = [(tmp_path / "images" / SWEEP / one.name).read_bytes() for one in kept]
    assert all(b"kitchen" in data for data in files)
    assert not any(b"kitchen" in data for data in written)
    assert (kept[1].width, kept[1].height) == (30, 40)


def test_a_film_keeps_its_frames(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (20, 20), (shade, 0, 0)) for shade in (0, 120, 240)]
    out = io.BytesIO()
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:], duration=50)

    kept = add_image(tmp_path, SWEEP, out.getvalue())

    with Image.open(tmp_path / "images" / SWEEP / kept.name) as image:
        assert (image.n_frames, image.info["duration"]) == (3, 50)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no PNG, JPEG, WebP or GIF"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>", "no PNG"),
        (picture("BMP"), "no PNG"),
        (picture()[:-30], "cannot be decoded"),
        (picture(size=(6000, 5000)), "at most 25,000,000 pixels"),
        (bomb(), "at most 25,000,000 pixels"),
        (bytes(9_000_000), "at most 8,000,000 bytes, got 9,000,000"),
    ],
    ids=["nothing", "svg", "bmp", "cut", "pixels", "bomb", "bytes"],
)
def test_anything_else_is_refused_in_a_sentence(tmp_path: Path, data: bytes, reason: str) -> None:
    with pytest.raises(ImageRefused, match=reason):
        add_image(tmp_path, SWEEP, data)

    assert not (tmp_path / "images").exists()


def test_the_same_image_is_kept_once(tmp_path: Path) -> None:
    first, second = (add_image(tmp_path, SWEEP, picture()) for _ in range(2))

    assert first == second
    assert len(list((tmp_path / "images" / SWEEP).iterdir())) == 1


def test_where_there_are_too_many_those_that_no_note_shows_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(note_images, "MAX_IMAGES", 2)
    shown, other = (add_image(tmp_path, SWEEP, picture(shade=shade)) for shade in (1, 2))
    notes = f"![image]({address_of(SWEEP, shown.name)})"

    with pytest.raises(ImageRefused, match="2 images"):
        add_image(tmp_path, SWEEP, picture(shade=3), notes)
    for path in (tmp_path / "images" / SWEEP).iterdir():
        os.utime(path, (0, 0))
    third = add_image(tmp_path, SWEEP, picture(shade=3), notes)

    found = {path.name for path in (tmp_path / "images" / SWEEP).iterdir()}
    assert found == {shown.name, third.name}
    assert other.name not in found


@pytest.mark.parametrize("name", ["../../store.db", "x.png", f"{'0' * 32}.svg", f"{'0' * 32}.png"])
def test_no_other_file_is_found(tmp_path: Path, name: str) -> None:
    (tmp_path / "store.db").touch()

    assert image_path(tmp_path, SWEEP, name) is None


def test_a_report_holds_the_images_of_its_own_sweep(tmp_path: Path) -> None:
    mine = add_image(tmp_path, SWEEP, picture())
    other = add_image(tmp_path, "ba9876543210", picture(shade=5))
    addresses = [address_of(SWEEP, mine.name), address_of("ba9876543210", other.name)]

    found = images_as_data(tmp_path, SWEEP, " ".join(f"![a]({one})" for one in addresses))

    assert list(found) == addresses[:1]
    assert found[addresses[0]].startswith("data:image/png;base64,iVBOR")
