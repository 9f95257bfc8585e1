"""``/sweeps/{id}/images``: images that the notes of a sweep show."""

from typing import Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import FileResponse

from service.contract.bodies import read_limited, refuse_compressed
from service.contract.errors import ApiError, answers
from service.contract.inputs import SettingsDep, StoreDep, SweepId
from service.contract.outputs import ImageOut
from sweeps.errors import ImageNotFound
from sweeps.retention.note_images import (
    MAX_BYTES,
    MEDIA_TYPES,
    NAME,
    add_image,
    address_of,
    image_path,
)
from sweeps.store.database.people import require_own

router = APIRouter(prefix="/sweeps/{sweep_id}/images", tags=["sweeps"])

_BINARY = {
    media: {"schema": {"type": "string", "format": "binary"}} for media in MEDIA_TYPES.values()
}
_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": _BINARY}}
_FOUND: dict[int | str, dict[str, Any]] = {200: {"description": "The image.", "content": _BINARY}}


@router.post("", status_code=201, openapi_extra=_BODY, responses=answers(404, 413, 415))
async def upload_image(
    sweep_id: SweepId, request: Request, store: StoreDep, settings: SettingsDep, response: Response
) -> ImageOut:
    """Keep an image for the notes of a sweep or match; the same image twice is one.

    It is decoded and written anew, without what else the file holds. Notes show it by the answer's
    ``markdown``; they are saved by ``PATCH /sweeps/{id}``.
    """
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media not in MEDIA_TYPES.values():
        known = ", ".join(MEDIA_TYPES.values())
        got = repr(media[:80]) if media else "none"
        raise ApiError(
            415, "UnsupportedMediaType", f"Content-Type must be one of {known}, got {got}"
        )
    refuse_compressed(request.headers.get("content-encoding", "identity"))
    sweep = await run_sync(store.get_sweep, sweep_id)
    require_own(f"sweep {sweep_id}", sweep.owner)
    data = await read_limited(request, MAX_BYTES)
    image = await run_sync(add_image, settings.home, sweep.id, data, sweep.notes)
    address = address_of(sweep.id, image.name)
    response.headers["Location"] = address
    return ImageOut(
        name=image.name,
        width=image.width,
        height=image.height,
        bytes=image.size,
        markdown=f"![image]({address})",
    )


@router.get("/{name}", response_class=Response, responses=_FOUND | answers(404))
def get_image(
    sweep_id: SweepId,
    store: StoreDep,
    settings: SettingsDep,
    name: str = Path(pattern=f"^{NAME.pattern}$", description="As the upload named it."),
) -> Response:
    """An image, for pages of this service alone."""
    path = image_path(settings.home, store.get_sweep(sweep_id).id, name)
    if path is None:
        raise ImageNotFound(sweep_id, name)
    # Its name is its content, so it never changes.
    headers = {"Cache-Control": "private, max-age=31536000, immutable"}
    return FileResponse(path, media_type=MEDIA_TYPES[path.suffix[1:]], headers=headers)
