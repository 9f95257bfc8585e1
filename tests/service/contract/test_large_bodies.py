"""Bodies of a megabyte that are wrong throughout: refused with few errors, and off the loop."""

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.testclient import TestClient

import sweeps.spec.sweep_spec
from service.api.routes.all import ROUTERS
from service.contract.bodies import MAX_BODY_BYTES, ONCE
from sweeps.match.match_spec import MatchSpec
from sweeps.spec.sweep_spec import SweepSpec
from sweeps.spec.text import MAX_ITEMS, MAX_KEYS
from sweeps.spec.validation_messages import MAX_FIELDS, explain

#: Errors that pydantic collects before any is explained: a space of 50 fields, each with as many
#: wrong keys as are read.
MOST_ERRORS = 51 * MAX_KEYS

ROUTES = {
    f"{min(route.methods)} {route.path}": route
    for router in ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute) and route.body_field is not None
}
BODIES = {name: route.body_field.field_info.annotation for name, route in ROUTES.items()}
MODELS = {
    model.__name__: model
    for annotation in BODIES.values()
    for model in [annotation, *getattr(annotation, "__args__", ())]
    if isinstance(model, type) and issubclass(model, BaseModel)
}

#: Wrong values that make a body of about a megabyte: lists, rows of lists, mappings of mappings.
FILLS: dict[str, Any] = {
    "numbers": [1] * MAX_ITEMS,
    "mappings": [{}] * MAX_ITEMS,
    "rows": [[{}] * 300] * 1000,
    "keys": {f"k{i}": 1 for i in range(MAX_KEYS)},
    "lists by key": {f"k{i}": [{}] * 500 for i in range(MAX_KEYS)},
    "mappings by key": {f"k{i}": {f"k{j}": 1 for j in range(250)} for i in range(MAX_KEYS)},
    "mappings of keys": [{f"k{j}": 1 for j in range(MAX_KEYS)}] * 300,
}


#: How often a wrong value is repeated in each list and mapping around it.
FEW = 8


def _places(schema: Any, whole: Any, depth: int = 0) -> Iterator[Any]:
    """Documents with the word HERE at each place of a schema that may hold a list or mapping."""
    if "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].rpartition("/")[2]]
    for member in [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
        yield from _places(member, whole, depth)
    if schema.get("type") in ("object", "array"):
        yield "HERE"
    if depth > 5:
        return
    fields = schema.get("properties", {})
    fixed = {name: field["const"] for name, field in fields.items() if "const" in field}
    for name, field in fields.items():
        yield from (fixed | {name: inner} for inner in _places(field, whole, depth + 1))
    if isinstance(more := schema.get("additionalProperties"), dict):
        for inner in _places(more, whole, depth + 1):
            yield {f"k{i}": inner for i in range(FEW)}
    for inner in _places(schema.get("items", {}), whole, depth + 1):
        yield [inner] * FEW


def _refusal(model: type[BaseModel], document: Any) -> ValidationError | None:
    try:
        model.model_validate(document)
    except ValidationError as error:
        return error
    return None


def _filled(place: Any, fill: Any, size: int) -> Any:
    """The place's document with a megabyte of ``fill``, however often it repeats the place.

    ``size`` is the length of the fill as JSON. Every place holds the same object: no check changes
    what it is given.
    """
    share = MAX_BODY_BYTES / json.dumps(place).count('"HERE"') / size
    if share < 1:
        few = max(1, int(len(fill) * share))
        fill = fill[:few] if isinstance(fill, list) else dict(list(fill.items())[:few])
    return _put(place, fill)


def _put(place: Any, fill: Any) -> Any:
    """A document with a fill at every place that holds the word HERE."""
    if place == "HERE":
        return fill
    if isinstance(place, dict):
        return {name: _put(inner, fill) for name, inner in place.items()}
    return [_put(inner, fill) for inner in place] if isinstance(place, list) else place


@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS)
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_errors_are_few_wherever_a_body_is_wrong(model, fill):
    schema = model.model_json_schema()
    tried = {json.dumps(place): place for place in _places(schema, {"$defs": {}} | schema)}
    size = len(json.dumps(fill))
    for text, place in tried.items():
        error = _refusal(model, _filled(place, fill, size))
        assert error is None or error.error_count() <= MOST_ERRORS, text[:300]
        assert error is None or len(explain(error)) <= MAX_FIELDS


@pytest.mark.parametrize("route", BODIES)
@pytest.mark.parametrize("media", ["json", "yaml"])
@pytest.mark.parametrize("inside", [None, "base"])
def test_a_megabyte_of_wrong_keys_takes_little_time_on_every_route(client, route, media, inside):
    method, path = route.split()
    keys: Any = {f"k{i}": 1 for i in range(60_000)}
    indent = "  " if inside else ""
    lines = "".join(f"{indent}{key}: 1\n" for key in keys)
    body = (f"{inside}:\n" if inside else "") + lines
    if media == "json":
        body = json.dumps({inside: keys} if inside else keys)
    before = time.process_time()
    answer = client.request(
        method,
        "/api/v1" + path.replace("{sweep_id}", "0" * 12),
        content=body,
        headers={"Content-Type": f"application/{media}"},
    )
    # 0.1 s where it was measured; 24 s before errors were limited. Tests share their machine.
    assert time.process_time() - before < 1.5
    assert answer.status_code == 422, answer.text
    assert f"at most {MAX_KEYS:,} keys" in answer.json()["detail"]


@pytest.mark.parametrize("route", BODIES)
def test_an_answer_lists_a_hundred_wrong_keys(client, route):
    method, path = route.split()
    answer = client.request(
        method,
        "/api/v1" + path.replace("{sweep_id}", "0" * 12),
        json={f"k{i}": 1 for i in range(MAX_KEYS)},
    )
    assert answer.status_code == 422
    body = answer.json()
    assert len(body["fields"]) == MAX_FIELDS
    assert body["detail"].endswith(f"(and at least {MAX_FIELDS - 1} more)")


SPEC = {
    "name": "one",
    "base": {"dataset": "made-up", "optimizer": "sgd", "steps": 4, "batch_size": 10},
    "space": {"lr": {"kind": "float", "low": 0.01, "high": 0.1}},
    "num_points": 2,
}


@pytest.mark.parametrize("size", ["small", "large"])
def test_a_body_is_checked_once_and_not_on_the_loop(client: TestClient, monkeypatch, size):
    """What a spec asks to be tried takes half a second at most, and all requests share the loop."""
    loops: list[Any] = []
    check = sweeps.spec.sweep_spec.check_space

    def noted(*space: Any) -> None:
        loops.append(asyncio._get_running_loop())
        check(*space)

    monkeypatch.setattr(sweeps.spec.sweep_spec, "check_space", noted)
    notes = "" if size == "small" else "long " * 3000
    answer = client.post("/api/v1/sweeps/validate", json=SPEC | {"notes": notes})
    assert answer.status_code == 200, answer.text
    assert loops == [None]


def test_models_that_take_specs_are_among_those_tried():
    assert {SweepSpec, MatchSpec} <= set(MODELS.values())


@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
def test_every_body_is_marked_as_checked(route):
    """Else FastAPI checks it a second time, on the loop: declare it as ``Checked[Model]``."""
    assert ONCE in route.body_field.field_info.metadata
