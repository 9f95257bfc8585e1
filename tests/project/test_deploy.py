"""What ``deploy/`` has for monitoring asks only for metrics that the service has, and for all."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, get_args

import pytest
import sqlalchemy as sa
import yaml
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from service.api.app import create_app
from service.contract.outputs import PartState
from service.settings import Settings
from sweeps.records import SweepState, TrialState
from sweeps.store.database.tables import runners
from sweeps.store.store import Store
from tests.project.documents import ROOT

DASHBOARD = json.loads((ROOT / "deploy/grafana/ndsweep.json").read_text("utf-8"))
RULES = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text("utf-8"))
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
#: Labels that Prometheus adds, and its own metric.
ADDED, OWN = {"job", "instance"}, "up"
#: The sum of a histogram under another name, of before there was one.
NOT_SHOWN = {"ndsweep_http_request_seconds_total"}
#: Values of a label that are known beforehand.
VALUES = {
    "part": {"store", "runner", "ray", "mlflow", "disk"},
    "state": {*get_args(PartState), *SweepState, *TrialState},
}


@pytest.fixture(scope="module")
def samples(tmp_path_factory) -> dict[str, set[str]]:
    """Sample -> names of its labels, of a service that has everything that is measured."""
    home = tmp_path_factory.mktemp("home")
    store = Store(f"sqlite:///{home}/store.db")
    store.migrate()
    for name in ("running", "queued"):
        store.create_sweep("sweep", {}, name=name, num_trials=1)
    store.claim("host-1", 15.0)
    store.report_runner("host-1", {"cluster": None})
    with TestClient(create_app(store, Settings(home=home)), base_url="http://127.0.0.1") as client:
        client.get("/api/v1/sweeps").raise_for_status()
        text = client.get("/metrics").raise_for_status().text
    store.close()
    found: dict[str, set[str]] = defaultdict(set)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] |= set(sample.labels)
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """Where each expression stands, and the expression."""
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["query"]["query"]
    for rule in ALERTS:
        yield rule["alert"], rule["expr"]


EXPRESSIONS = [
    pytest.param(expression, id=f"{number}-{where}")
    for number, (where, expression) in enumerate(expressions())
]


def selectors(expression: str) -> list[tuple[str, dict[str, str]]]:
    """Metrics that an expression selects, each with its matchers by label."""
    found = re.findall(r"\b(ndsweep_\w+|up)\b(?:\{([^}]*)\})?", expression)
    return [
        (name, {m[1]: m[2] for m in re.finditer(r'(\w+)\s*[=!]~?\s*"([^"]*)"', matchers)})
        for name, matchers in found
    ]


def test_there_is_something_to_look_at():
    assert len(DASHBOARD["panels"]) >= 8
    assert len(ALERTS) >= 8
    assert selectors('max(ndsweep_x{a="b", c!~"d"}) / up') == [
        ("ndsweep_x", {"a": "b", "c": "d"}),
        ("up", {}),
    ]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_selects_what_the_service_measures(expression, samples):
    found = selectors(expression)

    assert found
    assert expression.count("(") == expression.count(")")
    for name, matchers in found:
        assert name == OWN or name in samples, name
        assert matchers.keys() <= samples[name] | ADDED, (name, matchers)
        for label, allowed in VALUES.items():
            if label in matchers:
                assert matchers[label] in allowed, (name, matchers)
    grouped = {one for by in re.findall(r"by \(([^)]*)\)", expression) for one in by.split(", ")}
    assert grouped <= ADDED.union(*(samples[name] for name, _ in found)), grouped


def test_everything_that_is_measured_is_shown(samples):
    shown = {name for _, expr in expressions() for name, _ in selectors(expr)}
    histograms = {name.removesuffix("_bucket") for name in samples if name.endswith("_bucket")}
    parts = {f"{name}_{part}" for name in histograms for part in ("sum", "count")}

    assert samples.keys() - shown - parts == NOT_SHOWN


def test_labels_are_bounded(samples):
    """Ids of sweeps, trials, requests and tokens would make a series each."""
    labels = set().union(*samples.values())

    of_requests = {"method", "route", "status"}
    assert labels == {"version", "kind", "state", "part", "owner", "le", *of_requests}


def test_panels_have_a_place_of_their_own_and_say_what_they_show():
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            assert x < 24
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_is_wrong_and_what_to_do(rule: dict[str, Any]):
    assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"Ndsweep\w+", rule["alert"])
    assert re.fullmatch(r"\d+[smh]", rule["for"])
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"].keys() == {"summary", "description"}
    assert all(text.endswith(".") for text in rule["annotations"].values())
    assert 'job="ndsweep"' in rule["expr"]


def test_alerts_have_names_of_their_own():
    names = [rule["alert"] for rule in ALERTS]

    assert len(set(names)) == len(names)


def test_a_runner_that_is_silent_raises_its_alert(tmp_path):
    """The expression of an alert, evaluated by hand on what the service says."""
    store = Store(f"sqlite:///{tmp_path}/store.db")
    store.migrate()
    store.report_runner("host-1", {"cluster": None})
    with store._engine.begin() as conn:
        ago = timedelta(minutes=5) // timedelta(microseconds=1)
        conn.execute(sa.update(runners).values(at=runners.c.at - ago))
    app = create_app(store, Settings(home=tmp_path))
    app.state.readiness._began -= 3600
    with TestClient(app, base_url="http://127.0.0.1") as client:
        text = client.get("/metrics").text
    store.close()

    rule = next(rule for rule in ALERTS if rule["alert"] == "NdsweepRunnerDown")
    name, matchers = selectors(rule["expr"])[0]
    wanted = {label: value for label, value in matchers.items() if label not in ADDED}
    values = [
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and wanted.items() <= sample.labels.items()
    ]
    assert values == [1.0]
