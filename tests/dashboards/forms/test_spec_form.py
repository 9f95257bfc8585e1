"""A spec laid out over a form comes back the same, and refusals find their control."""

from typing import Any

import pytest

from dashboards.forms.fields import GROUPS
from dashboards.forms.shapes import MATCH, SWEEP
from dashboards.forms.spec_form import (
    FormValues,
    UnreadableRest,
    form_of,
    reason_place,
    sent_form,
    shown_value,
    small_spec,
    spec_of,
)
from sweeps.match.match_spec import MatchSpec
from sweeps.spec.presets import preset_names, read_preset
from sweeps.spec.sweep_spec import SweepSpec
from worker.config.registry import registered_names

FIELDS = SWEEP.fields
PRESETS = [name for name in preset_names() if read_preset(name).kind == "sweep"]


def sent_by_browser(form: FormValues) -> dict[str, str]:
    """The pairs that a browser sends for what the controls hold."""
    pairs = {**form.fields, "rest": form.rest.replace("\n", "\r\n")}
    for index, row in enumerate(form.rows):
        # An unticked box is not sent.
        cells = {cell: text for cell, text in row.items() if cell != "log" or text}
        pairs |= {f"space.{index}.{cell}": text for cell, text in cells.items()}
    return pairs


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_comes_back_from_the_form_as_it_was(name: str) -> None:
    spec = read_preset(name).spec

    back = spec_of(sent_form(sent_by_browser(form_of(spec, FIELDS)), FIELDS), FIELDS)

    assert SweepSpec.model_validate(back) == SweepSpec.model_validate(spec)


@pytest.mark.parametrize("name", PRESETS)
def test_a_stored_spec_is_shown_without_its_defaults_and_means_the_same(name: str) -> None:
    stored = SweepSpec.model_validate(read_preset(name).spec).model_dump(mode="json")

    small = small_spec(stored, SweepSpec)

    assert SweepSpec.model_validate(small) == SweepSpec.model_validate(read_preset(name).spec)
    assert "concurrency" not in small
    assert "limits" not in form_of(small, FIELDS).rest


def test_what_no_control_covers_stays_in_the_yaml() -> None:
    spec = {"name": "a", "base": {"depth": 10, "flip": False}, "initial_points": [{"lr": 0.1}]}

    form = form_of(spec, FIELDS)

    assert form.fields == {"name": "a", "base.depth": "10"}
    assert form.rest == "base:\n  flip: false\ninitial_points:\n- lr: 0.1\n"


def test_what_the_yaml_says_of_a_control_wins_and_moves_into_it() -> None:
    form = FormValues({"replicates": "3"}, [], "replicates: 5\nbase: {depth: 10, crop_pad: 1}")

    stepped = form_of(spec_of(form, FIELDS), FIELDS)

    assert stepped.fields["replicates"] == "5"
    assert stepped.fields["base.depth"] == "10"
    assert stepped.rest == "base:\n  crop_pad: 1\n"


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.05", 0.05), ("1e-3", 1e-3), ("10", 10), ("null", None), ("fast", "fast"), ("[1", "[1")],
)
def test_a_value_is_read_as_yaml_reads_it(text: str, value: Any) -> None:
    spec = spec_of(FormValues({"base.alpha_v": text}), FIELDS)

    assert spec["base"]["alpha_v"] == value


@pytest.mark.parametrize(
    "domain",
    [
        {"kind": "float", "low": 0.1, "high": 1, "when": ["sgd"]},
        {"kind": "float", "low": 0.1, "high": 1, "when": {"optimizer": {"not": "sgd"}}},
        {"kind": "float", "low": [0.1], "high": {"of": 1}},
        {"kind": "choice", "values": {"a": 1}},
        {"kind": "choice", "values": "sgd"},
        # A word to YAML, and false to the spec: a tick would turn it round.
        {"kind": "float", "low": 0.1, "high": 1, "log": "no"},
    ],
)
def test_a_domain_that_no_cell_can_show_stays_in_the_yaml(domain: dict[str, Any]) -> None:
    form = form_of({"space": {"lr": domain}}, FIELDS)

    assert form.rows == []
    assert spec_of(form, FIELDS)["space"] == {"lr": domain}


def test_a_condition_that_cannot_be_read_stays_as_it_was_typed() -> None:
    typed = {"field": "lr", "kind": "float", "low": "0.1", "high": "1", "when": "optimizer: [sg"}

    [row] = form_of(spec_of(FormValues({}, [typed]), FIELDS), FIELDS).rows

    assert row["when"] == "optimizer: [sg"


@pytest.mark.parametrize(
    "value", [0.1, 1e-7, 3, True, None, "sgd", "1e-3", "a, b", "no: colon", ""]
)
def test_a_value_is_written_so_that_it_reads_back(value: Any) -> None:
    row = {"field": "optimizer", "kind": "choice", "values": shown_value(value)}

    assert spec_of(FormValues({}, [row]), FIELDS)["space"]["optimizer"]["values"] == [value]


def test_conditions_are_written_and_read() -> None:
    domain = {"kind": "float", "low": 0.1, "high": 1, "when": {"optimizer": ["sgd", "adam"]}}

    [row] = form_of({"space": {"lr": domain}}, FIELDS).rows

    assert row["when"] == "optimizer: [sgd, adam]"
    assert spec_of(FormValues({}, [row]), FIELDS)["space"]["lr"] == domain


@pytest.mark.parametrize("rest", ["- a list", "just words", "a: [1", "a: 1\na: 2"])
def test_yaml_that_is_no_mapping_is_refused(rest: str) -> None:
    with pytest.raises(UnreadableRest):
        spec_of(FormValues({}, [], rest), FIELDS)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("replicates", "replicates"),
        ("tags.0", "tags"),
        ("base.depth", "base.depth"),
        ("base.crop_pad", "rest"),
        ("space.lr.low", "space.0.low"),
        ("space.lr", "space.0.field"),
        ("space.lr.values.2", "space.0.field"),
        ("space.gamma_c.low", "space"),
        ("space", "space"),
        ("", ""),
    ],
)
def test_a_refusal_is_shown_at_its_control(path: str, place: str) -> None:
    form = FormValues({}, [{"field": "lr", "kind": "float"}])

    assert reason_place(path, form, FIELDS) == place


def test_rows_without_end_are_not_read() -> None:
    form = sent_form({f"space.{index}.field": "lr" for index in range(500)}, FIELDS)

    assert len(form.rows) == 60


def test_every_control_stands_for_a_field_of_the_spec() -> None:
    schema = SweepSpec.model_json_schema()
    known = set(schema["properties"]) | {
        f"base.{n}" for n in schema["$defs"]["TrainConfig"]["properties"]
    }
    for part, model in (
        ("objective", "Objective"),
        ("resources", "Resources"),
        ("budget", "Budget"),
        ("scheduler", "Asha"),
    ):
        known |= {f"{part}.{name}" for name in schema["$defs"][model]["properties"]}

    assert set(SWEEP.fields) <= known


def test_several_trials_of_one_card_are_a_field_of_the_form() -> None:
    spec = spec_of(FormValues({"resources.gpus": "1", "resources.trials_per_gpu": "4"}), FIELDS)

    assert spec["resources"] == {"gpus": 1, "trials_per_gpu": 4}


MATCHES = [name for name in preset_names() if read_preset(name).kind == "match"]


@pytest.mark.parametrize("name", MATCHES)
def test_a_match_comes_back_from_its_form_as_it_was(name: str) -> None:
    stored = MatchSpec.model_validate(read_preset(name).spec).model_dump(mode="json")

    small = small_spec(stored, MatchSpec)
    form = form_of(small, MATCH.fields)
    back = spec_of(sent_form(sent_by_browser(form), MATCH.fields), MATCH.fields)

    assert MatchSpec.model_validate(back) == MatchSpec.model_validate(stored)
    assert form.fields["source.momentum"] == "0.9"
    assert "betas" in form.rest
    assert reason_place("source.lr", form, MATCH.fields) == "source.lr"
    assert reason_place("target.betas.1", form, MATCH.fields) == "rest"


def test_optimizers_of_packages_can_be_chosen() -> None:
    [field] = [f for group in GROUPS for f in group.fields if f.path == "base.optimizer"]

    assert {"sgd", "ndadam", *registered_names("optimizers")} <= set(field.choices)
