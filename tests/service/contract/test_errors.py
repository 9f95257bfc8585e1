"""Every error has one shape: ``{"error", "detail", "fields": [{"path", "reason"}]}``."""

import gzip
import inspect

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

import sweeps.errors
from service.api.app import create_app
from service.contract.bodies import MAX_BODY_BYTES
from service.contract.errors import status_of
from service.settings import Settings
from sweeps.errors import StoreUnavailable, SweepsError
from sweeps.store.store import Store

SWEEPS = "/api/v1/sweeps"
ERRORS = [
    kind
    for _, kind in inspect.getmembers(sweeps.errors, inspect.isclass)
    if issubclass(kind, SweepsError) and kind is not SweepsError
]


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_of_the_domain_has_a_status(kind):
    assert status_of(kind.__new__(kind)) in (403, 404, 409, 422, 429, 503)


@pytest.mark.parametrize(
    ("content", "media", "status", "name"),
    [
        (b"{", "application/json", 422, "InvalidDocument"),
        (b"\xff\xfe", "application/json", 422, "InvalidDocument"),
        (b'{"a": NaN}', "application/json", 422, "InvalidDocument"),
        (b"[" * 100_000, "application/json", 422, "InvalidDocument"),
        (b'{"a": ' + b"9" * 5000 + b"}", "application/json", 422, "InvalidDocument"),
        (b'{"base": "\\ud800"}', "application/json", 422, "InvalidDocument"),
        (b"a: [", "application/yaml", 422, "InvalidDocument"),
        (b"a: !!python/name:os.system", "application/yaml", 422, "InvalidDocument"),
        (b"[1, 2]", "application/json", 422, "ValidationError"),
        (b"null", "application/json", 422, "ValidationError"),
        (b"", "application/json", 422, "ValidationError"),
        (b"{}", "text/plain", 415, "UnsupportedMediaType"),
        (b"{}", "multipart/form-data; boundary=x", 415, "UnsupportedMediaType"),
        (b" " * (MAX_BODY_BYTES + 1), "application/json", 413, "BodyTooLarge"),
        (b" " * 10_000_000, "application/yaml", 413, "BodyTooLarge"),
    ],
)
@pytest.mark.parametrize("path", ["/sweeps", "/sweeps/validate", "/matches", "/matches/predict"])
def test_a_body_that_is_no_spec_is_refused(
    client, path, content, media, status, name, assert_error
):
    response = client.post(f"/api/v1{path}", content=content, headers={"Content-Type": media})

    assert_error(response, status, name)


def test_a_body_without_a_declared_length_is_cut_off_at_the_limit(client, assert_error):
    pieces = (b" " * 100_000 for _ in range(20))

    assert_error(client.post(SWEEPS, content=pieces), 413, "BodyTooLarge")


def test_an_unknown_path_is_not_found(client, assert_error):
    assert_error(client.get("/api/v1/nothing"), 404, "NotFound")
    assert_error(client.get(f"{SWEEPS}/"), 404, "NotFound")


def test_a_person_gets_a_page_for_an_address_that_is_none(client, assert_error):
    as_browser = {"Accept": "text/html"}

    page = client.get("/nothing", headers=as_browser)

    assert page.status_code == 404
    assert page.headers["content-type"].startswith("text/html")
    assert_error(client.get("/api/v1/nothing", headers=as_browser), 404, "NotFound")


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "TRACE"])
def test_a_method_that_a_route_lacks_is_refused_with_those_it_has(client, method, assert_error):
    response = client.request(method, SWEEPS)

    assert_error(response, 405, "MethodNotAllowed")
    assert response.headers["allow"] == "GET, HEAD, POST"


def test_an_address_of_several_methods_names_them_all(client, assert_error):
    response = client.put(f"{SWEEPS}/0123456789ab")

    assert_error(response, 405, "MethodNotAllowed")
    assert response.headers["allow"] == "DELETE, GET, HEAD, PATCH"


def test_a_compressed_body_is_refused_as_what_it_is(client, assert_error):
    body = gzip.compress(b"{}")
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}

    response = client.post(SWEEPS, content=body, headers=headers)

    assert "not unpacked" in assert_error(response, 415, "UnsupportedMediaType")["detail"]


def test_a_store_that_is_away_is_503_on_every_route_that_needs_it(
    tmp_path, settings, spec, assert_error
):
    store = Store(f"sqlite:///{tmp_path}/no/such/folder/store.db")
    client = TestClient(create_app(store, settings), base_url="http://127.0.0.1:8000")

    for response in (
        client.get(SWEEPS),
        client.post(SWEEPS, json=spec),
        client.get("/readyz"),
        client.get("/metrics"),
        client.get(f"{SWEEPS}/0123456789ab/events"),
    ):
        assert_error(response, 503, "StoreUnavailable")
        assert response.headers["retry-after"]
    assert client.get("/healthz").status_code == 200
    store.close()


def test_a_fault_is_500_without_its_traceback_and_the_log_has_it(
    client, store, monkeypatch, caplog, assert_error
):
    def broken(sweep_id):
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr(store, "get_sweep", broken)

    body = assert_error(client.get(f"{SWEEPS}/0123456789ab"), 500, "InternalError")

    assert "secret" not in str(body)
    assert "a secret of the inside" in caplog.text


def test_errors_repeat_no_more_than_a_little_of_what_was_sent(client, spec, assert_error):
    response = client.post(SWEEPS, json=spec | {"x" * 100_000: 1})

    assert_error(response, 422, "ValidationError")
    assert len(response.content) < 10_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=12,
)
FIELD = st.sampled_from(["base", "space", "name", "num_points", "replicates", "budget", "tags"])


@pytest.fixture(scope="module")
def quiet_client(tmp_path_factory):
    """A client of an application that lives as long as the module: hypothesis makes many calls."""
    home = tmp_path_factory.mktemp("home")
    store = Store(f"sqlite:///{home / 'store.db'}")
    store.migrate()
    app = create_app(store, Settings(home=home, data=home))
    with TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False) as client:
        yield client
    store.close()


@settings(max_examples=60, deadline=None)
@given(values=st.dictionaries(FIELD, JSON))
def test_no_body_makes_the_service_fail(quiet_client, values):
    import json

    base = {
        "name": "a",
        "base": {"dataset": "made-up"},
        "space": {"alpha_v": {"kind": "float", "low": 0.1, "high": 0.2}},
        "num_points": 1,
    }
    headers = {"Content-Type": "application/json"}
    sweep = "/sweeps/0123456789ab"
    specs = ("/sweeps", "/matches", "/matches/predict")
    for path in (*specs, "/comparisons", f"{sweep}/extend", f"{sweep}/confirm"):
        for body in (values, base | values):
            content = json.dumps(body)
            response = quiet_client.post(f"/api/v1{path}", content=content, headers=headers)

            # There is no such sweep; before that is found out the body is read.
            allowed = (404, 422) if path.startswith(sweep) else (422,)
            assert response.status_code in allowed, response.text
            assert set(response.json()) == {"error", "detail", "fields"}


def test_the_sentence_of_an_unavailable_store_reaches_the_client(client, store, monkeypatch):
    def away(**query):
        raise StoreUnavailable("the database does not answer")

    monkeypatch.setattr(store, "list_sweeps", away)

    assert client.get(SWEEPS).json()["detail"] == "the database does not answer"
