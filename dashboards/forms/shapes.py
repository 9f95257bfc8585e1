"""The two forms that hand in a spec: of a sweep, and of a match. They differ in their fields."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import BaseModel

from dashboards.forms.fields import ABOVE, GROUPS, FieldGroup, FormField
from dashboards.forms.match_fields import MATCH_GROUPS
from dashboards.forms.match_sweep import sweep_from_match
from dashboards.forms.spec_form import small_spec
from sweeps.match.match_spec import MatchSpec
from sweeps.records import Kind, Sweep
from sweeps.spec.sweep_spec import SweepSpec


@dataclass(frozen=True)
class FormShape:
    """What one of the forms has, and where it lives."""

    kind: Kind
    model: type[BaseModel]
    groups: tuple[FieldGroup, ...]
    #: Groups before the part on what varies, or before all where nothing does.
    above: int
    #: What an empty form begins with.
    starter: dict[str, Any]

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
        return {field.path: field for group in self.groups for field in group.fields}

    def filled_from(self, source: Sweep) -> dict[str, Any] | None:
        """The spec to begin with when something recorded is edited; None where it cannot be."""
        if source.kind == self.kind:
            # Tags and notes as they are now: they can be edited after the spec was handed in.
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
)
MATCH = FormShape(
    "match",
    MatchSpec,
    MATCH_GROUPS,
    len(MATCH_GROUPS),
    # A tuned SGD of the paper's second recipe.
    {
        "base": {"recipe": "paper-wrn", "gamma_c": 2.5, "steps": 2400, "lr_schedule": "constant"},
        "source": {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4},
        "target": {"optimizer": "ndadam"},
        "replicates": 3,
    },
)
