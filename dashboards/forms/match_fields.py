"""The fields of the form that makes a match: two optimizers, what both train, how it is judged."""

from typing import get_args

from dashboards.forms.fields import (
    DATASET_FIELD,
    NAME_GROUP,
    FieldGroup,
    config_field,
    spec_field,
)
from ndadam.theory.prediction import CRITERIA, Level
from worker.config.train_config import Optimizer, Recipe

#: Schedules that are words; points are typed as YAML. An epoch has no length in a match.
_SCHEDULES = ("constant", "cosine")

MATCH_GROUPS = (
    NAME_GROUP,
    FieldGroup(
        "Source: the optimizer that is tuned",
        (
            config_field("source", "optimizer", "", get_args(Optimizer)),
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
            config_field("target", "optimizer", "", get_args(Optimizer)),
            config_field("target", "alpha_s", "ND-Adam; published value if unset"),
            config_field("target", "momentum", "SGD; published value if unset"),
            config_field("target", "weight_decay", "published value if unset"),
        ),
    ),
    FieldGroup(
        "What both train",
        (
            DATASET_FIELD,
            config_field(
                "base", "recipe", "of the paper; where unset values come from", get_args(Recipe)
            ),
            config_field("base", "depth", "6n + 4"),
            config_field("base", "widen_factor"),
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
