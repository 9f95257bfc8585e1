"""The OpenAPI document says everything that a client can meet."""

import pytest
from starlette.testclient import TestClient

from service.api.app import create_app
from service.contract.errors import EVERYWHERE
from service.settings import Settings
from sweeps.store.store import Store

#: Statuses that each route documents beyond EVERYWHERE.
ROUTES = {
    ("post", "/api/v1/sweeps"): {201, 409, 413, 415},
    ("get", "/api/v1/sweeps"): {200},
    ("post", "/api/v1/sweeps/validate"): {200, 413, 415},
    ("get", "/api/v1/sweeps/{sweep_id}"): {200, 404},
    ("delete", "/api/v1/sweeps/{sweep_id}"): {202, 204, 404},
    ("post", "/api/v1/sweeps/{sweep_id}/cancel"): {200, 404, 409},
    ("post", "/api/v1/sweeps/{sweep_id}/pause"): {200, 404, 409},
    ("post", "/api/v1/sweeps/{sweep_id}/resume"): {200, 404, 409},
    ("post", "/api/v1/sweeps/{sweep_id}/retry"): {200, 404, 409},
    ("post", "/api/v1/sweeps/{sweep_id}/extend"): {200, 404, 409, 413, 415},
    ("post", "/api/v1/sweeps/{sweep_id}/confirm"): {201, 404, 409, 413, 415},
    ("patch", "/api/v1/sweeps/{sweep_id}"): {200, 404, 413, 415},
    ("post", "/api/v1/comparisons"): {200, 404, 409, 413, 415},
    ("get", "/api/v1/sweeps/{sweep_id}/export"): {200, 404},
    ("get", "/api/v1/sweeps/{sweep_id}/analysis"): {200, 404},
    ("get", "/api/v1/sweeps/{sweep_id}/events"): {200, 404},
    ("get", "/api/v1/sweeps/{sweep_id}/trials"): {200, 404},
    ("get", "/api/v1/sweeps/{sweep_id}/trials/{number}"): {200, 404},
    ("get", "/api/v1/sweeps/{sweep_id}/trials/{number}/metrics"): {200, 404},
    ("get", "/api/v1/sweeps/{sweep_id}/trials/{number}/usage"): {200, 404},
    ("get", "/api/v1/sweeps/{sweep_id}/trials/{number}/log"): {200, 404},
    ("get", "/api/v1/sweeps/{sweep_id}/trials/{number}/log/file"): {200, 206, 404},
    ("get", "/api/v1/sweeps/{sweep_id}/trials/{number}/log/events"): {200, 404},
    ("post", "/api/v1/sweeps/{sweep_id}/ask"): {200, 404, 409, 413, 415},
    ("post", "/api/v1/sweeps/{sweep_id}/trials/{number}/reports"): {200, 404, 409, 413, 415},
    ("post", "/api/v1/sweeps/{sweep_id}/trials/{number}/heartbeat"): {200, 404, 409, 413, 415},
    ("post", "/api/v1/sweeps/{sweep_id}/trials/{number}/tell"): {200, 404, 409, 413, 415},
    ("post", "/api/v1/sweeps/{sweep_id}/images"): {201, 404, 413, 415},
    ("get", "/api/v1/sweeps/{sweep_id}/images/{name}"): {200, 404},
    ("get", "/api/v1/sweeps/{sweep_id}/points"): {200, 404},
    ("get", "/api/v1/sweeps/{sweep_id}/curves"): {200, 404},
    ("get", "/api/v1/sweeps/{sweep_id}/best"): {200, 404},
    ("get", "/api/v1/sweeps/{sweep_id}/best/weights"): {200, 404},
    ("post", "/api/v1/matches"): {201, 409, 413, 415},
    ("get", "/api/v1/matches"): {200},
    ("post", "/api/v1/matches/of-trial"): {201, 404, 409, 413, 415},
    ("post", "/api/v1/matches/predict"): {200, 413, 415},
    ("get", "/api/v1/matches/{sweep_id}"): {200, 404},
    ("post", "/api/v1/matches/{sweep_id}/cancel"): {200, 404, 409},
    ("get", "/api/v1/matches/{sweep_id}/events"): {200, 404},
    ("get", "/api/v1/machines"): {200},
    ("get", "/api/v1/presets"): {200},
    ("get", "/api/v1/datasets"): {200},
    ("get", "/api/v1/optimizers"): {200},
    ("get", "/api/v1/trainings"): {200},
    ("get", "/api/v1/trials"): {200, 404},
    ("get", "/api/v1/views"): {200},
    ("put", "/api/v1/views/{name}"): {200, 413, 415},
    ("delete", "/api/v1/views/{name}"): {204},
    ("get", "/api/v1/sweeps/{sweep_id}/views"): {200, 404},
    ("put", "/api/v1/sweeps/{sweep_id}/views/{name}"): {200, 404, 413, 415},
    ("delete", "/api/v1/sweeps/{sweep_id}/views/{name}"): {204, 404},
    ("get", "/api/v1/parts"): {200},
    ("get", "/api/v1/me"): {200},
    ("get", "/api/v1/tokens"): {200},
    ("post", "/api/v1/tokens"): {201, 409, 413, 415},
    ("patch", "/api/v1/tokens/{token_id}"): {200, 404, 413, 415},
    ("delete", "/api/v1/tokens/{token_id}"): {200, 404},
    ("get", "/api/v1/audit"): {200},
    ("get", "/api/v1/sweeps/{sweep_id}/links"): {200, 404},
    ("post", "/api/v1/sweeps/{sweep_id}/links"): {201, 404, 413, 415},
    ("delete", "/api/v1/sweeps/{sweep_id}/links/{link_id}"): {204, 404},
}


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    """Made once: it takes longer than everything that is asked of it here."""
    home = tmp_path_factory.mktemp("home")
    store = Store(f"sqlite:///{home / 'store.db'}")
    app = create_app(store, Settings(home=home, data=home))
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        yield client.get("/openapi.json").json()
    store.close()


def operations(document):
    return {
        (method, path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_the_routes_under_api_v1_are_exactly_those_of_the_contract(document):
    found = {key for key in operations(document) if key[1].startswith("/api/")}

    assert found == set(ROUTES)


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_documents_its_statuses_and_what_it_does(document, route):
    operation = operations(document)[route]

    assert {int(status) for status in operation["responses"]} == ROUTES[route] | set(EVERYWHERE)
    assert operation["description"]


def test_every_error_is_documented_in_the_one_shape(document):
    for operation in operations(document).values():
        for status, answer in operation["responses"].items():
            if int(status) >= 400:
                schema = answer["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/ErrorOut"}


def test_every_field_of_an_answer_is_required(document):
    """So that a generated client need not ask whether a field is there."""
    for name, schema in document["components"]["schemas"].items():
        if name.endswith("Out") or "Out_" in name:
            assert set(schema["required"]) == set(schema["properties"]), name


def test_specs_may_be_json_or_yaml(document):
    for path, model in (
        ("/api/v1/sweeps", "SweepSpec"),
        ("/api/v1/sweeps/validate", "SweepSpec"),
        ("/api/v1/matches", "MatchSpec"),
        ("/api/v1/matches/of-trial", "MatchOfTrial"),
        ("/api/v1/matches/predict", "PredictionSpec"),
        ("/api/v1/sweeps/{sweep_id}/extend", "Extension"),
        ("/api/v1/sweeps/{sweep_id}/confirm", "ConfirmSpec"),
        ("/api/v1/comparisons", "ComparisonSpec"),
    ):
        content = document["paths"][path]["post"]["requestBody"]["content"]
        assert set(content) == {"application/json", "application/yaml"}
        for media in content.values():
            assert media["schema"]["$ref"] == f"#/components/schemas/{model}"
        assert model in document["components"]["schemas"]


def test_the_readable_docs_show_every_route_and_every_schema_and_load_nothing(client, document):
    page = client.get("/docs")

    for _, path in operations(document):
        assert path in page.text
    for name in document["components"]["schemas"]:
        assert f'id="{name}"' in page.text
    assert "<script" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
