"""What every request and answer passes: headers, HEAD, and requests that are no plain HTTP."""

import logging
import socket
import time
from itertools import product
from typing import Any
from urllib.parse import urlsplit

import pytest
from fastapi.routing import iter_route_contexts
from starlette.testclient import TestClient

from service.api.app import create_app
from service.api.edge import HEADERS
from service.settings import Settings
from sweeps.store.store import Store

NAMES = {
    "number": "0",
    "name": "lr",
    "param": "lr",
    "form": "json",
    "version": "x",
    "verb": "pause",
    "key": "x",
    "link_id": "0" * 8,
    "token_id": "0" * 12,
    "trial": "0",
    "panel": "load",
}


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    store = Store(f"sqlite:///{tmp_path_factory.mktemp('routes')}/store.db")
    app = create_app(store, Settings())
    found = {
        (method, route.path)
        for route in iter_route_contexts(app.routes)
        for method in route.methods or ()
    }
    return sorted(found)


def _filled(path: str, sweep_id: str) -> str:
    for name, value in {"sweep_id": sweep_id, **NAMES}.items():
        path = path.replace("{" + name + "}", value)
    assert "{" not in path, f"a parameter that the test does not know: {path}"
    return path


def _assert_careful(headers: Any, of: Any) -> None:
    for name in HEADERS:
        assert name in headers, (name, of)
        assert len(headers.get_list(name)) == 1, (name, of)
    assert headers["x-content-type-options"] == "nosniff"
    policy = headers["content-security-policy"]
    for part in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action"):
        assert part in policy, (part, of)


def _ended(client: TestClient, method: str, path: str) -> Any:
    """The answer's head; a stream of events is not read to its end, which never comes."""
    with client.stream(method, path, follow_redirects=False) as answer:
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):
            answer.read()
        return answer


@pytest.mark.parametrize("accept", ["application/json", "text/html"])
def test_every_answer_of_every_route_has_the_headers(client, trained, routes, accept):
    client.headers["Accept"] = accept
    for (method, path), sweep_id in product(routes, [trained.id, "0" * 12, "%00"]):
        if path.endswith("/events") and sweep_id == trained.id and method == "GET":
            method = "HEAD"
        answer = _ended(client, method, _filled(path, sweep_id))
        _assert_careful(answer.headers, (method, path, answer.status_code))


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status"),
    [
        ("GET", "/no/such", {}, b"", 404),
        ("PUT", "/", {}, b"", 405),
        ("GET", "/api/v1/sweeps", {"Host": "evil.example"}, b"", 403),
        ("POST", "/api/v1/sweeps", {"Origin": "http://evil.example"}, b"", 403),
        ("POST", "/api/v1/sweeps", {"Content-Type": "text/plain"}, b"x", 415),
        ("POST", "/api/v1/sweeps", {"Content-Type": "application/json"}, b"x" * 1_000_001, 413),
        ("POST", "/api/v1/sweeps", {"Content-Type": "application/json"}, b"{}", 422),
        ("GET", "/api/v1/sweeps?limit=0", {}, b"", 422),
        ("GET", "/static/x/none.js", {}, b"", 404),
        ("GET", "/static/x/plotly.min.js", {"Accept-Encoding": "gzip"}, b"", 200),
        ("OPTIONS", "/api/v1/sweeps", {}, b"", 405),
    ],
)
def test_refusals_and_files_have_them_too(client, method, path, headers, body, status):
    answer = client.request(method, path, headers=headers, content=body)

    assert answer.status_code == status, answer.text[:300]
    _assert_careful(answer.headers, path)


@pytest.mark.parametrize("status", [500, 503])
def test_faults_have_them_too(client, store, monkeypatch, status):
    from sweeps.errors import StoreUnavailable

    def fail(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("away") if status == 503 else RuntimeError("a bug")

    monkeypatch.setattr(store, "list_sweeps", fail)
    answer = client.get("/api/v1/sweeps")

    assert answer.status_code == status
    _assert_careful(answer.headers, status)


def test_asking_for_the_token_has_them_too(store, home, data):
    app = create_app(store, Settings(home=home, data=data, token="right"))
    with TestClient(app, base_url="http://127.0.0.1:8000", follow_redirects=False) as client:
        for answer in (
            client.get("/login"),
            client.post("/login", data={"token": "wrong"}),
            client.post("/login", data={"token": "right"}),
            client.get("/", headers={"Accept": "text/html"}),
            client.get("/api/v1/sweeps"),
        ):
            _assert_careful(answer.headers, answer.request.url)


def test_only_files_that_carry_their_version_are_kept(client):
    from dashboards.web.static_files import asset_url

    kept = client.get(asset_url("pages.js")).headers["cache-control"]
    others = [client.get(path) for path in ("/", "/docs", "/metrics", "/healthz", "/openapi.json")]

    assert "immutable" in kept
    assert {answer.headers["cache-control"] for answer in others} == {"no-store"}


def test_head_answers_wherever_get_does_without_a_body(client, trained, routes):
    client.headers["Accept-Encoding"] = "identity"
    for method, path in routes:
        if method != "GET":
            continue
        address = _filled(path, trained.id)
        head = client.head(address, follow_redirects=False)
        assert head.content == b"", address
        if head.headers.get("content-type", "").startswith("text/event-stream"):
            assert head.status_code == 200
            continue
        got = client.get(address, follow_redirects=False)
        assert head.status_code == got.status_code, address
        if path != "/metrics":  # counts this very request
            assert head.headers.get("content-length") == got.headers.get("content-length"), address


def test_head_of_what_only_takes_posts_is_refused(client):
    answer = client.head("/api/v1/matches/predict")

    assert answer.status_code in (404, 405)
    assert client.put("/healthz").headers["allow"] == "GET, HEAD"


# --- On the wire -------------------------------------------------------------------------------


def _exchange(url: str, *parts: bytes, breaks_off: bool = False) -> bytes:
    """What a server answers to bytes that are sent as they are, until it closes."""
    parts_of_url = urlsplit(url)
    with socket.create_connection((parts_of_url.hostname, parts_of_url.port), timeout=5) as wire:
        for part in parts:
            wire.sendall(part)
            time.sleep(0.05)
        if breaks_off:
            wire.shutdown(socket.SHUT_WR)
        wire.settimeout(30)
        answer = b""
        while chunk := wire.recv(65536):
            answer += chunk
        return answer


def _request(line: str, *headers: str, host: str = "127.0.0.1") -> bytes:
    return "\r\n".join([line, f"Host: {host}", *headers, "", ""]).encode("latin-1")


CHUNKED = "Transfer-Encoding: chunked"
JSON = "Content-Type: application/json"
POST = "POST /api/v1/sweeps HTTP/1.1"

#: Bytes in the parts in which they arrive -> status of the one answer, or which it may be.
MALFORMED = {
    "a bad chunk": ((_request(POST, CHUNKED, JSON), b"5\r\nhello\r\n", b"zz\r\n"), 400),
    "a bad first chunk": ((_request(POST, CHUNKED, JSON), b"zz\r\n"), 400),
    "a bad chunk at once": ((_request(POST, CHUNKED, JSON) + b"zz\r\n",), 400),
    "a bad chunk of a form": ((_request("POST /sweeps/new HTTP/1.1", CHUNKED), b"zz\r\n"), 400),
    "a bad chunk of a sign-in": ((_request("POST /login HTTP/1.1", CHUNKED), b"zz\r\n"), 400),
    "a bad chunk where no body is read": (
        (_request("GET /healthz HTTP/1.1", CHUNKED), b"zz\r\n"),
        (200, 400),
    ),
    "no HTTP": ((b"hello\r\n\r\n",), 400),
    "no HTTP but TLS": ((b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 40,), 400),
    "a length that is none": ((_request(POST, "Content-Length: ten", JSON),), 400),
    "two lengths": ((_request(POST, "Content-Length: 2", "Content-Length: 3", JSON),), 400),
    "two hosts": ((_request("GET /healthz HTTP/1.1", "Host: 127.0.0.1"),), 400),
    "no host": ((b"GET /healthz HTTP/1.1\r\n\r\n",), 400),
    "a space before the colon": ((_request("GET /healthz HTTP/1.1", "X-A : b"),), 400),
    "length and chunks": (
        (_request(POST, "Content-Length: 5", CHUNKED, JSON) + b"0\r\n\r\nGET /x HTTP/1.1\r\n\r\n",),
        400,
    ),
    "two codings": ((_request(POST, CHUNKED, "Transfer-Encoding: identity", JSON),), 400),
    "chunks in HTTP/1.0": ((_request("POST /login HTTP/1.0", CHUNKED) + b"0\r\n\r\n",), 400),
    "two keys": (
        (_request(POST, "Idempotency-Key: a", "Idempotency-Key: b", "Content-Length: 0", JSON),),
        400,
    ),
    "two tokens": (
        (_request("GET /metrics HTTP/1.1", "Authorization: Bearer a", "Authorization: Bearer b"),),
        400,
    ),
}


@pytest.mark.parametrize(("parts", "status"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_request_is_answered_once_closed_and_no_error_of_the_service(
    live, parts, status, caplog
):
    caplog.set_level(logging.INFO)
    answer = _exchange(live, *parts)

    assert answer.count(b"HTTP/1.1 ") == 1, answer
    head, _, body = answer.partition(b"\r\n\r\n")
    got = int(head.split(b" ")[1])
    assert got in (status if isinstance(status, tuple) else (status,)), answer
    if got == 400:
        assert b'"error":"BadRequest"' in body
        assert b"connection: close" in head.lower()
        for name in HEADERS:
            assert name.lower().encode() in head.lower()
    noted = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert not noted, [record.getMessage() for record in noted]


@pytest.mark.parametrize("path", ["/api/v1/sweeps", "/sweeps/new", "/login", "/no/such"])
def test_a_client_that_breaks_off_its_body_is_no_error_of_the_service(live, path, caplog):
    caplog.set_level(logging.INFO)
    _exchange(
        live, _request(f"POST {path} HTTP/1.1", "Content-Length: 100", JSON) + b"{", breaks_off=True
    )
    _exchange(live, _request("GET /healthz HTTP/1.1", "Connection: close"))

    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_the_whole_address_may_stand_in_the_first_line(live):
    here = urlsplit(live).netloc
    right = _exchange(
        live, _request(f"GET http://{here}/healthz?x=1 HTTP/1.1", "Connection: close")
    )
    named = f"GET http://{here}/api/v1/presets HTTP/1.1"
    foreign = "GET http://evil.example/api/v1/presets HTTP/1.1"

    assert right.startswith(b"HTTP/1.1 200"), right
    # The name in the first line counts, whatever the header says.
    assert _exchange(live, _request(named, "Connection: close", host="x")).startswith(
        b"HTTP/1.1 200"
    )
    assert _exchange(live, _request(foreign, "Connection: close")).startswith(b"HTTP/1.1 403")


def test_no_connection_becomes_a_web_socket(live):
    upgrade = ("Upgrade: websocket", "Connection: Upgrade, close", "Sec-WebSocket-Version: 13")
    answer = _exchange(
        live,
        _request("GET /healthz HTTP/1.1", *upgrade, "Sec-WebSocket-Key: dGhlIHNhbXBsZQ=="),
    )

    assert answer.startswith(b"HTTP/1.1 200"), answer
