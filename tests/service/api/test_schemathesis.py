"""Requests made from the OpenAPI document itself: no 5xx, no undocumented answer. Bounded."""

from collections import Counter
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    status_code_conformance,
)

from service.api.access.callers import Access

#: FastAPI itself holds answers to their models; the check for it cannot read prefixItems.
CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance)


@pytest.fixture
def api_schema(app, monkeypatch):
    async def is_open(_: Access) -> bool:
        return True

    # The first token that is made up would close the service to this test.
    monkeypatch.setattr(Access, "is_open", is_open)
    everything = schemathesis.openapi.from_asgi("/openapi.json", app, headers={"Host": "127.0.0.1"})
    return everything.exclude(path_regex="/events$")  # streams have their own tests


@pytest.fixture
def usable(spec, match_spec, trained) -> dict[str, dict[str, Any]]:
    """Bodies that are accepted, by route: what is made up replaces a part of them."""
    arms = [{"sweep": trained.id, "point": 0}, {"sweep": trained.id, "point": 1}]
    return {
        "POST /api/v1/sweeps": spec,
        "POST /api/v1/sweeps/validate": spec,
        "POST /api/v1/sweeps/{sweep_id}/extend": {"num_points": 6},
        "POST /api/v1/sweeps/{sweep_id}/confirm": {"replicates": 2},
        "POST /api/v1/comparisons": {"arms": arms, "metric": "validation_error"},
        "POST /api/v1/matches": match_spec,
        "POST /api/v1/matches/predict": {"source": match_spec["source"]},
    }


def operations(api_schema):
    """By label; what takes a finished sweep up again comes last."""
    found = {result.ok().label: result.ok() for result in api_schema.get_all_operations()}
    return dict(sorted(found.items(), key=lambda item: item[0].endswith(("/retry", "/extend"))))


def test_nothing_that_the_document_allows_makes_the_service_fail(
    client, api_schema, trained, usable
):
    """Every operation in turn; the assertion names the request that broke it, as curl."""
    found = operations(api_schema)
    seen: dict[str, Counter[int]] = {label: Counter() for label in found}

    for label, operation in found.items():
        if label in usable:
            path = label.partition(" ")[2].format(sweep_id=trained.id)
            answer = client.post(path, json=usable[label])
            assert answer.is_success, (label, answer.text)

        @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(), field=st.integers(0, 20))
        def answers_as_documented(case, field):
            where = case.path_parameters or {}
            # Past the 404, to what is behind.
            if "sweep_id" in where and case.method != "DELETE":
                where["sweep_id"] = trained.id
            if isinstance(where.get("number"), int):
                where["number"] %= 5
            whole = usable.get(case.operation.label)
            if whole is not None and isinstance(case.body, dict):
                made_up = sorted(case.body.items())[field : field + 1]
                case.body = whole | dict(made_up)
            answer = case.call_and_validate(checks=CHECKS, headers={"Host": "127.0.0.1"})
            seen[case.operation.label][answer.status_code // 100] += 1

        answers_as_documented()
    assert len(found) > 20
    assert all(seen.values())
    assert all(sum(count[kind] for count in seen.values()) > 50 for kind in (2, 4))
