"""Pages and plots are compressed for who takes it, and the same for everybody else."""

import gzip

import pytest
from starlette.requests import Request
from starlette.responses import Response

from dashboards.web.responses import LEAST_BYTES, compressed

LONG = b"0.123456789," * 1000


def answer(accepts: str | None, body: bytes = LONG) -> Response:
    headers = [] if accepts is None else [(b"accept-encoding", accepts.encode())]
    request = Request({"type": "http", "headers": headers})
    return compressed(request, Response(body, media_type="text/html"))


@pytest.mark.parametrize("accepts", ["gzip", "br, GZIP;q=0.5", "deflate, gzip;q=1.0, *;q=0.5"])
def test_a_long_body_is_compressed_for_who_takes_it(accepts: str) -> None:
    response = answer(accepts)

    assert response.headers["content-encoding"] == "gzip"
    assert response.headers["vary"] == "Accept-Encoding"
    assert int(response.headers["content-length"]) == len(response.body) < len(LONG) / 4
    assert gzip.decompress(response.body) == LONG


@pytest.mark.parametrize("accepts", [None, "", "br", "gzip;q=0", "x-gzip-like"])
def test_nobody_else_gets_it(accepts: str | None) -> None:
    response = answer(accepts)

    assert "content-encoding" not in response.headers
    assert response.body == LONG


def test_a_short_body_stays_as_it_is() -> None:
    assert answer("gzip", b"x" * (LEAST_BYTES - 1)).body == b"x" * (LEAST_BYTES - 1)
