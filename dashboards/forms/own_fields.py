"""Controls of a training of one's own, built from the JSON schema of its config.

The schema is that of ``GET /api/v1/trainings``: types, ranges, defaults, descriptions, choices.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from dashboards.forms.fields import (
    NAME_GROUP,
    FieldGroup,
    FieldKind,
    FormField,
    resources_group,
    search_group,
)
from dashboards.forms.spec_form import shown_value
from worker.config.training import EXTERNAL, Metric, config_class, load_training

#: Set by the search itself.
_NO_CONTROL = frozenset({"seed"})
_RANGES = {"number": "float", "integer": "int"}
#: Keyword of the schema -> what a hint says.
_LIMITS = {
    "exclusiveMinimum": "above",
    "minimum": "at least",
    "exclusiveMaximum": "below",
    "maximum": "at most",
    "multipleOf": "a multiple of",
}


@dataclass(frozen=True)
class OwnField:
    """One field of a config, as its schema describes it."""

    name: str
    #: JSON's name of the type: number, integer, boolean, string, array.
    type: str
    #: All values that it takes, if they are few.
    choices: tuple[Any, ...] = ()
    #: Whether it may be none.
    is_optional: bool = False
    has_default: bool = False
    default: Any = None
    description: str = ""
    #: Keywords of ``_LIMITS`` that it sets, with their numbers.
    limits: Mapping[str, float] = field(default_factory=dict)

    @property
    def hint(self) -> str:
        """What it means and which values it takes."""
        words = {"number": "a number", "integer": "a whole number", "array": "as YAML: [1, 2]"}
        kind = "" if self.choices else words.get(self.type, "")
        rules = [f"{_LIMITS[key]} {value:g}" for key, value in self.limits.items()]
        ranged = " ".join(part for part in (kind, " and ".join(rules)) if part)
        said = [self.description.rstrip("."), ranged, "" if self.has_default else "required"]
        return "; ".join(part for part in said if part)

    def control(self) -> FormField:
        """Its control; empty, the field of the spec stays unset and has its default."""
        kind: FieldKind = "flow" if self.type == "array" else "value"
        if self.type == "string" and not self.choices and not self.is_optional:
            kind = "text"
        choices = [*map(shown_value, self.choices)]
        if choices and self.is_optional and self.default is not None:
            choices.append("null")
        return FormField(
            f"base.{self.name}",
            Markup("<code>{}</code>").format(self.name),
            kind,
            tuple(choices),
            self.hint,
            unset=self._default_words(),
        )

    def _default_words(self) -> str:
        if not self.has_default or isinstance(self.default, dict):
            return ""
        if isinstance(self.default, list):
            return json.dumps(self.default)
        return "none" if self.default is None else shown_value(self.default)

    def row(self) -> dict[str, str]:
        """Cells of a row that varies it: all of its choices, or the ends of its range."""
        row = {"field": self.name, "kind": _RANGES.get(self.type, "choice")}
        if self.choices or row["kind"] == "choice":
            values = [*self.choices, *([None] if self.is_optional and self.choices else [])]
            return row | {"kind": "choice", "values": ", ".join(map(shown_value, values))}
        ends = {"low": self.limits.get("minimum"), "high": self.limits.get("maximum")}
        return row | {end: shown_value(value) for end, value in ends.items() if value is not None}

    def fitted(self, row: Mapping[str, str]) -> dict[str, str]:
        """A row as it was sent, unless its kind or all of its values are those of another field."""
        mine = self.row()
        values = row.get("values", "")
        strange = self.choices and not any(shown_value(one) in values for one in self.choices)
        if row.get("kind") not in (mine["kind"], "choice") or (strange and values):
            return mine | {"when": row.get("when", "")}
        return dict(row)


def own_fields(training: str) -> dict[str, OwnField]:
    """Name -> field of a training's config; {} where any field may be set.

    Raises FieldError for a training that is not known or cannot be imported.
    """
    if training == EXTERNAL:
        return {}
    schema = config_class(training).model_json_schema()
    found = _fields(schema)
    return {one.name: one for one in found if one.name not in _NO_CONTROL}


def own_groups(training: str, fields: Mapping[str, OwnField]) -> tuple[FieldGroup, ...]:
    """The groups of a training's form; the varied fields belong below the first two."""
    metrics: Mapping[str, Metric] = {}
    if training != EXTERNAL:
        metrics = load_training(training).metrics
    settings = FieldGroup(
        f"Settings of {training}", tuple(one.control() for one in fields.values())
    )
    return NAME_GROUP, settings, search_group(metrics), resources_group()


def _fields(schema: Mapping[str, Any]) -> Iterator[OwnField]:
    required = schema.get("required", ())
    for name, described in schema.get("properties", {}).items():
        alternatives = [_resolved(one, schema) for one in described.get("anyOf", [described])]
        kinds = [one for one in alternatives if one.get("type") != "null"]
        types = {str(one.get("type", _type_of_choices(one))) for one in kinds}
        choices = [value for one in kinds for value in _choices(one)]
        limits = kinds[0] if len(kinds) == 1 else {}
        yield OwnField(
            name=name,
            type=types.pop() if len(types) == 1 else "any",
            choices=tuple(choices) if all(_choices(one) for one in kinds) else (),
            is_optional=len(kinds) < len(alternatives),
            has_default=name not in required,
            default=described.get("default"),
            description=described.get("description", ""),
            limits={key: limits[key] for key in _LIMITS if key in limits},
        )


def _resolved(one: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow a reference to an Enum of the same schema."""
    name = str(one.get("$ref", "")).rpartition("/")[2]
    found: Mapping[str, Any] = schema.get("$defs", {}).get(name, one)
    return found


def _choices(one: Mapping[str, Any]) -> list[Any]:
    if one.get("type") == "boolean":
        return [False, True]
    return list(one.get("enum", [one["const"]] if "const" in one else []))


def _type_of_choices(one: Mapping[str, Any]) -> str:
    """Choices of several types have none in the schema."""
    return "string" if all(isinstance(value, str) for value in _choices(one)) else "any"
