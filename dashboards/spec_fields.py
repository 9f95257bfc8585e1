"""The fields of the form that makes a sweep: where each stands in a spec, and what it says."""

from dataclasses import dataclass
from typing import Literal, get_args

from markupsafe import Markup
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from dashboards.formatting import caption, config_value
from sweeps.spec import Objective, Sampler, SweepSpec
from worker.config import Optimizer, Recipe, TrainConfig

FieldKind = Literal["text", "long", "words", "value", "choice"]


@dataclass(frozen=True)
class FormField:
    """One control of the form. "" in it leaves the field of the spec unset."""

    #: Dotted place in the spec, also the control's name.
    path: str
    label: Markup
    #: ``text`` and ``long`` are kept as typed, ``words`` are separated by commas, a ``value`` is
    #: read as YAML reads it, a ``choice`` is one of ``choices``.
    kind: FieldKind = "value"
    choices: tuple[str, ...] = ()
    hint: str = ""
    #: The spec that the path is a place in.
    of: type[BaseModel] = SweepSpec

    @property
    def default(self) -> str:
        """What an unset field means, "" where that depends on other fields."""
        owner, _, name = self.path.rpartition(".")
        model = TrainConfig if owner == "base" else self.of if not owner else None
        known = model.model_fields[name].default if model is not None else None
        return "" if known is None or known is PydanticUndefined else config_value(known)

    @property
    def id(self) -> str:
        return control_id(self.path)


@dataclass(frozen=True)
class FieldGroup:
    """Fields under one heading."""

    title: str
    fields: tuple[FormField, ...]


def control_id(path: str) -> str:
    """Id of the control of a path, for labels and for links to it."""
    return "field-" + path.replace(".", "-").replace("_", "-")


def _base(name: str, hint: str = "", choices: tuple[str, ...] = ()) -> FormField:
    kind: FieldKind = "choice" if choices else "value"
    return FormField(f"base.{name}", caption(name), kind, choices, hint)


def _field(
    path: str, label: str, hint: str = "", kind: FieldKind = "value", choices: tuple[str, ...] = ()
) -> FormField:
    return FormField(path, Markup(label), "choice" if choices else kind, choices, hint)


#: What a data set can be chosen from is known only to the service; see ``form_values``.
DATASET = "base.dataset"

GROUPS = (
    FieldGroup(
        "Name",
        (
            _field("name", "Name", "a label; the address is the id", "text"),
            _field("tags", "Tags", "words, separated by commas", "words"),
            _field("notes", "Notes", "", "long"),
        ),
    ),
    FieldGroup(
        "What is trained",
        (
            FormField(DATASET, Markup("Data set"), "text", (), "a prepared one"),
            _base("recipe", "of the paper; where unset values come from", get_args(Recipe)),
            _base("optimizer", "leave it where the sweep varies it", get_args(Optimizer)),
            _base("depth", "6n + 4"),
            _base("widen_factor"),
            _base("batch_size"),
            _field("base.steps", "Length (steps)", "steps or epochs"),
            _field("base.epochs", "Length (epochs)", "passes over the data"),
            _base("validation_fraction", "held out; what a search chooses by"),
        ),
    ),
    FieldGroup(
        "Fixed settings",
        (
            _base("alpha_v", "ND-Adam; published value if unset"),
            _base("alpha_s", "ND-Adam; published value if unset"),
            _base("lr", "SGD, Adam, AdamW"),
            _base("gamma_c", "off if unset"),
            _base("lambda_c", "off if unset"),
            _base("weight_decay", "published value if unset"),
        ),
    ),
    FieldGroup(
        "Search",
        (
            _field("sampler", "Sampler", "", choices=get_args(Sampler)),
            _field("num_points", "Points", "unset: the whole grid"),
            _field("replicates", "Seeds per point", "3 or more give useful intervals"),
            _field(
                "scheduler.kind",
                "Pruning",
                "none if unset; whole points, per optimizer",
                choices=("asha", "median"),
            ),
            _field("scheduler.min_steps", "Steps before pruning"),
            _field(
                "objective.metric",
                "Objective",
                "validation_error if unset",
                choices=get_args(Objective.model_fields["metric"].annotation),
            ),
        ),
    ),
    FieldGroup(
        "Resources and limits",
        (
            _field("resources.cpus", "CPU cores per trial", "1 if unset"),
            _field("resources.gpus", "GPUs per trial", "1, or a share of one"),
            _field(
                "resources.trials_per_gpu", "Trials per GPU", "up to 8 side by side, 1 if unset"
            ),
            _field("concurrency", "Trials at once", "unset: as many as fit"),
            _field("budget.trials", "At most trials"),
            _field("budget.gpu_hours", "At most GPU time (h)"),
            _field("budget.wall_seconds", "At most time (s)"),
        ),
    ),
)
#: Groups that stand above what varies.
ABOVE = 3

#: Fields that a sweep can vary, those of the paper first.
VARIED = tuple(
    dict.fromkeys(
        (
            *("alpha_v", "alpha_s", "gamma_c", "lambda_c", "lr", "optimizer", "weight_decay"),
            *sorted(TrainConfig.model_fields.keys() - {"seed", "split_seed", "device"}),
        )
    )
)
#: Cells of one varied field, and which of them its kind uses.
CELLS = ("low", "high", "step", "log", "values", "when")
KIND_CELLS = {
    "float": ("low", "high", "step", "log", "when"),
    "int": ("low", "high", "step", "log", "when"),
    "choice": ("values", "when"),
}
