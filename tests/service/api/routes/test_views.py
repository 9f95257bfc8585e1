"""``/trials`` of several sweeps, and views that are saved under a name."""

import pytest


@pytest.fixture
def path(trained):
    return f"/api/v1/sweeps/{trained.id}/views"


def test_trials_of_several_sweeps_come_in_one_listing(client, trained, spec, assert_error):
    other = client.post("/api/v1/sweeps", json=spec).json()["id"]
    ask = {"sweep": [trained.id, other], "sort": "-params.alpha_v", "limit": 3}

    page = client.get("/api/v1/trials", params=ask).json()
    rest = client.get("/api/v1/trials", params=ask | {"cursor": page["next"]}).json()

    assert [item["params"]["alpha_v"] for item in page["items"]] == [0.06, 0.06, 0.05]
    assert {item["sweep_id"] for item in page["items"] + rest["items"]} == {trained.id}
    assert rest["next"] is None
    found = client.get("/api/v1/trials", params=ask | {"where": "sweep = nowhere"}).json()
    assert found["items"] == []
    wrong = client.get("/api/v1/trials", params=ask | {"where": "nope > 1"})
    assert "there is no field 'nope'" in assert_error(wrong, 422, "InvalidFilter")["detail"]
    assert_error(client.get("/api/v1/trials"), 422, "ValidationError")
    missing = client.get("/api/v1/trials", params={"sweep": "000000000000"})
    assert_error(missing, 404, "SweepNotFound")


def test_a_view_is_saved_listed_replaced_and_deleted(client, path):
    client.put(f"{path}/my best", json={"query": "where=seed+%3D+1"}).raise_for_status()
    client.put(f"{path}/my best", json={"query": "sort=mean"}).raise_for_status()

    [view] = client.get(path).json()["items"]
    assert (view["name"], view["query"]) == ("my best", "sort=mean")
    assert client.delete(f"{path}/my best").status_code == 204
    assert client.delete(f"{path}/my best").status_code == 204
    assert client.get(path).json() == {"items": []}


def test_views_across_sweeps_are_apart_from_those_of_a_sweep(client, path):
    client.put("/api/v1/views/both", json={"query": "sweep=a&sweep=b"}).raise_for_status()

    assert client.get(path).json()["items"] == []
    assert [view["name"] for view in client.get("/api/v1/views").json()["items"]] == ["both"]


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("v", {"query": "a b"}, "query"),
        ("v", {"query": "x" * 4001}, "query"),
        ("v", {}, "query"),
        ("n" * 81, {"query": ""}, "name"),
    ],
)
def test_what_is_no_view_is_refused_by_its_field(client, path, name, body, field, assert_error):
    answer = client.put(f"{path}/{name}", json=body)

    assert field in str(assert_error(answer, 422, "ValidationError")["fields"])


@pytest.mark.parametrize("name", ["%E2%80%AEtseb", "%20%20", "a%7Fb", "%2E%2E", "a%0Ab"])
def test_a_view_has_a_name_that_people_can_read_and_browsers_can_open(client, path, name):
    refused = client.put(f"{path}/{name}", json={"query": "sort=mean"})

    assert refused.status_code in (404, 422), refused.text
    assert client.get(path).json() == {"items": []}
