"""Pages and plots are compressed for who takes it, and the same for everybody else."""

import gzip
from collections.abc import Iterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from dashboards.web.responses import LEAST_BYTES, Compression

LONG = b"0.123456789," * 1000
SHORT = b"x" * (LEAST_BYTES - 1)


def page(request: Request) -> Response:
    return Response(SHORT if "short" in request.url.path else LONG, media_type="text/html")


def events(request: Request) -> Response:
    def pieces() -> Iterator[bytes]:
        yield b"data: 1\n\n"
        yield b"data: " + LONG + b"\n\n"

    return StreamingResponse(pieces(), media_type="text/event-stream")


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    paths = ("/long", "/short", "/api/long")
    app = Starlette(routes=[*(Route(path, page) for path in paths), Route("/events", events)])
    app.add_middleware(Compression, except_below="/api/")
    with TestClient(app) as client:
        yield client


def answer(client: TestClient, path: str, accepts: str | None) -> tuple[dict[str, str], bytes]:
    """Headers and the body as it was sent."""
    client.headers.pop("accept-encoding", None)
    headers = {} if accepts is None else {"accept-encoding": accepts}
    with client.stream("GET", path, headers=headers) as response:
        return dict(response.headers), b"".join(response.iter_raw())


@pytest.mark.parametrize("accepts", ["gzip", "br, GZIP;q=0.5", "deflate, gzip;q=1.0, *;q=0.5"])
def test_a_long_body_is_compressed_for_who_takes_it(client: TestClient, accepts: str) -> None:
    headers, body = answer(client, "/long", accepts)

    assert headers["content-encoding"] == "gzip"
    assert headers["vary"] == "Accept-Encoding"
    assert int(headers["content-length"]) == len(body) < len(LONG) / 4
    assert gzip.decompress(body) == LONG
    assert answer(client, "/long", accepts) == (headers, body), "the same page, the same bytes"


@pytest.mark.parametrize("accepts", [None, "", "br", "gzip;q=0", "x-gzip-like"])
def test_nobody_else_gets_it(client: TestClient, accepts: str | None) -> None:
    headers, body = answer(client, "/long", accepts)

    assert "content-encoding" not in headers
    assert body == LONG


def test_a_short_body_stays_as_it_is(client: TestClient) -> None:
    assert answer(client, "/short", "gzip")[1] == SHORT


def test_answers_to_programs_and_event_streams_stay_as_they_are(client: TestClient) -> None:
    assert answer(client, "/api/long", "gzip")[1] == LONG
    headers, body = answer(client, "/events", "gzip")

    assert "content-encoding" not in headers
    assert body.startswith(b"data: 1\n\n")
