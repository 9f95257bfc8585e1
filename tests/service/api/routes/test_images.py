"""``/images``: what notes show, sent by a program, by a page, and by a form without script."""

import io
import random

import pytest
from PIL import Image

from service.client.client import Client
from sweeps.retention.deletion import remove


def picture(kind="PNG", noise=0):
    image = Image.new("RGB", (64, 48), (10, 200, 30))
    if noise:
        image = Image.frombytes("RGB", (64, 48), random.Random(noise).randbytes(64 * 48 * 3))
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


@pytest.fixture
def path(trained):
    return f"/api/v1/sweeps/{trained.id}"


def upload(client, path, data=None, media="image/png", **headers):
    sent = picture() if data is None else data
    return client.post(f"{path}/images", content=sent, headers={"Content-Type": media, **headers})


def test_an_image_is_kept_and_served_from_here_alone(client, path):
    made = upload(client, path)

    body, address = made.json(), made.headers["location"]
    got = client.get(address)
    assert made.status_code == 201
    assert (body["width"], body["height"]) == (64, 48)
    assert body["markdown"] == f"![image]({address})"
    assert got.headers["content-type"] == "image/png"
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["content-security-policy"].startswith("default-src 'none'")
    assert got.headers["cross-origin-resource-policy"] == "same-origin"
    assert Image.open(io.BytesIO(got.content)).size == (64, 48)


def test_what_is_no_image_is_refused(client, path, assert_error):
    assert_error(upload(client, path, b"GIF89a<script>"), 422, "ImageRefused")
    assert_error(upload(client, path, media="image/svg+xml"), 415, "UnsupportedMediaType")
    assert_error(upload(client, path, **{"Content-Encoding": "gzip"}), 415, "UnsupportedMediaType")
    assert_error(upload(client, path, bytes(8_000_001)), 413, "BodyTooLarge")
    assert_error(upload(client, "/api/v1/sweeps/000000000000"), 404, "SweepNotFound")
    assert_error(client.get(f"{path}/images/{'0' * 32}.png"), 404, "ImageNotFound")
    assert_error(client.get(f"{path}/images/store.db"), 422, "ValidationError")


def test_notes_show_it_on_the_page_and_in_the_export(client, path, trained):
    body = upload(client, path).json()
    text = f"Before\n\n{body['markdown']}\n\n![else](https://else.example/a.png)"
    client.patch(path, json={"notes": text})

    page = client.get(f"/sweeps/{trained.id}").text
    export = client.get(f"{path}/export", params={"format": "json"}).json()

    address = f"{path}/images/{body['name']}"
    assert f'<img src="{address}" alt="image" />' in page
    assert '!<a href="https://else.example/a.png" rel="noopener noreferrer nofollow">' in page
    assert (
        "img-src 'self'" in client.get(f"/sweeps/{trained.id}").headers["content-security-policy"]
    )
    assert export["sweep"]["notes"] == text
    assert export["sweep"]["images"][address].startswith("data:image/png;base64,")


def test_a_form_without_script_adds_it_to_the_end_of_the_notes(client, path, trained, store):
    client.patch(path, json={"notes": "Before\n"})
    data = picture("PNG", noise=3)

    sent = {"image": ("a\r\nb.png", data, "image/png")}
    answer = client.post(f"/sweeps/{trained.id}/images", files=sent, follow_redirects=False)

    notes = store.get_sweep(trained.id).notes
    address = notes.removeprefix("Before\n\n![image](").removesuffix(")")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/sweeps/{trained.id}")
    kept = Image.open(io.BytesIO(client.get(address).content))
    assert kept.tobytes() == Image.open(io.BytesIO(data)).tobytes()


@pytest.mark.parametrize(
    "form", [{}, {"data": {"image": "x"}}, {"files": {"image": ("a.png", b"no", "image/png")}}]
)
def test_a_form_without_an_image_is_refused_in_a_page(client, trained, form):
    answer = client.post(f"/sweeps/{trained.id}/images", **form)

    assert answer.status_code == 422
    assert "no PNG, JPEG, WebP or GIF" in answer.text


def test_another_site_cannot_send_one(client, path, assert_error):
    foreign = {"Origin": "http://else.example"}

    assert_error(upload(client, path, **foreign), 403, "OriginNotAllowed")


def test_it_goes_with_its_sweep(client, path, trained, store, home):
    upload(client, path)

    remove(store, home, trained.id)

    assert not (home / "images" / trained.id).exists()


def test_the_client_adds_one(live, trained):
    with Client(live) as service:
        added = service.add_image(trained.id, picture("WEBP"), "image/webp")

    assert added.markdown == f"![image](/api/v1/sweeps/{trained.id}/images/{added.name})"
