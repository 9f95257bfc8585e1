"""The connection: what the parser leaves open is closed, whatever the application is."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from service.api.http_protocol import MOST_UNFINISHED, Connection

HEAD = b"POST /x HTTP/1.1\r\nHost: a\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
#: More than one read of the event loop brings.
ENDLESS = b"a" * 600_000


class Application:
    """Answers with what it saw; notes requests whose client has gone."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.gone: list[str] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.seen.append(scope)
        if scope["path"] == "/waits":
            while (await receive())["type"] != "http.disconnect":
                pass
            self.gone.append(scope["path"])
            return
        await self.may_answer.wait()
        more = scope["path"] != "/at-once"
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.gone.append(scope["path"])
                return
            more = message["more_body"]
        headers = [] if scope["path"] == "/stream" else [(b"content-length", b"6")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"abc", "more_body": True})
        await send({"type": "http.response.body", "body": b"def"})


Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def _served(test: Callable[[Application, Wire], Awaitable[None]]) -> None:
    async def serve() -> None:
        app, state = Application(), ServerState()
        config = uvicorn.Config(app, ws="none", log_config=None)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: Connection(config=config, server_state=state, app_state={}), "127.0.0.1", 0
        )
        async with server, asyncio.timeout(20):
            wire = await asyncio.open_connection(*server.sockets[0].getsockname())
            try:
                await test(app, wire)
            finally:
                wire[1].close()
            while state.tasks:
                await asyncio.sleep(0.01)

    asyncio.run(serve())


async def _exchange(wire: Wire, *parts: bytes) -> bytes:
    """What is answered until the connection is closed."""
    for part in parts:
        wire[1].write(part)
        await asyncio.sleep(0.05)
    found = b""
    try:
        while chunk := await wire[0].read(65536):
            found += chunk
    except ConnectionError:  # more was sent than anybody read
        pass
    return found


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + ENDLESS,
        HEAD + b"X-A: " + ENDLESS,
        HEAD + ENDLESS,
        CHUNKED + b"5;" + ENDLESS,
        CHUNKED + b"0\r\nX-A: " + ENDLESS,
    ],
    ids=["target", "header", "name", "chunk", "trailer"],
)
def test_what_never_ends_is_refused_once_it_is_long(sent):
    async def test(app: Application, wire: Wire) -> None:
        assert not (await _exchange(wire, sent)).startswith(b"HTTP/1.1 200")

    _served(test)


def test_a_long_head_is_refused_with_its_limit():
    async def test(app: Application, wire: Wire) -> None:
        head = HEAD + b"X-A: " + b"a" * MOST_UNFINISHED
        answer = await _exchange(wire, head)
        assert answer.startswith(b"HTTP/1.1 400")
        assert f"at most {MOST_UNFINISHED:,} bytes".encode() in answer

    _served(test)


def test_trailers_are_no_headers_of_the_request():
    async def test(app: Application, wire: Wire) -> None:
        trailers = b"Authorization: Bearer right\r\nExpect: 100-continue\r\n\r\n"
        end = b"GET /end HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        answer = await _exchange(wire, CHUNKED + b"2\r\nab\r\n0\r\n" + trailers + end)
        assert answer.count(b"HTTP/1.1 200") == 2
        assert [scope["path"] for scope in app.seen] == ["/x", "/end"]
        names = {name for name, _ in app.seen[0]["headers"]}
        assert names == {b"host", b"transfer-encoding"}

    _served(test)


@pytest.mark.parametrize("keep", [b"", b"Connection: keep-alive\r\n"])
def test_an_answer_without_a_length_has_no_chunks_in_http_1_0(keep):
    async def test(app: Application, wire: Wire) -> None:
        answer = await _exchange(wire, b"GET /stream HTTP/1.0\r\n" + keep + b"\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert body == b"abcdef"
        assert b"transfer-encoding" not in head.lower()
        assert b"connection: close" in head.lower()

    _served(test)


def test_an_answer_without_a_length_has_chunks_in_http_1_1():
    async def test(app: Application, wire: Wire) -> None:
        end = b"GET /end HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        answer = await _exchange(wire, b"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n" + end)
        assert b"3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\nHTTP/1.1 200" in answer

    _served(test)


@pytest.mark.parametrize(
    "bad",
    [b"no HTTP\r\n\r\n", CHUNKED + b"zz\r\n", HEAD + b"Content-Length: x\r\n\r\n"],
    ids=["line", "chunk", "length"],
)
def test_what_is_malformed_behind_good_requests_closes_after_their_answers(bad):
    async def test(app: Application, wire: Wire) -> None:
        app.may_answer.clear()
        good = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n"
        wire[1].write(good + bad)
        await asyncio.sleep(0.1)
        app.may_answer.set()
        answer = await _exchange(wire)
        assert answer.count(b"HTTP/1.1 200") == 2
        assert answer.endswith(b"abcdef")
        assert [scope["path"] for scope in app.seen] == ["/1", "/2"]
        assert not app.gone

    _served(test)


def test_a_bad_rest_of_a_body_that_was_answered_already_closes_without_an_answer():
    async def test(app: Application, wire: Wire) -> None:
        request = CHUNKED.replace(b"/x", b"/at-once")
        answer = await _exchange(wire, request + b"2\r\nab\r\n", b"zz\r\n")
        assert answer.count(b"HTTP/1.1 ") == 1
        assert answer.endswith(b"abcdef")

    _served(test)


def test_what_follows_a_whole_body_that_was_not_read_is_a_request():
    async def test(app: Application, wire: Wire) -> None:
        request = HEAD.replace(b"/x", b"/at-once") + b"Content-Length: 200000\r\n\r\n"
        end = b"GET /end HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        answer = await _exchange(wire, request, b"b" * 200_000 + end)
        assert answer.count(b"HTTP/1.1 200") == 2
        assert b"no HTTP" not in answer

    _served(test)


def test_who_waits_hears_that_the_client_went_though_another_request_came_after():
    async def test(app: Application, wire: Wire) -> None:
        wire[1].write(b"GET /waits HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n")
        await asyncio.sleep(0.1)
        wire[1].close()
        while not app.gone:
            await asyncio.sleep(0.01)
        assert [scope["path"] for scope in app.seen] == ["/waits"]

    _served(test)


@pytest.mark.parametrize("upgrade", [b"websocket", b"h2c"])
@pytest.mark.parametrize("head", [b"GET /x", b"POST /x", b"CONNECT a:80"])
def test_a_wish_for_another_protocol_is_answered_in_this_one_and_ends_it(head, upgrade):
    async def test(app: Application, wire: Wire) -> None:
        wish = b"Host: a\r\nConnection: Upgrade\r\nUpgrade: " + upgrade + b"\r\n\r\n"
        answer = await _exchange(wire, head + b" HTTP/1.1\r\n" + wish + b"\x00\x01\x02")
        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.count(b"HTTP/1.1 ") == 1
        assert b"connection: close" in answer

    _served(test)


@pytest.mark.parametrize(
    ("target", "path", "raw", "query"),
    [
        (b"*", "*", b"*", b""),
        (b"/a%2Fb?c=%41?d", "/a/b", b"/a%2Fb", b"c=%41?d"),
        (b"http://b/c?d", "http://b/c", b"http://b/c", b"d"),
        (b"/%C3%A4", "/ä", b"/%C3%A4", b""),
    ],
)
def test_the_target_is_taken_as_it_stands(target, path, raw, query):
    async def test(app: Application, wire: Wire) -> None:
        end = b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        await _exchange(wire, b"OPTIONS " + target + end)
        (scope,) = app.seen
        assert (scope["path"], scope["raw_path"], scope["query_string"]) == (path, raw, query)

    _served(test)


@pytest.mark.parametrize(
    "line",
    [b"GET /\xc3\xa4 HTTP/1.1", b"GET / HTTP/2.0", b"GET / HTTP/0.9", b"GET / HTTP/1.2", b"GET /"],
)
def test_other_versions_and_letters_are_refused(line):
    async def test(app: Application, wire: Wire) -> None:
        answer = await _exchange(wire, line + b"\r\nHost: a\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 400")
        assert not app.seen

    _served(test)
