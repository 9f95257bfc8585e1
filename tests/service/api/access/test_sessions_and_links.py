"""What lets a browser or a stranger in: sessions, a proxy that vouches, and public links."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from starlette.testclient import TestClient

from service.api.access import callers
from service.api.access.callers import COOKIE
from service.api.app import create_app
from service.api.routes import events
from service.settings import Settings, SettingsError
from sweeps.records import Sweep
from sweeps.store.database.people import Actor, Scope, acting_as
from sweeps.store.store import Store
from tests.service.api.access.conftest import ADMIN, BOX_URL, ROOT_TOKEN, bearer

SWEEPS = "/api/v1/sweeps"


# --- Sessions -----------------------------------------------------------------------------------


@pytest.fixture
def signed_in(guarded: TestClient, token: Any) -> str:
    """The cookie of a browser in which ada has signed in."""
    text = token("ada")["Authorization"].removeprefix("Bearer ")
    answer = guarded.post("/login", data={"token": text})
    assert answer.status_code == 303
    cookie = answer.cookies[COOKIE]
    assert cookie not in text
    guarded.cookies.clear()
    return cookie


def test_a_session_ends_with_the_logout_for_every_copy_of_its_cookie(guarded, signed_in):
    mine = {"Cookie": f"{COOKIE}={signed_in}"}
    assert guarded.get("/api/v1/me", headers=mine).json()["name"] == "ada"
    assert 'action="/logout"' in guarded.get("/", headers=mine).text

    foreign = guarded.post("/logout", headers=mine | {"Origin": "http://evil.example"})
    assert foreign.status_code == 403
    answer = guarded.post("/logout", headers=mine)

    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert 'ndsweep_session=""' in answer.headers["set-cookie"]
    assert guarded.get("/api/v1/me", headers=mine).status_code == 401


def test_revoking_a_token_ends_its_sessions(guarded, signed_in):
    mine = {"Cookie": f"{COOKIE}={signed_in}"}
    assert guarded.get("/api/v1/me", headers=mine).status_code == 200

    guarded.delete("/api/v1/tokens/ada", headers=ADMIN).raise_for_status()

    assert guarded.get("/api/v1/me", headers=mine).status_code == 401


def test_a_session_ends_by_itself_and_with_its_token(guarded, store, signed_in):
    mine = {"Cookie": f"{COOKIE}={signed_in}"}
    with store._engine.begin() as conn:
        until, now = conn.execute(sa.text("SELECT expires_at, created_at FROM sessions")).one()
        conn.execute(sa.text("UPDATE sessions SET expires_at = 1"))

    assert until - now == pytest.approx(7 * 86400 * 1e6, rel=1e-3)
    assert guarded.get("/api/v1/me", headers=mine).status_code == 401


def test_the_cookie_is_for_https_alone_where_the_service_is_reached_by_it(guarded_app):
    with TestClient(guarded_app, base_url="https://box.example", follow_redirects=False) as client:
        cookie = client.post("/login", data={"token": ROOT_TOKEN}).headers["set-cookie"]

    assert all(part in cookie for part in ("Secure", "HttpOnly", "SameSite=lax", "Max-Age"))


def test_a_stream_of_events_ends_when_its_token_is_revoked(guarded, spec, token, monkeypatch):
    monkeypatch.setattr(events, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(callers, "CACHE_SECONDS", 0.0)
    ada = token("ada")
    sweep = guarded.post(SWEEPS, json=spec, headers=ada).json()["id"]
    calls = []
    known = guarded.app.state.access.is_still_known

    async def still(scope):
        calls.append(1)
        if len(calls) == 3:
            guarded.app.state.store.revoke_token("ada")
        return await known(scope)

    monkeypatch.setattr(guarded.app.state.access, "is_still_known", still)
    stream = guarded.get(f"{SWEEPS}/{sweep}/events", headers=ada)  # ends, though the sweep does not

    assert "event: sweep" in stream.text
    assert "event: end" not in stream.text


# --- A proxy that vouches -----------------------------------------------------------------------


@pytest.fixture
def proxied(store: Store, home: Any, data: Any) -> Callable[..., TestClient]:
    """A client of a service behind a proxy; the client's own address can be chosen."""
    settings = Settings(
        home=home,
        data=data,
        host="0.0.0.0",
        allowed_hosts="box.example",
        proxy_user_header="X-Forwarded-Email",
        proxy_addresses="10.0.0.0/24, 192.0.2.7",
        proxy_scopes="ml-admins=admin, lab=submit, guests=read",
    )
    app = create_app(store, settings)
    return lambda address: TestClient(
        app, base_url=BOX_URL, client=(address, 1), follow_redirects=False
    )


def test_a_listed_proxy_names_who_asks_and_their_groups_give_the_scope(proxied, store):
    proxy = proxied("10.0.0.5")
    found = {}
    for groups in ("ml-admins,lab", "lab", "guests", "other", ""):
        headers = {"X-Forwarded-Email": "ada@lab.example", "X-Forwarded-Groups": groups}
        answer = proxy.get("/api/v1/me", headers=headers)
        found[groups] = answer.json().get("scope") if answer.status_code == 200 else None

    assert found == {
        "ml-admins,lab": "admin",
        "lab": "submit",
        "guests": "read",
        "other": None,
        "": None,
    }


@pytest.mark.parametrize("address", ["10.0.1.5", "127.0.0.1", "203.0.113.9", "testclient"])
def test_from_any_other_address_the_header_is_nothing(proxied, address, assert_error):
    claims = {
        "X-Forwarded-Email": "ada@lab.example",
        "X-Forwarded-Groups": "ml-admins",
        # Whoever is connected, not whom they claim to pass on.
        "X-Forwarded-For": "10.0.0.5",
    }
    assert_error(proxied(address).get(SWEEPS, headers=claims), 401, "Unauthorized")


@pytest.mark.parametrize(
    "headers",
    [
        [("X-Forwarded-Email", "")],
        [("X-Forwarded-Email", "a"), ("X-Forwarded-Email", "b")],
        [("X-Forwarded-Email", "x" * 201)],
    ],
)
def test_a_proxy_that_names_nobody_in_particular_lets_nobody_in(proxied, headers):
    given = [*headers, ("X-Forwarded-Groups", "lab")]
    assert proxied("10.0.0.5").get(SWEEPS, headers=given).status_code == 401


def test_tokens_go_through_the_proxy_too(proxied, store):
    _, text = store.create_token("agents", Scope.SUBMIT)

    assert proxied("10.0.0.5").get("/api/v1/me", headers=bearer(text)).json()["name"] == "agents"


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("proxy_addresses", None, "NDSWEEP_PROXY_ADDRESSES must name the proxy"),
        ("proxy_addresses", "10.0.0.300", "NDSWEEP_PROXY_ADDRESSES must list addresses"),
        ("proxy_scopes", "lab=root", "NDSWEEP_PROXY_SCOPES must be group=scope"),
        ("proxy_scopes", "lab", "NDSWEEP_PROXY_SCOPES must be group=scope"),
    ],
)
def test_a_proxy_that_is_half_set_does_not_start(store, setting, value, words):
    given = {"proxy_user_header": "X-User", "proxy_addresses": "10.0.0.5", setting: value}
    with pytest.raises(SettingsError, match=words):
        create_app(store, Settings(**given))


# --- Public links -------------------------------------------------------------------------------


@pytest.fixture
def link(guarded: TestClient, trained: Sweep) -> dict[str, Any]:
    made = guarded.post(f"{SWEEPS}/{trained.id}/links", json={"days": 2}, headers=ADMIN)
    assert made.status_code == 201, made.text
    body: dict[str, Any] = made.json()
    return body


def test_a_link_shows_the_page_of_its_sweep_its_trials_and_figures_and_nothing_else(
    guarded, guarded_app, trained, spec, link
):
    other = guarded.post(SWEEPS, json=spec, headers=ADMIN).json()["id"]
    with TestClient(guarded_app, base_url=BOX_URL) as anybody:
        page = anybody.get(link["url"])
        assert (page.status_code, page.url.path) == (200, f"/sweeps/{trained.id}")
        assert page.headers["x-robots-tag"] == "noindex, nofollow"
        shown = (
            "",
            "/parts/overview",
            "/plots/curves.json",
            "/trials/0",
            "/trials/0/parts/overview",
        )
        for path in shown:
            answer = anybody.get(f"/sweeps/{trained.id}{path}")
            assert answer.status_code == 200, path
            assert answer.headers["x-robots-tag"] == "noindex, nofollow"
        style = page.text.partition('rel="stylesheet" href="')[2].partition('"')[0]
        assert anybody.get(style).status_code == 200
        with anybody.stream("GET", f"{SWEEPS}/{trained.id}/events") as stream:
            assert stream.status_code == 200
        for word in (
            "/do/",
            "Clone and edit",
            "/delete",
            "Export",
            "/logout",
            "/compare",
            'href="/"',
        ):
            assert word not in page.text, word
        assert "?owner=" not in page.text
        trial = anybody.get(f"/sweeps/{trained.id}/trials/0").text
        whole_log = f"{SWEEPS}/{trained.id}/trials/0/log/file"
        assert f'href="{whole_log}"' in trial
        assert anybody.get(whole_log).status_code in (200, 404)
        assert ":5000" not in trial

        # With the cookie on every path, as no browser would send it.
        forged = {"Cookie": f"ndsweep_link={link['url'].rpartition('/')[2]}"}
        for path in (
            "/",
            "/metrics",
            "/docs",
            "/openapi.json",
            "/compare",
            f"/sweeps/{other}",
            f"/sweeps/{trained.id}/delete",
            f"{SWEEPS}/{trained.id}",
            f"{SWEEPS}/{trained.id}/export",
            f"{SWEEPS}/{trained.id}/trials/0/log",
            f"{SWEEPS}/{other}/events",
        ):
            answer = anybody.get(path, headers=forged, follow_redirects=False)
            assert answer.status_code in (401, 403), path
        posted = anybody.post(f"{SWEEPS}/{trained.id}/cancel", headers=forged)
        assert posted.status_code in (401, 403)


def test_a_link_ends_when_it_is_revoked_or_expires(guarded, guarded_app, store, trained, link):
    key = link["url"].rpartition("/")[2]
    assert len(key) >= 43
    listed = guarded.get(f"{SWEEPS}/{trained.id}/links", headers=ADMIN).json()["items"]
    assert listed == [link]
    assert (
        link["url"].rpartition("/")[2] in guarded.get(f"/sweeps/{trained.id}", headers=ADMIN).text
    )
    with TestClient(guarded_app, base_url=BOX_URL, follow_redirects=False) as anybody:
        assert anybody.get(link["url"]).status_code == 303
        assert anybody.get(f"/sweeps/{trained.id}").status_code == 200
        here = f"{SWEEPS}/{trained.id}/links/{link['id']}"
        assert guarded.delete(here, headers=ADMIN).status_code == 204

        gone = anybody.get(link["url"])
        assert (gone.status_code, "revoked" in gone.text) == (404, True)
        assert anybody.get(f"/sweeps/{trained.id}").status_code == 401
    with acting_as(Actor("ada", Scope.ADMIN)):
        old = store.create_link(trained.id, datetime.now(UTC) - timedelta(seconds=1))
    assert guarded.get(f"/shared/{old.key}").status_code == 404
    assert guarded.get(f"/shared/{'x' * 43}").status_code == 404


def test_links_are_made_and_ended_on_the_page_without_script(guarded, trained):
    here = f"/sweeps/{trained.id}"
    made = guarded.post(f"{here}/do/share", data={"days": "3"}, headers=ADMIN)
    (link,) = guarded.get(f"{SWEEPS}/{trained.id}/links", headers=ADMIN).json()["items"]
    ended = guarded.post(f"{here}/do/unshare", data={"link": link["id"]}, headers=ADMIN)

    assert (made.status_code, ended.status_code) == (303, 303)
    assert guarded.get(f"{SWEEPS}/{trained.id}/links", headers=ADMIN).json()["items"] == []
