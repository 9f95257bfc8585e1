"""A spec as the values of a form, and back: fields, varied fields, and YAML for everything else.

Nothing is lost either way: what no control covers stays in the YAML, and what is typed in the YAML
although a control covers it moves to the control.
"""

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from dashboards.forms.fields import CELLS, KIND_CELLS, FormField
from sweeps.errors import UnreadableSpec
from sweeps.spec.text import read_yaml

#: Path -> control, of the form that a spec is laid out over.
Fields = Mapping[str, FormField]
#: Rows of varied fields that a form may send; a spec may have 50.
MAX_ROWS = 60


@dataclass(frozen=True)
class FormValues:
    """The values of the controls, as text."""

    #: Path -> text, without empty ones.
    fields: dict[str, str] = field(default_factory=dict)
    #: One for each varied field: ``field``, ``kind``, and the cells of its kind.
    rows: list[dict[str, str]] = field(default_factory=list)
    #: YAML of everything else.
    rest: str = ""


class UnreadableRest(ValueError):
    """Raised if the rest is not YAML or no mapping; the message names the place."""


def form_of(spec: Mapping[str, Any], known: Fields, *, varies: bool = True) -> FormValues:
    """Distribute a spec over the controls of a form, with or without rows of varied fields."""
    left: dict[str, Any] = deepcopy(dict(spec))
    fields = {}
    for path, control in known.items():
        text = _text_of(control, _get(left, path)) if _has(left, path) else None
        if text is not None:
            fields[path] = text
            _remove(left, path)
    rows = []
    space = left.get("space") if varies else None
    for name, domain in list(space.items()) if isinstance(space, dict) else ():
        row = _row_of(name, domain)
        if row is not None:
            rows.append(row)
            del left["space"][name]
    rest = _without_empty(left)
    return FormValues({k: v for k, v in fields.items() if v}, rows, yaml_text(rest) if rest else "")


def spec_of(form: FormValues, known: Fields) -> dict[str, Any]:
    """The spec that a form describes. Raises UnreadableRest."""
    spec: dict[str, Any] = {"name": "", "base": {}}
    for path, text in form.fields.items():
        if text.strip() and path in known:
            _set(spec, path, _value_of(known[path], text.strip()))
    space = {row["field"]: _domain_of(row) for row in form.rows if row.get("field")}
    if space:
        spec["space"] = space
    try:
        rest = read_yaml(form.rest)
    except UnreadableSpec as error:
        raise UnreadableRest(str(error)) from error
    if rest is not None and not isinstance(rest, dict):
        raise UnreadableRest("the rest of the spec must be fields with values, like 'base:'")
    return _merged(spec, rest or {})


def sent_form(pairs: Mapping[str, str], known: Fields) -> FormValues:
    """Read what a browser sends: controls by path, rows as ``space.0.low``."""
    rows: dict[int, dict[str, str]] = {}
    for name, text in pairs.items():
        part, _, cell = name.removeprefix("space.").partition(".")
        if name.startswith("space.") and part.isdigit() and int(part) < MAX_ROWS:
            rows.setdefault(int(part), {})[cell] = text
    fields = {name: pairs[name] for name in known if pairs.get(name, "").strip()}
    return FormValues(fields, [rows[index] for index in sorted(rows)], pairs.get("rest", ""))


def small_spec(spec: Mapping[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """A stored spec without fields that have their default, for editing."""
    try:
        known = model.model_validate(dict(spec))
    except ValidationError:
        # A spec of another version is shown unchanged; the check refuses what is wrong.
        return _without_empty(deepcopy(dict(spec)))
    found = known.model_dump(mode="json", exclude_defaults=True)
    if found.get("objectives"):
        # It follows from them, and would contradict them once they are edited.
        found.pop("objective", None)
    return found


def yaml_text(values: Any) -> str:
    """Values as YAML, in their own order."""
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=90)
    return str(text)


def reason_place(path: str, form: FormValues, known: Fields, *, varies: bool = True) -> str:
    """The control that a refused path belongs to: its path, ``space.0.low``, ``rest``, or ""."""
    parts = path.split(".")
    if varies and parts[0] == "space":
        for index, row in enumerate(form.rows):
            if len(parts) > 1 and row.get("field") == parts[1]:
                cells = KIND_CELLS.get(row.get("kind", ""), ())
                cell = parts[2] if len(parts) > 2 and parts[2] in cells else "field"
                return f"space.{index}.{cell}"
        return "space"
    for length in range(len(parts), 0, -1):
        place = ".".join(parts[:length])
        if place in known:
            return place
    return "rest" if path else ""


def _text_of(control: FormField, value: Any) -> str | None:
    """The value as its control shows it; None if the control cannot."""
    if value is None:
        return "null" if control.can_be_null else None
    if control.kind in ("text", "long"):
        return value if isinstance(value, str) else None
    if control.kind == "words":
        is_words = isinstance(value, list) and all(
            isinstance(word, str) and "," not in word for word in value
        )
        return ", ".join(value) if is_words else None
    if control.kind == "choice":
        return value if value in control.choices else None
    if control.kind == "flow" and isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    return None if isinstance(value, dict | list) else shown_value(value)


def _value_of(control: FormField, text: str) -> Any:
    if control.kind in ("text", "long", "choice"):
        return text
    if control.kind == "words":
        return [word.strip() for word in text.split(",") if word.strip()]
    return _scalar(text)


def _row_of(name: Any, domain: Any) -> dict[str, str] | None:
    """The cells of a varied field; None if they cannot show it, so that it stays in the YAML."""
    kind = domain.get("kind") if isinstance(domain, dict) else None
    cells = KIND_CELLS.get(str(kind), ())
    if not cells or not domain.keys() <= {"kind", *cells}:
        return None
    row = {"field": str(name), "kind": str(kind)}
    for cell in cells:
        text = _cell_text(cell, domain.get(cell))
        if text is None:
            return None
        row[cell] = text
    return row


def _cell_text(cell: str, value: Any) -> str | None:
    if value is None:
        return ""
    if cell == "log":
        return ("on" if value else "") if isinstance(value, bool) else None
    if cell == "values":
        return _flow(value)[1:-1] if isinstance(value, list) else None
    if cell == "when":
        return _when_text(value)
    return None if isinstance(value, dict | list) else shown_value(value)


def _when_text(value: Any) -> str | None:
    # Text is a condition that is not valid YAML: kept as typed, so that the user can correct it.
    if isinstance(value, str):
        return value
    if not isinstance(value, dict) or any(isinstance(one, dict) for one in value.values()):
        return None
    return ", ".join(f"{key}: {_flow(values)}" for key, values in value.items())


def _domain_of(row: Mapping[str, str]) -> dict[str, Any]:
    kind = row.get("kind", "float")
    domain: dict[str, Any] = {"kind": kind}
    for cell in KIND_CELLS.get(kind, CELLS):
        text = row.get(cell, "").strip()
        if not text:
            continue
        if cell == "log":
            domain[cell] = True
        elif cell == "values":
            domain[cell] = _read(f"[{text}]", [text])
        elif cell == "when":
            domain[cell] = _read(f"{{{text}}}", text)
        else:
            domain[cell] = _scalar(text)
    return domain


def shown_value(value: Any) -> str:
    """A scalar as YAML would read it back."""
    is_plain = isinstance(value, str) and value != "" and not set(value) & set(",[]{}")
    if is_plain and _read(value, None) == value:
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def _flow(values: Any) -> str:
    items = values if isinstance(values, list) else [values]
    return f"[{', '.join(shown_value(item) for item in items)}]"


def _scalar(text: str) -> Any:
    return _read(text, text)


def _read(text: str, otherwise: Any) -> Any:
    try:
        return read_yaml(text)
    except UnreadableSpec:
        return otherwise


def _get(values: Mapping[str, Any], path: str) -> Any:
    found: Any = values
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _has(values: Mapping[str, Any], path: str) -> bool:
    parents, _, last = path.rpartition(".")
    owner = _get(values, parents) if parents else values
    return isinstance(owner, dict) and last in owner


def _set(values: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for part in parents:
        values = values.setdefault(part, {})
    values[last] = value


def _remove(values: dict[str, Any], path: str) -> None:
    *parents, last = path.split(".")
    for part in parents:
        values = values[part]
    del values[last]


def _without_empty(values: dict[str, Any]) -> dict[str, Any]:
    """Drop unset values and empty mappings; inside ``space`` null is a value."""
    kept = {}
    for key, value in values.items():
        part = _without_empty(value) if isinstance(value, dict) and key != "space" else value
        if part is not None and part not in ({}, []):
            kept[key] = part
    return kept


def _merged(first: dict[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """``second`` over ``first``, mapping by mapping."""
    merged = dict(first)
    for key, value in second.items():
        mine = merged.get(key)
        if isinstance(mine, dict) and isinstance(value, dict):
            merged[key] = _merged(mine, value)
        else:
            merged[key] = value
    return merged
