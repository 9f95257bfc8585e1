"""Fields of the two forms, new sweep and new match: its place in a spec, and its label."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from markupsafe import Markup
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from dashboards.web.posted_form import control_id
from dashboards.wording.formatting import caption, config_value
from ndadam.theory.prediction import CRITERIA, Level
from sweeps.records import Direction
from sweeps.spec.sweep_spec import Sampler
from worker.config.registry import registered_names
from worker.config.train_config import Optimizer, Recipe, TrainConfig
from worker.config.training import FIXED_METRICS, Metric

FieldKind = Literal["text", "long", "words", "value", "flow", "choice"]


@dataclass(frozen=True)
class FormField:
    """One control of the form. An empty control leaves the field of the spec unset."""

    #: Dotted place in the spec, also the control's name.
    path: str
    label: Markup
    #: ``text`` and ``long`` are kept as typed, ``words`` are separated by commas, a ``value`` is
    #: read as YAML reads it, a ``flow`` is such a value or a list, a ``choice`` is one of
    #: ``choices``; values may have choices too.
    kind: FieldKind = "value"
    choices: tuple[str, ...] = ()
    hint: str = ""
    #: What an empty control stands for; None = the default of the spec or of the images' config.
    unset: str | None = None

    def default(self, spec: type[BaseModel]) -> str:
        """The default in this kind of spec; "" if it depends on other fields."""
        if self.unset is not None:
            return self.unset
        owner, _, name = self.path.rpartition(".")
        model = TrainConfig if owner == "base" else spec if not owner else None
        known = model.model_fields[name].default if model is not None else None
        return "" if known is None or known is PydanticUndefined else config_value(known)

    @property
    def can_be_null(self) -> bool:
        """Whether null is a value of its own: an empty control stands for another."""
        return self.kind in ("value", "flow") and self.unset not in (None, "", "none")

    @property
    def id(self) -> str:
        return control_id(self.path)


@dataclass(frozen=True)
class FieldGroup:
    """Fields under one heading."""

    title: str
    fields: tuple[FormField, ...]


def config_field(owner: str, name: str, hint: str = "", choices: tuple[str, ...] = ()) -> FormField:
    """A field of the training config: of ``base``, or of a match's ``source`` or ``target``."""
    kind: FieldKind = "choice" if choices else "value"
    return FormField(f"{owner}.{name}", caption(name), kind, choices, hint)


def spec_field(
    path: str, label: str, hint: str = "", kind: FieldKind = "value", choices: tuple[str, ...] = ()
) -> FormField:
    """Any other field of a spec."""
    return FormField(path, Markup(label), "choice" if choices else kind, choices, hint)


#: Only the service knows which data sets there are; see ``forms.pages``.
DATASET = "base.dataset"

# Both forms begin with these.
NAME_GROUP = FieldGroup(
    "Name",
    (
        spec_field("name", "Name", "a label; the address is the id", "text"),
        spec_field("tags", "Tags", "words, separated by commas", "words"),
        spec_field("notes", "Notes", "", "long"),
    ),
)

DATASET_FIELD = spec_field(DATASET, "Data set", "a prepared one", "text")
NETWORK_FIELD = config_field(
    "base", "network", "built in, or added by a package", tuple(registered_names("networks"))
)
_OPTIMIZERS = (*get_args(Optimizer), *registered_names("optimizers"))
#: What these mean depends on the network, so the hint names both.
SIZE_FIELDS = (
    config_field("base", "depth", "wrn: 6n + 4 layers; mlp: hidden layers"),
    config_field("base", "widen_factor", "wrn: groups of 16k, 32k, 64k channels; mlp: 64k units"),
)


SEVERAL_OBJECTIVES = spec_field(
    "objectives", "Several objectives", "in place of one: [{metric: a}, {metric: b}]", "flow"
)


def search_group(metrics: Mapping[str, Metric]) -> FieldGroup:
    """How points are chosen and judged, by one of the training's metrics; {} = by any name."""
    ends = {name: one.direction for name, one in metrics.items()}
    images = metrics == FIXED_METRICS
    hint = "; ".join(f"{name}: {end or 'no direction declared'}" for name, end in ends.items())
    direction = spec_field(
        "objective.direction",
        "Which end is better",
        "as declared if unset" if metrics else "minimize if unset",
        choices=get_args(Direction),
    )
    return FieldGroup(
        "Search",
        (
            spec_field("sampler", "Sampler", "", choices=get_args(Sampler)),
            spec_field("num_points", "Points", "unset: the whole grid"),
            spec_field("replicates", "Seeds per point", "3 or more give useful intervals"),
            spec_field(
                "scheduler.kind",
                "Pruning",
                f"none if unset; whole points{', per optimizer' if images else ''}",
                choices=("asha", "median"),
            ),
            spec_field("scheduler.min_steps", "Steps before pruning"),
            spec_field(
                "objective.metric",
                "Objective",
                "validation_error if unset" if images else hint,
                "value" if metrics else "text",
                choices=tuple(metrics),
            ),
            *(() if images else (direction,)),
            SEVERAL_OBJECTIVES,
        ),
    )


_OF_CARDS = spec_field(
    "resources.trials_per_gpu", "Trials per GPU", "up to 8 side by side, 1 if unset"
)


def resources_group(*of_images: FormField) -> FieldGroup:
    """What a trial occupies and where the sweep ends."""
    return FieldGroup(
        "Resources and limits",
        (
            spec_field("resources.cpus", "CPU cores per trial", "1 if unset"),
            spec_field("resources.gpus", "GPUs per trial", "1, or a share of one"),
            *of_images,
            spec_field("concurrency", "Trials at once", "unset: as many as fit"),
            spec_field("budget.trials", "At most trials"),
            spec_field("budget.gpu_hours", "At most GPU time (h)"),
            spec_field("budget.wall_seconds", "At most time (s)"),
        ),
    )


GROUPS = (
    NAME_GROUP,
    FieldGroup(
        "What is trained",
        (
            DATASET_FIELD,
            NETWORK_FIELD,
            config_field(
                "base", "recipe", "of the paper; where unset values come from", get_args(Recipe)
            ),
            config_field(
                "base",
                "optimizer",
                "leave it where the sweep varies it",
                _OPTIMIZERS,
            ),
            *SIZE_FIELDS,
            config_field("base", "batch_size"),
            spec_field("base.steps", "Length (steps)", "steps or epochs"),
            spec_field("base.epochs", "Length (epochs)", "passes over the data"),
            config_field("base", "validation_fraction", "held out; what a search chooses by"),
        ),
    ),
    FieldGroup(
        "Fixed settings",
        (
            config_field("base", "alpha_v", "ND-Adam; published value if unset"),
            config_field("base", "alpha_s", "ND-Adam; published value if unset"),
            config_field("base", "lr", "SGD, Adam, AdamW"),
            config_field("base", "gamma_c", "off if unset"),
            config_field("base", "lambda_c", "off if unset"),
            config_field("base", "weight_decay", "published value if unset"),
        ),
    ),
    search_group(FIXED_METRICS),
    resources_group(_OF_CARDS),
)

#: Groups above the varied fields, and of these in the form of a training of one's own.
ABOVE, OWN_ABOVE = 3, 2

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

#: Schedules that are words; points are typed as YAML. An epoch has no length in a match.
_SCHEDULES = ("constant", "cosine")

MATCH_GROUPS = (
    NAME_GROUP,
    FieldGroup(
        "Source: the optimizer that is tuned",
        (
            config_field("source", "optimizer", "", _OPTIMIZERS),
            config_field("source", "lr", "SGD, Adam, AdamW"),
            config_field("source", "momentum", "SGD; published value if unset"),
            config_field("source", "weight_decay", "published value if unset"),
            config_field("source", "alpha_v", "ND-Adam"),
            config_field("source", "alpha_s", "ND-Adam"),
        ),
    ),
    FieldGroup(
        "Target: its rate is what the match finds",
        (
            config_field("target", "optimizer", "", _OPTIMIZERS),
            config_field("target", "alpha_s", "ND-Adam; published value if unset"),
            config_field("target", "momentum", "SGD; published value if unset"),
            config_field("target", "weight_decay", "published value if unset"),
        ),
    ),
    FieldGroup(
        "What both train",
        (
            DATASET_FIELD,
            NETWORK_FIELD,
            config_field(
                "base", "recipe", "of the paper; where unset values come from", get_args(Recipe)
            ),
            *SIZE_FIELDS,
            config_field("base", "batch_size"),
            spec_field("base.steps", "Length (steps)", "of every run but short calibrations"),
            config_field("base", "lr_schedule", "shared; points as YAML", _SCHEDULES),
            config_field("base", "gamma_c", "off if unset"),
            config_field("base", "lambda_c", "off if unset"),
        ),
    ),
    FieldGroup(
        "How it is judged",
        (
            spec_field("criterion", "Criterion", "what is made equal", choices=tuple(CRITERIA)),
            spec_field(
                "level", "Level", "to choose where momentum and β₁ differ", choices=get_args(Level)
            ),
            spec_field("tolerance", "Tolerance", "largest ratio, minus 1"),
            spec_field("replicates", "Seeds", "of source and verdict runs"),
            spec_field("max_corrections", "Corrections at most", "0: the prediction is judged"),
            spec_field("calibration_replicates", "Seeds per correction"),
        ),
    ),
    FieldGroup(
        "Resources and limits",
        (
            spec_field("resources.cpus", "CPU cores per trial", "1 if unset"),
            spec_field("resources.gpus", "GPUs per trial", "1, or a share of one"),
            spec_field("concurrency", "Trials at once", "unset: as many as fit"),
            spec_field("budget.gpu_hours", "At most GPU time (h)"),
            spec_field("budget.wall_seconds", "At most time (s)"),
        ),
    ),
)
