"""The documentation names what the code has: routes, settings, fields, commands, metrics."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
from fastapi.testclient import TestClient

from service.api.app import create_app
from service.cli.app import app as command_line
from service.contract.errors import EVERYWHERE
from service.settings import Settings
from service.submission.prediction import PredictionSpec
from sweeps.match.arms import Arm
from sweeps.match.match_spec import MatchSpec
from sweeps.match.result import MatchResult
from sweeps.records import SweepState, TrialState
from sweeps.spec.domains import Choice, FloatRange, IntRange
from sweeps.spec.presets import preset_names
from sweeps.spec.sweep_spec import (
    Asha,
    Budget,
    Median,
    Objective,
    Resources,
    Sampler,
    SweepSpec,
    in_words,
    load_spec_text,
)
from sweeps.store.store import Store
from tests.project.documents import (
    DOCS,
    GUIDES,
    PAGES,
    ROOT,
    anchors,
    commands,
    fenced,
    first_names,
    links,
    page,
    rows,
    section,
)
from worker.config.train_config import PUBLISHED, TrainConfig


@pytest.fixture(scope="module")
def client(tmp_path_factory) -> Iterator[TestClient]:
    home = tmp_path_factory.mktemp("home")
    store = Store(f"sqlite:///{home}/store.db")
    store.migrate()
    settings = Settings(
        home=home, data=home / "data", host="127.0.0.1", token=None, token_file=None
    )
    with TestClient(create_app(store, settings), base_url="http://127.0.0.1:8000") as found:
        yield found
    store.close()


@pytest.fixture(scope="module")
def operations(client) -> dict[tuple[str, str], dict[str, Any]]:
    """(method, path) -> what OpenAPI says of it."""
    return {
        (method.upper(), path): operation
        for path, methods in client.get("/openapi.json").json()["paths"].items()
        for method, operation in methods.items()
    }


@pytest.fixture(scope="module")
def documented() -> dict[tuple[str, str], list[str]]:
    """(method, path) -> cells of its row in api.md."""
    found = rows(section(page("api.md"), "## Routes"))
    return {(row[0], row[1].strip("`")): row for row in found if row[0].isupper()}


# --- Links and specs -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path):
    for target in links(path):
        name, _, anchor = target.partition("#")
        there = (path.parent / name).resolve() if name else path

        assert there.exists(), target
        if anchor:
            assert anchor in anchors(there), target


def test_every_guide_is_in_the_index():
    named = {link.partition("#")[0] for link in links(DOCS / "README.md")}

    assert {path.name for path in DOCS.glob("*.md")} - {"README.md"} <= named


def specs() -> list[Any]:
    """Specs in the guides; those of packages are tried in ``tests/project/examples``."""
    package = re.compile(r"^training: (?!external)|^  network: (?!wrn|mlp)", re.MULTILINE)
    texts = [(path, text) for path in GUIDES for text in fenced(path, "yaml")]
    texts = [(path, text) for path, text in texts if not package.search(text)]
    texts += [(path, path.read_text("utf-8")) for path in sorted(DOCS.glob("examples/*.yaml"))]
    return [pytest.param(text, id=f"{path.name}-{i}") for i, (path, text) in enumerate(texts)]


@pytest.mark.parametrize("text", specs())
def test_every_spec_in_the_documentation_is_accepted(text):
    values = load_spec_text(text)

    (MatchSpec if "source" in values else SweepSpec).model_validate(values)


# --- Routes --------------------------------------------------------------------------------------


def test_the_routes_are_those_of_the_application(operations, documented):
    assert set(documented) == set(operations)


def test_every_parameter_of_a_route_is_named_with_it(operations, documented):
    same_as_a_sweep = ("GET", "/api/v1/matches/{sweep_id}/events")
    for key in operations.keys() - {same_as_a_sweep}:
        for parameter in operations[key].get("parameters", []):
            if parameter["in"] == "path":
                continue
            names = {name.lower() for name in re.findall(r"`([\w-]+)`", documented[key][3])}

            assert parameter["name"].lower() in names, (key, parameter["name"])


def test_every_status_of_a_route_is_listed_with_it(operations, documented):
    for key, operation in operations.items():
        listed = {int(status) for status in documented[key][4].split(", ")}

        # A probe answers 503 for its own reason, and is listed with it.
        known = {int(status) for status in operation["responses"]} - set(EVERYWHERE)
        assert listed - {503} == known, key


def test_the_pages_that_api_md_names_answer(client):
    named = re.search(r"The pages live beside the API: (.*?)\.\n", page("api.md"), re.DOTALL)
    assert named is not None
    addresses = re.findall(r"`(/[^`]*)`", named[1])

    assert len(addresses) >= 6
    for address in addresses:
        status = client.get(address, headers={"Accept": "text/html"}).status_code
        assert status == (404 if "ID" in address else 200), address


def test_every_state_of_sweeps_and_trials_is_explained():
    text = page("api.md")

    assert {str(state) for state in SweepState} <= set(
        re.findall(r"\w+", section(text, "## Submit a sweep once"))
    )
    assert {str(state) for state in TrialState} <= set(
        first_names(section(text, "## Read trials and curves"))
    )


# --- Settings and commands -----------------------------------------------------------------------


def test_the_settings_are_those_of_the_service():
    named = first_names(section(page("operations.md"), "## Settings"))

    assert named == [f"NDSWEEP_{name.upper()}" for name in Settings.model_fields]


def _commands(group: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*before, name))
        else:
            yield (*before, name), command


COMMANDS = dict(_commands(typer.main.get_command(command_line)))


def test_the_index_names_every_command_and_no_other():
    named = set(re.findall(r"`ndsweep ([a-z -]+)`", page("README.md")))

    assert named == {" ".join(words) for words in COMMANDS}


def test_every_option_in_an_example_exists():
    seen = 0
    for path in GUIDES:
        for line in path.read_text("utf-8").splitlines():
            words = line.partition("ndsweep ")[2].split()
            command = COMMANDS.get(tuple(words[:1])) or COMMANDS.get(tuple(words[:2]))
            if command is None or not line.lstrip(" $").startswith("ndsweep"):
                continue
            known = {option for param in command.params for option in param.opts}
            used = {word for word in words if re.fullmatch(r"-[a-z]|--[a-z-]+", word)}
            assert used <= known, line
            seen += 1

    assert seen >= 10


def test_examples_of_commands_are_found():
    assert len(list(commands())) >= 8


# --- Fields --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "heading", "model"),
    [
        ("config.md", "## Fields", TrainConfig),
        ("sweeps.md", "## Fields of a spec", SweepSpec),
        ("sweeps.md", "## Objective", Objective),
        ("matching.md", "## The fields of a match", MatchSpec),
        ("api.md", "## Predict a match", PredictionSpec),
    ],
)
def test_a_table_lists_exactly_the_fields_of_its_model(name, heading, model):
    assert sorted(first_names(section(page(name), heading))) == sorted(model.model_fields)


def test_resources_and_budget_are_listed_with_their_fields():
    named = first_names(section(page("sweeps.md"), "## Resources, concurrency, budget"))

    assert named == [f"resources.{name}" for name in Resources.model_fields] + [
        f"budget.{name}" for name in Budget.model_fields
    ]


@pytest.mark.parametrize(
    ("kind", "heading", "model"),
    [
        ("float", "## Domains", FloatRange),
        ("int", "## Domains", IntRange),
        ("choice", "## Domains", Choice),
        ("asha", "## Schedulers", Asha),
        ("median", "## Schedulers", Median),
    ],
)
def test_every_kind_of_domain_and_scheduler_is_listed_with_its_fields(kind, heading, model):
    text = section(page("sweeps.md"), heading)
    row = next(row for row in rows(text) if row[0] == f"`{kind}`")

    assert set(re.findall(r"`(\w+)`", row[1])) == set(model.model_fields) - {"kind"}


def test_every_sampler_is_listed():
    assert first_names(section(page("sweeps.md"), "## Samplers")) == list(get_args(Sampler))


def test_every_preset_of_the_quickstart_is_named():
    text = section(page("sweeps.md"), "## Presets")

    assert {"quickstart", "quickstart-match"} <= set(preset_names())
    assert "`quickstart`" in text
    assert "`quickstart-match`" in text


def test_the_fields_of_an_arm_are_listed():
    text = section(page("matching.md"), "## The fields of a match")
    listed = re.search(r"`source` and `target` take (.*?)\. Refused", text, re.DOTALL)

    assert listed is not None
    assert set(re.findall(r"`(\w+)`", listed[1])) == set(Arm.model_fields)


def test_the_parts_of_a_match_result_are_listed():
    named = first_names(section(page("matching.md"), "## What a match finds"))

    assert named == list(MatchResult.__annotations__)


# --- Values --------------------------------------------------------------------------------------


def _shown(value: Any) -> str:
    return f"`{value}`" if isinstance(value, str) else json.dumps(value)


def test_every_default_of_the_config_is_the_one_in_its_table():
    defaults = {row[0].strip("`"): row[-1] for row in rows(section(page("config.md"), "## Fields"))}
    fixed = {n: f.default for n, f in TrainConfig.model_fields.items() if f.default is not None}

    assert {name: defaults[name] for name in fixed} == {n: _shown(v) for n, v in fixed.items()}
    unset = TrainConfig.model_fields.keys() - fixed.keys()
    words = re.compile(r"by (recipe|optimizer|recipe and optimizer)|none|once per epoch")
    assert all(words.fullmatch(defaults[name]) for name in unset)


def test_every_value_of_a_recipe_is_the_published_one():
    table = {
        row[0].strip("`"): row[1:]
        for row in rows(section(page("config.md"), "## Published defaults"))
        if len(row) == 3 and row[0].startswith("`")
    }
    recipes = [
        TrainConfig(recipe=recipe, optimizer="sgd").resolved()
        for recipe in ("paper-tf", "paper-wrn")
    ]
    by_recipe = {name: cells for name, cells in table.items() if name in TrainConfig.model_fields}

    assert len(by_recipe) == 11
    for name, cells in by_recipe.items():
        assert cells == [_shown(getattr(config, name)) for config in recipes], name


def test_every_published_value_of_an_optimizer_is_listed():
    listed = {
        (row[0].strip("`"), row[1].strip("`")): row[2]
        for row in rows(section(page("config.md"), "## Published defaults"))
        if row[0] in ("`paper-tf`", "`paper-wrn`")
    }
    expected = {
        key: ", ".join(
            f"`{name}` {value if isinstance(value, str) else json.dumps(value)}"
            for name, value in values.items()
        )
        for key, values in PUBLISHED.items()
    }

    assert listed == expected


# --- Refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"space": {"alpha_v": {"kind": "float", "low": 0.01, "high": 0.001, "log": True}}},
        {"space": {"lr": {"kind": "choice", "values": [0.01, 0.04]}}},
        {"gpus": 1},
        {"base": {"epochs": "2"}},
        {"sampler": "grid"},
        {"num_points": None},
        {"objective": {"metric": "test_error"}},
        {"base": {"validation_fraction": 0.0}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_sentences_of_refusals_are_those_that_people_see(change):
    spec = load_spec_text(fenced(Path(DOCS / "api.md"), "yaml")[0])
    changed = spec | change
    if "base" in change:
        changed["base"] = spec["base"] | change["base"]

    with pytest.raises(ValueError, match=r".") as refused:
        SweepSpec.model_validate(changed)

    assert f"`{in_words(refused.value)}`" in section(page("sweeps.md"), "## Refusals")
