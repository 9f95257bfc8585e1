"""Requests made from the OpenAPI document itself: no 5xx, no undocumented answer. Bounded."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    status_code_conformance,
)

#: FastAPI itself holds answers to their models; the check for it cannot read prefixItems.
CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance)


@pytest.fixture
def api_schema(app):
    everything = schemathesis.openapi.from_asgi("/openapi.json", app, headers={"Host": "127.0.0.1"})
    return everything.exclude(path_regex="/events$")  # streams have their own tests


def operations(api_schema):
    return {result.ok().label: result.ok() for result in api_schema.get_all_operations()}


def test_nothing_that_the_document_allows_makes_the_service_fail(api_schema, trained):
    """Every operation in turn; the assertion names the request that broke it, as curl."""
    found = operations(api_schema)

    for operation in found.values():

        @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def answers_as_documented(case):
            if "sweep_id" in (case.path_parameters or {}) and case.method != "DELETE":
                case.path_parameters["sweep_id"] = trained.id  # past the 404, to what is behind
            case.call_and_validate(checks=CHECKS, headers={"Host": "127.0.0.1"})

        answers_as_documented()
    assert len(found) > 20
