"""Who is let in: a table of requests, with and without a token."""

import pytest
from starlette.testclient import TestClient

from service.api.access.callers import COOKIE
from service.api.app import create_app
from service.api.routes.people.login import local_path
from service.settings import Settings, SettingsError, is_loopback

TOKEN = "correct horse battery staple"
PROTECTED = ["/", "/api/v1/sweeps", "/metrics", "/docs", "/openapi.json", "/matches", "/static/x"]


@pytest.fixture
def guarded(store, home, data):
    app = create_app(
        store,
        Settings(
            home=home,
            data=data,
            host="0.0.0.0",
            token=TOKEN,
            allowed_hosts="a.example, Box.Example",
        ),
    )
    with TestClient(app, base_url="http://box.example:8000", follow_redirects=False) as client:
        yield client


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("path", PROTECTED)
def test_with_a_token_set_every_path_but_health_asks_for_it(guarded, path, assert_error):
    response = guarded.get(path)

    assert_error(response, 401, "Unauthorized")
    assert response.headers["www-authenticate"] == "Bearer"
    assert guarded.get(path, headers=bearer(TOKEN)).status_code in (200, 404)


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_is_answered_without_a_token(guarded, path):
    assert guarded.get(path).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer(""),
        bearer("wrong"),
        bearer(TOKEN[:-1]),
        bearer(TOKEN + "x"),
        bearer("ü"),
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": TOKEN},
        {"Cookie": f"{COOKIE}={TOKEN}"},
        {"Cookie": f"{COOKIE}="},
        {"Cookie": "a=b; ;;=; \x7f"},
        {"X-Token": TOKEN},
    ],
)
def test_nothing_but_the_token_opens(guarded, headers, assert_error):
    encoded = {name: value.encode() for name, value in headers.items()}

    assert_error(guarded.get("/api/v1/sweeps", headers=encoded), 401, "Unauthorized")


def test_writing_needs_the_token_too(guarded, spec, assert_error):
    assert_error(guarded.post("/api/v1/sweeps", json=spec), 401, "Unauthorized")
    assert guarded.post("/api/v1/sweeps", json=spec, headers=bearer(TOKEN)).status_code == 201


def test_a_browser_signs_in_once_and_is_sent_where_it_wanted_to_go(guarded):
    page = guarded.get("/sweeps/abc?tab=1", headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["location"]) == (
        303,
        "/login?next=%2Fsweeps%2Fabc%3Ftab%3D1",
    )

    wrong = guarded.post("/login", data={"token": "guess"})
    right = guarded.post("/login?next=/matches", data={"token": TOKEN})

    assert (wrong.status_code, "not a token" in wrong.text) == (401, True)
    assert "set-cookie" not in wrong.headers
    assert (right.status_code, right.headers["location"]) == (303, "/matches")
    cookie = right.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert TOKEN not in cookie
    assert guarded.get("/matches").status_code == 200  # the client keeps cookies


@pytest.mark.parametrize("other", ['theme={"dark": 1}', "a[b]=1", "words=one two", "odd{=1"])
def test_the_cookies_of_other_programs_on_the_host_do_not_matter(guarded, other):
    """Cookies know no ports: whatever else runs there shares them."""
    signed_in = guarded.post("/login", data={"token": TOKEN})
    mine = f"{COOKIE}={signed_in.cookies[COOKIE]}"
    guarded.cookies.clear()

    for cookies in (f"{other}; {mine}", f"{mine}; {other}"):
        assert guarded.get("/api/v1/sweeps", headers={"Cookie": cookies}).status_code == 200


def test_the_cookie_of_another_token_does_not_open(guarded, store, home, assert_error):
    older = create_app(store, Settings(home=home, host="0.0.0.0", token="an older token"))
    with TestClient(older, base_url="http://box", follow_redirects=False) as client:
        signed_in = client.post("/login", data={"token": "an older token"})
        assert client.get("/api/v1/sweeps").status_code == 200
    guarded.cookies.set(COOKIE, signed_in.cookies[COOKIE])

    assert_error(guarded.get("/api/v1/sweeps"), 401, "Unauthorized")


def test_a_signed_in_browser_may_not_be_used_by_another_site(guarded, spec, assert_error):
    guarded.post("/login", data={"token": TOKEN})
    foreign = {"Origin": "https://evil.example"}

    assert_error(
        guarded.post("/api/v1/sweeps", json=spec, headers=foreign), 403, "OriginNotAllowed"
    )
    own = {"Origin": "http://box.example:8000"}
    assert guarded.post("/api/v1/sweeps", json=spec, headers=own).status_code == 201


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.7", "", "["])
def test_without_a_token_a_name_that_is_not_this_machine_is_refused(
    client, method, host, assert_error
):
    response = client.request(method, "/api/v1/sweeps", headers={"Host": host})

    assert_error(response, 403, "HostNotAllowed")


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "[::1]:8000", "LOCALHOST"])
def test_without_a_token_every_name_of_this_machine_is_answered(client, host):
    assert client.get("/api/v1/sweeps", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "box.example.evil.example", "127.0.0.1.evil.example", "", "["]
)
@pytest.mark.parametrize("path", ["/api/v1/sweeps", "/login", "/"])
def test_with_a_token_a_name_that_nobody_gave_it_is_refused(guarded, path, host, assert_error):
    response = guarded.get(path, headers={"Host": host, **bearer(TOKEN)})

    body = assert_error(response, 403, "HostNotAllowed")
    assert "NDSWEEP_ALLOWED_HOSTS" in body["detail"]


@pytest.mark.parametrize(
    "host", ["box.example", "BOX.EXAMPLE:8000", "a.example", "10.0.0.7", "[fd00::1]:8000", "api"]
)
def test_with_a_token_addresses_and_names_of_the_service_are_answered(guarded, host):
    headers = {"Host": host, **bearer(TOKEN)}

    assert guarded.get("/api/v1/sweeps", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_without_a_token_another_sites_page_cannot_write(client, spec, headers, assert_error):
    response = client.post("/api/v1/sweeps", json=spec, headers=headers)

    assert_error(response, 403, "OriginNotAllowed")
    assert client.get("/api/v1/sweeps").json()["items"] == []


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "box.example"])
def test_an_open_address_without_a_token_does_not_start(store, home, host):
    with pytest.raises(SettingsError, match="NDSWEEP_TOKEN"):
        create_app(store, Settings(home=home, host=host))
    with pytest.raises(SettingsError, match="NDSWEEP_TOKEN"):
        create_app(store, Settings(home=home, host=host, token="  "))


def test_the_token_may_come_from_a_file(store, home, tmp_path):
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    app = create_app(store, Settings(home=home, host="box.example", token_file=path))

    with TestClient(app, base_url="http://box.example") as client:
        assert client.get("/api/v1/sweeps", headers=bearer(TOKEN)).status_code == 200
        assert client.get("/api/v1/sweeps").status_code == 401


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff\xfe"])
def test_a_token_file_that_holds_none_does_not_start(store, home, tmp_path, content):
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(SettingsError, match="NDSWEEP_TOKEN_FILE"):
        create_app(store, Settings(home=home, token_file=path))


@pytest.mark.parametrize(
    ("target", "sent"),
    [
        ("/sweeps/1?a=b", "/sweeps/1?a=b"),
        ("//evil.example", "/"),
        ("https://evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/a\r\nSet-Cookie: x", "/"),
        ("", "/"),
    ],
)
def test_signing_in_leads_to_this_service_only(target, sent):
    assert local_path(target) == sent


def test_loopback_is_known_by_its_addresses():
    assert all(map(is_loopback, ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "localhost.evil.example", ""]))
