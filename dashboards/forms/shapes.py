"""The forms that submit a spec, of a sweep by its training and of a match; their fields differ.

Also builds the form of a sweep around a match's result: the target at the matched rate, and the
rate varied.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from markupsafe import Markup
from pydantic import BaseModel

from dashboards.forms.fields import (
    ABOVE,
    GROUPS,
    MATCH_GROUPS,
    OWN_ABOVE,
    VARIED,
    FieldGroup,
    FormField,
)
from dashboards.forms.own_fields import OwnField, own_fields, own_groups
from dashboards.forms.spec_form import shown_value, small_spec
from dashboards.match.view import rate_name_of
from sweeps.match.match_spec import MatchSpec
from sweeps.match.result import matched_rate
from sweeps.records import Kind, Sweep
from sweeps.spec.sweep_spec import SweepSpec
from worker.config.training import EXTERNAL, IMAGES, training_names

#: Half and double the matched rate: wide enough to see the optimum, narrow enough to resolve it.
SPREAD = 2.0


def sweep_from_match(match: Sweep) -> dict[str, Any]:
    """Values of a SweepSpec: the target's settings, its rate in a log range around the match.

    Without a rate yet, the rate is left to be typed in.
    """
    spec, name = match.spec, rate_name_of(match)
    rate = matched_rate(match)
    base = {
        field: value
        for field, value in {**(spec.get("base") or {}), **(spec.get("target") or {})}.items()
        if value is not None and field != name
    }
    notes = f"Around the rate of the match {match.name} ({match.id})."
    if base.get("validation_fraction") == 0:
        # A match measures no error and may train on every image; a sweep chooses by held-out ones.
        del base["validation_fraction"]
        notes += " Some of the images that the match trained on are held out here."
    schedule = ((match.result or {}).get("verdict") or {}).get("schedule")
    if schedule:
        base |= {"lr_schedule": schedule}
        base.setdefault("alpha_s_schedule", (spec.get("base") or {}).get("lr_schedule", "cosine"))
    domain: dict[str, Any] = {"kind": "float", "log": True}
    if rate is not None:
        domain |= {"low": _digits(rate / SPREAD), "high": _digits(rate * SPREAD)}
    sweep: dict[str, Any] = {
        "name": f"{match.name}-around-the-match"[:100],
        "base": base,
        "space": {name: domain},
        "sampler": "random",
        "num_points": 8,
        "replicates": 3,
        "tags": list(match.tags),
        "notes": notes,
    }
    if rate is not None:
        sweep["initial_points"] = [{name: _digits(rate)}]
    if spec.get("resources"):
        sweep["resources"] = spec["resources"]
    return sweep


def _digits(value: float) -> float:
    """Four significant digits: more would claim what no interval supports."""
    return float(f"{value:.4g}")


@dataclass(frozen=True)
class FormShape:
    """The fields of one form, and its address."""

    kind: Kind
    model: type[BaseModel]
    groups: tuple[FieldGroup, ...]
    #: Groups before the varied fields; 0 if nothing varies.
    above: int
    #: What an empty form begins with.
    starter: dict[str, Any]
    #: What a sweep's trials run; "" in a match, whose form is the same for all.
    training: str = ""
    #: Fields that can vary, those of the paper first; () = any.
    varied: tuple[str, ...] = ()
    #: What is known of the fields of a training of one's own.
    own: Mapping[str, OwnField] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Address of all sweeps of this kind, and what the form's own begins with."""
        return "/matches" if self.kind == "match" else "/sweeps"

    @property
    def varies(self) -> bool:
        """Whether the spec has a space."""
        return self.kind == "sweep"

    @cached_property
    def fields(self) -> dict[str, FormField]:
        """Path -> control."""
        found = {one.path: one for group in self.groups for one in group.fields}
        if self.training not in ("", IMAGES):
            found["training"] = FormField("training", Markup("Training"), "text")
        return found

    @property
    def condition_example(self) -> str:
        """A condition under which a field varies; "" where no field has choices."""
        if self.training in ("", IMAGES):
            return "optimizer: [ndadam]"
        chosen = (one for one in self.own.values() if one.choices)
        return next((f"{one.name}: [{shown_value(one.choices[0])}]" for one in chosen), "")

    def new_row(self, taken: Collection[str]) -> dict[str, str]:
        """Cells of one more varied field: the first that does not vary yet."""
        name = next((name for name in self.varied if name not in taken), "")
        if name in self.own:
            return self.own[name].row()
        kind = "choice" if name == "optimizer" and not self.own else "float"
        return {"field": name, "kind": kind, "log": "on" if kind == "float" else ""}

    def fitted(self, row: dict[str, str]) -> dict[str, str]:
        """A row of a varied field as it was sent; see ``OwnField.fitted``."""
        own = self.own.get(row.get("field", ""))
        return row if own is None else own.fitted(row)

    def filled_from(self, source: Sweep) -> dict[str, Any] | None:
        """The spec that a form begins with when a record is edited; None if it cannot be edited."""
        if source.kind == self.kind:
            # Current tags and notes: they can be edited after the spec was submitted.
            labels = {"tags": list(source.tags), "notes": source.notes}
            return small_spec({**source.spec, **labels}, self.model)
        return sweep_from_match(source) if self.kind == "sweep" else None


SWEEP = FormShape(
    "sweep",
    SweepSpec,
    GROUPS,
    ABOVE,
    # The question that this product is about.
    {
        "space": {"alpha_v": {"kind": "float", "low": 0.005, "high": 0.5, "log": True}},
        "sampler": "random",
        "num_points": 12,
        "replicates": 3,
    },
    training=IMAGES,
    varied=VARIED,
)


def shape_of(training: str) -> FormShape:
    """The form of a sweep of a training; "" means images.

    Raises FieldError for a training that is not known or cannot be imported.
    """
    if training in ("", IMAGES):
        return SWEEP
    own = own_fields(training)
    starter: dict[str, Any] = {"training": training, "sampler": "random"}
    return FormShape(
        "sweep",
        SweepSpec,
        own_groups(training, own),
        OWN_ABOVE,
        starter | {"num_points": 12, "replicates": 3},
        training,
        tuple(own),
        own,
    )


def offered_trainings(chosen: str) -> list[str]:
    """Trainings that the form of a new sweep lets choose; [] where there is only one."""
    names = [IMAGES, *(name for name in training_names() if name not in (IMAGES, EXTERNAL))]
    if chosen not in names:
        names.append(chosen)
    return names if len(names) > 1 else []


MATCH = FormShape(
    "match",
    MatchSpec,
    MATCH_GROUPS,
    len(MATCH_GROUPS),
    # A tuned SGD of the paper's second recipe.
    {
        "base": {"recipe": "paper-wrn", "gamma_c": 2.5, "steps": 4000, "lr_schedule": "constant"},
        "source": {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4},
        "target": {"optimizer": "ndadam"},
        "replicates": 3,
    },
)
