"""The fields of the form that makes a match: two optimizers, what both train, how it is judged."""

from typing import get_args

from markupsafe import Markup

from dashboards.formatting import caption
from dashboards.spec_fields import DATASET, FieldGroup, FieldKind, FormField
from ndadam.theory import CRITERIA, Level
from sweeps.match_spec import MatchSpec
from worker.config import Optimizer, Recipe


def _match(
    path: str, label: str, hint: str = "", kind: FieldKind = "value", choices: tuple[str, ...] = ()
) -> FormField:
    kind = "choice" if choices else kind
    return FormField(path, Markup(label), kind, choices, hint, MatchSpec)


def _of(owner: str, name: str, hint: str = "", choices: tuple[str, ...] = ()) -> FormField:
    """A field of the training config, of ``base``, ``source`` or ``target``."""
    kind: FieldKind = "choice" if choices else "value"
    return FormField(f"{owner}.{name}", caption(name), kind, choices, hint, MatchSpec)


#: Schedules that are words; points are typed as YAML. An epoch has no length in a match.
_SCHEDULES = ("constant", "cosine")

MATCH_GROUPS = (
    FieldGroup(
        "Name",
        (
            _match("name", "Name", "a label; the address is the id", "text"),
            _match("tags", "Tags", "words, separated by commas", "words"),
            _match("notes", "Notes", "", "long"),
        ),
    ),
    FieldGroup(
        "Source: the optimizer that is tuned",
        (
            _of("source", "optimizer", "", get_args(Optimizer)),
            _of("source", "lr", "SGD, Adam, AdamW"),
            _of("source", "momentum", "SGD; published value if unset"),
            _of("source", "weight_decay", "published value if unset"),
            _of("source", "alpha_v", "ND-Adam"),
            _of("source", "alpha_s", "ND-Adam"),
        ),
    ),
    FieldGroup(
        "Target: its rate is what the match finds",
        (
            _of("target", "optimizer", "", get_args(Optimizer)),
            _of("target", "alpha_s", "ND-Adam; published value if unset"),
            _of("target", "momentum", "SGD; published value if unset"),
            _of("target", "weight_decay", "published value if unset"),
        ),
    ),
    FieldGroup(
        "What both train",
        (
            FormField(DATASET, Markup("Data set"), "text", (), "a prepared one", MatchSpec),
            _of("base", "recipe", "of the paper; where unset values come from", get_args(Recipe)),
            _of("base", "depth", "6n + 4"),
            _of("base", "widen_factor"),
            _of("base", "batch_size"),
            _match("base.steps", "Length (steps)", "of every run but short calibrations"),
            _of("base", "lr_schedule", "shared; points as YAML", _SCHEDULES),
            _of("base", "gamma_c", "off if unset"),
            _of("base", "lambda_c", "off if unset"),
        ),
    ),
    FieldGroup(
        "How it is judged",
        (
            _match("criterion", "Criterion", "what is made equal", choices=tuple(CRITERIA)),
            _match(
                "level", "Level", "to choose where momentum and β₁ differ", choices=get_args(Level)
            ),
            _match("tolerance", "Tolerance", "largest ratio, minus 1"),
            _match("replicates", "Seeds", "of source and verdict runs"),
            _match("max_corrections", "Corrections at most", "0: the prediction is judged"),
            _match("calibration_replicates", "Seeds per correction"),
        ),
    ),
    FieldGroup(
        "Resources and limits",
        (
            _match("resources.cpus", "CPU cores per trial", "1 if unset"),
            _match("resources.gpus", "GPUs per trial", "1, or a share of one"),
            _match("concurrency", "Trials at once", "unset: as many as fit"),
            _match("budget.gpu_hours", "At most GPU time (h)"),
            _match("budget.wall_seconds", "At most time (s)"),
        ),
    ),
)
