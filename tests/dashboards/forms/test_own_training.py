"""The form of a sweep of one's own training, over HTTP as a browser without script uses it."""

import re
from collections.abc import Iterator
from html import unescape

import pytest
from starlette.testclient import TestClient

from sweeps.store.store import Store
from tests.dashboards.forms.conftest import reason_at, value_of, yaml_of
from tests.worker.training.installed import on_path, write_package

SOURCE = """
    from dataclasses import dataclass, field
    from enum import Enum
    from typing import Annotated, Literal
    from annotated_types import Ge, Gt, Le
    import ndsweep

    class Loss(Enum):
        square = "square"
        absolute = "absolute"

    @dataclass(frozen=True)
    class Config:
        leaves: int
        rate: Annotated[float, Gt(0), Le(1)] = 0.1
        depth: Annotated[int, Ge(1), Le(10)] = field(
            default=3, metadata={"description": "Levels of a tree."}
        )
        loss: Loss = Loss.square
        size: Literal[1, 2, 4] = 2
        early: bool = False
        share: float | None = 0.5
        label: str = "plain"
        layers: tuple[int, ...] = (4, 2)

    @ndsweep.training(
        metrics={
            "loss": ndsweep.Metric("minimize", unit="mm"),
            "gain": ndsweep.Metric("maximize"),
        }
    )
    def train(config: Config, run: ndsweep.Run) -> None:
        run.report(step=1, metrics={"loss": config.rate})
"""
SENT = {
    "training": "trees",
    "name": "by-hand",
    "base.leaves": "8",
    "base.label": "12",
    "base.size": "4",
    "base.early": "true",
    "base.share": "null",
    "base.layers": "[8, 4]",
    "objective.metric": "gain",
    "sampler": "random",
    "num_points": "4",
    "replicates": "3",
    "space.0.field": "depth",
    "space.0.kind": "int",
    "space.0.low": "1",
    "space.0.high": "10",
    "key": "one",
}


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = write_package(
        tmp_path_factory.mktemp("trees"), SOURCE, package="my-trees", name="trees", module="trees"
    )
    with on_path(folder):
        yield


def control(html: str, path: str) -> str:
    """The markup of a control: label, input and hint."""
    place = path.replace(".", "-").replace("_", "-")
    found = re.search(rf'<label for="field-{place}">.*?<small class="why"', html, re.DOTALL)
    assert found is not None, path
    return unescape(found[0])


def test_each_field_of_the_config_has_a_control(form_client: TestClient) -> None:
    html = form_client.get("/sweeps/new?training=trees").text

    assert "a whole number; required" in control(html, "base.leaves")
    assert "a number above 0 and at most 1" in control(html, "base.rate")
    assert 'placeholder="0.1"' in control(html, "base.rate")
    assert "Levels of a tree; a whole number at least 1 and at most 10" in control(
        html, "base.depth"
    )
    for path, choices in {
        "base.loss": ["square", "absolute"],
        "base.size": ["1", "2", "4"],
        "base.early": ["false", "true"],
        "objective.metric": ["loss", "gain"],
    }.items():
        assert re.findall(r"<option>([^<]*)</option>", control(html, path)) == choices
    assert "loss: minimize; gain: maximize" in control(html, "objective.metric")
    assert 'id="field-base-seed"' not in html


def test_its_fields_have_no_words_of_the_images(form_client: TestClient) -> None:
    html = form_client.get("/sweeps/new?training=trees").text

    assert "wrn" not in html
    assert "6n + 4" not in html
    assert "Data set" not in html
    assert "ndadam" not in form_client.post("/sweeps/new", data={**SENT, "action": "add"}).text
    assert "<code>depth</code>" in control(html, "base.depth")


def test_the_training_is_chosen_above_the_form(form_client: TestClient) -> None:
    images = form_client.get("/sweeps/new").text
    trees = form_client.get("/sweeps/new?training=trees").text

    for html, chosen in ((images, "images"), (trees, "trees")):
        assert f"<option selected>{chosen}</option>" in html
    assert 'name="training" value="trees"' in trees
    assert '<input type="hidden" name="training"' not in images
    assert 'id="field-base-depth"' in images


def test_with_images_alone_nothing_is_chosen(form_client: TestClient) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dashboards.forms.shapes.training_names", lambda: ["external", "images"])
        assert "field-training" not in form_client.get("/sweeps/new").text


def test_an_unknown_training_is_refused_in_a_sentence(form_client: TestClient) -> None:
    answer = form_client.get("/sweeps/new?training=nothing", headers={"Accept": "text/html"})

    assert answer.status_code == 422
    assert "must be one of external, images, trees" in unescape(answer.text)


def test_seeds_are_asked_for_only_where_there_is_one(form_client: TestClient) -> None:
    three, one = (
        form_client.post("/sweeps/validate", data=SENT | {"replicates": seeds}).text
        for seeds in ("3", "1")
    )

    assert "Detectable difference" in three
    assert "needs 2 seeds per point or more" not in three
    assert "needs 2 seeds per point or more" in one


def test_each_field_is_checked_while_it_is_typed(form_client: TestClient) -> None:
    wrong = SENT | {"base.leaves": "many", "base.rate": "2", "space.0.high": "11"}
    html = form_client.post("/sweeps/validate", data=wrong).text

    assert "valid integer" in reason_at(html, "base-leaves")
    assert "less than or equal to 1, got 2" in reason_at(html, "base-rate")
    html = form_client.post("/sweeps/validate", data=SENT | {"space.0.high": "11"}).text
    assert "less than or equal to 10, got 11" in unescape(html)
    empty = {"training": "trees", "space.0.field": "depth", "space.0.kind": "int"}
    html = form_client.post("/sweeps/validate", data=empty).text
    assert "leaves has no default" in unescape(html) or "low is missing" in html


def test_what_was_typed_is_the_spec_and_opens_in_the_same_form(
    form_client: TestClient, empty_store: Store
) -> None:
    form_client.post("/sweeps/new", data={**SENT, "action": "create"})
    [sweep] = empty_store.list_sweeps().items
    html = form_client.get(f"/sweeps/new?source={sweep.id}").text

    assert sweep.training == "trees"
    typed = {"leaves": 8, "label": "12", "size": 4, "early": True, "share": None}
    assert sweep.base == sweep.base | typed | {"layers": [8, 4]}
    assert (sweep.objective.metric, sweep.objective.direction) == ("gain", "maximize")
    assert 'name="training" value="trees"' in html
    assert value_of(html, "base-leaves") == "8"
    assert value_of(html, "base-share") == "null"
    assert value_of(html, "space-0-high") == "10"
    assert "<option selected>4</option>" in control(html, "base.size")
    assert "training" not in yaml_of(html)
    assert "base" not in yaml_of(html)


def test_several_objectives_take_the_place_of_one(
    form_client: TestClient, empty_store: Store
) -> None:
    sent = SENT | {"objective.metric": "", "objectives": "[{metric: gain}, {metric: loss}]"}
    form_client.post("/sweeps/new", data={**sent, "action": "create"})
    [sweep] = empty_store.list_sweeps().items
    html = form_client.get(f"/sweeps/new?source={sweep.id}").text

    assert [(one.metric, one.direction) for one in sweep.objectives] == [
        ("gain", "maximize"),
        ("loss", "minimize"),
    ]
    assert '"metric": "gain"' in unescape(value_of(html, "objectives"))
    assert "<option selected>gain" not in control(html, "objective.metric")
    wrong = form_client.post("/sweeps/validate", data=sent | {"objectives": "[{metric: x}]"}).text
    assert "a single one, x, belongs in objective" in reason_at(wrong, "objectives")


def test_a_varied_field_begins_with_its_own_range(form_client: TestClient) -> None:
    sent = SENT | {"space.1.field": "loss", "space.1.kind": "float", "space.1.low": "1"}
    html = form_client.post("/sweeps/new", data={**sent, "action": "step"}).text
    more = form_client.post("/sweeps/new", data={**SENT, "action": "add"}).text

    assert value_of(html, "space-1-values") == "square, absolute"
    assert "Varied field 2: leaves" in more


def test_yaml_of_another_training_brings_its_form(form_client: TestClient) -> None:
    rest = "training: trees\nbase: {leaves: 5, seed: 3}\n"
    html = form_client.post("/sweeps/new", data={"rest": rest, "action": "step"}).text

    assert 'name="training" value="trees"' in html
    assert value_of(html, "base-leaves") == "5"
    assert yaml_of(html) == "base:\n  seed: 3\n"


def test_trials_of_agents_take_any_field(form_client: TestClient) -> None:
    html = form_client.get("/sweeps/new?training=external").text
    sent = {
        "training": "external",
        "name": "elsewhere",
        "objective.metric": "score",
        "objective.direction": "maximize",
        "num_points": "3",
        "space.0.field": "anything",
        "space.0.kind": "float",
        "space.0.low": "0",
        "space.0.high": "1",
    }

    assert '<input type="text" id="field-objective-metric"' in html
    assert (
        '<input type="text" id="field-space-0-field"'
        in form_client.post("/sweeps/new", data={**sent, "action": "step"}).text
    )
    assert "Ready to submit" in form_client.post("/sweeps/validate", data=sent).text
