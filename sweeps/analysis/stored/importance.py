"""How much each field explains of the spread among the good points: PED-ANOVA, by Optuna.

Watanabe, Bansal and Hutter, "PED-ANOVA", IJCAI 2023. Computed by the driver and stored: nobody who
reads it needs Optuna.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.trial import create_trial

from sweeps.records import Point
from sweeps.search.optuna_samplers import distributions, encoded
from sweeps.spec.branches import Branch
from sweeps.spec.sweep_spec import SweepSpec

#: Fewer points say nothing about their spread.
FEWEST_POINTS = 10
#: The good ones: the best tenth, as the paper has it.
QUANTILE = 0.1


def ped_anova(values: Mapping[str, Any], points: Sequence[Point]) -> list[dict[str, Any]]:
    """A row for each branch of a spec's space with enough points.

    ``fields``: field -> its share, 0..1; a branch with fewer than two free fields has none.
    """
    spec = SweepSpec.model_validate(dict(values))
    rows = []
    for branch in spec.branches():
        mine = [p for p in points if p.mean is not None and branch.holds(p.params)]
        if len(mine) >= FEWEST_POINTS and len(branch.free) >= 2:
            rows.append(
                {
                    "branch": branch.fixed,
                    "points": len(mine),
                    "method": "ped-anova",
                    "quantile": QUANTILE,
                    "fields": _shares(spec, branch, mine),
                }
            )
    return rows


def _shares(spec: SweepSpec, branch: Branch, points: Sequence[Point]) -> dict[str, float]:
    study = optuna.create_study(direction=spec.objective.direction)
    study.add_trials(
        [
            create_trial(
                value=point.mean,
                params=encoded(branch, point.params),
                distributions=distributions(branch),
            )
            for point in points
        ]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evaluator = PedAnovaImportanceEvaluator(target_quantile=QUANTILE)
        found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {name: float(found[name]) for name in branch.free if name in found}
